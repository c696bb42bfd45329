//! How many translations of host addresses a gather has under way, found in the first batches of a run.
//!
//! Many under way make the gather short and the steps beside it long, few do the opposite (`docs/results` has figures). Which is
//! best depends on the machine, the batch and the model, so a few numbers are tried for some batches each. What is learnt does
//! not depend on it.

use headwater_feature::WINDOW;

/// What is tried, the first being what a gather alone would take.
const TRIED: [u64; 5] = [WINDOW, 160, 112, 80, 56];
/// Batches after a change that still belong to the one before.
const SETTLING: usize = 3;
/// Batches that count.
const COUNTED: usize = 6;

/// The choice, as it is made.
#[derive(Debug)]
pub(crate) enum Pace {
    /// As the user or a measurement has it.
    Settled,
    /// One number after the other is tried.
    Trying { at: usize, times_ms: Vec<f64>, medians_ms: Vec<f64> },
}

impl Pace {
    /// Nothing to choose, or a choice to be made.
    pub fn new(is_to_be_found: bool) -> Self {
        if is_to_be_found {
            Self::Trying { at: 0, times_ms: Vec::new(), medians_ms: Vec::new() }
        } else {
            Self::Settled
        }
    }

    /// A batch took so long. What the gathers from now on should have under way, where that changes.
    pub fn note(&mut self, batch_ms: f64) -> Option<u64> {
        let Self::Trying { at, times_ms, medians_ms } = self else { return None };
        times_ms.push(batch_ms);
        if times_ms.len() < SETTLING + COUNTED {
            return None;
        }
        let mut counted = times_ms.split_off(SETTLING);
        counted.sort_by(f64::total_cmp);
        medians_ms.push(counted[COUNTED / 2]);
        times_ms.clear();
        *at += 1;
        if let Some(next) = TRIED.get(*at) {
            return Some(*next);
        }
        let best = (0..TRIED.len()).min_by(|a, b| medians_ms[*a].total_cmp(&medians_ms[*b])).unwrap_or(0);
        let all: Vec<String> =
            TRIED.iter().zip(&*medians_ms).map(|(window, ms)| format!("{window}: {ms:.3} ms")).collect();
        log::info!("the gather has {} translations under way ({})", TRIED[best], all.join(", "));
        *self = Self::Settled;
        Some(TRIED[best])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_of_all_is_taken() {
        let mut pace = Pace::new(true);
        let (mut window, mut changes) = (TRIED[0], 0);
        // Batches are shortest near 100, but for one that took long for another reason.
        for batch in 0..TRIED.len() * (SETTLING + COUNTED) {
            let own = (window as f64 - 100.0).abs() / 100.0 + 1.0;
            if let Some(next) = pace.note(if batch % 9 == 5 { 50.0 } else { own }) {
                (window, changes) = (next, changes + 1);
            }
        }
        assert_eq!((window, changes), (112, TRIED.len()));
        assert!((0..100).all(|_| pace.note(1.0).is_none()));
        assert!((0..100).all(|_| Pace::new(false).note(1.0).is_none()));
    }
}
