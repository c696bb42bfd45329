//! What the emulator knows and a real driver does not tell.

use std::ffi::{CStr, c_char};

type Live = unsafe extern "C" fn(*const c_char) -> u64;

/// Every kind of object that the emulator counts and that Headwater makes.
pub const KINDS: [&CStr; 10] = [
    c"device_allocations",
    c"device_bytes",
    c"host_allocations",
    c"registrations",
    c"registered_bytes",
    c"ipc_mappings",
    c"streams",
    c"events",
    c"graphs",
    c"green_contexts",
];

/// Objects of one kind that are alive, or `None` on a real driver.
pub fn live(kind: &CStr) -> Option<u64> {
    let library = library()?;
    // SAFETY: the emulator's README gives the function this type; a real driver does not have it.
    let live = unsafe { library.get::<Live>(b"hwemu_live") }.ok()?;
    // SAFETY: a C string goes in and a number comes out.
    Some(unsafe { live(kind.as_ptr()) })
}

/// Whether devices are emulated; says so when they are not.
pub fn here() -> bool {
    let here = live(c"driver_calls").is_some();
    if !here {
        eprintln!("no emulator: skipped");
    }
    here
}

/// Starts counting requests with this line and warp; `None` on a real driver.
pub fn count_requests(line_bytes: u32, warp_threads: u32) -> Option<()> {
    let library = library()?;
    // SAFETY: the emulator's README gives the function this type.
    let reset = unsafe { library.get::<unsafe extern "C" fn(u32, u32)>(b"hwemu_requests_reset") }.ok()?;
    // SAFETY: two numbers go in.
    unsafe { reset(line_bytes, warp_threads) };
    Some(())
}

/// Requests since counting began.
pub fn requests() -> Option<u64> {
    let library = library()?;
    // SAFETY: the emulator's README gives the function this type.
    let count = unsafe { library.get::<unsafe extern "C" fn() -> u64>(b"hwemu_requests") }.ok()?;
    // SAFETY: a number comes out.
    Some(unsafe { count() })
}

/// The driver that is emulated, or `None` where a real one is used.
pub fn library() -> Option<libloading::Library> {
    let path = std::env::var_os("HEADWATER_LIBCUDA")?;
    // SAFETY: the file is the one the driver was loaded from, so this only counts it up.
    unsafe { libloading::Library::new(path) }.ok()
}
