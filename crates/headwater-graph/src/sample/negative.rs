//! Pairs of nodes that no edge connects.
//!
//! Both ends are uniform and drawn from different counters. Strict draws are looked up in the graph and drawn again when
//! they hit an edge; on a dense graph that may not end, so there is a number of trials, and what is left over is told.

use rayon::prelude::*;

use crate::error::Result;
use crate::random::Key;
use crate::topology::{Layout, Topology};

/// Whether a negative may be an edge by accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// It may: nothing is looked up. What PyG does.
    Loose,
    /// It may not; each is drawn at most so many times.
    Strict {
        /// Draws before giving up, at least 1.
        trials: u32,
    },
}

/// Pairs that are no edges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Negatives {
    /// Where they would begin.
    pub sources: Vec<u64>,
    /// Where they would end.
    pub targets: Vec<u64>,
    /// Pairs that hit an edge in every trial, and are left out.
    pub unresolved: u64,
}

/// `count` random pairs less those that could not be resolved. A relation without possible pairs gives none.
pub fn negative_edges(topology: &Topology, count: u64, strictness: Strictness, key: Key) -> Result<Negatives> {
    let pairs = Pairs { topology, strictness, key };
    if pairs.source_count() == 0 || pairs.target_count() == 0 {
        return Ok(Negatives { unresolved: count, ..Negatives::default() });
    }
    let drawn: Vec<Drawn> = (0..count).into_par_iter().map(|at| pairs.draw(at, None)).collect();
    let kept = drawn.iter().filter(|drawn| drawn.is_free);
    let (sources, targets): (Vec<u64>, Vec<u64>) = kept.map(|drawn| (drawn.source, drawn.target)).unzip();
    Ok(Negatives { unresolved: count - sources.len() as u64, sources, targets })
}

/// What negatives are drawn from.
pub(super) struct Pairs<'a> {
    pub topology: &'a Topology,
    pub strictness: Strictness,
    pub key: Key,
}

/// One draw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub source: u64,
    pub target: u64,
    /// Whether it is no edge, or nobody looked.
    pub is_free: bool,
}

impl Pairs<'_> {
    pub fn source_count(&self) -> u64 {
        match self.topology.layout() {
            Layout::Csc => self.topology.columns(),
            Layout::Csr => self.topology.rows(),
        }
    }

    pub fn target_count(&self) -> u64 {
        match self.topology.layout() {
            Layout::Csc => self.topology.rows(),
            Layout::Csr => self.topology.columns(),
        }
    }

    /// The pair numbered `at`, from a given source or from any.
    pub fn draw(&self, at: u64, source: Option<u64>) -> Drawn {
        let key = self.key.of(at);
        let trials = match self.strictness {
            Strictness::Loose => 1,
            Strictness::Strict { trials } => u64::from(trials.max(1)),
        };
        let draw = |trial: u64| {
            let source = source.unwrap_or_else(|| key.below(2 * trial, self.source_count()));
            let target = key.below(2 * trial + 1, self.target_count());
            let is_free = self.strictness == Strictness::Loose || !self.is_edge(source, target);
            Drawn { source, target, is_free }
        };
        let last = draw(trials - 1);
        (0..trials - 1).map(draw).find(|drawn| drawn.is_free).unwrap_or(last)
    }

    fn is_edge(&self, source: u64, target: u64) -> bool {
        match self.topology.layout() {
            Layout::Csc => self.topology.has_edge(target, source),
            Layout::Csr => self.topology.has_edge(source, target),
        }
    }
}
