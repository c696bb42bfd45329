//! Where in a slot the parts of a batch lie. Both ends compute it from the same numbers.

use headwater_cuda::Span;

use super::super::capacity::Sizes;
use super::super::draw::Lists;
use crate::error::{Error, Result};

/// Parts begin on lines that a GPU moves whole.
const ALIGN: usize = 256;
/// No slot has as many rows, edges or elements a row.
const MOST: usize = 1 << 32;

/// Room for the largest block of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shelf {
    /// Nodes.
    pub nodes: usize,
    /// Edges.
    pub edges: usize,
    /// Elements of a row of features.
    pub width: usize,
}

impl Shelf {
    /// For batches of blocks up to these. The first one has the nodes and edges of all.
    pub fn of(blocks: &[Sizes], width: usize) -> Self {
        let (nodes, edges) = blocks.first().map_or((0, 0), |all| (all.src, all.edges));
        Self { nodes, edges, width }
    }

    /// Bytes of a slot.
    pub fn bytes(&self) -> usize {
        self.ends()[3]
    }

    /// The rows of features of so many nodes.
    pub fn rows(&self, slot: &Span, nodes: usize) -> Result<Span> {
        cut(slot, 0, nodes.saturating_mul(4 * self.width))
    }

    /// Room for features of all nodes.
    pub fn all_rows(&self, slot: &Span) -> Result<Span> {
        self.rows(slot, self.nodes)
    }

    /// The lists of a batch of so many nodes. Behind its edges there may be others.
    pub fn lists(&self, slot: &Span, nodes: usize) -> Result<Lists> {
        let [rows, ids, sources, targets] = self.ends();
        Ok(Lists {
            ids: cut(slot, rows, nodes.saturating_mul(8))?,
            sources: cut(slot, ids, sources - ids)?,
            targets: cut(slot, sources, targets - sources)?,
        })
    }

    /// A shelf that another process announced, if it can be one.
    pub fn checked(self) -> Result<Self> {
        let Self { nodes, edges, width } = self;
        if [nodes, edges, width].into_iter().all(|count| count < MOST) && nodes.checked_mul(4 * width).is_some() {
            return Ok(self);
        }
        Err(Error::Stage { stage: "trainer", why: format!("it announced slots that cannot be: {self:?}") })
    }

    /// Where rows, ids, sources and targets end.
    fn ends(&self) -> [usize; 4] {
        let whole = |bytes: usize| bytes.max(1).next_multiple_of(ALIGN);
        let rows = whole(4 * self.nodes * self.width);
        let ids = rows + whole(8 * self.nodes);
        let sources = ids + whole(4 * self.edges);
        [rows, ids, sources, sources + whole(4 * self.edges)]
    }
}

fn cut(slot: &Span, offset: usize, bytes: usize) -> Result<Span> {
    let short = || Error::Length { what: "a slot".to_owned(), found: slot.bytes(), expected: offset + bytes };
    slot.part(offset, bytes).ok_or_else(short)
}
