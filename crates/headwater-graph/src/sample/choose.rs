//! Which positions of a row are taken: the heart of every sampler, as pure functions of a key.
//!
//! Everything here has a twin in `choose.cuh` that gives the same positions in the same order. Only integer arithmetic
//! and, for weights, additions, products and quotients of doubles in a fixed order are used, so both agree to the bit.
//!
//! Without replacement is Robert Floyd's method: draw `j` is uniform below `degree - wanted + j + 1`, and one that was
//! taken already gives way to the last position of that range, which cannot have been. It takes as many draws as
//! positions, whatever the degree. Every subset is equally likely; the order inside one is not random. With weights every
//! edge gets an exponential arrival time of its weight as rate, and the earliest are taken: the same distribution as
//! drawing one by one in proportion to the weights that are left.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::random::Key;

/// Up to this many positions are compared one by one.
const FEW: usize = 32;
/// Up to this degree one word remembers what was taken.
const WORD: u64 = 64;

/// Memory that choosing needs, kept from row to row.
#[derive(Debug, Default)]
pub struct Chooser {
    /// An open-addressed set for long lists of positions.
    taken: Vec<u64>,
    /// The earliest arrivals of the last row.
    arrivals: Vec<Arrival>,
}

/// When an edge arrives.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    time: f64,
    position: u64,
}

impl Chooser {
    /// `wanted` of `degree` positions, each subset equally likely; all of them, in order, when there are no more than that.
    #[inline]
    pub fn without_replacement(&mut self, key: Key, degree: u64, wanted: u64, out: &mut Vec<u64>) {
        if degree <= wanted {
            out.extend(0..degree);
        } else if degree <= WORD {
            floyd(key, degree, wanted, out, &mut Word(0));
        } else if wanted <= FEW as u64 {
            few(key, degree, wanted, out);
        } else {
            let mut set = Set::new(&mut self.taken, wanted);
            floyd(key, degree, wanted, out, &mut set);
        }
    }

    /// `wanted` positions, each uniform among `degree`; none of nothing.
    #[inline]
    pub fn with_replacement(key: Key, degree: u64, wanted: u64, out: &mut Vec<u64>) {
        if degree > 0 {
            out.extend((0..wanted).map(|draw| key.below(draw, degree)));
        }
    }

    /// The last `wanted` of `degree` positions, in order.
    #[inline]
    pub fn last(degree: u64, wanted: u64, out: &mut Vec<u64>) {
        out.extend(degree.saturating_sub(wanted)..degree);
    }

    /// `wanted` positions in proportion to their weights, in the order they arrive; all that have a weight, in their
    /// order, when those are no more than that.
    pub fn weighted(&mut self, key: Key, weights: &[f32], wanted: u64, out: &mut Vec<u64>) {
        let has_weight = |&position: &u64| weight_at(weights, position) > 0.0;
        let positions = 0..weights.len() as u64;
        if positions.clone().filter(has_weight).take(crate::topology::index(wanted) + 1).count() as u64 <= wanted {
            out.extend(positions.filter(has_weight));
            return;
        }
        let mut earliest = Earliest::new(std::mem::take(&mut self.arrivals), crate::topology::index(wanted));
        for position in positions.filter(has_weight) {
            earliest.see(key.draw(position), weight_at(weights, position), position);
        }
        self.arrivals = earliest.into_sorted();
        out.extend(self.arrivals.iter().map(|arrival| arrival.position));
    }

    /// `wanted` positions, each drawn in proportion to the weights; none when no weight is positive.
    pub fn weighted_with_replacement(key: Key, weights: &[f32], wanted: u64, out: &mut Vec<u64>) {
        for draw in 0..wanted {
            let key = key.of(draw);
            let mut first: Option<Arrival> = None;
            for (position, &weight) in (0..).zip(weights).filter(|(_, weight)| **weight > 0.0) {
                let bits = key.draw(position);
                if first.is_none_or(|first| !is_surely_later(bits, weight, first)) {
                    let arrival = Arrival { time: arrival(bits, weight), position };
                    first = Some(first.map_or(arrival, |first| first.min(arrival)));
                }
            }
            out.extend(first.map(|arrival| arrival.position));
        }
    }
}

/// The earliest arrivals so far, so many at most, the latest of them on top. Most come too late and cost one comparison.
struct Earliest {
    heap: BinaryHeap<Arrival>,
    wanted: usize,
}

