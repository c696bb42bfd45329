//! The trainer's end: starts the producer, asks for batches, and ends it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headwater_cuda::{Allocation, Gpu, Span};
use headwater_memory::send_device;

use super::super::capacity::Capacity;
use super::super::features::BroughtRows;
use super::super::plan::Mode;
use super::link::{Link, Lost};
use super::mps;
use super::protocol::{Answer, Ask, Awaited, News, Order, Rows};
use crate::error::{Error, Result};
use crate::run_config::RunConfig;

/// No table takes this long to place.
const PLACING: Duration = Duration::from_secs(1800);
/// No batch takes this long to draw and to gather.
const BATCH: Duration = Duration::from_secs(600);
/// A producer that is told to end does so in this time, or is ended.
const ENDING: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_millis(2);
/// Enough to see whether memory can be mapped.
const PROBE_BYTES: usize = 256;

/// How a producer may be started.
pub struct Beside<'a> {
    /// The program. It must call [`serve_stdin`](super::serve_stdin), with the same task.
    pub command: &'a dyn Fn() -> Command,
    /// The folder of the pipes of the Multi-Process Service, or why there is none.
    pub service: Result<PathBuf, String>,
}

impl<'a> Beside<'a> {
    /// With whatever service runs on this machine.
    #[must_use]
    pub fn new(command: &'a dyn Fn() -> Command) -> Self {
        Self { command, service: mps::look() }
    }
}

/// A producer that runs.
#[derive(Debug)]
pub(crate) struct Remote {
    link: Link,
    child: Child,
    /// What is to come of an epoch.
    awaited: Awaited,
    pub mode: Mode,
}

impl Remote {
    /// Starts a producer and waits until it has placed its features.
    pub fn start(beside: &Beside<'_>, gpu: &Gpu, config: &RunConfig, working_bytes: u64) -> Result<Self> {
        let pipes = beside.service.as_ref().map_err(|why| failed(why))?;
        // Refused here where the driver cannot share memory at all.
        let probe = Allocation::shareable(gpu, PROBE_BYTES)?;
        probe.ipc_handle()?;
        let (ours, theirs) = UnixStream::pair().map_err(|why| failed(&why))?;
        let child = {
            let mut command = (beside.command)();
            command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
            command.env(mps::PIPES, pipes).env(mps::PERCENT, config.producer_percent.to_string());
            // An interrupt from the terminal is the trainer's to handle.
            command.process_group(0);
            // What the command holds of the socket must go with it, or the end of the producer would not be seen.
            command
                .spawn()
                .map_err(|why| failed(&format!("{} did not start: {why}", command.get_program().display())))?
        };
        let link = Link::new(ours).map_err(|why| failed(&why));
        let awaited = Awaited::new(0, 0);
        let mut made = match link {
            Ok(link) => Self { link, child, awaited, mode: Mode::Dma },
            Err(why) => return Err(why),
        };
        let config = serde_json::to_value(config).and_then(serde_json::from_value).map_err(|why| failed(&why))?;
        made.ask(&Ask::Begin(Box::new(Order { config, ordinal: gpu.ordinal(), working_bytes })))?;
        send_device(made.link.socket(), &probe)?;
        made.mode = made.placed()?;
        Ok(made)
    }

    /// Begins an epoch at a batch. One that was left is ended first.
    pub fn epoch(&mut self, epoch: u64, first: u64, count: u64) -> Result<()> {
        if self.awaited.is_under_way() {
            self.stop()?;
        }
        self.ask(&Ask::Epoch { epoch, first })?;
        self.awaited = Awaited::new(first, count);
        Ok(())
    }

    /// What becomes of the next batch.
    pub fn next(&mut self) -> Result<News> {
        let answer = self.answer(BATCH)?;
        if let Answer::Short { why } = answer {
            self.awaited = Awaited::new(0, 0);
            return Err(Error::NoRoom { mode: self.mode.to_string(), why });
        }
        self.awaited.see(&answer).map_err(|why| failed(&why))
    }

