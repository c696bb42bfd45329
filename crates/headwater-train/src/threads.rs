//! How many threads: as many as are asked for, within what a machine bears.
//!
//! No result depends on their number, and beyond a few for each core they only wait for each other.

use std::error::Error;
use std::num::NonZero;
use std::thread::available_parallelism;

/// Threads for each core that may be asked for.
const MOST_A_CORE: usize = 16;

/// As many as are asked for, or as many as this machine bears; a line says so. 0, which takes all cores, stays.
#[must_use]
pub fn bounded(asked: usize) -> usize {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let most = MOST_A_CORE * cores;
    if asked > most {
        log::warn!("{asked} threads were asked for; there will be {most}, {MOST_A_CORE} for each core of this machine");
    }
    asked.min(most)
}

/// What is said where threads could not be started.
#[must_use]
pub fn refused(asked: usize, why: &dyn Error) -> String {
    let count = if asked == 0 { "a thread for each core".to_owned() } else { format!("{} threads", bounded(asked)) };
    format!(
        "{count} could not be started: {why}; a limit on memory or processes (ulimit -v, ulimit -u, a container) may be too \
         low for so many"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_so_many_threads_and_no_more() {
        let most = MOST_A_CORE * available_parallelism().unwrap().get();
        for (asked, given) in [(0, 0), (1, 1), (most, most), (most + 1, most), (usize::MAX, most)] {
            assert_eq!(bounded(asked), given);
        }
    }
}
