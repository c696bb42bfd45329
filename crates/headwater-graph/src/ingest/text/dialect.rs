//! How a text is written: which delimiter, whether a header, which column is what. Decided from its first lines.

use super::fields::{content, lines, meant, natural, split};
use crate::ingest::fault::Fault;

/// What stands between fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiter {
    /// One byte, such as a comma or a tab.
    Byte(u8),
    /// Any spaces and tabs.
    Spaces,
}

/// A column, as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnName {
    /// By its place, from 0.
    Number(usize),
    /// By its header.
    Name(String),
}

impl std::str::FromStr for ColumnName {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Number))
    }
}

/// What the user said about a text. What is not said is found out.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The delimiter.
    pub delimiter: Option<Delimiter>,
    /// Whether the first line names the columns.
    pub header: Option<bool>,
    /// Where edges begin.
    pub source: Option<ColumnName>,
    /// Where they end.
    pub target: Option<ColumnName>,
    /// Their weights.
    pub weight: Option<ColumnName>,
    /// Their times.
    pub time: Option<ColumnName>,
    /// The type of the node where they begin.
    pub source_type: Option<ColumnName>,
    /// The name of their relation.
    pub relation: Option<ColumnName>,
    /// The type of the node where they end.
    pub target_type: Option<ColumnName>,
}

/// What is known of a text before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// The delimiter.
    pub delimiter: Delimiter,
    /// Fields of a line.
    pub columns: usize,
    /// Their names, when the first line has them.
    pub header: Option<Vec<String>>,
    /// Where edges begin.
    pub source: usize,
    /// Where they end.
    pub target: usize,
    /// Their weights.
    pub weight: Option<usize>,
    /// Their times.
    pub time: Option<usize>,
    /// The columns of source type, relation and target type.
    pub kinds: [Option<usize>; 3],
    /// Whether all ids of the first lines are whole numbers.
    pub integer_ids: bool,
}

const SAMPLED_LINES: usize = 100;
const SOURCE_NAMES: &[&str] = &["source", "src", "from", "head", "source_id", "src_id", "from_id", "u", "node1", "row"];
const TARGET_NAMES: &[&str] = &["target", "dst", "to", "tail", "target_id", "dst_id", "to_id", "v", "node2", "col"];

/// Looks at the beginning of a text. Faults carry the line they are about, from 0.
pub fn detect(sample: &[u8], asked: &Asked) -> Result<Dialect, (u64, Fault)> {
    // The last line may be cut.
    let whole = &sample[..memchr::memrchr(b'\n', sample).map_or(sample.len(), |end| end + 1)];
    let meant: Vec<(u64, &[u8])> =
        lines(whole).filter_map(|(at, line)| Some((at, meant(line)?))).take(SAMPLED_LINES).collect();
    let Some(&(first_at, first)) = meant.first() else {
        return Err((0, Fault::Missing { what: "line with fields".into(), there: "nothing but comments".into() }));
    };
    let delimiter = asked.delimiter.unwrap_or_else(|| delimiter(&meant));
    let names = words(first, delimiter).ok_or_else(|| (first_at, unclosed(first)))?;
    let rows: Vec<Vec<String>> = meant[1..].iter().filter_map(|(_, line)| words(line, delimiter)).collect();
    let has_header = asked.header.unwrap_or_else(|| looks_like_header(&names, &rows, asked));
    let header = has_header.then(|| names.clone());
    let wrong = |fault| (first_at, fault);
    let find = |column: &Option<ColumnName>| column.as_ref().map(|c| place(c, &header, names.len())).transpose();
    let [weight, time] = [&asked.weight, &asked.time].map(find);
    let kinds = [&asked.source_type, &asked.relation, &asked.target_type].map(find);
    let [source_type, relation, target_type] = kinds;
    let (weight, time) = (weight.map_err(wrong)?, time.map_err(wrong)?);
    let kinds = [source_type.map_err(wrong)?, relation.map_err(wrong)?, target_type.map_err(wrong)?];
    let taken: Vec<usize> = [weight, time].into_iter().chain(kinds).flatten().collect();
    let explicit = [find(&asked.source).map_err(wrong)?, find(&asked.target).map_err(wrong)?];
    let [source, target] = ends(explicit, &taken, &header, names.len()).map_err(wrong)?;
    let data = rows.iter().chain((!has_header).then_some(&names));
    let integer_ids = data.into_iter().all(|row| [source, target].iter().all(|&at| is_natural(row.get(at))));
    Ok(Dialect { delimiter, columns: names.len(), header, source, target, weight, time, kinds, integer_ids })
}

