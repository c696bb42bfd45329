//! The graph as programs see it: how many rows each domain has, which row of a coarser domain a row belongs to, and which
//! rows of a finer one belong to it.
//!
//! Edges lie relation after relation, and within one by destination: what samplers and datasets give without sorting. So the
//! edges of a pair of destination and edge type are neighbours, and a typed weight meets stretches of rows. Everything that
//! looks from the source's side is made when a program first asks for it.
//!
//! The edge list ([`Adjacency::map`] from edges) and lists a node ([`Adjacency::members`]) are one interface: kernels name the
//! domains and not the encoding.

mod members;
mod pairs;
mod tiles;

use std::fmt;
use std::sync::OnceLock;

pub use members::Members;
use pairs::Pairs;
pub use tiles::{ByNodes, Tile, Tiles};

use crate::error::{Error, Result};
use crate::inter::{Domain, Path, Side};

/// One relation of a block or of a whole graph: edges from nodes of one type to nodes of another.
#[derive(Debug, Clone, Copy)]
pub struct RelationEdges<'a> {
    /// Node type of the sources.
    pub src_type: usize,
    /// Node type of the destinations.
    pub dst_type: usize,
    /// Where each destination's edges begin: one more than there are destinations of the type.
    pub offsets: &'a [usize],
    /// Source of every edge, counted within its type.
    pub sources: &'a [u32],
}

/// What becomes of edges from nodes to themselves where a layer sees a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum SelfLoops {
    /// They are edges as any other.
    #[default]
    AsTheyAre,
    /// Every written node has one, as its last edge, in the place of those that it had.
    Added,
    /// There are none: the layer has a term of its own for the node itself.
    Dropped,
}

impl SelfLoops {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AsTheyAre, Self::Added, Self::Dropped];

    /// Whether those that a graph has go.
    #[must_use]
    pub fn drops(self) -> bool {
        self != Self::AsTheyAre
    }

    /// Whether every written node gets one.
    #[must_use]
    pub fn adds(self) -> bool {
        self == Self::Added
    }
}

impl fmt::Display for SelfLoops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsTheyAre => "as they are",
            Self::Added => "added",
            Self::Dropped => "dropped",
        })
    }
}

/// A graph, or one block of a sample.
#[derive(Debug)]
pub struct Adjacency {
    /// Where the nodes of each type begin that are read, and that are written.
    src_types: Vec<usize>,
    dst_types: Vec<usize>,
    /// Types at the ends of each edge type.
    ends: Vec<[u32; 2]>,
    /// Where the edges of each type begin.
    edge_types: Vec<usize>,
    src: Vec<u32>,
    dst: Vec<u32>,
    /// Whether nodes that are written have the same numbers as those that are read.
    dst_is_src_prefix: bool,
    dst_in_src: OnceLock<Vec<u32>>,
    /// Where the edges of each destination begin, where one relation has all of them.
    dst_starts: OnceLock<Vec<usize>>,
    /// How many written nodes lie before each node that is read, where they have the same numbers.
    written_starts: OnceLock<Vec<usize>>,
    /// The edges of each source, and of each destination.
    node_edges: [OnceLock<(Vec<usize>, Vec<u32>)>; 2],
    by_dst: OnceLock<Pairs>,
    by_src: OnceLock<Pairs>,
}

/// Which row of a coarser domain each row belongs to.
#[derive(Debug, Clone, Copy)]
pub enum Map<'a> {
    /// The same.
    Same,
    /// Always the first.
    First,
    /// The one that is listed.
    Listed(&'a [u32]),
    /// The stretch it lies in: row `i` belongs to `t` where `starts[t] <= i < starts[t + 1]`.
    Stretches(&'a [usize]),
    /// The end of the stretch it lies in.
    Ends(&'a [usize], &'a [[u32; 2]], Side),
}

impl Map<'_> {
    /// Where a row belongs.
    #[must_use]
    pub fn get(self, row: usize) -> usize {
        match self {
            Self::Same => row,
            Self::First => 0,
            Self::Listed(to) => to[row] as usize,
            Self::Stretches(starts) => stretch(starts, row),
            Self::Ends(starts, ends, side) => ends[stretch(starts, row)][side as usize] as usize,
        }
    }
}

