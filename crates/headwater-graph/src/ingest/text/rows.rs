//! A block of an edge list into columns.
//!
//! `slow_line` is the definition. `integer_pair` takes the lines nearly all large files consist of, two numbers and a
//! delimiter, and leaves every other line to the definition.

use super::dialect::unclosed;
use super::fields::{content, float, integer, meant, natural, split};
use super::{Delimiter, Dialect};
use crate::ingest::fault::{Fault, shown};

/// What to take from each line.
#[derive(Debug, Clone)]
pub struct RowPlan {
    /// How the text is written.
    pub dialect: Dialect,
    /// Whether ids are whole numbers; otherwise they are words.
    pub integer_ids: bool,
}

/// Words, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Words {
    /// One more.
    pub fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len() as u64);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The word at a position. Panics past the end, as a slice does.
    #[must_use]
    pub fn at(&self, position: usize) -> &[u8] {
        let index = crate::topology::index;
        let start = position.checked_sub(1).map_or(0, |before| index(self.ends[before]));
        &self.bytes[start..index(self.ends[position])]
    }

    /// All bytes, and where each word ends in them.
    #[must_use]
    pub fn parts(&self) -> (&[u8], &[u64]) {
        (&self.bytes, &self.ends)
    }
}

/// Ids as they stand in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// Whole numbers.
    Integers(Vec<u64>),
    /// Anything.
    Words(Words),
}

impl Keys {
    /// The words, when they are not numbers.
    #[must_use]
    pub fn words(&self) -> Option<&Words> {
        match self {
            Self::Integers(_) => None,
            Self::Words(words) => Some(words),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(keys) => keys.len(),
            Self::Words(words) => words.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The columns of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// Source, target, source, target, and so on.
    pub ends: Keys,
    /// A weight an edge, when asked for.
    pub weights: Vec<f32>,
    /// A time an edge, when asked for.
    pub times: Vec<i64>,
    /// Source type, relation and target type of each edge, those that are asked for.
    pub kinds: [Words; 3],
    /// Lines that are taken for comments and would have the fields of an edge, where ids are names: how many, and the first,
    /// from the block's first.
    pub comments: Option<(u64, u64)>,
    /// The line of each edge from the block's first, when it is not simply the next one.
    skipped: Vec<(usize, u64)>,
}

impl Parsed {
    fn of(ends: Keys) -> Self {
        let (weights, times, kinds, skipped) = Default::default();
        Self { ends, weights, times, kinds, comments: None, skipped }
    }

    /// How many edges there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The line of an edge, from the block's first.
    #[must_use]
    pub fn line_of(&self, edge: usize) -> u64 {
        let after = self.skipped.partition_point(|(at, _)| *at <= edge);
        edge as u64 + after.checked_sub(1).map_or(0, |before| self.skipped[before].1)
    }
}

/// Reads a block. The fault carries its line from the block's first.
pub fn parse_rows(block: &[u8], plan: &RowPlan) -> Result<Parsed, (u64, Fault)> {
    let ends = if plan.integer_ids { Keys::Integers(Vec::new()) } else { Keys::Words(Words::default()) };
    let mut reader = Reader { plan, parsed: Parsed::of(ends), fields: Vec::new() };
    let simple = simple_delimiter(plan);
    let (mut at, mut line, mut skipped) = (0, 0, 0);
    while at < block.len() {
        if let (Some(delimiter), Keys::Integers(keys)) = (simple, &mut reader.parsed.ends)
            && let Some((source, target, end)) = integer_pair(&block[at..], delimiter)
        {
            keys.extend([source, target]);
            at += end;
        } else {
            let end = memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |end| at + end);
            if !reader.slow_line(&block[at..end]).map_err(|fault| (line, fault))? {
                skipped += 1;
                reader.parsed.skipped.push((reader.parsed.len(), skipped));
                reader.note_comment(&block[at..end], line);
            }
            at = end + 1;
        }
        line += 1;
    }
    Ok(reader.parsed)
}

/// The byte between two numbers, when a line is nothing but them.
fn simple_delimiter(plan: &RowPlan) -> Option<u8> {
    let dialect = &plan.dialect;
    let two_numbers = plan.integer_ids && dialect.columns == 2 && (dialect.source, dialect.target) == (0, 1);
    match dialect.delimiter {
        Delimiter::Byte(byte) if two_numbers => Some(byte),
        Delimiter::Spaces if two_numbers => Some(b' '),
        _ => None,
    }
}

/// Two numbers and the bytes they take with their line end; none for anything else.
fn integer_pair(bytes: &[u8], delimiter: u8) -> Option<(u64, u64, usize)> {
    let (source, at) = digits(bytes, 0)?;
    if bytes.get(at) != Some(&delimiter) {
        return None;
    }
    let (target, at) = digits(bytes, at + 1)?;
    match bytes.get(at) {
        Some(b'\n') => Some((source, target, at + 1)),
        Some(b'\r') if bytes.get(at + 1) == Some(&b'\n') => Some((source, target, at + 2)),
        _ => None,
    }
}

/// A number of up to 18 digits, which cannot overflow, and where it ends.
fn digits(bytes: &[u8], start: usize) -> Option<(u64, usize)> {
    const MOST_DIGITS: usize = 18;
    let mut value = 0;
    for (at, byte) in (start..).zip(bytes.get(start..)?) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Some((value, at)).filter(|_| at > start && at - start <= MOST_DIGITS);
        }
        value = u64::wrapping_add(u64::wrapping_mul(value, 10), digit.into());
    }
    None
}

