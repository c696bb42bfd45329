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
    let begun = Instant::now();
    while !event.has_passed()? {
        if begun.elapsed() > MOST {
            return Err(Error::Stage { stage, why: format!("nothing was heard of it for {} s", MOST.as_secs()) });
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}
