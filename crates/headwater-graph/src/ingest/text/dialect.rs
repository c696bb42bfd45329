//! How a text is written: which delimiter, whether a header, which column is what. Decided from its first lines.

use super::fields::{content, lines, meant, split};
use super::heading::{Below, is_header};
use super::seen_ids::SeenIds;
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
    /// What the ids of the first lines look like.
    pub ids: SeenIds,
    /// The line of a header that was taken for one only because of what its words are, from 0.
    pub guessed_header: Option<u64>,
    /// Columns with something in them that nothing is taken from.
    pub unused: Vec<usize>,
}

const SAMPLED_LINES: usize = 100;
pub(super) const SOURCE_NAMES: &[&str] =
    &["source", "src", "from", "head", "source_id", "src_id", "from_id", "u", "node1", "row"];
pub(super) const TARGET_NAMES: &[&str] =
    &["target", "dst", "to", "tail", "target_id", "dst_id", "to_id", "v", "node2", "col"];

/// Looks at the beginning of a text, which is whole lines. Faults carry the line they are about, from 0.
pub fn detect(sample: &[u8], asked: &Asked) -> Result<Dialect, (u64, Fault)> {
    check_encoding(sample).map_err(|fault| (0, fault))?;
    let meant: Vec<(u64, &[u8])> =
        lines(sample).filter_map(|(at, line)| Some((at, meant(line)?))).take(SAMPLED_LINES).collect();
    let Some(&(first_at, first)) = meant.first() else {
        return Err((0, Fault::Missing { what: "line with fields".into(), there: "nothing but comments".into() }));
    };
    let delimiter = asked.delimiter.unwrap_or_else(|| delimiter(&meant));
    let names = words(first, delimiter).ok_or_else(|| (first_at, unclosed(first)))?;
    let wrong = |fault| (first_at, fault);
    let mut rows: Vec<(u64, Vec<String>)> =
        meant[1..].iter().filter_map(|(at, line)| Some((*at, words(line, delimiter)?))).collect();
    let below: Below<'_> = &rows;
    let found = is_header(&names, below, asked);
    let has_header = asked.header.unwrap_or(found.is_some());
    let guessed_header = (asked.header.is_none() && found.is_some_and(|how| how.is_guess())).then_some(first_at);
    let header = has_header.then(|| names.clone());
    let columns = names.len();
    let roles = Roles::find(asked, &header, columns).map_err(wrong)?;
    if !has_header {
        rows.insert(0, (first_at, names));
    }
    let ids = SeenIds::of(&rows, [roles.source, roles.target]);
    let has_content = |at: &usize| rows.iter().any(|(_, row)| row.get(*at).is_some_and(|field| !field.is_empty()));
    let used = roles.columns();
    let unused = (0..columns).filter(|at| !used.contains(at)).filter(has_content).collect();
    let Roles { source, target, weight, time, kinds } = roles;
    Ok(Dialect { delimiter, columns, header, source, target, weight, time, kinds, ids, guessed_header, unused })
}

/// Which column is what.
struct Roles {
    source: usize,
    target: usize,
    weight: Option<usize>,
    time: Option<usize>,
    kinds: [Option<usize>; 3],
}

impl Roles {
    fn find(asked: &Asked, header: &Option<Vec<String>>, columns: usize) -> Result<Self, Fault> {
        let find = |column: &Option<ColumnName>| column.as_ref().map(|c| place(c, header, columns)).transpose();
        let (weight, time) = (find(&asked.weight)?, find(&asked.time)?);
        let kinds = [find(&asked.source_type)?, find(&asked.relation)?, find(&asked.target_type)?];
        let taken: Vec<usize> = [weight, time].into_iter().chain(kinds).flatten().collect();
        let [source, target] = ends([find(&asked.source)?, find(&asked.target)?], &taken, header, columns)?;
        let roles = Self { source, target, weight, time, kinds };
        let mut used = roles.columns();
        used.sort_unstable();
        match used.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Fault::Refused(format!("column {} is asked for twice, as two things", pair[0]))),
            None => Ok(roles),
        }
    }

    fn columns(&self) -> Vec<usize> {
        let optional = [self.weight, self.time].into_iter().chain(self.kinds).flatten();
        [self.source, self.target].into_iter().chain(optional).collect()
    }
}

/// Refuses texts whose lines would be read as something else.
fn check_encoding(sample: &[u8]) -> Result<(), Fault> {
    let refused = |why: &str| Err(Fault::Refused(why.to_owned()));
    if sample.starts_with(b"\xff\xfe") || sample.starts_with(b"\xfe\xff") {
        return refused("is text in UTF-16; save it as UTF-8");
    }
    if sample.starts_with(b"%%MatrixMarket") {
        return refused(
            "is a Matrix Market file, whose ids begin at 1 below a line of sizes; read it with scipy.io.mmread and save \
             its row and col with np.savez",
        );
    }
    let lone = memchr::memchr(b'\r', sample).filter(|at| at + 1 < sample.len());
    if lone.is_some() && memchr::memchr(b'\n', sample).is_none() {
        return refused("has lines that end with a carriage return alone; save it with line feeds");
    }
    Ok(())
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

/// The position of a column.
fn place(column: &ColumnName, header: &Option<Vec<String>>, columns: usize) -> Result<usize, Fault> {
    let found = match column {
        ColumnName::Number(at) => Some(*at).filter(|at| *at < columns),
        ColumnName::Name(name) => {
            let mut places = header.iter().flatten().enumerate().filter(|(_, word)| *word == name).map(|(at, _)| at);
            let first = places.next();
            if places.next().is_some() {
                return Err(Fault::Twice { what: "column", name: name.clone() });
            }
            first
        }
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
            ("# c\n1,2", &plain, (comma, false, 0, 1, true)),
        ] {
            let it = detected(text, asked);
            let found = (it.delimiter, it.header.is_some(), it.source, it.target, it.ids.odd.is_none());
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
        let twice =
            Asked { weight: Some(ColumnName::Number(1)), target: Some(ColumnName::Number(1)), ..Asked::default() };
        assert_eq!(fault("1,2,3\n", &twice), "column 1 is asked for twice, as two things");
        let named = Asked { time: Some(ColumnName::Name("t".into())), ..Asked::default() };
        assert_eq!(fault("t,a,t\n1,2,3\n", &named), "column \"t\" stands twice");
    }

    #[test]
    fn columns_that_nothing_is_taken_from_are_known() {
        for (text, expected) in
            [("0,1,2\n3,4,5\n", &[2][..]), ("0,1,\n3,4,\n", &[]), ("w,src,dst,note\n1,0,1,\n1,1,2,x\n", &[0, 3])]
        {
            assert_eq!(detected(text, &Asked::default()).unused, expected, "{text:?}");
        }
    }

    #[test]
    fn texts_that_would_be_misread_are_refused() {
        for (text, words) in [
            (&b"\xff\xfe0\0,\x001\0"[..], "UTF-16"),
            (b"%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n", "Matrix Market"),
            (b"0 1\r2 3\r", "carriage return"),
        ] {
            let said = detect(text, &Asked::default()).unwrap_err().1.to_string();
            assert!(said.contains(words), "{said}");
        }
        assert!(detect(b"0,1\r", &Asked::default()).is_ok());
    }
}
