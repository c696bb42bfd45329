//! Some outermost rows of a nest, with all rows below them.

use std::borrow::Cow;
use std::ops::Range;

use crate::adjacency::{Adjacency, Members};
use crate::error::{Error, Result};
use crate::inter::{Domain, Path};

/// How a nest goes from each level to the next.
#[derive(Debug)]
pub(super) struct Nest<'a> {
    members: Vec<Members<'a>>,
    rows: usize,
}

/// The rows of one level in a block.
#[derive(Debug, Clone)]
pub(super) enum Rows<'a> {
    /// Neighbours.
    Range(Range<usize>),
    /// Those that are listed.
    Listed(Cow<'a, [u32]>),
}

/// A block: rows of every level, and where the rows that belong to each row of the level before begin.
#[derive(Debug)]
pub(super) struct Block<'a> {
    pub levels: Vec<Rows<'a>>,
    starts: Vec<Cow<'a, [usize]>>,
    /// What starts are counted from.
    bases: Vec<usize>,
}

impl<'a> Nest<'a> {
    pub fn new(graph: &'a Adjacency, nest: &[Domain], path: Path) -> Result<Self> {
        let mut members = Vec::new();
        for (at, pair) in nest.windows(2).enumerate() {
            let path = if at == 0 { path } else { Path::Only };
            let found = graph.members(pair[0], pair[1], path).ok_or_else(|| Error::Malformed {
                program: "kernels".to_owned(),
                at: "a nest".to_owned(),
                why: format!("rows of {} do not belong to rows of {}", pair[1], pair[0]),
            })?;
            members.push(found);
        }
        Ok(Self { members, rows: graph.rows(nest[0]) })
    }

    /// Whether the rows of a level lie one after the other, block after block.
    pub fn is_contiguous(&self, level: usize) -> bool {
        self.members[..level].iter().all(|members| matches!(members, Members::Between(_) | Members::All(_)))
    }

    /// The end of a block that begins with `rows` and ends with them at the latest, and has about `most` innermost rows.
    pub fn end(&self, rows: Range<usize>, most: usize) -> usize {
        let Some(members) = self.members.first() else { return rows.end };
        let mut items = 0;
        for row in rows.clone() {
            items += members.count(row);
            if items > most && row > rows.start {
                return row;
            }
        }
        rows.end
    }

    /// Outermost rows in blocks, each with about `most` innermost rows and at most `most_rows` outermost ones.
    pub fn blocks(&self, most: usize, most_rows: usize) -> Vec<Range<usize>> {
        let mut blocks = Vec::new();
        let mut first = 0;
        while first < self.rows {
            let end = self.end(first..(first + most_rows).min(self.rows), most);
            blocks.push(first..end);
            first = end;
        }
        blocks
    }

    /// The block of some outermost rows.
    pub fn block(&self, rows: Range<usize>) -> Block<'_> {
        let mut block = Block { levels: vec![Rows::Range(rows)], starts: Vec::new(), bases: Vec::new() };
        for members in &self.members {
            let last = &block.levels[block.levels.len() - 1];
            let (rows, starts, base) = below(members, last);
            block.levels.push(rows);
            block.starts.push(starts);
            block.bases.push(base);
        }
        block
    }

    /// The rows of a level in the block of some outermost rows, where they are neighbours.
    pub fn range(&self, level: usize, rows: Range<usize>) -> Range<usize> {
        self.members[..level].iter().fold(rows, |rows, members| match members {
            Members::Between(starts) => starts[rows.start]..starts[rows.end],
            Members::All(count) => 0..*count,
            Members::Listed { .. } => rows,
        })
    }
}

fn below<'a>(members: &'a Members<'_>, rows: &Rows<'_>) -> (Rows<'a>, Cow<'a, [usize]>, usize) {
    match (members, rows) {
        (Members::All(count), _) => (Rows::Range(0..*count), Cow::Owned(vec![0, *count]), 0),
        (Members::Between(starts), Rows::Range(rows)) => {
            let own = &starts[rows.start..=rows.end];
            (Rows::Range(own[0]..own[own.len() - 1]), Cow::Borrowed(own), own[0])
        }
        (Members::Listed { starts, rows: all }, Rows::Range(rows)) => {
            let own = &starts[rows.start..=rows.end];
            (Rows::Listed(Cow::Borrowed(&all[own[0]..own[own.len() - 1]])), Cow::Borrowed(own), own[0])
        }
        (members, Rows::Listed(rows)) => {
            let (mut all, mut starts) = (Vec::new(), vec![0]);
            for row in rows.iter() {
                #[expect(clippy::cast_possible_truncation, reason = "rows of a block are counted in 32 bits")]
                members.visit(*row as usize, |row| all.push(row as u32));
                starts.push(all.len());
            }
            (Rows::Listed(Cow::Owned(all)), Cow::Owned(starts), 0)
        }
    }
}

impl Rows<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Range(rows) => rows.len(),
            Self::Listed(rows) => rows.len(),
        }
    }

    /// The row at a place.
    #[inline(always)]
    pub fn get(&self, at: usize) -> usize {
        match self {
            Self::Range(rows) => rows.start + at,
            Self::Listed(rows) => rows[at] as usize,
        }
    }
}

impl<'a> Block<'a> {
    /// Rows that all belong to one.
    pub fn of_two_levels(outer: Range<usize>, rows: Rows<'a>) -> Self {
        let starts = vec![Cow::Owned(vec![0, rows.len()])];
        Self { levels: vec![Rows::Range(outer), rows], starts, bases: vec![0] }
    }

    /// Rows of one level.
    pub fn of_rows(rows: Range<usize>) -> Self {
        Self { levels: vec![Rows::Range(rows)], starts: Vec::new(), bases: Vec::new() }
    }

    /// Places in level `fine` that belong to each place of level `coarse`: where they begin, and where the last one's end.
    pub fn starts(&self, coarse: usize, fine: usize) -> Vec<usize> {
        let count = self.levels[coarse].len();
        (0..=count).map(|at| (coarse..fine).fold(at, |at, level| self.starts[level][at] - self.bases[level])).collect()
    }
}
