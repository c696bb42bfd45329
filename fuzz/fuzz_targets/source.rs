//! Any bytes as a file to ingest, whatever its format is found to be: an error, or a dataset that opens and is sound.

#![no_main]

use headwater_fuzz::Place;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let place = Place::new();
    place.write("source", bytes);
    place.ingest();
});
