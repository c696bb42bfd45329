//! Recursive quadrants: the adjacency matrix of a power-law graph, drawn five halvings at a time.
//!
//! R-MAT finds an edge by choosing one of four quadrants again and again. Five choices together have 1024 outcomes; an
//! alias table draws one of them from 32 random bits (10 choose a cell, 22 decide between its two outcomes), so an edge
//! among 2^27 nodes takes three 64-bit draws instead of 27 floats. The table has 8 KB and stays in the first cache.

use crate::random::Key;

const LEVELS: u32 = 5;
const OUTCOMES: usize = 1 << (2 * LEVELS);
const THRESHOLD_BITS: u32 = 32 - 2 * LEVELS;

/// How likely an edge is to fall into each quadrant of the matrix, again and again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skew {
    /// Both ends in the lower half.
    pub a: f64,
    /// The source in the lower, the target in the upper half.
    pub b: f64,
    /// The source in the upper, the target in the lower half.
    pub c: f64,
    /// Both ends in the upper half.
    pub d: f64,
}

impl Skew {
    /// What Graph500 takes: hubs as in social and citation networks.
    pub const GRAPH500: Self = Self { a: 0.57, b: 0.19, c: 0.19, d: 0.05 };
    /// Every pair of nodes is as likely as any other.
    pub const EVEN: Self = Self { a: 0.25, b: 0.25, c: 0.25, d: 0.25 };

    /// Whether these are chances.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let all = [self.a, self.b, self.c, self.d];
        all.iter().all(|chance| (0.0..=1.0).contains(chance)) && (all.iter().sum::<f64>() - 1.0).abs() < 1e-6
    }
}

/// Draws pairs of slots. Low slots have many edges, high ones few.
#[derive(Debug, Clone)]
pub(super) struct Quadrants {
    cells: Vec<Cell>,
    groups: u32,
    /// Bits that the last group has too many.
    spare: u32,
    levels: u32,
    sources: u64,
    targets: u64,
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    /// Below this the outcome is the cell's own number.
    threshold: u32,
    /// The outcome otherwise.
    other: u16,
}

impl Quadrants {
    pub(super) fn new(skew: Skew, sources: u64, targets: u64) -> Self {
        let levels = (64 - (sources.max(targets).max(2) - 1).leading_zeros()).max(1);
        let groups = levels.div_ceil(LEVELS);
        Self { cells: alias_table(skew), groups, spare: groups * LEVELS - levels, levels, sources, targets }
    }

    /// The slots of both ends of the edge with this number.
    #[expect(clippy::cast_possible_truncation, reason = "halves of a draw are meant, and slots are below their count")]
    pub(super) fn draw(&self, key: Key, edge: u64) -> (u64, u64) {
        const SIDE: u64 = (1 << LEVELS) - 1;
        let draws = u64::from(self.groups.div_ceil(2));
        let (mut source, mut target, mut bits) = (0u64, 0u64, 0);
        for group in 0..self.groups {
            bits = if group % 2 == 0 { key.draw(edge * draws + u64::from(group / 2)) } else { bits >> 32 };
            let random = bits as u32;
            let at = (random >> THRESHOLD_BITS) as u16;
            let cell = self.cells[usize::from(at)];
            let own = random & ((1 << THRESHOLD_BITS) - 1) < cell.threshold;
            let outcome = u64::from(if own { at } else { cell.other });
            (source, target) = (source << LEVELS | outcome >> LEVELS, target << LEVELS | outcome & SIDE);
        }
        // The matrix has a power of two a side; its slots are squeezed onto the nodes there are.
        let fit = |slot: u64, count: u64| ((u128::from(slot >> self.spare) * u128::from(count)) >> self.levels) as u64;
        (fit(source, self.sources), fit(target, self.targets))
    }
}

/// Vose's alias method: every cell has room for the same chance, and what one outcome leaves free another fills.
#[expect(clippy::cast_possible_truncation, reason = "outcomes have ten bits, thresholds twenty-two")]
fn alias_table(skew: Skew) -> Vec<Cell> {
    let mut chances: Vec<f64> = (0..OUTCOMES).map(|outcome| chance(skew, outcome) * OUTCOMES as f64).collect();
    let mut cells: Vec<Cell> =
        (0..OUTCOMES).map(|at| Cell { threshold: 1 << THRESHOLD_BITS, other: at as u16 }).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..OUTCOMES).partition(|at| chances[*at] < 1.0);
    while let (Some(less), Some(more)) = (small.pop(), large.pop()) {
        let threshold = (chances[less] * f64::from(1u32 << THRESHOLD_BITS)).round() as u32;
        cells[less] = Cell { threshold, other: more as u16 };
        chances[more] -= 1.0 - chances[less];
        if chances[more] < 1.0 { small.push(more) } else { large.push(more) }
    }
    cells
}

/// The chance of five choices: bits of the source above, bits of the target below.
fn chance(skew: Skew, outcome: usize) -> f64 {
    let quadrants = [skew.a, skew.b, skew.c, skew.d];
    let quadrant = |level: u32| 2 * (outcome >> (LEVELS + level) & 1) + (outcome >> level & 1);
    (0..LEVELS).map(|level| quadrants[quadrant(level)]).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every level of an edge falls into each quadrant as often as it should: chi-square, three degrees of freedom.
    #[test]
    fn quadrants_have_their_chances_at_every_level() {
        let (levels, edges, skew) = (13, 200_000u64, Skew::GRAPH500);
        let quadrants = Quadrants::new(skew, 1 << levels, 1 << levels);
        let mut counts = vec![[0u64; 4]; levels];
        for edge in 0..edges {
            let (source, target) = quadrants.draw(Key::new(7), edge);
            for (level, counts) in counts.iter_mut().enumerate() {
                counts[usize::try_from(2 * (source >> level & 1) + (target >> level & 1)).unwrap()] += 1;
            }
        }
        for (level, counts) in counts.iter().enumerate() {
            let expected = [skew.a, skew.b, skew.c, skew.d].map(|chance| chance * edges as f64);
            let distance: f64 = counts.iter().zip(expected).map(|(n, e)| (*n as f64 - e).powi(2) / e).sum();
            // One in a million.
            assert!(distance < 30.7, "level {level}: {counts:?} for {expected:?}, {distance}");
        }
    }

    #[test]
    fn slots_stay_below_their_counts() {
        for (sources, targets) in [(1, 1), (1, 9), (1000, 3), (6000, 6001), (1 << 33, 5)] {
            let quadrants = Quadrants::new(Skew::GRAPH500, sources, targets);
            let drawn: Vec<(u64, u64)> = (0..3000).map(|edge| quadrants.draw(Key::new(2), edge)).collect();
            assert!(drawn.iter().all(|(source, target)| *source < sources && *target < targets));
        }
        assert!(Skew::EVEN.is_valid() && !Skew { a: 0.9, ..Skew::EVEN }.is_valid());
    }
}
