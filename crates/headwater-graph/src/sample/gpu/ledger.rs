//! The numbers that kernels of a batch hand each other, and the host in the end: where each stands.
//!
//! One array of 64-bit cells, filled by the host with what is known of the seeds, sent along with them, completed hop
//! by hop on the GPU, and read back once.

/// How many of everything there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dimensions {
    pub types: usize,
    pub relations: usize,
    pub hops: usize,
    /// Groups of seeds, in the order they were given.
    pub groups: usize,
}

/// The first cell of each part. The same fields stand in `batch.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ledger {
    /// Nodes of each type after the seeds and after each hop.
    pub counts: u64,
    /// Nodes of all types, likewise.
    pub discovered: u64,
    /// Edges before each hop, and in all.
    pub edges: u64,
    /// For each hop, where the edges of each relation begin, and how many there are.
    pub starts: u64,
    /// As `starts`, without the edges that must not be seen; filled only when there are such.
    pub kept: u64,
    /// For each hop, where the items of each relation begin, and how many there are.
    pub items: u64,
    /// For each segment (a group of seeds, or a hop's relation) the number of its first node in the batch...
    pub firsts: u64,
    /// ...and in its type.
    pub locals: u64,
    /// For each type, where its nodes begin in the list of nodes...
    pub node_base: u64,
    /// ...and its ids among the keys.
    pub type_base: u64,
    /// For each hop, how many blocks are done with numbering.
    pub done: u64,
    /// For each hop, how many blocks are done with ranking.
    pub ranked: u64,
    /// For each hop, the tickets of its three scans.
    pub tickets: u64,
}

impl Ledger {
    /// Where everything stands, and how many cells that takes. The first cell is for hops without room.
    pub fn new(of: Dimensions) -> (Self, usize) {
        let Dimensions { types, relations, hops, groups } = of;
        let mut next = 1;
        let mut part = |cells: usize| {
            let first = next;
            next += cells;
            first as u64
        };
        let segments = groups + hops * relations;
        let ledger = Self {
            counts: part((hops + 1) * types),
            discovered: part(hops + 1),
            edges: part(hops + 1),
            starts: part(hops * (relations + 1)),
            kept: part(hops * (relations + 1)),
            items: part((hops + 1) * (relations + 1)),
            firsts: part(segments),
            locals: part(segments),
            node_base: part(types),
            type_base: part(types),
            done: part(hops),
            ranked: part(hops),
            tickets: part(3 * hops),
        };
        (ledger, next)
    }
}

/// What a finished ledger says.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    pub of: Dimensions,
    pub ledger: Ledger,
    pub cells: &'a [u64],
    /// Whether edges were left out.
    pub leaves_out: bool,
}

impl Outcome<'_> {
    /// The hop that ran out of room.
    pub fn overflown_hop(&self) -> Option<usize> {
        self.cells[0].checked_sub(1).map(crate::topology::index)
    }

    /// Nodes of a type after so many hops.
    pub fn nodes(&self, hops: usize, node_type: usize) -> usize {
        self.cell(self.ledger.counts, hops * self.of.types + node_type)
    }

    /// Edges of all hops.
    pub fn edges(&self) -> usize {
        self.cell(self.ledger.edges, self.of.hops)
    }

    /// Where the edges of a hop's relation stand among all.
    pub fn segment(&self, hop: usize, relation: usize) -> std::ops::Range<usize> {
        let before = self.cell(self.ledger.edges, hop);
        let starts = if self.leaves_out { self.ledger.kept } else { self.ledger.starts };
        let start = |at: usize| before + self.cell(starts, hop * (self.of.relations + 1) + at);
        start(relation)..start(relation + 1)
    }

    fn cell(&self, part: u64, at: usize) -> usize {
        crate::topology::index(self.cells[crate::topology::index(part) + at])
    }
}
