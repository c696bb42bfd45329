//! The house rules that a program can check.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MOST_LINES: usize = 500;
const MOST_FUNCTION_LINES: usize = 70;
const NAMES_THAT_SAY_NOTHING: [&str; 5] = ["utils.rs", "util.rs", "base.rs", "common.rs", "other.rs"];
/// Who may depend on whom: each crate may use those listed and nothing else of ours.
const ARROWS: [(&str, &[&str]); 11] = [
    ("headwater-cuda", &[]),
    ("headwater-memory", &["headwater-cuda"]),
    ("headwater-tensor", &["headwater-cuda", "headwater-memory"]),
    ("headwater-graph", &["headwater-cuda", "headwater-memory", "headwater-tensor"]),
    ("headwater-feature", &["headwater-cuda", "headwater-memory", "headwater-tensor"]),
    ("headwater-offload", &["headwater-cuda", "headwater-memory"]),
    ("headwater-compile", &["headwater-cuda", "headwater-memory", "headwater-tensor", "headwater-graph"]),
    (
        "headwater-train",
        &[
            "headwater-cuda",
            "headwater-memory",
            "headwater-tensor",
            "headwater-graph",
            "headwater-feature",
            "headwater-compile",
            "headwater-offload",
        ],
    ),
    (
        "headwater",
        &[
            "headwater-cuda",
            "headwater-memory",
            "headwater-tensor",
            "headwater-graph",
            "headwater-feature",
            "headwater-compile",
            "headwater-offload",
            "headwater-train",
        ],
    ),
    ("headwater-cli", &["headwater"]),
    ("headwater-python", &["headwater"]),
];
/// Crates whose work is unsafe, and which say so at their door.
const UNSAFE_CRATES: [&str; 2] = ["headwater-cuda", "headwater-memory"];

/// Files outside them: the gemm crates' entries take raw pointers, and so does what lends arrays between libraries. The
/// others hold references into host memory that a GPU reaches, and say why it does not meanwhile.
const UNSAFE_FILES: [&str; 8] = [
    "headwater-tensor/src/ops/matmul/dense.rs",
    "headwater-python/src/dlpack.rs",
    "headwater-tensor/src/storage.rs",
    "headwater-tensor/src/gather/courier.rs",
    "headwater-tensor/src/gather/staged.rs",
    "headwater-feature/src/table/beyond.rs",
    "headwater-train/src/gpu/by_copy.rs",
    "headwater-cli/src/commands/bench/gather_gpu.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files(ending: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, ending, found);
            } else if path.extension().is_some_and(|e| e == ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("crates"), ending, &mut found);
    assert!(!found.is_empty(), "no .{ending} file found: the walk is broken");
    found.sort();
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// The part of a file before its unit tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

fn check(problems: &[String]) {
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_file_says_what_it_is_and_is_not_too_long() {
    let mut problems = Vec::new();
    for path in files("rs") {
        let text = fs::read_to_string(&path).unwrap();
        if !text.starts_with("//!") {
            problems.push(format!("{}: does not begin with //!", path.display()));
        }
        let lines = without_tests(&text).lines().count();
        if lines > MOST_LINES && !is_test(&path) {
            problems.push(format!("{}: {lines} lines", path.display()));
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        if NAMES_THAT_SAY_NOTHING.contains(&name) {
            problems.push(format!("{}: a name that says nothing", path.display()));
        }
    }
    check(&problems);
}

#[test]
fn functions_fit_a_screen() {
    let mut problems = Vec::new();
    for path in files("rs").into_iter().filter(|path| !is_test(path)) {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = without_tests(&text).lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let is_function = line.split_whitespace().take(5).any(|word| word == "fn");
            if !is_function || line.trim_start().starts_with("//") {
                continue;
            }
            let close = format!("{}}}", " ".repeat(indent));
            let length = lines[at..].iter().take_while(|line| **line != close).count();
            // A declaration ends with a semicolon before any brace opens.
            let end = lines[at..at + length.min(lines.len() - at)].iter().find(|line| line.ends_with(['{', ';']));
            let has_body = end.is_some_and(|line| line.ends_with('{'));
            if has_body && length > MOST_FUNCTION_LINES && at + length < lines.len() {
                problems.push(format!("{}:{}: a function of {length} lines", path.display(), at + 1));
            }
        }
    }
    check(&problems);
}

#[test]
fn arrows_point_down() {
    let mut problems = Vec::new();
    let folders: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    for folder in folders {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == folder) else {
            problems.push(format!("{folder}: not on the map; add its arrows here and to ARCHITECTURE.md"));
            continue;
        };
        let manifest = fs::read_to_string(root().join("crates").join(&folder).join("Cargo.toml")).unwrap();
        for line in manifest.lines().filter(|line| line.starts_with("headwater")) {
            let name = line.split(['.', ' ', '=']).next().unwrap();
            if !allowed.contains(&name) {
                problems.push(format!("{folder} depends on {name}"));
            }
        }
    }
    check(&problems);
}

