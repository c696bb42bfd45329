//! Any bytes are either a header or an error: no panic, no overflow, no large allocation.

#![no_main]

use headwater_tensor::npy::{header_bytes, parse_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = parse_header(bytes) else { return };
    let _ = header.check_length(bytes.len() as u64);
    // A shape that is accepted has a layout that ends with its data.
    if let Ok(layout) = header.layout() {
        assert!(layout.check_within(layout.count()).is_ok());
    }
    // What is written for it reads back the same.
    let again = parse_header(&header_bytes(header.kind, &header.shape)).expect("a written header is readable");
    assert_eq!((again.kind, again.shape), (header.kind, header.shape));
});
