//! From units to requests, decided from numbers.
//!
//! Units that follow each other are one request. So are units with a gap between them, when reading the gap costs less
//! than another request. A request is no longer than a staging buffer.

use std::ops::Range;

use headwater_memory::io::align::Window;
use headwater_memory::io::merge::{MergeOptions, plan_reads};

use crate::error::Result;

/// What a disk asks for reading: so much a request, so much a byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadCost {
    /// Time that a request adds when many are in flight, beside that of its bytes.
    pub request_us: f64,
    /// Rate at which a request of a few pages grows longer.
    pub gb_per_s: f64,
}

/// One request for some of the units of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRead {
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is.
    pub bytes: usize,
    /// Which units of the list it brings.
    pub units: Range<usize>,
}

/// Limits of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadRules {
    /// Bytes of a unit, a power of two.
    pub unit_bytes: usize,
    /// No request is longer.
    pub most_bytes: usize,
    /// What requests cost.
    pub cost: ReadCost,
}

impl ReadCost {
    /// Bytes that take as long as one more request.
    #[must_use]
    pub fn gap_bytes(&self) -> u64 {
        // A rate in GB/s is as many thousand bytes a microsecond.
        let bytes = self.request_us * self.gb_per_s * 1e3;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts from floats saturate")]
        let bytes = bytes.max(0.0) as u64;
        bytes
    }
}

impl Default for ReadCost {
    /// Of a cloud disk, where one page takes 10 us, two 14 us and four 27 us: a gap of one page is worth reading. On NVMe
    /// drives both numbers are better, and their product is about the same.
    fn default() -> Self {
        Self { request_us: 6.0, gb_per_s: 1.0 }
    }
}

/// Requests for units in rising order, each unit once.
pub fn plan(units: &[u64], rules: &ReadRules) -> Result<Vec<UnitRead>> {
    let unit_bytes = rules.unit_bytes as u64;
    let windows: Vec<Window> =
        units.iter().map(|unit| Window { offset: unit.saturating_mul(unit_bytes), len: unit_bytes }).collect();
    let options = MergeOptions {
        alignment: unit_bytes,
        max_gap_bytes: rules.cost.gap_bytes(),
        max_window_bytes: rules.most_bytes as u64,
    };
    let plan = plan_reads(&windows, &options)?;
    let mut reads = Vec::with_capacity(plan.windows.len());
    let mut first = 0;
    for (at, planned) in plan.windows.iter().enumerate() {
        let end = first + plan.rows[first..].iter().take_while(|place| place.window == at).count();
        let bytes = usize::try_from(planned.window.len).unwrap_or(usize::MAX);
        reads.push(UnitRead { offset: planned.window.offset, bytes, units: first..end });
        first = end;
    }
    Ok(reads)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(gap_units: u32, most_units: usize) -> ReadRules {
        let cost = ReadCost { request_us: f64::from(gap_units) * 4.096, gb_per_s: 1.0 };
        ReadRules { unit_bytes: 4096, most_bytes: most_units * 4096, cost }
    }

    fn shape(units: &[u64], rules: &ReadRules) -> Vec<(u64, usize, Range<usize>)> {
        let reads = plan(units, rules).unwrap();
        reads.into_iter().map(|read| (read.offset / 4096, read.bytes / 4096, read.units)).collect()
    }

    #[test]
    fn neighbours_are_one_request() {
        for (gap, most, units, want) in [
            (0, 8, vec![], vec![]),
            (0, 8, vec![3], vec![(3, 1, 0..1)]),
            (0, 8, vec![3, 4, 5, 9], vec![(3, 3, 0..3), (9, 1, 3..4)]),
            (0, 2, vec![3, 4, 5], vec![(3, 2, 0..2), (5, 1, 2..3)]),
            (2, 8, vec![3, 6, 10], vec![(3, 4, 0..2), (10, 1, 2..3)]),
            (2, 3, vec![3, 6], vec![(3, 1, 0..1), (6, 1, 1..2)]),
        ] {
            assert_eq!(shape(&units, &rules(gap, most)), want, "{units:?}");
        }
    }

    #[test]
    fn a_gap_is_worth_a_request() {
        assert_eq!(ReadCost { request_us: 10.0, gb_per_s: 2.0 }.gap_bytes(), 20_000);
        for odd in [f64::NAN, -1.0, f64::INFINITY] {
            // Whatever it says, it is a number.
            let _ = ReadCost { request_us: odd, gb_per_s: 1.0 }.gap_bytes();
        }
        assert!(plan(&[u64::MAX], &rules(0, 8)).is_err());
        assert!(plan(&[1], &rules(0, 0)).is_err());
    }

    proptest! {
        #[test]
        fn every_unit_is_read_once(
            units in proptest::collection::btree_set(0u64..400, 0..80),
            gap in 0u32..6,
            most in 1usize..20,
        ) {
            let units: Vec<u64> = units.into_iter().collect();
            let reads = shape(&units, &rules(gap, most));
            let mut next = 0;
            for (at, (first, length, range)) in reads.iter().enumerate() {
                prop_assert!(range.start == next && !range.is_empty() && *length <= most);
                let inside = units[range.clone()].iter().all(|unit| (*first..first + *length as u64).contains(unit));
                prop_assert!(inside);
                prop_assert!(at == 0 || reads[at - 1].0 + reads[at - 1].1 as u64 <= *first);
                next = range.end;
            }
            prop_assert_eq!(next, units.len());
        }
    }
}
