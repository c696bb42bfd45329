//! What kernels ask of a graph: maps, lists of members, rows in pieces, orders of rows.

use super::product::TILE_ROWS;
use crate::adjacency::ByNodes;
use crate::inter::{Domain, Path, Side};
use crate::intra::Hop;

/// Rows cut into pieces of one type, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tiling {
    /// The domain whose rows are cut.
    pub rows: Domain,
    /// Whose rows are their types.
    pub types: Domain,
    /// The way to the types.
    pub path: Path,
    /// How large pieces are.
    pub cut: Cut,
}

/// How rows are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// Into tiles of at most so many rows, which a product makes at a time.
    Tiles(usize),
    /// The same of a product that is made by warpgroups where a GPU has them.
    GroupTiles,
    /// Into about so many chunks at most, which sums are made of.
    Chunks(usize),
    /// Into tiles of at most so many rows that belong to the same neighbouring nodes, in the order of these.
    ByNodes(ByNodes, usize),
}

impl Cut {
    /// The most rows of a tile, or the most chunks, on a GPU with warpgroups or without.
    pub(super) fn most(self, has_warpgroups: bool) -> usize {
        match self {
            Self::Tiles(most) | Self::Chunks(most) | Self::ByNodes(_, most) => most,
            Self::GroupTiles => TILE_ROWS / if has_warpgroups { 2 } else { 1 },
        }
    }
}

/// Maps that members of rows are followed along, one after the other: a list of its own, so that a walk reads one number a member in order
/// and not one at a random place for every map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    /// From whose rows the members are, and what they are.
    pub members: (Domain, Domain, Path),
    /// Maps from a member to the row it leads to, first to last.
    pub hops: Vec<Hop>,
}

impl Chain {
    /// Whether a list may be worth its bytes: members that lie in order are followed along one listed map as fast.
    pub fn is_worth_it(&self) -> bool {
        let in_order = matches!(self.members.0, Domain::Pair(Side::Dst));
        let is_listed = |hop: &Hop| !matches!(hop.to, Domain::EdgeType | Domain::NodeType | Domain::Const);
        match self.hops.as_slice() {
            [] => false,
            [hop] => hop.to != Domain::Const && !(in_order && is_listed(hop)),
            _ => true,
        }
    }
}

/// Maps and lists of members, in the order kernels name them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// From a domain to a coarser one.
    pub maps: Vec<(Domain, Domain, Path)>,
    /// From a domain to a finer one.
    pub members: Vec<(Domain, Domain, Path)>,
    /// Rows in pieces of one type.
    pub tiles: Vec<Tiling>,
    /// Where members lead to.
    pub chains: Vec<Chain>,
    /// Domains whose rows are walked in the order of how many rows of another belong to them.
    pub orders: Vec<(Domain, Domain)>,
}
