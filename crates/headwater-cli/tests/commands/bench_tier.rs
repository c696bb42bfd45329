//! `bench tier` as a user types it: what it counts and times with and without a GPU, what it draws, and what it refuses.

use std::fs;
use std::path::Path;

use headwater::graph::dataset::{DatasetWriter, Description, NodeFiles};
use headwater::graph::{Layout, Schema, Topology};
use serde_json::Value;

use crate::program::{fails_with, made, succeeds};

fn path_in(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

const SMALL: &[&str] = &["--batch", "32", "--fanout", "4,4"];

fn json(data: &str, more: &[&str]) -> Value {
    serde_json::from_str(&succeeds(&[&["bench", "tier", data, "--json"], SMALL, more].concat())).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// What holds of every case, whoever counted.
fn cases_add_up(found: &Value) {
    let batch_rows = number(&found["rows_per_batch"]);
    for case in list(&found["cases"]) {
        let elements = number(&found["row_bytes"]) / 4.0;
        let row_bytes = elements * if case["stored"] == "int8" { 1.0 } else { 4.0 };
        let cold = (1.0 - number(&case["hit_rate"])) * batch_rows * row_bytes;
        assert!((number(&case["host_link_bytes"]) - cold).abs() < 1e-6 * (cold + 1.0), "{case}");
        assert_eq!(number(&case["gpu_rows"]), (number(&case["share_percent"]) / 100.0 * 1024.0).floor(), "{case}");
        assert!(number(&case["off_by_percent"]).abs() < 25.0, "{case}");
    }
}

#[test]
fn traffic_is_counted_and_told() {
    let (_folder, data) = made("16");
    let found = json(&data, &["--batches", "16", "--scores", "all", "--stored", "f32,int8", "--order", "hotness"]);
    assert_eq!((&found["batches"], &found["rows"], &found["row_bytes"]), (&16.into(), &1024.into(), &64.into()));
    cases_add_up(&found);
    let of_type =
        |stored: &str| list(&found["cases"]).iter().filter(|case| case["stored"] == stored).collect::<Vec<_>>();
    let hits: Vec<f64> = of_type("f32").iter().map(|case| number(&case["hit_rate"])).collect();
    assert!(hits.len() == 6 && hits.is_sorted() && hits[0] == 0.0 && hits[5] == 1.0, "{hits:?}");
    for case in of_type("int8").iter().filter(|case| case["share_percent"] != 100.0) {
        assert_eq!(case["of_file_type"], 0.25);
    }
    assert_eq!(found["claims"]["int8_bytes_of_file_type"], 0.25);
    assert!(number(&found["baselines"]["cpu"]["gb_per_s"]) > 0.0);
}

#[test]
fn scores_stay_below_the_oracle() {
    let (_folder, data) = made("4");
    let of = |more: &[&str]| json(&data, &[&["--batches", "8", "--disk-cache", "0"], more].concat());
    let all = of(&["--scores", "all"]);
    let scores = list(&all["hit_rates"]["scores"]);
    assert_eq!(scores.len(), 6);
    for entry in scores {
        assert!(list(&entry["below_oracle"]).iter().all(|below| number(below) > -1e-9), "{entry}");
    }
    let named = of(&["--score", "in-degree", "--scores", "out-degree,in-degree"]);
    assert_eq!((list(&named["hit_rates"]["scores"]).len(), &named["score"]), (2, &"in-degree".into()));
    assert!(named["disk"].is_null());
    // The share of the table is where the comparison says.
    let at_10 = |found: &Value| number(&list(&found["cases"])[2]["hit_rate"]);
    let of_entry = |found: &Value, at: usize| number(&list(&list(&found["hit_rates"]["scores"])[at]["hit_rate"])[1]);
    assert!((at_10(&named) - of_entry(&named, 1)).abs() < 0.01, "{named}");
}

#[test]
fn the_disk_is_read_beside_a_probe_of_it() {
    let (folder, data) = made("256");
    let found = json(&data, &["--batches", "6", "--disk-batches", "5", "--stored", "f32"]);
    let disk = &found["disk"];
    assert_eq!(disk["plain"]["batches"], 3);
    assert_eq!(disk["prefetching"]["batches"], 3);
    assert_eq!(disk["cache_bytes"], 1024 * 1024 / 10);
    for name in ["plain_of_raw", "prefetching_of_raw", "raw_gb_per_s"] {
        assert!(number(&disk[name]) > 0.0, "{disk}");
    }
    assert!(number(&disk["plain"]["hit_rate"]) < 1.0);
    // A cache of everything has nothing left to read once it is warm; another file is read as well.
    let features = path_in(Path::new(&data), "node.features.npy");
    let other = path_in(folder.path(), "other.npy");
    fs::copy(features, &other).unwrap();
    let whole = json(&data, &["--batches", "32", "--disk-batches", "32", "--disk-cache", "1", "--disk-file", &other]);
    assert_eq!(whole["disk"]["file"], other.as_str());
    assert!(number(&whole["disk"]["plain"]["hit_rate"]) > 0.9, "{}", whole["disk"]);
}

#[test]
fn figures_are_shown_and_drawn() {
    let (folder, data) = made("8");
    let picture = path_in(folder.path(), "shares.svg");
    let text = succeeds(&[&["bench", "tier", &data, "--batches", "4", "--plot", &picture], SMALL].concat());
    for words in [
        "1,024 rows of 32 bytes as f32",
        "row k is row k of the file",
        "4 of 32 seeds, fan-out (4, 4)",
        "without tiers",
        "int8 hotness",
        "forecast traffic is off by",
        "their own counts",
        "prefetching",
    ] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    assert!(fs::read(&picture).unwrap().starts_with(b"<svg"));
    assert!(succeeds(&["bench", "tier", "--help"]).contains("Examples:"));
}

#[test]
fn what_cannot_be_is_said() {
    let (folder, data) = made("8");
    let refuses = |more: &[&str], words: &str| fails_with(&[&["bench", "tier", &data], SMALL, more].concat(), words);
    refuses(&["--shares", "0,101"], "one is 101");
    refuses(&["--shares=-1"], "one is -1");
    refuses(&["--shares", "NaN"], "one is NaN");
    refuses(&["--batches", "0"], "at least 1");
    refuses(&["--rounds", "0"], "at least 1");
    refuses(&["--disk-batches", "0"], "at least 1");
    refuses(&["--disk-cache", "1.5"], "from 0 to 1");
    refuses(&["--plot", "shares.bmp"], ".svg or .png");
    refuses(&["--disk-file", "not-there.npy"], "not-there.npy");
    refuses(&["--disk-file", folder.path().to_str().unwrap()], "not a file");
    fails_with(&["bench", "tier", &data, "--batch", "0"], "at least 1");
    let disk = |more: &[&str], words: &str| fails_with(&[&["bench", "tier", &data], more].concat(), words);
    disk(&["--disk-cache", "0", "--disk-batches", "7"], "--disk-batches would change nothing: --disk-cache 0 leaves");
    disk(&["--disk-cache", "0", "--disk-file", "x"], "--disk-file would change nothing: --disk-cache 0 leaves");
    disk(&["--batches", "2", "--disk-batches", "50"], "--disk-batches is 50; expected at most --batches, which is 2");
    fails_with(&["bench", "tier", &data, "--fanout", "-2"], "fan-out -2");
    fails_with(&["bench", "tier", "not-there"], "not-there");
    let (_few, few) = made("4");
    let short = path_in(Path::new(&few), "node.train.npy");
    refuses(&["--disk-file", &short], "rows, and the table 1024");
    let (_bare, bare) = made("0");
    fails_with(&["bench", "tier", &bare], "no node type has features");
    let edges = folder.path().join("edges.csv");
    fs::write(&edges, "0,1\n1,2\n2,0\n").unwrap();
    let plain = path_in(folder.path(), "plain");
    succeeds(&["ingest", edges.to_str().unwrap(), "-o", &plain]);
    fails_with(&["bench", "tier", &plain], "no node type has features");
    let untrained = folder.path().join("untrained");
    without_training_nodes(&untrained);
    fails_with(&["bench", "tier", untrained.to_str().unwrap()], "no training nodes");
}

/// Three nodes with features and nothing to train on.
fn without_training_nodes(path: &Path) {
    let topology = Topology::new(Layout::Csc, 3, vec![0u64, 0, 2, 3].into(), vec![0u32, 2, 1].into()).unwrap();
    let writer = DatasetWriter::create(path).unwrap();
    writer.relation(0, &topology).unwrap();
    writer.array("node.features", &[3, 2], &[1f32; 6]).unwrap();
    let files = NodeFiles { features: Some("node.features".into()), ..NodeFiles::default() };
    let described = Description::new("three", Schema::homogeneous(3), Layout::Csc, "a test");
    writer.finish(Description { nodes: vec![files], ..described }).unwrap();
}

mod device {
    use headwater::cuda::Gpu;

    use super::*;

    #[test]
    fn every_way_is_checked_and_timed() {
        // Where there is no GPU, real or emulated, there is nothing to test.
        if Gpu::open(0).is_err() {
            return;
        }
        let (_folder, data) = made("16");
        let small = ["--batches", "2", "--rounds", "1", "--disk-cache", "0"];
        let found = json(&data, &[&small[..], &["--shares", "0", "--stored", "f32,int8"]].concat());
        cases_add_up(&found);
        assert_eq!(list(&found["skipped"]).len(), 0, "{found}");
        assert_eq!(list(&found["cases"]).len(), 3, "two orders, and int8 in one: {found}");
        for name in ["cpu", "zero_copy", "hbm"] {
            assert!(number(&found["baselines"][name]["ms_per_batch"]) > 0.0, "{found}");
        }
        let few = ["--batches", "1", "--rounds", "1", "--disk-cache", "0", "--order", "hotness", "--caches", "warm"];
        let mixed = json(&data, &[&few[..], &["--shares", "10", "--stored", "f32"]].concat());
        cases_add_up(&mixed);
        assert_eq!(mixed["caches"], "warm", "{mixed}");
        let bound = &list(&mixed["cases"])[0]["bound"];
        assert!(number(&bound["cold_alone_ms"]) > 0.0 && number(&bound["hot_ms"]) > 0.0, "{bound}");
        assert_eq!(mixed["claims"]["over_bound_at_10"], bound["ratio"]);
    }
}
