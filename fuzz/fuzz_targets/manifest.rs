//! Any bytes are either a manifest or an error, and a manifest that is accepted has a schema and reads back the same.

#![no_main]

use std::path::Path;

use headwater_graph::dataset::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::parse(bytes, Path::new("headwater.json")) else { return };
    manifest.schema().expect("an accepted manifest has a schema");
    let text = serde_json::to_vec(&manifest).expect("a manifest is text");
    assert_eq!(Manifest::parse(&text, Path::new("again")).expect("a written manifest is readable"), manifest);
});
