//! Whether the first line of a text names its columns. A pure decision, from the first lines.
//!
//! A line is a header where a column is asked for by a name; where it has a known name for each end of an edge; or where
//! it has no numbers and a column has nothing else below it. These are certain. Two more are guesses, which are told:
//! every field is a word that columns are called by, as `user` or `paper_id`; or no field has a digit, and a column has one
//! in every line below. A word that is also an id of a line below is an id, so no rule takes its line for a header but the
//! first.

use super::dialect::{Asked, ColumnName, SOURCE_NAMES, TARGET_NAMES};

/// The lines below the first, with their numbers.
pub(super) type Below<'a> = &'a [(u64, Vec<String>)];

/// Why a line is a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// Columns are asked for by name.
    Asked,
    /// It has names for both ends.
    Known,
    /// It has no numbers, and others have.
    AboveNumbers,
    /// All of its words are such that columns are called by.
    Words,
    /// It has no digits, and others have.
    AboveDigits,
}

impl Header {
    /// Whether it may well be an edge.
    pub(super) fn is_guess(self) -> bool {
        matches!(self, Self::Words | Self::AboveDigits)
    }
}

/// What columns of edges are called by, alone or together with others, with a number or `id` behind it.
const HEADINGS: &[&str] = &[
    "account",
    "artist",
    "author",
    "begin",
    "book",
    "buyer",
    "child",
    "cited",
    "citing",
    "column",
    "company",
    "country",
    "customer",
    "date",
    "dest",
    "destination",
    "dst",
    "edge",
    "end",
    "entity",
    "followed",
    "followee",
    "follower",
    "friend",
    "from",
    "group",
    "head",
    "id",
    "item",
    "key",
    "label",
    "left",
    "member",
    "movie",
    "name",
    "node",
    "object",
    "organisation",
    "organization",
    "page",
    "paper",
    "parent",
    "person",
    "predicate",
    "product",
    "rating",
    "receiver",
    "recipient",
    "rel",
    "relation",
    "right",
    "row",
    "score",
    "seller",
    "sender",
    "source",
    "src",
    "start",
    "subject",
    "tail",
    "target",
    "time",
    "timestamp",
    "title",
    "to",
    "track",
    "type",
    "user",
    "value",
    "vertex",
    "weight",
    "year",
];

/// Lines below that a guess by digits wants: with fewer, chance would do.
const FEWEST_BELOW: usize = 3;

/// Whether the first line is a header, and why.
pub(super) fn is_header(first: &[String], below: Below<'_>, asked: &Asked) -> Option<Header> {
    let Asked { source, target, weight, time, source_type, relation, target_type, .. } = asked;
    let columns = [source, target, weight, time, source_type, relation, target_type];
    if columns.into_iter().any(|column| matches!(column, Some(ColumnName::Name(_)))) {
        return Some(Header::Asked);
    }
    if below.iter().any(|(_, row)| row.iter().any(|field| !field.is_empty() && first.contains(field))) {
        return None;
    }
    let has = |names: &[&str]| first.iter().any(|word| names.contains(&word.to_lowercase().as_str()));
    if has(SOURCE_NAMES) && has(TARGET_NAMES) {
        return Some(Header::Known);
    }
    let every_below = |is: &dyn Fn(&String) -> bool| {
        let of_column = |at: usize| below.iter().all(|(_, row)| row.get(at).is_some_and(is));
        !below.is_empty() && (0..first.len()).any(of_column)
    };
    let is_number = |word: &String| word.parse::<f64>().is_ok();
    if !first.iter().any(is_number) && every_below(&is_number) {
        return Some(Header::AboveNumbers);
    }
    if first.len() > 1 && !below.is_empty() && first.iter().all(|word| is_heading(word)) {
        return Some(Header::Words);
    }
    let has_digit = |word: &String| word.bytes().any(|byte| byte.is_ascii_digit());
    let is_apart = below.len() >= FEWEST_BELOW && !first.iter().any(|word| word.is_empty() || has_digit(word));
    (is_apart && every_below(&has_digit)).then_some(Header::AboveDigits)
}

/// Whether a word is one that columns are called by: `user`, `userId`, `user_name`, `node1`.
fn is_heading(word: &str) -> bool {
    let word = word.to_lowercase();
    let mut parts = word.split(|letter: char| !letter.is_alphanumeric()).filter(|part| !part.is_empty()).peekable();
    let is_known = |part: &str| {
        let bare = part.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let stem = bare.strip_suffix("ids").or_else(|| bare.strip_suffix("id")).unwrap_or(bare);
        bare.is_empty() || [bare, stem].iter().any(|part| HEADINGS.contains(part))
    };
    let begins_with_word = parts.peek().is_some_and(|part| !part.starts_with(|letter: char| letter.is_ascii_digit()));
    begins_with_word && parts.all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Option<Header> {
        let rows: Vec<(u64, Vec<String>)> =
            (0..).zip(text.lines().map(|line| line.split(',').map(str::to_owned).collect())).collect();
        is_header(&rows[0].1, &rows[1..], &Asked::default())
    }

    #[test]
    fn names_of_columns_are_told_from_ids() {
        for (text, expected) in [
            ("src,dst\n0,1", Some(Header::Known)),
            ("u,v\nann,bob", Some(Header::Known)),
            // A graph of letters.
            ("u,v\nv,w", None),
            ("one,two\n0,1", Some(Header::AboveNumbers)),
            ("user,item\nann,book\nbob,pen", Some(Header::Words)),
            ("User ID,Paper_Id\nann,book", Some(Header::Words)),
            ("node1,node2\na,b", Some(Header::Known)),
            ("vertex1,vertex2\na,b", Some(Header::Words)),
            ("user,item\nitem,pen", None),
            ("Benutzer,Ware\nu1,pen\nu2,cup\nu3,pen", Some(Header::AboveDigits)),
            ("Benutzer,Ware\nu1,pen\nu2,cup", None),
            ("ann,bob\nbob,eve\neve,ann\nann,eve", None),
            ("ann,u1\nbob,u2\neve,u3\nann,u4", None),
            ("user,item", None),
            ("source,target", Some(Header::Known)),
            ("0,1\n1,2", None),
        ] {
            assert_eq!(header(text), expected, "{text:?}");
        }
    }
}
