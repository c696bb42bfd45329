//! Any text is the settings of a run or an error, and settings that are accepted are written and read back the same.

#![no_main]

use std::path::Path;

use headwater_train::{RunConfig, RunFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let settings = |text: &str| {
        RunFile::parse(text, Path::new("run.toml")).and_then(|file| RunConfig::resolve(RunFile::default(), file))
    };
    let Ok(config) = settings(text) else { return };
    let written = config.to_toml().expect("accepted settings are text");
    assert_eq!(settings(&written).expect("written settings are accepted"), config);
});
