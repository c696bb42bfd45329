//! A dataset whose files were changed by anybody: opening it, reading all of it and sampling from it end in an error or
//! in what is there.

#![no_main]

use headwater_fuzz::Place;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Change {
    file: u8,
    at: u16,
    bytes: Vec<u8>,
    cut: bool,
}

fuzz_target!(|changes: Vec<Change>| {
    let place = Place::new();
    let names = place.copy_golden();
    for Change { file, at, bytes, cut } in changes.iter().take(6) {
        place.change(&names[usize::from(*file) % names.len()], usize::from(*at), bytes, *cut);
    }
    place.read_all();
});
