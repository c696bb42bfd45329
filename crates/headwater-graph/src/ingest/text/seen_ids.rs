//! What the ids of a text's first lines look like, and so what all of them are taken for.
//!
//! Ids are whole numbers where every line seen has two of them, and names where most lines have others. Where most lines
//! have numbers and some do not, one of them is a mistake, and guessing would number all nodes anew: that is refused.

use super::fields::natural;
use crate::ingest::fault::Fault;

/// The ids of the first lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenIds {
    /// Lines that were looked at.
    pub lines: u64,
    /// Of these, lines whose two ids are written as numbers, such as `7`, `-1` and `1.0`.
    pub numbers: u64,
    /// The first id that is no whole number from 0 on.
    pub odd: Option<OddId>,
}

/// An id that is no whole number from 0 on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OddId {
    /// Its line, from 0.
    pub line: u64,
    /// Its column.
    pub column: usize,
    /// The id.
    pub value: String,
}

/// What ids of a text are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdsAre {
    /// Whole numbers from 0 on.
    Numbers,
    /// Names.
    Names,
}

impl SeenIds {
    /// Of some lines, whose ids stand in two columns.
    pub(super) fn of(rows: &[(u64, Vec<String>)], ends: [usize; 2]) -> Self {
        let mut seen = Self::default();
        for (line, row) in rows {
            let ids = ends.map(|column| (column, row.get(column).map_or("", String::as_str)));
            seen.lines += 1;
            seen.numbers += u64::from(ids.iter().all(|(_, id)| is_number(id)));
            let odd = ids.iter().find(|(_, id)| natural(id.as_bytes()).is_none());
            if let (None, Some((column, id))) = (&seen.odd, odd) {
                seen.odd = Some(OddId { line: *line, column: *column, value: (*id).to_owned() });
            }
        }
        seen
    }

    /// What they are, or the fault of the line that leaves it open. `column` names a column.
    pub fn decide(&self, column: impl Fn(usize) -> String) -> Result<IdsAre, (u64, Fault)> {
        let Some(odd) = &self.odd else { return Ok(IdsAre::Numbers) };
        if 2 * self.numbers < self.lines {
            return Ok(IdsAre::Names);
        }
        let expected =
            "an id: a whole number from 0 on; most ids are numbers (--ids string takes all of them for names)";
        let value = crate::ingest::fault::shown(odd.value.as_bytes());
        Err((odd.line, Fault::Field { column: column(odd.column), value, expected }))
    }
}

/// Whether an id is written as a number. Words such as `nan` are none.
fn is_number(id: &str) -> bool {
    id.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) && id.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_lines_decide_and_a_mistake_is_refused() {
        let decide = |text: &str| {
            let rows: Vec<(u64, Vec<String>)> =
                (0..).zip(text.lines().map(|line| line.split(',').map(str::to_owned).collect())).collect();
            SeenIds::of(&rows, [0, 1]).decide(|at| at.to_string()).map_err(|(line, fault)| (line, fault.to_string()))
        };
        let refused = |line: u64, at: usize, value: &str| {
            let words = "is not an id: a whole number from 0 on; most ids are numbers (--ids string takes all of them for names)";
            Err((line, format!("column {at}: {value:?} {words}")))
        };
        for (text, expected) in [
            ("0,1\n2,3", Ok(IdsAre::Numbers)),
            ("0,1\n1,x\n2,3", refused(1, 1, "x")),
            ("0,1\n-1,2", refused(1, 0, "-1")),
            ("1.0,2.0\n3.0,4.0", refused(0, 0, "1.0")),
            ("0,99999999999999999999", refused(0, 1, "99999999999999999999")),
            ("0,1\n,2", refused(1, 0, "")),
            ("ann,bob\nbob,eve", Ok(IdsAre::Names)),
            ("ann,1\nbob,2", Ok(IdsAre::Names)),
            ("7,8\nann,bob\nbob,eve", Ok(IdsAre::Names)),
            ("nan,inf\ninf,nan", Ok(IdsAre::Names)),
            ("", Ok(IdsAre::Numbers)),
        ] {
            assert_eq!(decide(text), expected, "{text:?}");
        }
    }
}
