//! Named arrays of any type, shape and content in the layouts that are known: folders, OGB's archive, MAG240M.

#![no_main]

use headwater_fuzz::{FuzzArray, Place};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 28] = [
    "edge_index",
    "indptr",
    "indices",
    "colptr",
    "row",
    "rowptr",
    "col",
    "head",
    "rel",
    "tail",
    "split",
    "num_nodes",
    "num_rels",
    "x",
    "x_indptr",
    "x_indices",
    "x_values",
    "x_shape",
    "y",
    "edge_weight",
    "edge_time",
    "edge_attr",
    "node_time",
    "train_idx",
    "train_mask",
    "val_idx",
    "test_idx",
    "other",
];
const LARGE: [&str; 8] = [
    "processed/a___r___b/edge_index",
    "processed/a___r___b/edge_feat",
    "processed/b/node_feat",
    "processed/b/node_label",
    "processed/b/node_year",
    "processed/a/node_feat",
    "split/train",
    "split/valid",
];

#[derive(Debug, Arbitrary)]
struct Input {
    large: bool,
    arrays: Vec<(u8, FuzzArray)>,
}

fuzz_target!(|input: Input| {
    let place = Place::new();
    let names: &[&str] = if input.large { &LARGE } else { &NAMES };
    for (at, array) in input.arrays.iter().take(12) {
        place.write(&format!("source/{}.npy", names[usize::from(*at) % names.len()]), &array.bytes());
    }
    place.ingest();
});
