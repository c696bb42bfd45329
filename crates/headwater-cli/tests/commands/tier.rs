//! `tier` as a user types it: the plan, the comparison of scores, the dataset it writes, and what it refuses.

use std::fs;
use std::path::Path;

use headwater::feature::PageSums;
use headwater::graph::dataset::{DatasetWriter, Description, NodeFiles, Split, Splits};
use headwater::graph::{Dataset, Layout, NodeType, Relation, Schema, Silent, Topology};
use serde_json::Value;

use crate::program::{fails_with, made, succeeds};

fn json(data: &str, more: &[&str]) -> Value {
    let said = succeeds(&[&["tier", data, "--batch", "32", "--fanout", "4,4", "--json"], more].concat());
    serde_json::from_str(&said).unwrap()
}

fn hit_rates(points: &Value) -> Vec<f64> {
    points.as_array().unwrap().iter().map(|point| point["hit_rate"].as_f64().unwrap()).collect()
}

fn rows(found: &Value) -> Vec<u64> {
    found["plan"]["forecast"].as_array().unwrap().iter().map(|tier| tier["rows"].as_u64().unwrap()).collect()
}

#[test]
fn every_score_is_measured_beside_the_best_there_is() {
    let (folder, data) = made("8");
    let picture = folder.path().join("curves.svg");
    let plot = picture.to_str().unwrap();
    let found = json(&data, &["--measure", "--gpu-share", "0.25", "--depths", "1,2", "--plot", plot]);
    let oracle = hit_rates(&found["oracle"]);
    assert_eq!(found["scores"].as_array().unwrap().len(), 6);
    for entry in found["scores"].as_array().unwrap() {
        let measured = hit_rates(&entry["measured"]);
        assert!(measured.is_sorted(), "{entry}");
        assert!((measured.last().unwrap() - 1.0).abs() < 1e-9, "{entry}");
        assert!(measured.iter().zip(&oracle).all(|(measured, oracle)| *measured <= oracle + 1e-9), "{entry}");
    }
    assert_eq!(rows(&found), [256, 0, 768, 0]);
    let off = found["prediction"]["off_by_percent"].as_f64().unwrap();
    assert!(off.abs() < 20.0, "off by {off}%");
    assert_eq!(found["is_chosen"], true);
    assert_eq!(found["depths"].as_array().unwrap().len(), 4);
    assert!(fs::read(&picture).unwrap().starts_with(b"<svg"));
}

#[test]
fn the_order_is_written_and_serves_what_was_told() {
    let (folder, data) = made("8");
    let out = folder.path().join("hot").to_str().unwrap().to_owned();
    let found = json(&data, &["--score", "expected", "-o", &out, "--page-sums"]);
    assert_eq!((&found["score"], &found["is_chosen"]), (&"expected".into(), &false.into()));
    let (old, new) = (Dataset::open(Path::new(&data)).unwrap(), Dataset::open(Path::new(&out)).unwrap());
    new.verify(&Silent).unwrap();
    assert!(new.manifest().origin.contains("hottest first by expected"), "{}", new.manifest().origin);
    // A training node keeps its row: its first number leads to it.
    let first = new.array("node.first_numbers").unwrap().ids().unwrap();
    let [before, after] = [&old, &new].map(|dataset| dataset.features(0).unwrap().column::<f32>().unwrap());
    let node = usize::try_from(new.split(0, Split::Train).unwrap().unwrap().at(0)).unwrap();
    let was = usize::try_from(first.at(node)).unwrap();
    assert_eq!(after[8 * node..8 * node + 8], before[8 * was..8 * was + 8]);
    let features = new.features(0).unwrap().path();
    assert_eq!(PageSums::load(features).unwrap(), PageSums::of_file(features).unwrap());
    // Rows of 32 bytes never reach over a line.
    assert_eq!(found["stride_bytes"], serde_json::json!([32]));
    fails_with(&["tier", &data, "-o", &out], "name a new folder");
}

/// A page that rotted is an error of the run that reads it, and not features. Smaller files are read whole when they are opened.
#[test]
fn a_page_that_rotted_is_an_error_of_the_run_that_reads_it() {
    let (folder, data) = made("64");
    let out = folder.path().join("hot").to_str().unwrap().to_owned();
    json(&data, &["--score", "expected", "-o", &out, "--page-sums"]);
    let new = Dataset::open(&folder.path().join("hot")).unwrap();
    let features = new.features(0).unwrap().path();
    let mut bytes = std::fs::read(features).unwrap();
    bytes.iter_mut().skip(4096).step_by(1000).for_each(|byte| *byte ^= 1);
    std::fs::write(features, &bytes).unwrap();
    let run = folder.path().join("run").to_str().unwrap().to_owned();
    let train = ["train", &out, "--out", &run, "--features", "disk", "--device", "cpu", "--epochs", "1"];
    fails_with(&train, "does not have its checksum");
}

