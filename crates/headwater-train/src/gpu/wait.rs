//! Waiting for a GPU, never without end.

use std::time::{Duration, Instant};

use headwater_cuda::Event;

use crate::error::{Error, Result};

/// No batch takes this long; a GPU that is silent for so long has failed in a way that the driver does not report.
const MOST: Duration = Duration::from_secs(120);
/// Naps are short beside a batch, and leave the core to others.
const NAP: Duration = Duration::from_micros(30);

/// Waits until the work before an event is done. A stage that never ends is named.
pub(crate) fn wait(event: &Event, stage: &'static str) -> Result<()> {
    wait_so_long(event, stage, 0.0)
}

/// The same for work that is expected to take so many seconds.
pub(crate) fn wait_so_long(event: &Event, stage: &'static str, expected_s: f64) -> Result<()> {
    let most = MOST + Duration::try_from_secs_f64(10.0 * expected_s).unwrap_or_default();
    let begun = Instant::now();
    while !event.has_passed()? {
        if begun.elapsed() > most {
            return Err(Error::Stage { stage, why: format!("nothing was heard of it for {} s", most.as_secs()) });
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}
