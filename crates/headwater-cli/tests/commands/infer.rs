//! `headwater infer` as a person and a program see it.

use std::path::Path;

use serde_json::Value;

use crate::program::{fails_with, made, succeeds};

/// A run of two epochs on a made graph: its folder, and everything around it.
fn trained(more: &[&str]) -> (tempfile::TempDir, String, String) {
    let (folder, data) = made("16");
    let run = folder.path().join("run").to_str().unwrap().to_owned();
    let small = ["--hidden", "8", "--epochs", "2", "-o", &run];
    let drawn: &[&str] = if more.contains(&"--full-graph") { &[] } else { &["--batch", "64", "--fanout", "4,4"] };
    succeeds(&[&["train", &data][..], &small, drawn, more].concat());
    (folder, data, run)
}

fn infer(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(&[&["infer"][..], arguments, &["--json"]].concat())).unwrap()
}

/// The header of a `.npy` file, and its data.
fn npy(path: &Path) -> (String, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8(bytes[10..10 + header].to_vec()).unwrap(), bytes[10 + header..].to_vec())
}

fn classes(path: &Path) -> Vec<i64> {
    npy(path).1.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

#[test]
fn predictions_are_those_of_the_run() {
    // Sampled and in chunks, and over the whole graph at once.
    for more in [&[][..], &["--model", "gcn", "--full-graph"]] {
        predictions_are_those_of(more);
    }
}

fn predictions_are_those_of(more: &[&str]) {
    let (folder, _data, run) = trained(more);
    let at = |name: &str| folder.path().join(name);
    let all = infer(&[&run, "--checkpoint", "last"]);
    let journal = std::fs::read_to_string(Path::new(&run).join("metrics.jsonl")).unwrap();
    let summary: Value = serde_json::from_str(journal.lines().last().unwrap()).unwrap();
    assert_eq!((&all["valid"], &all["test"]), (&summary["valid"], &summary["test"]), "as the last epoch had it");
    assert_eq!((&all["nodes"], &all["epoch"]), (&1024.into(), &2.into()));
    let whole = classes(&Path::new(&run).join("predictions.npy"));
    assert!(whole.len() == 1024 && whole.iter().all(|class| (0..4).contains(class)));

    std::fs::write(at("ids.txt"), "1000\n3\n3\n").unwrap();
    let (ids, out) = (at("ids.txt"), at("some.npy"));
    let (ids, out) = (ids.to_str().unwrap(), out.to_str().unwrap());
    let some = infer(&[&run, "--checkpoint", "last", "--nodes", ids, "-o", out]);
    assert!(some["nodes"] == 3 && some["test"].is_null(), "{some}");
    assert_eq!(classes(&at("some.npy")), [whole[1000], whole[3], whole[3]]);

    for (form, sums_to_one) in [("--logits", false), ("--probabilities", true)] {
        infer(&[&run, "--checkpoint", "last", "--nodes", ids, "-o", out, form]);
        let (header, data) = npy(&at("some.npy"));
        assert!(header.contains("(3, 4)") && header.contains("<f4"), "{header}");
        let rows: Vec<f32> = data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let best = |row: &[f32]| (0..4).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as i64;
        assert_eq!(rows.chunks(4).map(best).collect::<Vec<_>>(), [whole[1000], whole[3], whole[3]]);
        let is_one = rows.chunks(4).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert_eq!(is_one, sums_to_one);
    }
}

/// A small graph with labels and features of a width.
fn small(folder: &str, width: &str) {
    let shape = ["--nodes-log2", "9", "--edges-per-node", "4", "--classes", "4", "--features", width];
    succeeds(&[&["generate", "rmat"], &shape[..], &["-o", folder]].concat());
}

#[test]
fn a_graph_without_labels_is_predicted() {
    let (folder, _data, run) = trained(&[]);
    let bare = folder.path().join("bare").to_str().unwrap().to_owned();
    succeeds(&["generate", "rmat", "--nodes-log2", "9", "--edges-per-node", "4", "--features", "16", "-o", &bare]);
    let found = infer(&[&run, "--dataset", &bare]);
    assert!(found["nodes"] == 512 && found["labelled"] == 0 && found["value"].is_null(), "{found}");
    assert_eq!(classes(Path::new(found["output"].as_str().unwrap())).len(), 512);
    fails_with(&["train", &bare, "-o", &bare], "labels");
}

#[test]
fn features_that_are_not_numbers_are_refused() {
    for more in [&[][..], &["--model", "gcn", "--full-graph"]] {
        let (_folder, data, run) = trained(more);
        let features = Path::new(&data).join("node.features.npy");
        let mut bytes = std::fs::read(&features).unwrap();
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(&features, bytes).unwrap();
        let words = "node 1023 of type \"node\" has NaN as feature 15; features are finite numbers";
        fails_with(&["infer", &run, "--dataset", &data], words);
        assert!(!Path::new(&run).join("predictions.npy").exists());
    }
}

#[test]
fn what_cannot_be_predicted_is_said() {
    let (folder, data, run) = trained(&[]);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fails_with(&["infer", "no/such/run"], "no/such/run is not the folder of a run");
    fails_with(&["infer", &data], "is not the folder of a run");
    fails_with(&["infer", "no/run"], "no/run/config.toml: No such file or directory (os error 2)\n");
    fails_with(&["infer", &run, "-o", "/proc/nowhere/p.npy"], "/proc/nowhere/p.npy");
    fails_with(&["infer", &run, "-o", &data], "folder of that name");
    fails_with(&["infer", &run, "--logits", "--classes"], "cannot be used with");
    std::fs::write(at("ids.txt"), "5\n1024\n").unwrap();
    fails_with(&["infer", &run, "--nodes", &at("ids.txt")], "ids.txt:2: there is no node 1024");
    fails_with(&["infer", &run, "--dataset", "no/such/data"], "no/such/data");
    let other = at("other");
    small(&other, "9");
    fails_with(&["infer", &run, "--dataset", &other], "width was 16, and now is 9");

    // The same folder with another graph in it is not the same dataset, unless it is named.
    std::fs::remove_dir_all(&data).unwrap();
    fails_with(&["infer", &run], "--dataset");
    small(&data, "16");
    fails_with(&["infer", &run], "files are not what they were");
    assert_eq!(infer(&[&run, "--dataset", &data])["nodes"], 512);
    assert!(!Path::new(&run).join(".predictions.npy.partial").exists());

    let config = Path::new(&run).join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("hidden = 8", "hidden = 9")).unwrap();
    fails_with(&["infer", &run, "--dataset", &data], "the checkpoint is of another model");
    std::fs::write(&config, text).unwrap();
    let checkpoints = Path::new(&run).join("checkpoints");
    for file in std::fs::read_dir(&checkpoints).unwrap().map(|entry| entry.unwrap().path()) {
        let bytes = std::fs::read(&file).unwrap();
        let version = b"version\\\":1";
        if let Some(at) = bytes.windows(version.len()).position(|part| part == version) {
            let newer = [&bytes[..at + version.len() - 1], b"9", &bytes[at + version.len()..]].concat();
            std::fs::write(&file, newer).unwrap();
        }
    }
    fails_with(&["infer", &run, "--dataset", &data], "format version 9 is not read here");
    std::fs::remove_dir_all(&checkpoints).unwrap();
    fails_with(&["infer", &run, "--dataset", &data], "no checkpoint yet");
}