#[test]
fn the_plan_is_shown_with_what_it_rests_on() {
    let (_folder, data) = made("8");
    let text =
        succeeds(&["tier", &data, "--batch", "64", "--fanout", "3,3", "--gpu-bytes", "3200", "--score", "pagerank"]);
    for words in [
        "rows     node: 1,024 of 32 bytes",
        "machine  ",
        "order    by pagerank",
        "replicated              100",
        "hit rates, forecast",
    ] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    let disk = json(&data, &["--score", "out-degree", "--gpu-bytes", "3200", "--host-bytes", "6400"]);
    assert_eq!(rows(&disk), [100, 0, 200, 724]);
    let all = json(&data, &["--score", "out-degree", "--gpu-share", "1"]);
    assert_eq!(rows(&all), [1024, 0, 0, 0]);
}

#[test]
fn what_cannot_be_is_said() {
    let (folder, data) = made("8");
    fails_with(&["tier", &data, "--gpu-bytes", "99999999999999"], "is more than the");
    fails_with(&["tier", &data, "--gpu-share", "1.5"], "from 0 to 1");
    fails_with(&["tier", &data, "--gpu-bytes", "32", "--host-bytes", "64", "--no-disk"], "find no room");
    fails_with(&["tier", &data, "--batch", "0"], "at least 1");
    fails_with(&["tier", &data, "--batches", "0"], "at least 1");
    fails_with(&["tier", &data, "--fanout", "-2"], "fan-out -2");
    fails_with(&["tier", &data, "--depths", "99"], "--depths are from 1 to");
    fails_with(&["tier", &data, "--plot", "x.bmp"], ".svg or .png");
    fails_with(&["tier", "not-there"], "not-there");
    let (_bare, bare) = made("0");
    fails_with(&["tier", &bare], "--row-bytes");
    assert_eq!(json(&bare, &["--row-bytes", "100"])["tables"][0]["row_bytes"], 100);
    let edges = folder.path().join("edges.csv");
    fs::write(&edges, "0,1\n1,2\n2,0\n").unwrap();
    let plain = folder.path().join("plain").to_str().unwrap().to_owned();
    succeeds(&["ingest", edges.to_str().unwrap(), "-o", &plain]);
    fails_with(&["tier", &plain, "--row-bytes", "4"], "no training nodes");
}

/// Ten papers that everybody cites and a thousand authors with narrower rows.
fn library(path: &Path) {
    let node_type = |name: &str, count| NodeType { name: name.into(), count };
    let relation = |source, name: &str, target| Relation { source, name: name.into(), target };
    let types = vec![node_type("paper", 100), node_type("author", 1000)];
    let schema = Schema::new(types, vec![relation(1, "writes", 0), relation(0, "cites", 0)]).unwrap();
    let writer = DatasetWriter::create(path).unwrap();
    let offsets = |each: u64| (0..=100).map(|row| row * each).collect::<Vec<u64>>().into();
    let writes = Topology::new(Layout::Csc, 1000, offsets(10), (0..1000u32).collect::<Vec<_>>().into()).unwrap();
    let cites =
        Topology::new(Layout::Csc, 100, offsets(2), (0..200u32).map(|at| at % 10).collect::<Vec<_>>().into()).unwrap();
    writer.relation(0, &writes).unwrap();
    writer.relation(1, &cites).unwrap();
    writer.array("paper.features", &[100, 16], &[1f32; 1600]).unwrap();
    writer.array("author.features", &[1000, 4], &[2f32; 4000]).unwrap();
    writer.array("paper.train", &[90], &(10..100u32).collect::<Vec<_>>()).unwrap();
    let name = |name: &str| Some(name.to_owned());
    let splits = Splits { train: name("paper.train"), ..Splits::default() };
    let papers = NodeFiles { features: name("paper.features"), splits, ..NodeFiles::default() };
    let authors = NodeFiles { features: name("author.features"), ..NodeFiles::default() };
    let described = Description::new("library", schema, Layout::Csc, "papers and authors");
    writer.finish(Description { nodes: vec![papers, authors], ..described }).unwrap();
}

#[test]
fn tables_of_several_types_compete() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("library");
    library(&data);
    // Room for the ten papers and twenty authors.
    let found = json(data.to_str().unwrap(), &["--score", "presampled", "--gpu-bytes", "960", "--measure"]);
    let ends: Vec<u64> = (0..2).map(|at| found["plan"]["tables"][at]["replicated_end"].as_u64().unwrap()).collect();
    assert_eq!(ends, [10, 20]);
    assert_eq!(found["tables"][1]["row_bytes"], 16);
}
