//! Other values for an option, from what it is and from what it is now.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Arg, ArgAction};
use headwater::graph::ingest::text::ColumnName;
use headwater::graph::ingest::{NodeCount, TypedFile};

/// Files and folders that are there, of every kind that a path may name, and some that are not there.
const PATHS: [&str; 11] = [
    "other",
    "run",
    "ids.txt",
    "order.npy",
    "rows.jsonl",
    "layer.py",
    "run.toml",
    "graph.csv",
    "picture.svg",
    "new.npy",
    "elsewhere",
];
const COLUMNS: [&str; 4] = ["0", "1", "2", "3"];
const COUNTS: [&str; 2] = ["40", "node=40"];
const EDGES: [&str; 1] = ["this:likes:that=graph.csv"];
const FRACTIONS: [&str; 4] = ["0.25", "0.5", "1.5", "0"];
const NUMBERS: [&str; 6] = ["1", "2", "3", "7", "0", "4096"];

/// What a piece of text may be, by the name that its help gives it.
const TEXTS: [(&str, &[&str]); 5] = [
    ("NAME=NUMBER", &["d_in=8", "heads=2"]),
    ("NAME=VALUE", &["variant=hector", "aggregate=mean", "normalise=False"]),
    ("CHARACTER", &["tab", ";", "comma"]),
    ("COLUMN", &COLUMNS),
    ("COUNT", &COUNTS),
];

/// Whether an option is there or not, and nothing else.
pub fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count)
}

/// Values to try, the likeliest to matter first.
pub fn others(arg: &Arg, now: Option<&str>) -> Vec<String> {
    let named: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let mut others = if named.is_empty() { by_type(arg, now) } else { named };
    others.retain(|value| Some(value.as_str()) != now);
    others
}

fn by_type(arg: &Arg, now: Option<&str>) -> Vec<String> {
    let parser = arg.get_value_parser();
    let is = |kinds: &[TypeId]| kinds.iter().any(|kind| parser.type_id() == *kind);
    let owned = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    if is(&[TypeId::of::<bool>()]) {
        owned(&["true", "false"])
    } else if is(&[TypeId::of::<f64>(), TypeId::of::<f32>()]) {
        now.map_or_else(Vec::new, fractions).into_iter().chain(owned_all(&FRACTIONS)).collect()
    } else if is(&[TypeId::of::<u64>(), TypeId::of::<usize>(), TypeId::of::<u32>(), TypeId::of::<i64>()]) {
        now.map_or_else(Vec::new, numbers).into_iter().chain(owned_all(&NUMBERS)).collect()
    } else if is(&[TypeId::of::<PathBuf>()]) {
        owned(&PATHS)
    } else if is(&[TypeId::of::<ColumnName>()]) {
        owned(&COLUMNS)
    } else if is(&[TypeId::of::<NodeCount>()]) {
        owned(&COUNTS)
    } else if is(&[TypeId::of::<TypedFile>()]) {
        owned(&EDGES)
    } else {
        let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        TEXTS.iter().find(|(kind, _)| *kind == name).map_or_else(Vec::new, |(_, values)| owned_all(values))
    }
}

fn owned_all(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

/// Every item of a list changed in the same way.
fn each<T: std::str::FromStr>(now: &str, change: impl Fn(T) -> Option<String>) -> Option<String> {
    let items: Option<Vec<String>> = now.split(',').map(|item| change(item.parse().ok()?)).collect();
    Some(items?.join(","))
}

fn numbers(now: &str) -> Vec<String> {
    let changes: [fn(i64) -> Option<i64>; 5] = [
        |now| now.checked_add(1),
        |now| now.checked_mul(2),
        |now| Some(now / 2),
        |now| now.checked_mul(50),
        |_| Some(1),
    ];
    changes.iter().filter_map(|change| each::<i64>(now, |item| Some(change(item)?.to_string()))).collect()
}

fn fractions(now: &str) -> Vec<String> {
    let changes: [fn(f64) -> f64; 3] = [|now| now / 2.0, |now| now * 2.0, |now| now + 0.25];
    changes.iter().filter_map(|change| each::<f64>(now, |item| Some(change(item).to_string()))).collect()
}

/// All words of a refusal.
pub fn words_of(refusal: &str) -> Vec<String> {
    let said = refusal.lines().next().unwrap_or_default();
    let words = said.split(|letter: char| !(letter.is_alphanumeric() || "_-:".contains(letter)));
    let mut words: Vec<String> =
        words.filter(|word| word.len() > 1 && !word.starts_with('-')).map(str::to_owned).collect();
    words.sort();
    words.dedup();
    words
}

/// Whether an option is one of some words.
pub fn is_word(arg: &Arg) -> bool {
    let parser = arg.get_value_parser();
    let numbers = [
        TypeId::of::<f64>(),
        TypeId::of::<f32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<u32>(),
        TypeId::of::<i64>(),
    ];
    !is_flag(arg) && !numbers.iter().any(|kind| parser.type_id() == *kind)
}
