//! Whether an array still says what it said.
//!
//! Torch counts what is written through it; it does not count what NumPy, `tensor.data` or another process writes to the same
//! memory. So bytes are looked at, about as fast as memory gives them.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::dlpack::Lent;
use crate::threads;

/// Bytes that one thread takes at a time.
const PIECE_BYTES: usize = 1 << 18;

/// A number that follows from the bytes of an array in host memory and their order. Another array has another one, but for one
/// case in 2^64.
#[pyfunction]
pub fn fingerprint(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<u64> {
    let lent = Lent::new(array, "array")?;
    threads::run(py, || {
        let pieces: Vec<u64> = lent.as_ref().par_chunks(PIECE_BYTES).map(of_bytes).collect();
        of_bytes(bytemuck::cast_slice(&pieces))
    })
}

fn of_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(bytes);
    hasher.finish()
}