struct Reader<'p, 'b> {
    plan: &'p RowPlan,
    parsed: Parsed,
    fields: Vec<&'b [u8]>,
}

impl<'b> Reader<'_, 'b> {
    /// Takes a line; says whether there was an edge in it.
    fn slow_line(&mut self, line: &'b [u8]) -> Result<bool, Fault> {
        let Some(line) = meant(line) else { return Ok(false) };
        let dialect = &self.plan.dialect;
        split(line, dialect.delimiter, &mut self.fields).ok_or_else(|| unclosed(line))?;
        if self.fields.len() != dialect.columns {
            return Err(Fault::Ragged { found: self.fields.len(), expected: dialect.columns });
        }
        for column in [dialect.source, dialect.target] {
            let field = content(self.fields[column]);
            match &mut self.parsed.ends {
                Keys::Integers(keys) => {
                    let expected = "an id: a whole number from 0 on (--ids string takes any text)";
                    keys.push(natural(&field).ok_or_else(|| self.plan.wrong(column, &field, expected))?);
                }
                Keys::Words(words) => words.push(self.plan.name(column, &field, "an id: some text in UTF-8")?),
            }
        }
        self.values()?;
        for (kind, column) in dialect.kinds.iter().enumerate() {
            if let Some(column) = column {
                let field = content(self.fields[*column]);
                self.parsed.kinds[kind].push(self.plan.name(*column, &field, "a name: some text in UTF-8")?);
            }
        }
        Ok(true)
    }

    /// Names may begin as comments do, so lines that could be edges are counted.
    fn note_comment(&mut self, text: &'b [u8], line: u64) {
        let dialect = &self.plan.dialect;
        let is_named = !self.plan.integer_ids && !text.trim_ascii().is_empty();
        if is_named
            && split(text, dialect.delimiter, &mut self.fields).is_some()
            && self.fields.len() == dialect.columns
        {
            self.parsed.comments.get_or_insert((0, line)).0 += 1;
        }
    }

    fn values(&mut self) -> Result<(), Fault> {
        let dialect = &self.plan.dialect;
        if let Some(column) = dialect.weight {
            let field = content(self.fields[column]);
            let weight = float(&field).filter(|weight| weight.is_finite() && *weight >= 0.0);
            let expected = "a weight: a finite number, not negative";
            self.parsed.weights.push(weight.ok_or_else(|| self.plan.wrong(column, &field, expected))?);
        }
        if let Some(column) = dialect.time {
            let field = content(self.fields[column]);
            let expected = "a time: a whole number";
            self.parsed.times.push(integer(&field).ok_or_else(|| self.plan.wrong(column, &field, expected))?);
        }
        Ok(())
    }
}

impl RowPlan {
    /// A name, which is not empty and can be printed again.
    fn name<'f>(&self, column: usize, field: &'f [u8], expected: &'static str) -> Result<&'f [u8], Fault> {
        let is_name = !field.is_empty() && std::str::from_utf8(field).is_ok();
        if is_name { Ok(field) } else { Err(self.wrong(column, field, expected)) }
    }

    fn wrong(&self, column: usize, field: &[u8], expected: &'static str) -> Fault {
        Fault::Field { column: self.dialect.column(column), value: shown(field), expected }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Asked, detect};
    use super::*;

    fn plan(text: &[u8], integer_ids: bool) -> RowPlan {
        RowPlan { dialect: detect(text, &Asked::default()).unwrap(), integer_ids }
    }

