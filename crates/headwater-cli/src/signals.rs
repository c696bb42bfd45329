//! Signals that ask a program to stop: Ctrl-C, what schedulers send, and what a terminal sends when it closes.
//!
//! They are blocked for all threads and waited for by one, which learns which it was. What whoever started the program told it
//! to ignore, as `nohup` does, stays ignored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};

/// What is heard.
const STOPS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// What the exit code of a program that a signal ended is counted from.
pub const FIRST_CODE: i32 = 128;

/// Whether a signal came, and which.
#[derive(Debug, Default)]
pub struct Signals {
    first: AtomicI32,
    is_training: AtomicBool,
}

impl Signals {
    /// Listens from now on. Comes before other threads are started: those would not know.
    pub fn listen() -> anyhow::Result<Arc<Self>> {
        let signals = Arc::new(Self::default());
        let own = Arc::clone(&signals);
        attend(move |signal| own.note(signal))?;
        Ok(signals)
    }

    /// From now on the first signal lets a batch end and a checkpoint be written.
    pub fn begin_training(&self) {
        self.is_training.store(true, Ordering::SeqCst);
    }

    /// Whether one came.
    pub fn has_come(&self) -> bool {
        self.first.load(Ordering::SeqCst) != 0
    }

    /// The exit code of a run that one stopped.
    pub fn exit_code(&self) -> u8 {
        u8::try_from(FIRST_CODE + self.first.load(Ordering::SeqCst)).unwrap_or(u8::MAX)
    }

    fn note(&self, signal: Signal) {
        let is_first = self.first.swap(signal as i32, Ordering::SeqCst) == 0;
        // Before the run begins there is nothing to save, and whoever asks twice does not want to wait for the batch.
        if !is_first || !self.is_training.load(Ordering::SeqCst) {
            std::process::exit(i32::from(self.exit_code()));
        }
    }
}

/// From now on a file that may grow no longer is an error of the write, as a full disk is; the signal that comes with it would
/// end the program without a word. Comes before other threads are started: those would not know.
pub fn outlive_long_files() {
    let mut long = SigSet::empty();
    long.add(Signal::SIGXFSZ);
    // Where it cannot be blocked, all is as it would be without.
    let _ = long.thread_block();
}

/// Tells `hear` of every signal from now on, on a thread of its own. Comes before other threads are started: those would not
/// know.
pub fn attend(hear: impl Fn(Signal) + Send + 'static) -> anyhow::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    let heard: SigSet = STOPS.into_iter().filter(|stop| ignored & bit(*stop) == 0).collect();
    heard.thread_block().context("listening for signals")?;
    let listen = move || {
        while let Ok(signal) = heard.wait() {
            hear(signal);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(listen).context("starting a thread that listens for signals")?;
    Ok(())
}

/// Signals that a process ignores, a bit each, out of what Linux says of it.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_process() {
        // `nohup` ignores the first signal, shells ignore the second for what they run in the background.
        let status = "Name:\theadwater\nSigBlk:\t0000000000000007\nSigIgn:\t0000000000000003\n";
        let heard = STOPS.map(|stop| ignored(status) & bit(stop) == 0);
        assert_eq!(heard, [false, true, false]);
        assert_eq!(ignored("Name:\theadwater\n"), 0);
    }
}
