//! What the emulator does at a test's wish, and no driver does. On a real GPU none of it is there.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::{Library, Symbol};

/// The emulator that the driver's functions come from.
pub(super) struct Emulator(Library);

/// A stream as the driver names it. The host, where something waits, is none.
pub(super) type Handle = *mut c_void;

impl Emulator {
    /// The one that is used, if one is.
    pub fn here() -> Option<Self> {
        let path = std::env::var_os("HEADWATER_LIBCUDA")?;
        // SAFETY: the file is the one that the driver was loaded from, so this only counts it up.
        let own = Self(unsafe { Library::new(path) }.ok()?);
        own.function::<unsafe extern "C" fn() -> u64>(b"hwemu_races").is_some().then_some(own)
    }

    /// Holds work back from now on, in an order of this seed. False where nothing is held.
    pub fn order(&self, seed: u32) -> bool {
        let order = self.function::<unsafe extern "C" fn(c_uint) -> c_int>(b"hwemu_order").unwrap();
        // SAFETY: the emulator's README gives the function this type.
        unsafe { order(seed) == 0 }
    }

    /// Races so far, which are counted from now on.
    pub fn races(&self) -> u64 {
        let count = self.function::<unsafe extern "C" fn(c_int)>(b"hwemu_count_races").unwrap();
        let races = self.function::<unsafe extern "C" fn() -> u64>(b"hwemu_races").unwrap();
        // SAFETY: as above.
        unsafe {
            count(1);
            races()
        }
    }

    /// The last of them.
    pub fn last_race(&self) -> String {
        let last = self.function::<unsafe extern "C" fn() -> *const c_char>(b"hwemu_last_race").unwrap();
        // SAFETY: as above; the text stays until the next race.
        unsafe { CStr::from_ptr(last()) }.to_string_lossy().into_owned()
    }

    /// Takes the wait of a stream for another away, until `find_all`.
    pub fn lose(&self, waiter: Handle, awaited: Handle) {
        let lose = self.function::<unsafe extern "C" fn(Handle, Handle) -> c_int>(b"hwemu_lose").unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { lose(waiter, awaited) }, 0);
    }

    /// Every wait is made again.
    pub fn find_all(&self) {
        self.lose(std::ptr::null_mut(), std::ptr::null_mut());
    }

    /// A stream by how many were made after it.
    pub fn newest_stream(&self, before: u32) -> Handle {
        let newest = self.function::<unsafe extern "C" fn(c_uint) -> Handle>(b"hwemu_newest_stream").unwrap();
        // SAFETY: as above.
        unsafe { newest(before) }
    }

    fn function<T>(&self, name: &[u8]) -> Option<Symbol<'_, T>> {
        // SAFETY: callers write the types that the emulator's README gives.
        unsafe { self.0.get(name) }.ok()
    }
}
