//! The thread engine: each worker takes one job and moves it with `pread` or `pwrite` to its end.
//!
//! For machines where io_uring is forbidden. At requests of a megabyte the loss is small, because the time is the
//! disk's. A worker that panics answers its job on the way out: the kernel is done with a buffer once the call
//! returned.

#![allow(unsafe_code)]

use super::dispatch::Dispatch;
use super::job::{Job, Turn};

/// Works until the engine is closed.
pub(super) fn work(dispatch: &Dispatch) {
    while let Some(job) = dispatch.next() {
        finish(job, dispatch);
    }
}

/// Moves one job to its end on the calling thread.
pub(super) fn finish(mut job: Job, dispatch: &Dispatch) {
    loop {
        let step = job.step(dispatch.max_step_bytes);
        // SAFETY: `step` describes memory of the buffer that `job` owns, and the call returns before `job` goes.
        let answer = unsafe { job.file.transfer(&step) };
        if job.advance(&step, answer, &dispatch.counters) == Turn::Done {
            return job.deliver();
        }
    }
}
