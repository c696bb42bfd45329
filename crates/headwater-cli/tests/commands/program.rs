//! The program under test.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Where it is: where Cargo built it, or, in a bundle for a machine without Cargo, above the folder of the tests.
pub fn program() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_headwater"));
    let bundled = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("headwater"));
    if built.exists() { built } else { bundled().unwrap_or(built) }
}

/// Runs it.
pub fn headwater(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().unwrap()
}

/// What it prints.
pub fn succeeds(arguments: &[&str]) -> String {
    let output = headwater(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// That it fails and says why. Words that are not understood end with 2, all else with 1.
pub fn fails_with(arguments: &[&str], words: &str) {
    let output = headwater(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(1 | 2)) && said.contains(words), "{arguments:?} said: {said}");
}

/// A made graph of 1024 nodes in a folder of its own.
pub fn made(features: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("rmat").to_str().unwrap().to_owned();
    let more: &[&str] = &["--classes", "4", "--features", features, "-o", &data];
    succeeds(&[&["generate", "rmat", "--nodes-log2", "10", "--edges-per-node", "8"], more].concat());
    (folder, data)
}