impl Earliest {
    fn new(mut memory: Vec<Arrival>, wanted: usize) -> Self {
        memory.clear();
        Self { heap: BinaryHeap::from(memory), wanted }
    }

    #[inline]
    fn see(&mut self, bits: u64, weight: f32, position: u64) {
        let arrive = || Arrival { time: arrival(bits, weight), position };
        if self.heap.len() < self.wanted {
            self.heap.push(arrive());
        } else if let Some(mut latest) = self.heap.peek_mut()
            && !is_surely_later(bits, weight, *latest)
        {
            let arrival = arrive();
            if arrival < *latest {
                *latest = arrival;
            }
        }
    }

    fn into_sorted(self) -> Vec<Arrival> {
        self.heap.into_sorted_vec()
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time.total_cmp(&other.time).then(self.position.cmp(&other.position))
    }
}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Arrival {}

/// Whether an edge arrives after another for certain, without its logarithm: `-ln(u)` is at least `1 - u`. Rounding is
/// far smaller than the share that is taken off.
#[inline]
fn is_surely_later(bits: u64, weight: f32, than: Arrival) -> bool {
    let missing = ((1 << 53) - ((bits >> 11) + 1)) as f64 * (1.0 / (1u64 << 53) as f64);
    missing * (1.0 - 1e-9) > than.time * f64::from(weight)
}

fn weight_at(weights: &[f32], position: u64) -> f32 {
    weights[crate::topology::index(position)]
}

/// What Floyd's method asks of its memory: takes a position and says whether it was free.
trait Taken {
    fn take(&mut self, position: u64) -> bool;
}

#[inline]
fn floyd(key: Key, degree: u64, wanted: u64, out: &mut Vec<u64>, taken: &mut impl Taken) {
    let first = degree - wanted;
    for draw in 0..wanted {
        let drawn = key.below(draw, first + draw + 1);
        let position = if taken.take(drawn) { drawn } else { first + draw };
        if position != drawn {
            taken.take(position);
        }
        out.push(position);
    }
}

/// As `floyd`; what was taken is what stands in `out`.
#[inline]
fn few(key: Key, degree: u64, wanted: u64, out: &mut Vec<u64>) {
    let (first, begin) = (degree - wanted, out.len());
    for draw in 0..wanted {
        let drawn = key.below(draw, first + draw + 1);
        // No early exit: a chain of comparisons without branches is faster than leaving it.
        let is_taken = out[begin..].iter().fold(false, |found, &other| found | (other == drawn));
        out.push(if is_taken { first + draw } else { drawn });
    }
}

/// Up to 64 positions as bits.
struct Word(u64);

impl Taken for Word {
    #[inline]
    fn take(&mut self, position: u64) -> bool {
        let bit = 1 << position;
        let was_free = self.0 & bit == 0;
        self.0 |= bit;
        was_free
    }
}

/// Positions plus one in a table that stays at most half full.
struct Set<'a>(&'a mut [u64]);

impl<'a> Set<'a> {
    fn new(memory: &'a mut Vec<u64>, most: u64) -> Self {
        let slots = crate::topology::index(most.saturating_mul(2)).next_power_of_two();
        memory.clear();
        memory.resize(slots, 0);
        Self(memory)
    }
}

impl Taken for Set<'_> {
    fn take(&mut self, position: u64) -> bool {
        let mask = self.0.len() - 1;
        let mut slot = crate::topology::index(crate::random::mix(position)) & mask;
        while self.0[slot] != 0 {
            if self.0[slot] == position + 1 {
                return false;
            }
            slot = (slot + 1) & mask;
        }
        self.0[slot] = position + 1;
        true
    }
}

/// When an edge of this weight arrives: an exponential number over the weight.
fn arrival(bits: u64, weight: f32) -> f64 {
    exponential(bits) / f64::from(weight)
}

