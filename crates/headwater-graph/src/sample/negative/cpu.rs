//! Negatives on the CPU, many at a time.

use rayon::prelude::*;

use super::{Negatives, Pairs, Sources, Strictness};
use crate::build::expect_room;
use crate::error::Result;
use crate::random::Key;
use crate::topology::{Layout, Topology};

/// Fewer pairs than this are drawn by one thread: waking another takes longer.
const WORTH_A_THREAD: usize = 1 << 10;

/// `count` random pairs less those that could not be resolved. A relation without possible pairs gives none.
pub fn negative_edges(topology: &Topology, count: u64, strictness: Strictness, key: Key) -> Result<Negatives> {
    let pairs = Pairs { topology, strictness, key, sources: Sources::Drawn };
    if pairs.is_empty() {
        return Ok(Negatives { unresolved: count, ..Negatives::default() });
    }
    let drawn = pairs.draw_all(count)?;
    let free = drawn.iter().filter(|pair| pair.is_free);
    let (sources, targets): (Vec<u64>, Vec<u64>) = free.map(|pair| (pair.source, pair.target)).unzip();
    Ok(Negatives { unresolved: count - sources.len() as u64, sources, targets })
}

/// One draw.
#[derive(Debug, Clone, Copy)]
struct Pair {
    source: u64,
    target: u64,
    /// Whether it is no edge, or nobody looked.
    is_free: bool,
}

impl Pairs<'_> {
    /// The first `count` pairs; those that could not be resolved stand where they are, and are counted.
    pub fn draw(&self, count: u64) -> Result<Negatives> {
        let drawn = self.draw_all(count)?;
        let unresolved = drawn.iter().filter(|pair| !pair.is_free).count() as u64;
        let (sources, targets) = drawn.iter().map(|pair| (pair.source, pair.target)).unzip();
        Ok(Negatives { sources, targets, unresolved })
    }

    /// Fails when there is no room for the pairs, and for the two lists they become.
    fn draw_all(&self, count: u64) -> Result<Vec<Pair>> {
        expect_room("drawing negatives", count.saturating_mul(2 * size_of::<Pair>() as u64))?;
        let draws = (0..crate::topology::index(count)).into_par_iter().with_min_len(WORTH_A_THREAD);
        Ok(draws.map(|at| self.draw_one(at as u64)).collect())
    }

    /// The first draw that is no edge, or else the last.
    fn draw_one(&self, at: u64) -> Pair {
        let (key, given) = (self.key.of(at), self.sources.given(at));
        let (source_count, target_count) = (self.source_count(), self.target_count());
        let mut trial = 0;
        loop {
            let source = given.unwrap_or_else(|| key.below(2 * trial, source_count));
            let target = key.below(2 * trial + 1, target_count);
            let is_free = self.strictness == Strictness::Loose || !self.is_edge(source, target);
            trial += 1;
            if is_free || trial == self.lookups() {
                return Pair { source, target, is_free };
            }
        }
    }

    fn is_edge(&self, source: u64, target: u64) -> bool {
        match self.topology.layout() {
            Layout::Csc => self.topology.has_edge(target, source),
            Layout::Csr => self.topology.has_edge(source, target),
        }
    }
}
