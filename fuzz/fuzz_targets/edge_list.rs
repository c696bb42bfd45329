//! Any bytes are either an edge list or an error with a line that is there.

#![no_main]

use headwater_graph::ingest::text::{Asked, RowPlan, detect, parse_rows};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(dialect) = detect(bytes, &Asked::default()) else { return };
    let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
    for integer_ids in [true, false] {
        match parse_rows(bytes, &RowPlan { dialect: dialect.clone(), integer_ids }) {
            Ok(parsed) => assert!((0..parsed.len()).all(|edge| parsed.line_of(edge) < lines)),
            Err((line, _)) => assert!(line < lines),
        }
    }
});