    /// Hands over new slots, after there was no room for a batch.
    pub fn grant(&mut self, capacity: &Capacity, width: usize, slots: &[&Span]) -> Result<()> {
        self.ask(&Ask::Room { blocks: Rows::told(&capacity.blocks), width })?;
        for slot in slots {
            if let Err(why) = send_device(self.link.socket(), slot.allocation()) {
                return Err(self.last_word().unwrap_or_else(|| why.into()));
            }
        }
        Ok(())
    }

    /// A step is over.
    pub fn free(&mut self, batch: u64) -> Result<()> {
        self.ask(&Ask::Free { batch })
    }

    /// Ends an epoch wherever it is. The producer lets go of its slots, whose memory may then be freed.
    pub fn stop(&mut self) -> Result<()> {
        self.ask(&Ask::Stop)?;
        self.awaited = Awaited::new(0, 0);
        loop {
            match self.answer(BATCH)? {
                Answer::Stopped => return Ok(()),
                // Said before it heard.
                Answer::Ready { .. } | Answer::Outgrown { .. } | Answer::Short { .. } => {}
                other => return Err(failed(&format!("it said {other:?} when it was stopped"))),
            }
        }
    }

    /// Places features anew. No epoch is under way.
    pub fn place(&mut self, mode: Mode) -> Result<()> {
        self.ask(&Ask::Place(mode))?;
        self.mode = self.placed()?;
        Ok(())
    }

    /// Rows that were brought so far.
    pub fn brought(&mut self) -> Result<BroughtRows> {
        if self.awaited.is_under_way() {
            self.stop()?;
        }
        self.ask(&Ask::Count)?;
        match self.answer(BATCH)? {
            Answer::Counted(rows) => Ok(rows),
            other => Err(failed(&format!("it said {other:?} when rows were counted"))),
        }
    }

    fn placed(&mut self) -> Result<Mode> {
        match self.answer(PLACING)? {
            Answer::Placed(mode) => Ok(mode),
            other => Err(failed(&format!("it said {other:?} when features were placed"))),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<()> {
        let Err(why) = self.link.send(ask) else { return Ok(()) };
        Err(self.last_word().unwrap_or_else(|| failed(&why)))
    }

    /// The next answer. A producer that fails says why, and one that died is an error and not a silence.
    fn answer(&mut self, most: Duration) -> Result<Answer> {
        let Self { link, child, .. } = self;
        match link.receive(most, &mut || matches!(child.try_wait(), Ok(None))) {
            Ok(Answer::Failed { why }) => Err(failed(&why)),
            Ok(answer) => Ok(answer),
            Err(Lost::Gone) => Err(self.ended()),
            Err(why) => Err(failed(&why)),
        }
    }

    /// What a producer that does not listen any more said at the end.
    fn last_word(&mut self) -> Option<Error> {
        (0..8).find_map(|_| self.answer(Duration::from_secs(1)).err())
    }

    fn ended(&mut self) -> Error {
        // The socket closes a moment before the process is over.
        let status = wait_for(&mut self.child, Duration::from_millis(500));
        failed(&status.map_or_else(|| Lost::Gone.to_string(), |status| format!("{}: {status}", Lost::Gone)))
    }
}

impl Drop for Remote {
    /// The producer ends before the slots that it maps are freed.
    fn drop(&mut self) {
        self.link.close();
        if wait_for(&mut self.child, ENDING).is_none() {
            // It may be gone by now.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn wait_for(child: &mut Child, most: Duration) -> Option<std::process::ExitStatus> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if begun.elapsed() < most => std::thread::sleep(NAP),
            _ => return None,
        }
    }
}

fn failed(why: &dyn ToString) -> Error {
    Error::Stage { stage: "producer", why: why.to_string() }
}