    #[test]
    fn edges_know_their_lines() {
        let text = b"0,1\n# c\n2,3\n\n4,5\r\n6, 7\n8,9";
        let parsed = parse_rows(text, &plan(text, true)).unwrap();
        assert_eq!(parsed.ends, Keys::Integers((0..10).collect()));
        assert_eq!((0..5).map(|edge| parsed.line_of(edge)).collect::<Vec<_>>(), [0, 2, 4, 5, 6]);
    }

    #[test]
    fn faults_name_line_column_and_value() {
        let plan = plan(b"0,1\n", true);
        for (text, line, words) in [
            (&b"0,1\n2\n"[..], 1, "1 fields, but the lines before have 2"),
            (b"0,1\n\n0,x\n", 2, "column 1: \"x\" is not an id"),
            (b"0,-4\n", 0, "column 1: \"-4\" is not an id"),
            (b"0,1,2\n", 0, "3 fields"),
            (b"0,\"1\n", 0, "quote"),
            (b"0,9999999999999999999\n", 0, "9999999999999999999"),
        ] {
            let (at, fault) = parse_rows(text, &plan).unwrap_err();
            assert!(at == line && fault.to_string().contains(words), "{at} {fault}");
        }
    }

    #[test]
    fn all_columns_are_taken() {
        let text = b"t,src,kind,dst,w\n5,a,likes,b,0.5\n-6,b,\"ha,tes\",c,2\n";
        let name = |text: &str| Some(text.parse().unwrap());
        let asked = Asked { weight: name("w"), time: name("t"), relation: name("kind"), ..Asked::default() };
        let dialect = detect(text, &asked).unwrap();
        let parsed = parse_rows(&text[17..], &RowPlan { dialect: dialect.clone(), integer_ids: false }).unwrap();
        let Keys::Words(words) = &parsed.ends else { panic!("words were asked for") };
        assert_eq!((0..4).map(|at| words.at(at)).collect::<Vec<_>>(), [b"a", b"b", b"b", b"c"]);
        assert_eq!((parsed.weights.as_slice(), parsed.times.as_slice()), (&[0.5, 2.0][..], &[5, -6][..]));
        assert_eq!(parsed.kinds[1].at(1), b"ha,tes");
        for bad in [&b"5,a,x,b,NaN\n"[..], b"5,a,x,b,-1\n", b"5.5,a,x,b,1\n", b",a,x,b,1\n"] {
            assert!(parse_rows(bad, &RowPlan { dialect: dialect.clone(), integer_ids: false }).is_err());
        }
    }

    #[test]
    fn names_are_text_and_comments_that_could_be_edges_are_counted() {
        let plan = plan(b"ann,bob\n", false);
        for (text, line, words) in [
            (&b"ann,bob\neve,\n"[..], 1, "column 1: \"\" is not an id: some text in UTF-8"),
            (b"ann,j\xf6rg\n", 0, "is not an id: some text in UTF-8"),
        ] {
            let (at, fault) = parse_rows(text, &plan).unwrap_err();
            assert!(at == line && fault.to_string().contains(words), "{at} {fault}");
        }
        let parsed = parse_rows(b"# of people\n\n#rust,#go\nann,bob\n#go,#c\n", &plan).unwrap();
        assert_eq!((parsed.len(), parsed.comments), (1, Some((2, 2))));
    }

    proptest! {
        #[test]
        fn the_fast_path_agrees_with_the_definition(text in "[0-9,\r\n #]{0,60}") {
            let plan = plan(b"0,1\n", true);
            let fast = parse_rows(text.as_bytes(), &plan);
            let mut slow = Reader {
                plan: &plan,
                parsed: Parsed::of(Keys::Integers(vec![])),
                fields: vec![],
            };
            let mut failed = None;
            for (at, line) in super::super::fields::lines(text.as_bytes()) {
                if let Err(fault) = slow.slow_line(line) {
                    failed = Some((at, fault.to_string()));
                    break;
                }
            }
            match fast {
                Ok(parsed) => prop_assert_eq!((parsed.ends, None), (slow.parsed.ends, failed)),
                Err((at, fault)) => prop_assert_eq!(Some((at, fault.to_string())), failed),
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), integers in any::<bool>()) {
            if let Ok(dialect) = detect(&bytes, &Asked::default()) {
                let _ = parse_rows(&bytes, &RowPlan { dialect, integer_ids: integers });
            }
        }
    }
}