fn stretch(starts: &[usize], row: usize) -> usize {
    starts.partition_point(|start| *start <= row) - 1
}

impl Adjacency {
    /// From lists a destination. `src_counts` and `dst_counts` are nodes of each type; written nodes are the first of those
    /// that are read.
    pub fn new(src_counts: &[usize], dst_counts: &[usize], relations: &[RelationEdges<'_>]) -> Result<Self> {
        check_counts(src_counts, dst_counts)?;
        let (src_types, dst_types) = (starts(src_counts), starts(dst_counts));
        let mut found = Self {
            dst_is_src_prefix: src_counts.len() == 1 || src_counts == dst_counts,
            edge_types: starts(&relations.iter().map(|relation| relation.sources.len()).collect::<Vec<_>>()),
            ends: Vec::new(),
            src: Vec::new(),
            dst: Vec::new(),
            src_types,
            dst_types,
            dst_in_src: OnceLock::new(),
            dst_starts: OnceLock::new(),
            written_starts: OnceLock::new(),
            node_edges: Default::default(),
            by_dst: OnceLock::new(),
            by_src: OnceLock::new(),
        };
        for (at, relation) in relations.iter().enumerate() {
            found.add(at, relation, src_counts, dst_counts)?;
        }
        Ok(found)
    }

    fn add(&mut self, at: usize, relation: &RelationEdges<'_>, src: &[usize], dst: &[usize]) -> Result<()> {
        let wrong = |why: String| Error::Graph { relation: at, why };
        let types = src.len();
        if relation.src_type >= types || relation.dst_type >= types {
            return Err(wrong(format!(
                "an end is of type {}; there are {types}",
                relation.src_type.max(relation.dst_type)
            )));
        }
        let (sources, targets) = (src[relation.src_type], dst[relation.dst_type]);
        let edges = relation.sources.len();
        let is_list = relation.offsets.len() == targets + 1
            && relation.offsets[0] == 0
            && relation.offsets.is_sorted()
            && relation.offsets[targets] == edges;
        if !is_list {
            return Err(wrong(format!("offsets do not list {edges} edges of {targets} destinations")));
        }
        if let Some(bad) = relation.sources.iter().find(|source| **source as usize >= sources) {
            return Err(wrong(format!("source {bad} is not one of {sources}")));
        }
        let (first_src, first_dst) = (number(self.src_types[relation.src_type]), self.dst_types[relation.dst_type]);
        self.src.extend(relation.sources.iter().map(|source| first_src + source));
        for (target, list) in relation.offsets.windows(2).enumerate() {
            self.dst.extend(std::iter::repeat_n(number(first_dst + target), list[1] - list[0]));
        }
        self.ends.push([number(relation.src_type), number(relation.dst_type)]);
        Ok(())
    }

    /// Rows of a domain.
    #[must_use]
    pub fn rows(&self, domain: Domain) -> usize {
        match domain {
            Domain::Const => 1,
            Domain::NodeType => self.src_types.len() - 1,
            Domain::EdgeType => self.ends.len(),
            Domain::Node(Side::Src) => self.src_types[self.src_types.len() - 1],
            Domain::Node(Side::Dst) => self.dst_types[self.dst_types.len() - 1],
            Domain::Pair(side) => self.pairs(side).nodes.len(),
            Domain::Edge => self.src.len(),
        }
    }

    /// Which row of `coarse` each row of `fine` belongs to; `None` where it belongs to none.
    #[must_use]
    pub fn map(&self, fine: Domain, coarse: Domain, path: Path) -> Option<Map<'_>> {
        use Domain::{Const, Edge, EdgeType, Node, NodeType, Pair};
        if fine == coarse {
            return Some(Map::Same);
        }
        if !fine.maps_to(coarse, path) {
            return None;
        }
        Some(match (fine, coarse, path) {
            (_, Const, _) => Map::First,
            (Edge, Node(Side::Src), _) => Map::Listed(&self.src),
            (Edge, Node(Side::Dst), _) => Map::Listed(&self.dst),
            (Edge, Pair(side), _) => Map::Listed(&self.pairs(side).of_edge),
            (Edge, EdgeType, _) => Map::Stretches(&self.edge_types),
            (Pair(side), EdgeType, _) => Map::Stretches(&self.pairs(side).types),
            (Pair(side), Node(_), _) => Map::Listed(&self.pairs(side).nodes),
            (Node(Side::Src), NodeType, _) => Map::Stretches(&self.src_types),
            (Node(Side::Dst), NodeType, _) => Map::Stretches(&self.dst_types),
            (Node(Side::Dst), Node(Side::Src), _) if self.dst_is_src_prefix => Map::Same,
            (Node(Side::Dst), Node(Side::Src), _) => Map::Listed(self.dst_in_src()),
            (Edge, NodeType, Path::By(end)) => Map::Ends(&self.edge_types, &self.ends, end),
            (Pair(side), NodeType, Path::By(end)) => Map::Ends(&self.pairs(side).types, &self.ends, end),
            (EdgeType, NodeType, Path::By(end)) => Map::Ends(self.every_type(), &self.ends, end),
            _ => return None,
        })
    }