impl Dialect {
    /// A column's name for a message: its header, or its number.
    #[must_use]
    pub fn column(&self, at: usize) -> String {
        let named = self.header.as_ref().and_then(|header| header.get(at));
        named.map_or_else(|| at.to_string(), |name| format!("{name:?}"))
    }
}

pub(super) fn unclosed(line: &[u8]) -> Fault {
    let (column, value) = ("with a quote".into(), crate::ingest::fault::shown(line));
    Fault::Field { column, value, expected: "a line whose quotes close before a delimiter" }
}

/// The first candidate that cuts every line into the same number of fields, more than one.
fn delimiter(lines: &[(u64, &[u8])]) -> Delimiter {
    let candidates = [b'\t', b',', b';', b'|'].map(Delimiter::Byte);
    let count = |line: &[u8], delimiter| {
        let mut fields = Vec::new();
        split(line, delimiter, &mut fields).map_or(0, |()| fields.len())
    };
    let cuts = |delimiter: &Delimiter| {
        let first = lines.first().map_or(0, |(_, line)| count(line, *delimiter));
        first > 1 && lines.iter().all(|(_, line)| count(line, *delimiter) == first)
    };
    let even = candidates.into_iter().find(cuts);
    // Lines that agree with no candidate are ragged; the most likely one then names the faulty line.
    let somewhere = || candidates.into_iter().find(|c| lines.first().is_some_and(|(_, line)| count(line, *c) > 1));
    even.or_else(|| Some(Delimiter::Spaces).filter(cuts)).or_else(somewhere).unwrap_or(Delimiter::Spaces)
}

fn words(line: &[u8], delimiter: Delimiter) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    split(line, delimiter, &mut fields)?;
    Some(fields.iter().map(|field| String::from_utf8_lossy(&content(field)).into_owned()).collect())
}

/// Names are asked for, or known names stand there, or a line without numbers stands above lines of numbers.
fn looks_like_header(first: &[String], rows: &[Vec<String>], asked: &Asked) -> bool {
    let columns = [&asked.source, &asked.target, &asked.weight, &asked.time, &asked.source_type, &asked.relation];
    let by_name = |column: &Option<ColumnName>| matches!(column, Some(ColumnName::Name(_)));
    if columns.into_iter().chain([&asked.target_type]).any(by_name) {
        return true;
    }
    let known = |names: &[&str]| first.iter().any(|word| names.contains(&word.to_lowercase().as_str()));
    if known(SOURCE_NAMES) && known(TARGET_NAMES) {
        return true;
    }
    let number = |word: &String| word.parse::<f64>().is_ok();
    let below = |at: usize| !rows.is_empty() && rows.iter().all(|row| row.get(at).is_some_and(number));
    let all_words = !first.iter().any(number);
    all_words && (0..first.len()).any(below)
}

/// The position of a column.
fn place(column: &ColumnName, header: &Option<Vec<String>>, columns: usize) -> Result<usize, Fault> {
    let found = match column {
        ColumnName::Number(at) => Some(*at).filter(|at| *at < columns),
        ColumnName::Name(name) => header.iter().flatten().position(|word| word == name),
    };
    found.ok_or_else(|| {
        let what = match column {
            ColumnName::Number(at) => format!("column {at}"),
            ColumnName::Name(name) => format!("column {name:?}"),
        };
        let there = header.as_ref().map_or_else(|| format!("{columns} columns, from 0"), |names| names.join(", "));
        Fault::Missing { what, there }
    })
}

