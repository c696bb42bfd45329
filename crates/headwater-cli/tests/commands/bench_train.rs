//! `headwater bench train` where there may be no GPU: the CPU's figures, and batches for other programs.

use headwater::tensor::{Device, Tensor};
use serde_json::Value;

use crate::program::{fails_with, succeeds};

const SMALL: [&str; 12] =
    ["bench", "train", "--like", "products", "--scale", "0.001", "--model", "sage", "--fanout", "3,2", "--batch", "32"];

#[test]
fn a_small_shape_is_trained_and_its_batches_exported() {
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().to_str().unwrap();
    let more = ["--hidden", "8", "--batches", "2", "--exported", "2", "--export", export, "--json"];
    let printed = succeeds(&[&SMALL[..], &["--features", "memory"], &more].concat());
    let found: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert_eq!((found["features"].as_str(), found["width"].as_u64()), (Some("memory"), Some(100)));
    assert!(found["batch_ms"].as_f64().unwrap() > 0.0 && found["loss"].as_f64().unwrap() > 0.0, "{found}");
    let of_a_gpu = ["hot_rows", "sample_ms", "busy", "link_mb", "load_ms"];
    assert!(of_a_gpu.iter().all(|name| found.get(name).is_none()), "{found}");
    let about = std::fs::read(folder.path().join("products/batches.json")).unwrap();
    let about: Value = serde_json::from_slice(&about).unwrap();
    let sum = |counts: &Value| counts.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>();
    let hops = &about["batches"][1];
    assert_eq!((about["batches"].as_array().unwrap().len(), hops["nodes"][0].as_u64()), (2, Some(32)));
    let length = |name: &str, bytes: u64, count: u64| {
        let file = std::fs::metadata(folder.path().join(format!("products/1.{name}.npy"))).unwrap();
        assert!((count * bytes + 64..count * bytes + 256).contains(&file.len()), "{name}: {}", file.len());
    };
    length("nodes", 8, sum(&hops["nodes"]));
    length("row", 4, sum(&hops["edges"]));
    length("col", 4, sum(&hops["edges"]));
    length("labels", 8, 32);
    Tensor::read_npy(folder.path().join("products/1.labels.npy"), Device::Cpu).unwrap();
}

#[test]
fn what_cannot_be_measured_is_said() {
    fails_with(&[&SMALL[..], &["--batches", "0"]].concat(), "--batches");
    fails_with(&["bench", "train", "--like", "aifb"], "aifb has several node types or relations");
    fails_with(&["bench", "train", "--like", "nothing"], "papers100m");
}

/// Before the graph is made: one of this shape takes minutes.
#[test]
fn what_is_wrong_with_words_is_said_before_a_graph_is_made() {
    let asked = |more: &[&'static str]| [&["bench", "train", "--like", "products"], more].concat();
    for (more, words) in [
        (&["--model", "nosuch"][..], "there is no model \"nosuch\""),
        (&["--batch", "0"], "batch is 0; expected 1 to"),
        (&["--hidden", "0"], "--hidden is 0; expected at least 1"),
        (&["--fanout", "0"], "fanout is [0]; expected counts"),
        (&["--heads", "0"], "--heads is 0; expected at least 1"),
        (&["--model", "gat", "--hidden", "2"], "--heads is 4; expected a divisor of --hidden, which is 2"),
        (&["--hidden", "7"], "--heads is 4; expected a divisor of --hidden, which is 7"),
        (&["--width", "0"], "0 is not in 1..=1048576"),
        (&["--width", "9223372036854775807"], "9223372036854775807 is not in 1..=1048576"),
        (&["--suite", "width", "--widths", "16,0"], "0 is not in 1..=1048576"),
        (&["--like", "products,aifb", "--batch", "32"], "cannot be used multiple times"),
    ] {
        fails_with(&asked(more), words);
    }
    fails_with(&["bench", "train", "--like", "products,aifb"], "aifb has several node types or relations");
}

#[test]
fn a_run_that_measures_nothing_has_failed() {
    let small = ["bench", "train", "--like", "products", "--scale", "0.0005", "--fanout", "3,2", "--batch", "32"];
    fails_with(
        &[&small[..], &["--model", "no/such/layer.py", "--batches", "1"]].concat(),
        "nothing was measured; products",
    );
}
