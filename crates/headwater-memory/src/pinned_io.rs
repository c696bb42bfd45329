//! Files straight into pinned memory: a [`Buffer`] the I/O engine may hold while the kernel fills it.

use std::ptr::NonNull;

use crate::buffer::{Buffer, Pinned};
use crate::io::IoBuffer;

// SAFETY: the memory is pinned and does not move with its handle, and forgetting the handle leaks it. It was zeroed, or
// written by the driver, before the buffer was made. The engine has the only handle by value; `start` waits for the GPU
// work that was queued through spans of it, and queueing more while the engine has the buffer is a race the caller
// must not make, as between two streams.
unsafe impl IoBuffer for Buffer<u8, Pinned> {
    fn start(&mut self) -> *mut u8 {
        let whole = self.whole();
        // Events are waited for and not streams, so that faults stay for whoever synchronises the stream. An error means
        // a lost device, which has stopped using the memory too.
        for event in whole.allocation().pending().unwrap_or_default() {
            let _ = event.synchronize();
        }
        whole.host_pointer().map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    fn len_bytes(&self) -> usize {
        self.len()
    }
}
