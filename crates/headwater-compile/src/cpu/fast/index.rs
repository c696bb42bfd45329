//! Which row of a buffer each row reads: maps one after the other, as one.

use std::borrow::Cow;

use crate::adjacency::{Adjacency, Map};
use crate::error::{Error, Result};
use crate::inter::Domain;
use crate::intra::Hop;

/// A map from rows to rows.
#[derive(Debug, Clone)]
pub(super) enum Index<'a> {
    /// The same row.
    Same,
    /// The row so many before it: of a part of a buffer that begins there.
    After(usize),
    /// Always this row.
    One(usize),
    /// The row that is listed.
    Listed(Cow<'a, [u32]>),
    /// The row of the stretch.
    Stretch(Map<'a>),
}

impl<'a> Index<'a> {
    /// All hops from rows of `from` on.
    pub fn new(graph: &'a Adjacency, from: Domain, hops: &[Hop]) -> Result<Self> {
        let (mut domain, mut found) = (from, Self::Same);
        for hop in hops {
            let map = graph.map(domain, hop.to, hop.path).ok_or_else(|| {
                let why = format!("rows of {domain} do not belong to rows of {}", hop.to);
                Error::Malformed { program: "kernels".to_owned(), at: "a read".to_owned(), why }
            })?;
            found = found.then(map, graph.rows(from));
            domain = hop.to;
        }
        Ok(found)
    }

    /// Where a row is read.
    #[inline]
    pub fn get(&self, row: usize) -> usize {
        match self {
            Self::Same => row,
            Self::After(first) => row - first,
            Self::One(at) => *at,
            Self::Listed(rows) => rows[row] as usize,
            Self::Stretch(map) => map.get(row),
        }
    }

    /// Where neighbouring rows are read that begin with `row`, if those are neighbours too.
    pub fn neighbours(&self, row: usize) -> Option<usize> {
        matches!(self, Self::Same | Self::After(_)).then(|| self.get(row))
    }

    /// This map, and another one from where it leads. `rows` is how many rows this one has.
    pub fn then(self, next: Map<'a>, rows: usize) -> Self {
        match (self, next) {
            (found, Map::Same) => found,
            (_, Map::First) => Self::One(0),
            (Self::One(at), next) => Self::One(next.get(at)),
            (Self::Same, Map::Listed(rows)) => Self::Listed(Cow::Borrowed(rows)),
            (Self::Same, next) => Self::Stretch(next),
            #[expect(clippy::cast_possible_truncation, reason = "rows of a block are counted in 32 bits")]
            (found, next) => Self::Listed((0..rows).map(|row| next.get(found.get(row)) as u32).collect()),
        }
    }
}
