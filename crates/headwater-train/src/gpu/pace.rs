//! How many translations of host addresses a gather has under way, found in the first batches of a run.
//!
//! Many under way make the gather short and the steps beside it long, few do the opposite (`docs/results` has figures). Which is
//! best depends on the machine, the batch and the model, so a few numbers are tried for some batches each. What is learnt does
//! not depend on it.

use headwater_feature::WINDOW;

/// What is tried, the first being what a gather alone would take.
const TRIED: [u64; 5] = [WINDOW, 160, 112, 80, 56];
/// All are tried so often, in turn, since machines drift.
const ROUNDS: usize = 3;
/// Batches after a change that still belong to the one before.
const SETTLING: usize = 3;
/// Batches that count.
const COUNTED: usize = 5;

/// The choice, as it is made.
#[derive(Debug)]
pub(crate) enum Pace {
    /// As the user or a measurement has it.
    Settled,
    /// One number after the other is tried. `all_ms` has the times of each.
    Trying { turn: usize, settled: usize, all_ms: [Vec<f64>; TRIED.len()] },
}

impl Pace {
    /// Nothing to choose, or a choice to be made.
    pub fn new(is_to_be_found: bool) -> Self {
        if is_to_be_found { Self::Trying { turn: 0, settled: 0, all_ms: Default::default() } } else { Self::Settled }
    }

    /// A batch took so long. What the gathers from now on should have under way, where that changes.
    pub fn note(&mut self, batch_ms: f64) -> Option<u64> {
        let Self::Trying { turn, settled, all_ms } = self else { return None };
        *settled += 1;
        if *settled > SETTLING {
            all_ms[*turn % TRIED.len()].push(batch_ms);
        }
        if *settled < SETTLING + COUNTED {
            return None;
        }
        (*turn, *settled) = (*turn + 1, 0);
        if *turn < ROUNDS * TRIED.len() {
            return Some(TRIED[*turn % TRIED.len()]);
        }
        let medians = all_ms.each_mut().map(|times_ms| median(times_ms));
        let best = (0..TRIED.len()).min_by(|a, b| medians[*a].total_cmp(&medians[*b])).unwrap_or(0);
        let all: Vec<String> = TRIED.iter().zip(medians).map(|(window, ms)| format!("{window}: {ms:.3} ms")).collect();
        log::info!("the gather has {} translations under way ({})", TRIED[best], all.join(", "));
        *self = Self::Settled;
        Some(TRIED[best])
    }
}

fn median(times_ms: &mut [f64]) -> f64 {
    times_ms.sort_by(f64::total_cmp);
    times_ms.get(times_ms.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_of_all_is_taken() {
        let mut pace = Pace::new(true);
        let (mut window, mut changes) = (TRIED[0], 0);
        // Batches are shortest near 100, but for one that took long for another reason.
        for batch in 0..ROUNDS * TRIED.len() * (SETTLING + COUNTED) {
            let own = (window as f64 - 100.0).abs() / 100.0 + 1.0;
            if let Some(next) = pace.note(if batch % 8 == 5 { 50.0 } else { own }) {
                (window, changes) = (next, changes + 1);
            }
        }
        assert_eq!((window, changes), (112, ROUNDS * TRIED.len()));
        assert!((0..100).all(|_| pace.note(1.0).is_none()));
        assert!((0..100).all(|_| Pace::new(false).note(1.0).is_none()));
    }
}
