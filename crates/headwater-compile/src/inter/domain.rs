//! Which rows a value has: one a node, one an edge, one for each pair of a node and an edge type, and so on.
//!
//! Every domain is coarser or finer than some others. A row of a finer domain belongs to exactly one row of a coarser one:
//! an edge to its source, a pair to its node. Values go down such a map ([`Lift`](super::Op::Lift)) or are combined up it
//! ([`Reduce`](super::Op::Reduce)); the two are each other's gradients.

use std::fmt;

/// The end of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Where it comes from. In a block, all nodes that are read.
    Src,
    /// Where it goes to. In a block, the nodes that are written: of every type the first of those that are read.
    Dst,
}

/// The rows of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Domain {
    /// One row.
    Const,
    /// One a node type.
    NodeType,
    /// One an edge type.
    EdgeType,
    /// One a node.
    Node(Side),
    /// One for each pair of a node and an edge type that has an edge there.
    Pair(Side),
    /// One an edge.
    Edge,
}

/// Which way a map goes, where there are two: an edge type has a node type at either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// There is one way.
    Only,
    /// By the end of the edge type.
    By(Side),
}

impl Domain {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Const,
        Self::NodeType,
        Self::EdgeType,
        Self::Node(Side::Src),
        Self::Node(Side::Dst),
        Self::Pair(Side::Src),
        Self::Pair(Side::Dst),
        Self::Edge,
    ];

    /// Whether a row of this domain belongs to one of `coarse` along `path`. A domain does not map to itself.
    #[must_use]
    pub fn maps_to(self, coarse: Self, path: Path) -> bool {
        use Domain::{Const, Edge, EdgeType, Node, NodeType, Pair};
        let only = path == Path::Only;
        match (self, coarse) {
            (Const, _) | (_, Edge) => false,
            (_, Const) | (Edge, Pair(_) | Node(_) | EdgeType) | (Pair(_), EdgeType) | (Node(_), NodeType) => only,
            (Pair(fine), Node(side)) => only && fine == side,
            // A node that is written is one of those that are read. An edge has two ways to a node that is read, so this map
            // is taken by itself and never as a part of a longer one.
            (Node(Side::Dst), Node(Side::Src)) => only,
            (Edge | Pair(_) | EdgeType, NodeType) => !only,
            _ => false,
        }
    }

    /// Whether no two rows of this domain belong to the same row of `coarse`: a written node is one of those that are read.
    #[must_use]
    pub fn is_injective(self, coarse: Self) -> bool {
        (self, coarse) == (Self::Node(Side::Dst), Self::Node(Side::Src))
    }

    /// Whether rows are types, of which there are few: weights live there.
    #[must_use]
    pub fn is_type(self) -> bool {
        matches!(self, Self::Const | Self::NodeType | Self::EdgeType)
    }

    /// The coarsest domain whose rows determine a row of both; `None` where two nodes of the same side are read in two ways.
    #[must_use]
    pub fn join(self, other: Self) -> Option<Self> {
        use Domain::{Const, Edge, EdgeType, Node, NodeType, Pair};
        let (low, high) = if self <= other { (self, other) } else { (other, self) };
        match (low, high) {
            (a, b) if a == b => Some(a),
            (Const, b) => Some(b),
            (_, Edge) => Some(Edge),
            (NodeType, EdgeType) => Some(EdgeType),
            (NodeType, b @ (Node(_) | Pair(_))) | (EdgeType, b @ Pair(_)) => Some(b),
            (EdgeType, Node(side)) => Some(Pair(side)),
            (Node(a), Pair(b)) => Some(if a == b { Pair(b) } else { Edge }),
            (Node(_), Node(_)) | (Pair(_), Pair(_)) => Some(Edge),
            _ => None,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Src => "src",
            Self::Dst => "dst",
        })
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Const => f.write_str("const"),
            Self::NodeType => f.write_str("ntype"),
            Self::EdgeType => f.write_str("etype"),
            Self::Node(side) => write!(f, "node.{side}"),
            Self::Pair(side) => write!(f, "pair.{side}"),
            Self::Edge => f.write_str("edge"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [Path; 3] = [Path::Only, Path::By(Side::Src), Path::By(Side::Dst)];

    fn reaches(fine: Domain, coarse: Domain) -> bool {
        fine == coarse || PATHS.iter().any(|&path| fine.maps_to(coarse, path))
    }

    #[test]
    fn maps_compose() {
        for a in Domain::ALL {
            for b in Domain::ALL {
                for c in Domain::ALL {
                    let restricts = |fine, coarse| fine == Domain::Node(Side::Dst) && coarse == Domain::Node(Side::Src);
                    let is_chain = a != b && b != c && reaches(a, b) && reaches(b, c) && !restricts(b, c);
                    assert!(!is_chain || reaches(a, c), "{a} to {b} to {c}");
                }
                assert!(a == b || !(reaches(a, b) && reaches(b, a)), "{a} and {b} map to each other");
            }
        }
    }

    #[test]
    fn the_join_reaches_both() {
        for a in Domain::ALL {
            for b in Domain::ALL {
                assert_eq!(a.join(b), b.join(a), "{a} and {b}");
                let Some(join) = a.join(b) else { continue };
                assert!(reaches(join, a) && reaches(join, b), "{a} and {b} give {join}");
            }
        }
    }
}
