//! What `make test` does on a machine that lacks something.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with the usual tools of a shell, a Rust of this version and nothing else.
fn machine(rust: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["bash", "env", "dirname", "sed", "sort", "head", "cut", "awk", "mktemp", "rm"] {
        let found = std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.exists());
        symlink(found.unwrap_or_else(|| panic!("{tool} is not here")), folder.path().join(tool)).unwrap();
    }
    program(&folder, "rustc", &format!("echo 'rustc {rust} (abcdef 2026-01-01)'"));
    program(&folder, "cargo", "exit 1");
    program(&folder, "make", "echo \"made $2\"");
    folder
}

fn program(folder: &TempDir, name: &str, text: &str) {
    let path = folder.path().join(name);
    std::fs::write(&path, format!("#!/usr/bin/env bash\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(machine: &TempDir, script: &str, words: &[&str]) -> (Output, String) {
    let mut command = Command::new("bash");
    command.arg(root().join(script)).args(words).env("PATH", machine.path()).env_remove("MAKE").env_remove("HWEMU_CXX");
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    (output, printed)
}

#[test]
fn what_a_stage_lacks_is_said_with_the_command_that_installs_it() {
    let old = machine("1.80.1");
    let (output, printed) = run(&old, "scripts/needs.sh", &["emulated"]);
    assert!(!output.status.success());
    assert!(printed.contains("and this is 1.80.1: rustup update stable"), "{printed}");
    assert!(printed.contains("emulated needs a C++ compiler: apt-get install g++"), "{printed}");
    let (_, printed) = run(&old, "scripts/needs.sh", &["lint"]);
    assert!(
        printed.contains("rustup component add clippy") && printed.contains("rustup component add rustfmt"),
        "{printed}"
    );
    let (_, printed) = run(&old, "scripts/needs.sh", &["kernels"]);
    assert!(printed.contains("apt-get install python3-venv"), "{printed}");

    let new = machine("1.120.0");
    let (output, printed) = run(&new, "scripts/needs.sh", &["unit"]);
    assert!(output.status.success() && printed.is_empty(), "{printed}");
    std::fs::remove_file(new.path().join("cargo")).unwrap();
    let (_, printed) = run(&new, "scripts/needs.sh", &["unit"]);
    assert!(printed.contains("unit needs Rust") && printed.contains("rustup.rs"), "{printed}");
}

#[test]
fn a_stage_that_lacks_something_does_not_stop_the_others() {
    let machine = machine("1.120.0");
    let (output, printed) = run(&machine, "scripts/stages.sh", &["emulated", "unit"]);
    assert!(!output.status.success(), "what was not run did not pass");
    assert!(printed.contains("made unit"), "{printed}");
    assert_eq!(printed.lines().last(), Some("emulated needs a C++ compiler: apt-get install g++"), "{printed}");

    let (output, printed) = run(&machine, "scripts/stages.sh", &["unit", "doctest"]);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("made doctest") && printed.ends_with("all checks passed\n"), "{printed}");

    program(&machine, "make", "exit 3");
    let (output, printed) = run(&machine, "scripts/stages.sh", &["unit", "doctest"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(printed.ends_with("failed: unit\n"), "{printed}");
}