/// Source and target: as asked, or by their names, or the first columns that are nothing else.
fn ends(
    explicit: [Option<usize>; 2],
    taken: &[usize],
    header: &Option<Vec<String>>,
    columns: usize,
) -> Result<[usize; 2], Fault> {
    let named = |names: &[&str]| {
        let is_it = |word: &String| names.contains(&word.to_lowercase().as_str());
        header.iter().flatten().position(is_it).filter(|at| !taken.contains(at))
    };
    let [source, target] = match (named(SOURCE_NAMES), named(TARGET_NAMES)) {
        (Some(source), Some(target)) => [explicit[0].or(Some(source)), explicit[1].or(Some(target))],
        _ => explicit,
    };
    let free = |other: Option<usize>| (0..columns).find(|at| !taken.contains(at) && Some(*at) != other);
    let missing = || Fault::Missing {
        what: "second column for the ends of edges; another delimiter may help".into(),
        there: format!("{columns} columns"),
    };
    let source = source.or_else(|| free(target)).ok_or_else(missing)?;
    let target = target.or_else(|| free(Some(source))).ok_or_else(missing)?;
    Ok([source, target])
}

fn is_natural(field: Option<&String>) -> bool {
    field.is_some_and(|word| natural(word.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(text: &str, asked: &Asked) -> Dialect {
        detect(text.as_bytes(), asked).unwrap()
    }

    #[test]
    fn texts_are_recognised() {
        let plain = Asked::default();
        let name = |text: &str| Some(text.parse().unwrap());
        let weighted = Asked { weight: name("w"), ..plain.clone() };
        let related = Asked { relation: name("1"), ..plain.clone() };
        let comma = Delimiter::Byte(b',');
        // Text, what is asked; delimiter, header, source, target, whole numbers.
        for (text, asked, expected) in [
            ("0,1\n2,3\n", &plain, (comma, false, 0, 1, true)),
            ("# nodes 3\n0\t1\n2\t3\n", &plain, (Delimiter::Byte(b'\t'), false, 0, 1, true)),
            ("% x\n0 1\n22  3\n", &plain, (Delimiter::Spaces, false, 0, 1, true)),
            ("src,dst\n0,1\n", &plain, (comma, true, 0, 1, true)),
            ("weight;to;from\n0.5;1;2\n", &plain, (Delimiter::Byte(b';'), true, 2, 1, true)),
            ("one,two\n0,1\n", &plain, (comma, true, 0, 1, true)),
            ("ann,bob\nbob,eve\n", &plain, (comma, false, 0, 1, false)),
            ("w,a,b\n0.5,x,y\n", &weighted, (comma, true, 1, 2, false)),
            ("a|knows|b\nb|likes|c\n", &related, (Delimiter::Byte(b'|'), false, 0, 2, false)),
            ("head,rel,tail\n1,r,2\n", &plain, (comma, true, 0, 2, true)),
            ("\"a,b\",c\nd,e\n", &plain, (comma, false, 0, 1, false)),
            ("1,2\n3,4\n5,", &plain, (comma, false, 0, 1, true)),
        ] {
            let it = detected(text, asked);
            let found = (it.delimiter, it.header.is_some(), it.source, it.target, it.integer_ids);
            assert_eq!(found, expected, "{text:?}");
        }
        assert_eq!(detected("w,a,b\n0.5,x,y\n", &weighted).weight, Some(0));
    }

    #[test]
    fn columns_that_are_not_there_are_named() {
        let fault = |text: &str, asked: &Asked| detect(text.as_bytes(), asked).unwrap_err().1.to_string();
        let asked = Asked { time: Some(ColumnName::Name("when".into())), ..Asked::default() };
        assert_eq!(fault("a,b\n1,2\n", &asked), "there is no column \"when\"; there is: a, b");
        let asked = Asked { time: Some(ColumnName::Number(2)), ..Asked::default() };
        assert_eq!(fault("1,2\n", &asked), "there is no column 2; there is: 2 columns, from 0");
        assert!(fault("5\n6\n", &Asked::default()).contains("second column"));
        assert!(fault("# only\n", &Asked::default()).contains("nothing but comments"));
    }
}
