//! The io_uring engine: one thread owns one ring, so nothing about the ring is shared.
//!
//! The thread takes all waiting jobs at once, submits them in one call, and sleeps in the kernel until something
//! completes or the bell (an eventfd polled through the same ring) says there is new work. Plain reads and writes,
//! no registered buffers: at requests of a megabyte pinning pages costs little, and registration runs into memory
//! limits.
//!
//! A buffer in the kernel's hands is never freed. Should the ring itself fail, such buffers are leaked and their
//! callers told; there is no way left to learn when the kernel is done with them.

#![allow(unsafe_code)]

use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use super::dispatch::Dispatch;
use super::job::{Job, Step, Turn};
use super::request::Op;
use super::threads;

/// Marks the completion of the poll on the bell. Slots are far below.
const BELL: u64 = u64::MAX;

/// Opens a ring for `depth` requests, or says why there is none.
pub(super) fn open(depth: usize) -> Result<IoUring, String> {
    // One entry more, for the bell.
    let entries = u32::try_from(depth + 1).map_err(|error| error.to_string())?;
    let ring = IoUring::new(entries).map_err(|error| format!("io_uring_setup: {error}"))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| format!("io_uring probe: {error}"))?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE];
    if needed.iter().all(|&code| probe.is_supported(code)) && ring.params().is_feature_nodrop() {
        return Ok(ring);
    }
    Err("the kernel's io_uring is too old to read and write plain buffers".to_owned())
}

/// The state of the engine's thread.
pub(super) struct Driver {
    ring: IoUring,
    dispatch: Arc<Dispatch>,
    slots: Vec<Option<InKernel>>,
    free: Vec<usize>,
    bell_armed: bool,
}

/// A job whose buffer the kernel may be using. Dropping it leaks the buffer.
struct InKernel {
    job: Option<Job>,
    step: Step,
}

impl Driver {
    pub(super) fn new(ring: IoUring, dispatch: Arc<Dispatch>, depth: usize) -> Self {
        let slots = std::iter::repeat_with(|| None).take(depth).collect();
        Self { ring, dispatch, slots, free: (0..depth).collect(), bell_armed: false }
    }

    /// Works until the engine is closed and the kernel holds nothing.
    pub(super) fn run(mut self) {
        loop {
            match self.turn() {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(reason) => return self.dispatch.close(&reason),
            }
        }
    }

    fn turn(&mut self) -> Result<ControlFlow<()>, String> {
        // Armed before looking for work: whoever pushes after the look rings a bell that is heard.
        self.arm_bell()?;
        let closed = self.admit()?;
        if closed && self.free.len() == self.slots.len() {
            return Ok(ControlFlow::Break(()));
        }
        self.enter()?;
        self.reap()?;
        Ok(ControlFlow::Continue(()))
    }

    /// Starts waiting jobs until none is left or all slots are taken; in both cases something will wake the thread.
    fn admit(&mut self) -> Result<bool, String> {
        loop {
            let batch = self.dispatch.take(self.free.len());
            if batch.jobs.is_empty() {
                return Ok(batch.closed);
            }
            for job in batch.jobs {
                self.start(job)?;
            }
        }
    }

    fn arm_bell(&mut self) -> Result<(), String> {
        let Some(bell) = self.dispatch.bell.as_ref().filter(|_| !self.bell_armed) else { return Ok(()) };
        let poll = opcode::PollAdd::new(types::Fd(bell.as_raw_fd()), POLL_IN).build().user_data(BELL);
        self.push(&poll)?;
        self.bell_armed = true;
        Ok(())
    }

    /// Gives a job's next step to the kernel. Files without a descriptor are moved here and now.
    fn start(&mut self, mut job: Job) -> Result<(), String> {
        let Some(fd) = job.file.descriptor().map(|fd| fd.as_raw_fd()) else {
            threads::finish(job, &self.dispatch);
            return Ok(());
        };
        let slot = self.free.pop().ok_or("more jobs than slots")?;
        let step = job.step(self.dispatch.max_step_bytes);
        self.slots[slot] = Some(InKernel { job: Some(job), step });
        self.push(&entry(fd, &step)?.user_data(slot as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), String> {
        // SAFETY: an entry of a job points into the buffer of a job in `slots`, which stays there, and so alive,
        // until `reap` has its completion; the bell's entry has no memory.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The ring has an entry for each slot and one for the bell, so it is never full.
        pushed.map_err(|error| format!("io_uring submission queue: {error}"))
    }

    fn enter(&mut self) -> Result<(), String> {
        match self.ring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                // Interrupted, short of memory, or completions must be reaped first: the next turn tries again.
                Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {
                    std::thread::yield_now();
                    Ok(())
                }
                _ => Err(format!("io_uring_enter: {error}")),
            },
        }
    }

    fn reap(&mut self) -> Result<(), String> {
        let answers: Vec<(u64, i32)> = self.ring.completion().map(|cqe| (cqe.user_data(), cqe.result())).collect();
        for (mark, result) in answers {
            if mark == BELL {
                self.hear_bell();
            } else {
                self.answered(mark, result)?;
            }
        }
        Ok(())
    }

    fn hear_bell(&mut self) {
        self.bell_armed = false;
        if let Some(bell) = &self.dispatch.bell {
            // Empties the count, so that the next poll sleeps; if it is empty already, all the better.
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
    }

    fn answered(&mut self, mark: u64, result: i32) -> Result<(), String> {
        let slot = usize::try_from(mark).ok().filter(|&slot| slot < self.slots.len());
        let taken = slot.and_then(|slot| self.slots[slot].take().map(|held| (slot, held)));
        let (slot, (mut job, step)) = match taken.map(|(slot, held)| (slot, held.release())) {
            Some((slot, Some(held))) => (slot, held),
            _ => return Err(format!("io_uring completed an unknown request {mark}")),
        };
        self.free.push(slot);
        let answer = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(result.saturating_neg()));
        match job.advance(&step, answer, &self.dispatch.counters) {
            Turn::Done => job.deliver(),
            Turn::Again => self.start(job)?,
        }
        Ok(())
    }
}

impl InKernel {
    /// The job, once the kernel has answered.
    fn release(mut self) -> Option<(Job, Step)> {
        self.job.take().map(|job| (job, self.step))
    }
}

impl Drop for InKernel {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            job.lose();
        }
    }
}

// SAFETY: `step` points into the buffer that `job` owns and may be sent with it.
unsafe impl Send for InKernel {}

const POLL_IN: u32 = 1;

fn entry(fd: RawFd, step: &Step) -> Result<squeue::Entry, String> {
    let len = u32::try_from(step.len).map_err(|error| error.to_string())?;
    let fd = types::Fd(fd);
    Ok(match step.op {
        Op::Read => opcode::Read::new(fd, step.start, len).offset(step.offset).build(),
        Op::Write => opcode::Write::new(fd, step.start, len).offset(step.offset).build(),
    })
}