#[test]
fn unsafe_stands_where_it_may() {
    let mut problems = Vec::new();
    for path in files("rs") {
        let shown = path.display().to_string();
        let allowed_crate = UNSAFE_CRATES.iter().any(|name| shown.contains(&format!("crates/{name}/")));
        // A kernel is declared beside its text.
        let is_listed = UNSAFE_FILES.iter().any(|file| path.ends_with(file));
        let declares_kernels = path.file_name().is_some_and(|name| name == "cuda.rs");
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in without_tests(&text).lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let uses = code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl");
            if uses && !allowed_crate && !is_listed && !declares_kernels && !is_test(&path) {
                problems.push(format!("{shown}:{}: unsafe", at + 1));
            }
        }
    }
    check(&problems);
}

/// Folders of kernels whose side on the CPU is a part that was there before them.
const TWINS_ELSEWHERE: [(&str, &str); 6] = [
    ("headwater-compile/src/cuda/block", "headwater-compile/src/adjacency/mod.rs"),
    ("headwater-graph/src/sample/gpu", "headwater-graph/src/sample/neighbour/mod.rs"),
    ("headwater-train/src/blocks/scales", "headwater-train/src/blocks.rs"),
    ("headwater-train/src/loss/device", "headwater-train/src/loss/mod.rs"),
    ("headwater-train/src/network/running/device", "headwater-train/src/network/running.rs"),
    ("headwater-train/src/optimiser/device", "headwater-train/src/optimiser/mod.rs"),
];

fn twin_elsewhere(folder: &Path) -> bool {
    let mut twins = TWINS_ELSEWHERE.iter().filter(|(kernels, _)| folder.ends_with(kernels));
    twins.any(|(_, twin)| root().join("crates").join(twin).exists())
}

#[test]
fn kernels_have_their_twins_and_say_why() {
    let mut problems = Vec::new();
    for path in files("cu") {
        let text = fs::read_to_string(&path).unwrap();
        if !text.starts_with("//") {
            problems.push(format!("{}: does not begin with why it is as it is", path.display()));
        }
        let folder = path.parent().unwrap();
        let is_kernel_folder = folder.file_name().is_some_and(|name| name != "src") && !is_test(&path);
        for twin in ["mod.rs", "cpu.rs", "cuda.rs", "tests.rs"] {
            // Many tests are a folder.
            let is_there = match twin {
                "tests.rs" => folder.join(twin).exists() || folder.join("tests").is_dir(),
                "cpu.rs" => folder.join(twin).exists() || twin_elsewhere(folder),
                _ => folder.join(twin).exists(),
            };
            if is_kernel_folder && !is_there {
                problems.push(format!("{}: no {twin} beside it", path.display()));
            }
        }
    }
    check(&problems);
}

#[test]
fn gpu_tests_of_python_are_chosen_by_their_mark_everywhere() {
    let mut problems = Vec::new();
    for name in ["Makefile", "scripts/gpu-run.sh"] {
        let text = fs::read_to_string(root().join(name)).unwrap();
        if !text.contains("-m gpu") {
            problems.push(format!("{name}: runs no tests that are marked `gpu`"));
        }
        for (at, line) in text.lines().enumerate().filter(|(_, line)| line.contains("python/tests/test_")) {
            problems.push(format!("{name}:{}: a list of its own: {}", at + 1, line.trim()));
        }
    }
    check(&problems);
}

#[test]
fn nothing_is_left_unfinished() {
    let mut problems = Vec::new();
    for path in files("rs").into_iter().chain(files("cu")) {
        if path.ends_with("tidy.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            if ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!("].iter().any(|mark| line.contains(mark)) {
                problems.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    check(&problems);
}

/// Where one package asks for other features than the workspace does, whatever lies above is compiled once for each.
#[test]
fn the_wheel_is_made_of_what_tests_are_made_of() {
    let features = |which: &[&str]| -> Vec<String> {
        let asked = ["tree", "--offline", "--prefix", "none", "--format", "{p} {f}"];
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let found = Command::new(cargo).args(asked).args(which).current_dir(root()).output().unwrap();
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
        let text = String::from_utf8(found.stdout).unwrap();
        text.lines().map(|line| line.trim_end_matches(" (*)").replace(" (proc-macro)", "")).collect()
    };
    let of_tests = features(&["--workspace", "--edges", "normal,build,dev"]);
    let of_the_wheel = features(&["--package", "headwater-python", "--edges", "normal,build"]);
    check(&of_the_wheel.into_iter().filter(|line| !of_tests.contains(line)).collect::<Vec<_>>());
}

/// An example in a crate whose manifest says that there are none would never run.
#[test]
fn examples_run_wherever_there_are_some() {
    let mut problems = Vec::new();
    for path in files("rs") {
        let Some(own) = path.ancestors().find(|folder| folder.join("Cargo.toml").is_file()) else { continue };
        let is_off = fs::read_to_string(own.join("Cargo.toml")).unwrap().contains("doctest = false");
        let text = fs::read_to_string(&path).unwrap();
        if is_off && text.lines().any(|line| line.trim_start().trim_start_matches(['/', '!']).trim() == "```") {
            problems.push(format!("{}: an example in a crate with `doctest = false`", path.display()));
        }
    }
    check(&problems);
}
