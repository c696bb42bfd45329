//! Any bytes are a checkpoint or an error. What the format's checksum would refuse is read up to there all the same.

#![no_main]

use headwater_fuzz::Place;
use headwater_train::Checkpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let place = Place::new();
    place.write("run.safetensors", bytes);
    let _ = Checkpoint::read(&place.path().join("run.safetensors"));
});
