//! Memory that kernels write into, kept from run to run: fresh pages cost more than most kernels.

use std::time::{Duration, Instant};

/// Arrays that are not in use.
#[derive(Debug, Default)]
pub struct Workspace {
    free: Vec<Vec<f32>>,
    /// The most bytes that were in use together.
    peak_bytes: usize,
    used_bytes: usize,
    /// When each kernel ran, where somebody asked.
    timings: Option<Vec<Timing>>,
}

/// When a kernel ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// What it is, as programs print it.
    pub kernel: String,
    /// When it began.
    pub begun: Instant,
    /// How long it took.
    pub took: Duration,
}

/// Arrays that are kept at most.
const MOST_KEPT: usize = 256;

impl Workspace {
    /// An array of `len` numbers, whatever they are.
    pub fn take(&mut self, len: usize) -> Vec<f32> {
        self.used_bytes += 4 * len;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
        // The smallest that is large enough, else the largest, which grows.
        let fits = |array: &Vec<f32>| {
            if array.capacity() >= len { (0, array.capacity()) } else { (1, usize::MAX - array.capacity()) }
        };
        let best = (0..self.free.len()).min_by_key(|at| fits(&self.free[*at]));
        let mut array = best.map(|at| self.free.swap_remove(at)).unwrap_or_default();
        if array.capacity() < len {
            // What it held is of no use: no copy to the new place.
            array = Vec::with_capacity(len);
        }
        array.resize(len, 0.0);
        array
    }

    /// Gives an array back.
    pub fn give(&mut self, array: Vec<f32>) {
        self.used_bytes = self.used_bytes.saturating_sub(4 * array.len());
        if array.capacity() > 0 && self.free.len() < MOST_KEPT {
            self.free.push(array);
        }
    }

    /// Notes from now on when kernels run.
    pub fn time_kernels(&mut self) {
        self.timings.get_or_insert_default();
    }

    /// What was noted since the last time.
    pub fn timings(&mut self) -> Vec<Timing> {
        self.timings.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Runs a kernel, and notes when.
    pub(super) fn timed<R>(&mut self, kernel: impl FnOnce() -> String, run: impl FnOnce(&mut Self) -> R) -> R {
        if self.timings.is_none() {
            return run(self);
        }
        let begun = Instant::now();
        let result = run(self);
        let timing = Timing { kernel: kernel(), begun, took: begun.elapsed() };
        self.timings.get_or_insert_default().push(timing);
        result
    }

    /// The most bytes that were in use together.
    #[must_use]
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }
}
