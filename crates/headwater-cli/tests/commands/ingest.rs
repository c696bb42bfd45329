//! `headwater ingest` as a user types it, and what a killed one leaves.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{fails_with, headwater, program};

fn succeeds(arguments: &[&str]) -> (String, String) {
    let output = headwater(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    (String::from_utf8(output.stdout).unwrap(), said)
}

#[test]
fn an_edge_list_becomes_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("edges.csv"), folder.path().join("out"));
    std::fs::write(&source, "from,to,w\nann,bob,1\nbob,eve,0.5\n").unwrap();
    let (source, out) = (source.to_str().unwrap(), out.to_str().unwrap());
    let (printed, said) = succeeds(&["ingest", source, "-o", out, "--weight-column", "w", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((summary["nodes"].as_u64(), summary["edges"].as_u64()), (Some(3), Some(2)));
    assert_eq!(summary["format"], "edge-list");
    assert!(summary["predicted_peak_bytes"].as_u64().unwrap() > 0 && said.contains("will take up to"), "{said}");
    assert!(Path::new(out).join("headwater.json").is_file());
    fails_with(&["ingest", source, "-o", out], out);
}

#[test]
fn relations_are_given_by_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).display().to_string()
    };
    let writes = format!("author:writes:paper={}", file("w.csv", "0,0\n1,0\n"));
    let cites = format!("paper:cites:paper={}", file("c.tsv", "0\t1\n"));
    let out = folder.path().join("out").display().to_string();
    let (printed, _) = succeeds(&["ingest", "-o", &out, "--edges", &writes, "--edges", &cites, "--reverse"]);
    assert!(printed.contains("4 nodes of 2 types, 6 edges of 3 relations"), "{printed}");
}

#[test]
fn refusals_are_clear() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let out = path("out");
    std::fs::write(path("bad.csv"), "0,1\n2,x\n").unwrap();
    std::fs::write(path("graph.pt"), "PK").unwrap();
    fails_with(&["ingest", &path("bad.csv"), "-o", &out, "--ids", "dense"], "bad.csv: line 2: column 1: \"x\"");
    fails_with(&["ingest", &path("graph.pt"), "-o", &out], "is a pickle");
    fails_with(&["ingest", &path("none.csv"), "-o", &out], "none.csv");
    fails_with(&["ingest", &path("bad.csv"), "-o", &out, "--delimiter", "ab"], "--delimiter");
    fails_with(&["ingest", "-o", &out, "--edges", "a:b=c"], "SOURCE:RELATION:TARGET=FILE");
    fails_with(&["ingest", "-o", &out], "SOURCE");
    assert!(!Path::new(&out).exists());
    assert!(succeeds(&["ingest", "--help"]).0.contains("Examples:"));
}

#[test]
fn a_killed_ingest_leaves_nothing_that_looks_finished() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("edges.csv");
    let mut text = String::new();
    for i in 0..400_000u64 {
        writeln!(text, "n{},n{}", i * i % 100_003, i).unwrap();
    }
    std::fs::write(&source, text).unwrap();
    let out = folder.path().join("out");
    let arguments = ["ingest", source.to_str().unwrap(), "-o", out.to_str().unwrap()];
    for delay_ms in [0, 5, 40, 120] {
        let mut child =
            Command::new(program()).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Wait until it has begun to write, then a little longer.
        let begun = || std::fs::read_dir(folder.path()).unwrap().count() > 1;
        let limit = Instant::now() + Duration::from_secs(10);
        while !begun() && Instant::now() < limit && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        let _ = child.kill();
        let finished = child.wait().unwrap().success();
        assert_eq!(out.join("headwater.json").is_file(), finished, "after {delay_ms} ms");
        if finished {
            std::fs::remove_dir_all(&out).unwrap();
        }
    }
    let (printed, _) = succeeds(&[&arguments[..], &["--json"]].concat());
    let summary: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(summary["edges"].as_u64(), Some(400_000));
}
