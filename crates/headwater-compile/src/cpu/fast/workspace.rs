//! Memory that kernels write into, kept from run to run: fresh pages cost more than most kernels.

/// Arrays that are not in use.
#[derive(Debug, Default)]
pub struct Workspace {
    free: Vec<Vec<f32>>,
    /// The most bytes that were in use together.
    peak_bytes: usize,
    used_bytes: usize,
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

    /// The most bytes that were in use together.
    #[must_use]
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }
}