/// `-ln(u)` for the uniform number above zero that these bits are. Every step is one rounded operation, in this order on
/// every device; the result is within a few units in the last place of the logarithm.
fn exponential(bits: u64) -> f64 {
    // u = n / 2^53 with n from 1 to 2^53.
    let number = ((bits >> 11) + 1) as f64;
    let raw = number.to_bits();
    let mut exponent = (raw >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((raw & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln(m) = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172: ten terms leave less than 1e-17.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        series = (series + 1.0 / odd) * square;
    }
    let ln_mantissa = 2.0 * (s + s * series);
    (53 - exponent) as f64 * std::f64::consts::LN_2 - ln_mantissa
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_memory_takes_the_same_positions() {
        for (degree, wanted) in [(40u64, 12u64), (64, 63), (65, 32), (1000, 32), (7, 6)] {
            for seed in 0..50 {
                let key = Key::new(seed);
                let (mut by_few, mut by_set) = (Vec::new(), Vec::new());
                few(key, degree, wanted, &mut by_few);
                let mut memory = Vec::new();
                floyd(key, degree, wanted, &mut by_set, &mut Set::new(&mut memory, wanted));
                assert_eq!(by_few, by_set);
                let mut chosen = Vec::new();
                Chooser::default().without_replacement(key, degree, wanted, &mut chosen);
                assert_eq!(chosen, by_set);
                chosen.sort_unstable();
                chosen.dedup();
                assert_eq!(chosen.len() as u64, wanted);
                assert!(chosen.iter().all(|&position| position < degree));
            }
        }
    }

    #[test]
    fn small_rows_are_taken_whole() {
        let mut out = vec![7];
        Chooser::default().without_replacement(Key::new(1), 3, 5, &mut out);
        Chooser::last(5, 2, &mut out);
        Chooser::last(1, 2, &mut out);
        Chooser::with_replacement(Key::new(1), 0, 4, &mut out);
        assert_eq!(out, [7, 0, 1, 2, 3, 4, 0]);
    }

    #[test]
    fn edges_without_weight_are_never_taken() {
        let weights = [0.0, 1.0, 0.0, 2.0, 0.5];
        let mut chooser = Chooser::default();
        let mut out = Vec::new();
        chooser.weighted(Key::new(1), &weights, 3, &mut out);
        assert_eq!(out, [1, 3, 4]);
        for seed in 0..200 {
            out.clear();
            chooser.weighted(Key::new(seed), &weights, 2, &mut out);
            Chooser::weighted_with_replacement(Key::new(seed), &weights, 3, &mut out);
            assert!(
                out.len() == 5 && out[0] != out[1] && out.iter().all(|&at| weight_at(&weights, at) > 0.0),
                "{out:?}"
            );
        }
        out.clear();
        chooser.weighted(Key::new(1), &[0.0; 4], 2, &mut out);
        Chooser::weighted_with_replacement(Key::new(1), &[0.0; 4], 2, &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn the_earliest_are_taken_in_their_order() {
        let weights: Vec<f32> = (0..4000).map(|at| (crate::random::mix(at) % 1000) as f32).collect();
        let extreme = [f32::INFINITY, 1.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, 1e-45, 0.0, 3.0];
        let (mut chooser, mut out) = (Chooser::default(), Vec::new());
        for (weights, wanted) in
            [(&weights[..], 5), (&weights, 700), (&weights[..70], 40), (&extreme, 2), (&extreme, 5)]
        {
            for seed in 0..5 {
                let key = Key::new(seed);
                let order = |key: Key| {
                    let arrive = |position: u64| (arrival(key.draw(position), weight_at(weights, position)), position);
                    let with_weight = (0..weights.len() as u64).filter(|&at| weight_at(weights, at) > 0.0);
                    let mut all: Vec<(f64, u64)> = with_weight.map(arrive).collect();
                    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
                    all.into_iter().map(|(_, position)| position)
                };
                out.clear();
                chooser.weighted(key, weights, wanted, &mut out);
                assert_eq!(out, order(key).take(usize::try_from(wanted).unwrap()).collect::<Vec<_>>());
                out.clear();
                Chooser::weighted_with_replacement(key, weights, 3, &mut out);
                assert_eq!(out, (0..3).map(|draw| order(key.of(draw)).next().unwrap()).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_logarithm_is_the_logarithm() {
        for bits in (0..1000u64).map(crate::random::mix).chain([0, u64::MAX, 1 << 63]) {
            let exact = -(((bits >> 11) + 1) as f64 / (1u64 << 53) as f64).ln();
            let ours = exponential(bits);
            assert!((ours - exact).abs() <= 1e-14 * exact.abs().max(1e-2), "{bits}: {ours} {exact}");
            assert!(ours >= 0.0);
        }
    }
}
