//! The in-memory twin: files that are vectors, and an engine that fails on purpose.
//!
//! Disks fail rarely and never on demand. The twin runs the same queues, the same jobs and the same rules for
//! continuing as the real engines, and misbehaves as its [`FaultPlan`] says: the same plan and the same requests
//! in the same order give the same faults. It works on real files as well, to add faults to those.

mod fault;
mod file;

use std::sync::Arc;

pub use fault::{Fault, FaultPlan, Order};
pub(super) use file::RamFile;
pub use file::RamOptions;

use super::dispatch::Dispatch;
use super::job::{Job, Turn};
use fault::{FaultState, Ruling};

/// The state of the engine's thread.
pub(super) struct Twin {
    dispatch: Arc<Dispatch>,
    faults: FaultState,
    depth: usize,
    held: Vec<Job>,
}

impl Twin {
    pub(super) fn new(dispatch: Arc<Dispatch>, plan: FaultPlan, depth: usize) -> Self {
        Self { dispatch, faults: FaultState::new(plan), depth, held: Vec::new() }
    }

    /// Works until the engine is closed or the plan says to die.
    pub(super) fn run(mut self) {
        while let Some(job) = self.dispatch.next() {
            let mut batch = vec![job];
            batch.extend(self.dispatch.take(self.depth - 1).jobs);
            for job in batch {
                // Closed before the job goes, so that its answer has the reason.
                if let Some(_unfinished) = self.finish(job) {
                    return self.dispatch.close("the engine died as its plan says");
                }
            }
            self.release();
        }
    }

    /// Moves one job to its end and holds it back. A job that comes back is the one the engine dies of.
    fn finish(&mut self, mut job: Job) -> Option<Job> {
        loop {
            let mut step = job.step(self.dispatch.max_step_bytes);
            let asked = step;
            let answer = match self.faults.rule(&step) {
                Ruling::Die => return Some(job),
                Ruling::Refuse(errno) => Err(errno),
                Ruling::AtMost(bytes) => {
                    step.len = step.len.min(bytes);
                    transfer(&job, &step)
                }
            };
            self.faults.moved(&step, &answer);
            if job.advance(&asked, answer, &self.dispatch.counters) == Turn::Done {
                self.held.push(job);
                return None;
            }
        }
    }

    /// Answers what was held back, in the plan's order.
    fn release(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        self.faults.reorder(&mut held);
        held.into_iter().for_each(Job::deliver);
    }
}

#[allow(unsafe_code)]
fn transfer(job: &Job, step: &super::job::Step) -> Result<usize, rustix::io::Errno> {
    // SAFETY: `step` describes memory of the buffer that `job` owns, cut to fewer bytes at most, and the call
    // returns before `job` goes.
    unsafe { job.file.transfer(step) }
}
