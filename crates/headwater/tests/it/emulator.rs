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
    let path = std::env::var_os("HEADWATER_LIBCUDA")?;
    // SAFETY: the file is the one the driver was loaded from, so this only counts it up.
    let library = unsafe { libloading::Library::new(path) }.ok()?;
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
