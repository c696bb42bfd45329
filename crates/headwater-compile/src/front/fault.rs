//! Where something stands in a layer text, and how a fault there is shown: the line, and carets below what is meant.

use crate::error::Error;

/// Columns of a line that are shown at most. A longer line is cut around the fault.
const MOST_COLUMNS: usize = 100;

/// A part of a text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last one.
    pub end: usize,
}

/// Something wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The place.
    pub at: Span,
    /// What is wrong, and what was expected.
    pub why: String,
}

/// What reading a part of a text gives.
pub type Outcome<T> = Result<T, Fault>;

impl Span {
    /// A fault here.
    pub fn fault(self, why: impl Into<String>) -> Fault {
        Fault { at: self, why: why.into() }
    }
}

/// A text and its name.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What the caller calls it.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// What stands at a place, shortened where it is long or has several lines.
    pub fn quote(&self, at: Span) -> String {
        let all = self.text.get(at.start..at.end).unwrap_or_default();
        let first = all.lines().next().unwrap_or_default();
        let short: String = first.chars().take(40).map(printable).collect();
        if short.len() < all.len() { format!("`{short}...`") } else { format!("`{short}`") }
    }

    /// The line of a place, counted from 1.
    pub fn line(&self, at: Span) -> usize {
        self.before(at.start).matches('\n').count() + 1
    }

    /// The error that a fault is for the caller.
    pub fn error(&self, fault: Fault) -> Error {
        let before = self.before(fault.at.start);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[line_start..].chars().count();
        let line = self.text[line_start..].split('\n').next().unwrap_or_default().trim_end();
        let length = self.text.get(fault.at.start..fault.at.end).unwrap_or_default();
        let length = length.split('\n').next().unwrap_or_default().trim_end().chars().count();
        Error::Text {
            name: self.name.to_owned(),
            line: self.line(fault.at),
            column: column + 1,
            why: fault.why,
            excerpt: excerpt(line, column, length.max(1)),
        }
    }

    /// The text up to a byte, or up to the character that it lies in.
    fn before(&self, byte: usize) -> &'a str {
        let inside = (0..=byte.min(self.text.len())).rev().find(|&at| self.text.is_char_boundary(at));
        &self.text[..inside.unwrap_or(0)]
    }
}

/// A line and carets below a part of it, both indented and cut to what a screen shows.
fn excerpt(line: &str, column: usize, length: usize) -> String {
    let characters: Vec<char> = line.chars().map(printable).collect();
    let indent = characters.iter().take_while(|c| **c == ' ').count().min(column);
    let first = indent.max(column.saturating_sub(MOST_COLUMNS / 2));
    let shown: String = characters.iter().skip(first).take(MOST_COLUMNS).collect();
    let carets = "^".repeat(length.min(MOST_COLUMNS.saturating_sub(column - first)).max(1));
    format!("    {}\n    {}{carets}", shown.trim_end(), " ".repeat(column - first))
}

/// Text of others goes to terminals, which obey control characters.
fn printable(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_shows_its_line_wherever_it_is() {
        let long = format!("{} wrong {}\n", "a".repeat(300), "b".repeat(300));
        let cases = [
            ("x = 1\n  y = wrong\n", "t:2:7: no\n    y = wrong\n        ^^^^^"),
            ("é = wrong", "t:1:5: no\n    é = wrong\n        ^^^^^"),
            ("\tx = wrong\r\n", "t:1:6: no\n    x = wrong\n        ^^^^^"),
            ("\u{1b}[2J wrong", "t:1:6: no\n    [2J wrong\n        ^^^^^"),
        ];
        for (text, shown) in cases {
            let source = Source { name: "t", text };
            let start = text.find("wrong").unwrap();
            let error = source.error(Span { start, end: start + 5 }.fault("no")).to_string();
            assert_eq!(error, shown, "{text:?}");
        }
        let start = long.find("wrong").unwrap();
        let error = Source { name: "t", text: &long }.error(Span { start, end: start + 5 }.fault("no")).to_string();
        assert!(error.lines().all(|line| line.len() < 110), "{error}");
        assert!(error.contains("wrong"), "{error}");
    }

    #[test]
    fn a_place_outside_the_text_is_its_end() {
        let source = Source { name: "t", text: "é" };
        for span in [Span { start: 1, end: 1 }, Span { start: 2, end: 9 }, Span { start: 50, end: 60 }] {
            assert!(source.error(span.fault("no")).to_string().starts_with("t:1:"));
        }
    }
}
