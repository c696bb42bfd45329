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