    /// Which rows of `fine` belong to each row of `coarse`, in order; `None` where none can.
    #[must_use]
    pub fn members(&self, coarse: Domain, fine: Domain, path: Path) -> Option<Members<'_>> {
        members::members(self, coarse, fine, path)
    }

    /// Where the edges of each row of a domain begin, were they row after row; `None` for rows that edges do not belong to.
    #[must_use]
    pub fn edge_starts(&self, rows: Domain) -> Option<std::borrow::Cow<'_, [usize]>> {
        members::edge_starts(self, rows)
    }

    /// Where the rows of each type begin in a domain, when rows of a type are neighbours along `path`.
    #[must_use]
    pub fn stretches(&self, domain: Domain, types: Domain, path: Path) -> Option<&[usize]> {
        match self.map(domain, types, path)? {
            Map::Stretches(starts) => Some(starts),
            _ => None,
        }
    }

    fn pairs(&self, side: Side) -> &Pairs {
        match side {
            Side::Dst => lazily(&self.by_dst, || Pairs::of_sorted(&self.dst, &self.edge_types)),
            Side::Src => {
                lazily(&self.by_src, || Pairs::of_any(&self.src, &self.edge_types, self.rows(Domain::Node(Side::Src))))
            }
        }
    }

    fn dst_in_src(&self) -> &[u32] {
        lazily::<Vec<u32>>(&self.dst_in_src, || {
            let of_type = |types: usize| self.dst_types[types + 1] - self.dst_types[types];
            let numbers = (0..self.dst_types.len() - 1)
                .flat_map(|types| (0..of_type(types)).map(move |at| number(self.src_types[types] + at)));
            numbers.collect()
        })
    }

    /// Every edge type is a stretch of itself.
    fn every_type(&self) -> &[usize] {
        &self.pairs(Side::Dst).each_type
    }
}

/// What a cell holds, made if it was not. The cell is not locked while it is made: a process that is forked meanwhile would
/// wait for a thread that it does not have. Two threads may make it, and one of them is heard.
fn lazily<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    if let Some(found) = cell.get() {
        return found;
    }
    let made = make();
    cell.get_or_init(|| made)
}

fn starts(counts: &[usize]) -> Vec<usize> {
    let sum = counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    std::iter::once(0).chain(sum).collect()
}

fn check_counts(src: &[usize], dst: &[usize]) -> Result<()> {
    let total: usize = src.iter().sum();
    let fits = src.len() == dst.len() && src.iter().zip(dst).all(|(src, dst)| dst <= src);
    if !fits {
        let why = format!("{dst:?} nodes a type are written; they are not the first of {src:?} that are read");
        return Err(Error::Graph { relation: 0, why });
    }
    if u32::try_from(total).is_err() {
        return Err(Error::Graph { relation: 0, why: format!("{total} nodes; a block has less than 2^32") });
    }
    Ok(())
}

/// A number that was checked to be small enough.
#[expect(clippy::cast_possible_truncation, reason = "nodes and edges are counted when the graph is made")]
fn number(at: usize) -> u32 {
    at as u32
}
