//! Which launches wait for which: those that touch the same memory, if one of them writes it. All others may run beside each other where
//! they are recorded as one graph. Temporary buffers share memory one after the other, so it is addresses that count.

use std::ops::Range;

/// Memory that a launch reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touched {
    pub at: Range<u64>,
    pub is_written: bool,
}

/// Those launches before each that it waits for. What these wait for themselves is left out.
pub(super) fn waits(launches: &[Vec<Touched>]) -> Vec<Vec<usize>> {
    // Whether a launch is over once another begins.
    let mut is_over: Vec<Vec<bool>> = Vec::with_capacity(launches.len());
    let mut found = Vec::with_capacity(launches.len());
    for (at, own) in launches.iter().enumerate() {
        let (mut over, mut after) = (vec![false; at], Vec::new());
        for before in (0..at).rev() {
            if !over[before] && conflict(&launches[before], own) {
                after.push(before);
                over[before] = true;
                is_over[before].iter().zip(&mut over).for_each(|(is_over, own)| *own |= is_over);
            }
        }
        is_over.push(over);
        found.push(after);
    }
    found
}

fn conflict(one: &[Touched], other: &[Touched]) -> bool {
    let overlap = |a: &Touched, b: &Touched| a.at.start < b.at.end && b.at.start < a.at.end;
    one.iter().any(|a| other.iter().any(|b| (a.is_written || b.is_written) && overlap(a, b)))
}

#[cfg(test)]
mod tests {
    use headwater_graph::random::Key;

    use super::*;

    fn is_behind(waits: &[Vec<usize>], launch: usize, other: usize) -> bool {
        waits[launch].iter().any(|before| *before == other || is_behind(waits, *before, other))
    }

    /// Launches over random ranges: two that conflict are in order, and none waits for another twice or without a reason.
    #[test]
    fn conflicts_are_in_order_and_nothing_else_is() {
        for case in 0..200_u64 {
            let (key, mut drawn) = (Key::new(case), 0);
            let mut below = |most: u64| {
                drawn += 1;
                key.below(drawn, most)
            };
            let count = 1 + below(12);
            let launches: Vec<Vec<Touched>> = (0..count)
                .map(|_| {
                    (0..1 + below(3))
                        .map(|_| {
                            let first = below(12);
                            Touched { at: first..first + below(4), is_written: below(3) == 0 }
                        })
                        .collect()
                })
                .collect();
            let waits = waits(&launches);
            for (at, after) in waits.iter().enumerate() {
                for before in 0..at {
                    let is_direct = after.contains(&before);
                    assert!(!conflict(&launches[before], &launches[at]) || is_behind(&waits, at, before));
                    assert!(!is_direct || conflict(&launches[before], &launches[at]));
                    let by_others = after.iter().any(|other| *other != before && is_behind(&waits, *other, before));
                    assert!(!(is_direct && by_others), "{before} before {at} of {waits:?}");
                }
            }
        }
    }
}
