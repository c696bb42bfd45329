//! Texts that nobody would write: the layers that come with the compiler, cut, shuffled and mixed. Each is read or
//! refused, and nothing else happens.

use proptest::prelude::*;

use super::arguments;
use crate::front::{BUILTIN, read, signature};
use crate::inter::verify;

/// What texts are made of, and what they are not.
const FOREIGN: [&str; 24] = [
    "(",
    ")",
    "[",
    "]",
    ":",
    "=",
    "+=",
    "@",
    "\n",
    "\n    ",
    "\n        ",
    "\"",
    "'''",
    "\\",
    "é",
    "\u{0}",
    "-1",
    "1e400",
    "lambda",
    "yield",
    "n",
    "e.src",
    "when(",
    " if heads else ",
];

/// A text as words and what stands between them.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    for (at, character) in text.char_indices() {
        if !character.is_alphanumeric() && character != '_' {
            words.extend([&text[start..at], &text[at..at + character.len_utf8()]]);
            start = at + character.len_utf8();
        }
    }
    words.push(&text[start..]);
    words.retain(|word| !word.is_empty());
    words
}

#[derive(Debug, Clone)]
enum Change {
    Cut(usize, usize),
    Swap(usize, usize),
    Copy(usize, usize),
    Insert(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<usize>(), 1..8_usize).prop_map(|(at, count)| Change::Cut(at, count)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Change::Swap(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Change::Copy(a, b)),
        (any::<usize>(), 0..FOREIGN.len()).prop_map(|(at, word)| Change::Insert(at, word)),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    // What comes before `def` is a comment, which says nothing.
    let code = text.find("def ").map_or(text, |at| &text[at..]);
    let mut words = words(code);
    for change in changes {
        let length = words.len().max(1);
        match *change {
            Change::Cut(at, count) => drop(words.drain(at % length..(at % length + count).min(words.len()))),
            Change::Swap(a, b) if !words.is_empty() => words.swap(a % length, b % length),
            Change::Copy(a, b) if !words.is_empty() => words[a % length] = words[b % length],
            Change::Insert(at, word) => words.insert((at % length).min(words.len()), FOREIGN[word]),
            Change::Swap(..) | Change::Copy(..) => {}
        }
    }
    words.concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(which in 0..BUILTIN.len(), changes in prop::collection::vec(change(), 1..5)) {
        let text = changed(BUILTIN[which].1, &changes);
        let _ = signature("f", &text);
        if let Ok(layer) = read("f", &text, &arguments(&[])) {
            prop_assert!(verify(&layer.program).is_ok());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read("f", &String::from_utf8_lossy(&bytes), &arguments(&[]));
    }
}
