//! Any bytes are either an archive's directory or an error: no panic, no overflow, no large allocation.

#![no_main]

use headwater_graph::ingest::zip::entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = entries(bytes, bytes.len() as u64) else { return };
    // Members lie within the archive, so together they are no longer than it.
    let packed: u64 = found.iter().map(|entry| entry.packed_bytes).sum();
    assert!(packed <= bytes.len() as u64);
});
