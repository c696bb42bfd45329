//! `inspect` and `export` as a user types them, on a sound dataset, on a damaged one, and on a disk without room.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater::graph::dataset::{DatasetWriter, Description, NodeFiles, Splits};
use headwater::graph::{Dataset, Layout, NodeType, Relation, Schema, Silent, Topology};

use crate::program::{fails_with, headwater, program, succeeds};

/// A ring of 100 nodes, each after the node before it, with features, labels and splits.
fn ring(path: &Path) {
    let topology = Topology::new(Layout::Csc, 100, (0..=100).collect::<Vec<u64>>().into(), before().into()).unwrap();
    let writer = DatasetWriter::create(path).unwrap();
    writer.relation(0, &topology).unwrap();
    let fill = |rows: std::ops::Range<u64>, out: &mut [f32]| {
        rows.zip(out.chunks_mut(256)).for_each(|(row, out)| out.fill(row as f32));
    };
    writer.rows("node.features", &[100, 256], fill, &Silent).unwrap();
    writer.array("node.labels", &[100], &[3u8; 100]).unwrap();
    for (name, ids) in [("node.train", [0u32, 1]), ("node.valid", [2, 3]), ("node.test", [4, 99])] {
        writer.array(name, &[2], &ids).unwrap();
    }
    let name = |name: &str| Some(format!("node.{name}"));
    let splits = Splits { train: name("train"), valid: name("valid"), test: name("test") };
    let (features, labels) = (name("features"), name("labels"));
    let files = NodeFiles { features, labels, classes: Some(4), splits, ..NodeFiles::default() };
    let described = Description::new("ring", Schema::homogeneous(100), Layout::Csc, "a ring of 100 nodes");
    writer.finish(Description { nodes: vec![files], ..described }).unwrap();
}

fn before() -> Vec<u32> {
    (0..100).map(|node| (node + 99) % 100).collect()
}

fn folder() -> (tempfile::TempDir, String, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("ring");
    ring(&data);
    let out = folder.path().join("out");
    (folder, data.to_str().unwrap().to_owned(), out)
}

#[test]
fn inspect_says_what_there_is() {
    let (_folder, data, out) = folder();
    let text = succeeds(&["inspect", &data]);
    for words in [
        "ring: a ring of 100 nodes",
        "nodes node: 100, 0 without any edge",
        "every file is as it was written",
        "features: float32 [100, 256]",
        "labels (4 classes): uint8 [100]",
        "splits: test 2, train 2, valid 2",
        "edges node -to-> node: 100, 32-bit ids",
        "in-degree: min 1, mean 1.00, max 1; 0 without neighbours",
        "########",
    ] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    let all: serde_json::Value = serde_json::from_str(&succeeds(&["inspect", &data, "--json"])).unwrap();
    assert_eq!(all["nodes"][0]["isolated"], 0);
    assert_eq!(all["verified"], true);
    assert_eq!(all["relations"][0]["degrees"]["histogram"], serde_json::json!([0, 100]));
    assert_eq!(all["nodes"][0]["splits"]["test"], 2);
    fs::create_dir(&out).unwrap();
    for (name, beginning) in [("degrees.svg", &b"<svg"[..]), ("degrees.png", &b"\x89PNG"[..])] {
        let picture = out.join(name);
        succeeds(&["inspect", &data, "--no-verify", "--plot", picture.to_str().unwrap()]);
        assert!(fs::read(picture).unwrap().starts_with(beginning));
    }
}

#[test]
fn inspect_names_the_damaged_file() {
    let (_folder, data, _) = folder();
    let file = Path::new(&data).join("node.features.npy");
    let mut bytes = fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    fs::write(&file, &bytes).unwrap();
    fails_with(&["inspect", &data], "node.features.npy: the checksum is");
    assert!(succeeds(&["inspect", &data, "--no-verify"]).contains("not looked at"));
    fs::write(&file, &bytes[..6000]).unwrap();
    fails_with(&["inspect", &data, "--no-verify"], "node.features.npy: its length in bytes is 6000; expected 106496");
    fails_with(&["inspect", "not-there"], "not-there/headwater.json");
    fails_with(&["inspect", &data, "--plot", "x.bmp"], ".svg or .png");
}

/// Whatever file is damaged: nobody writes it out as good, and whoever is asked to looks.
#[test]
fn damage_is_never_written_out_as_good() {
    let (folder, data, out) = folder();
    let out = out.to_str().unwrap();
    let run = folder.path().join("run").display().to_string();
    let files: Vec<PathBuf> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 8, "{files:?}");
    for file in files {
        let sound = fs::read(&file).unwrap();
        let mut bytes = sound.clone();
        // The last but one is in the data of every file, and in the manifest within its checksum.
        let at = bytes.len() - if file.ends_with("headwater.json") { 10 } else { 2 };
        bytes[at] ^= 1;
        fs::write(&file, &bytes).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        fails_with(&["reorder", &data, "-o", out, "--by", "in-degree"], name);
        fails_with(&["export", &data, "--npy", out], name);
        fails_with(&["tier", &data, "-o", out, "--fanout", "2"], name);
        fails_with(&["tier", &data, "--verify", "--fanout", "2"], name);
        fails_with(&["train", &data, "--verify", "-o", &run, "--epochs", "1", "--device", "cpu"], name);
        assert!(
            !Path::new(out).exists()
                && Dataset::open(Path::new(&data)).and_then(|it| it.save(Path::new(out), &Silent)).is_err()
        );
        fs::write(&file, &sound).unwrap();
    }
    succeeds(&["train", &data, "--verify", "-o", &run, "--epochs", "1", "--device", "cpu"]);
    succeeds(&["infer", &run, "--verify"]);
    succeeds(&["reorder", &data, "-o", out, "--by", "in-degree"]);
    succeeds(&["inspect", out]);
}

#[test]
fn epochs_that_nobody_said_are_told() {
    let (folder, data, _) = folder();
    let run = |name: &str, more: &[&str]| {
        let out = folder.path().join(name).display().to_string();
        let output = headwater(&[&["train", &data, "-o", &out, "--device", "cpu"], more].concat());
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(run("one", &["--model", "sage"]).contains("sage: 20 epochs of batches of "));
    assert!(run("other", &["--model", "sage", "--epochs", "1"]).contains("sage: 1 epochs of batches of "));
}

#[test]
fn orders_that_cannot_be_followed_are_refused() {
    let (_folder, data, out) = folder();
    let out = out.to_str().unwrap();
    let ids = Path::new(&data).join("node.train.npy").display().to_string();
    fails_with(
        &["reorder", &data, "-o", out, "--order", &ids],
        "node.train.npy has 2 numbers; the dataset has 100 nodes",
    );
    fails_with(&["reorder", &data, "-o", out, "--by", "in-degree", "--seed", "3"], "--seed is of the random order");
    succeeds(&["reorder", &data, "-o", out, "--by", "random", "--seed", "3"]);
}

/// What is seen without reading everything: the manifest, lengths, headers, and small files.
#[test]
fn opening_sees_what_is_cheap_to_see() {
    let (_folder, data, _) = folder();
    for (name, sees) in [("node.train.npy", true), ("headwater.json", true), ("node.features.npy", false)] {
        let file = Path::new(&data).join(name);
        let sound = fs::read(&file).unwrap();
        let mut bytes = sound.clone();
        let at = bytes.len() - if name == "headwater.json" { 10 } else { 2 };
        bytes[at] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(Dataset::open(Path::new(&data)).is_err(), sees, "{name}");
        fs::write(&file, &sound).unwrap();
    }
}

#[test]
fn exported_arrays_are_what_scripts_expect() {
    let (_folder, data, out) = folder();
    succeeds(&["export", &data, "--npy", out.to_str().unwrap()]);
    let longs = |name: &str| -> Vec<i64> {
        let bytes = fs::read(out.join(name)).unwrap();
        assert!(String::from_utf8_lossy(&bytes[..128]).contains("'<i8'"), "{name}");
        bytes[4096..].chunks(8).map(|eight| i64::from_le_bytes(eight.try_into().unwrap())).collect()
    };
    assert_eq!(longs("indptr.npy"), (0..=100).collect::<Vec<_>>());
    assert_eq!(longs("indices.npy"), before().into_iter().map(i64::from).collect::<Vec<_>>());
    assert_eq!(longs("label.npy"), [3; 100]);
    assert_eq!(
        (longs("train_idx.npy"), longs("val_idx.npy"), longs("test_idx.npy")),
        (vec![0, 1], vec![2, 3], vec![4, 99])
    );
    let data_file = |folder: &Path, name: &str| fs::read(folder.join(name)).unwrap()[4096..].to_vec();
    assert_eq!(data_file(&out, "feat.npy"), data_file(Path::new(&data), "node.features.npy"));
    fails_with(&["export", &data, "--npy", out.to_str().unwrap()], "not empty");
}

#[test]
fn several_types_go_to_several_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("out"));
    let node_types = [("a", 2), ("b", 1)].map(|(name, count)| NodeType { name: name.into(), count });
    let relation = Relation { source: 0, name: "to".into(), target: 1 };
    let schema = Schema::new(node_types.into(), vec![relation]).unwrap();
    let writer = DatasetWriter::create(&data).unwrap();
    let topology = Topology::new(Layout::Csc, 2, vec![0u64, 2].into(), vec![1u64, 0].into()).unwrap();
    writer.relation(0, &topology.with_weights(vec![0.5, 1.0].into()).unwrap()).unwrap();
    writer.array("b.features", &[1, 1], &[1.5f32]).unwrap();
    let files = NodeFiles { features: Some("b.features".into()), ..NodeFiles::default() };
    let nodes = vec![NodeFiles::default(), files];
    writer.finish(Description { nodes, ..Description::new("two", schema, Layout::Csc, "a test") }).unwrap();
    assert_eq!(Dataset::open(&data).unwrap().graph().unwrap().edges(), 2);
    succeeds(&["export", data.to_str().unwrap(), "--npy", out.to_str().unwrap()]);
    for file in ["a__to__b/indptr.npy", "a__to__b/indices.npy", "a__to__b/weight.npy", "b/feat.npy"] {
        assert!(out.join(file).exists(), "{file}");
    }
}

/// Every verb that writes, as a shell takes it.
fn writers(data: &str, edges: &Path, out: &Path) -> [String; 4] {
    let text: String = (0..5000).map(|i| format!("n{i},n{}\n", i * 7 % 5000)).collect();
    fs::write(edges, text).unwrap();
    let binary = program().display().to_string();
    [
        format!("'{binary}' export '{data}' --npy '{}'", out.display()),
        format!("'{binary}' ingest '{}' -o '{}'", edges.display(), out.display()),
        format!("'{binary}' generate rmat --nodes-log2 12 --features 16 -o '{}'", out.display()),
        format!("'{binary}' reorder '{data}' -o '{}'", out.display()),
    ]
}

/// A limit on file sizes stands for a full disk: the write in the middle fails the same way.
#[test]
fn a_full_disk_is_named_and_leaves_nothing() {
    let (folder, data, out) = folder();
    for writer in writers(&data, &folder.path().join("edges.csv"), &out) {
        let command = format!("trap '' XFSZ; ulimit -f 8; exec {writer}");
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("cannot write") && said.contains(".npy"), "{said}");
        let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = files.collect();
        left.sort();
        assert_eq!(left, ["edges.csv", "ring"], "{writer}");
    }
    // What was read from is as it was.
    succeeds(&["inspect", &data]);
}

/// Disks in memory that fill up early, late or not at all, in a space of their own that needs no rights.
#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped should say so")]
fn a_disk_that_fills_up_holds_a_whole_dataset_or_none() {
    if !Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no disk can be mounted here");
        return;
    }
    let (folder, data, _) = folder();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mut finished = 0;
    for writer in writers(&data, &folder.path().join("edges.csv"), &disk.join("out")) {
        for kib in [8, 40, 120, 4000] {
            let command = format!(
                "mount -t tmpfs -o size={kib}k tmpfs '{0}' || exit 9; {writer} >/dev/null; echo $?; cd '{0}'; ls -A; ls out",
                disk.display()
            );
            let output = Command::new("unshare").args(["-rm", "sh", "-c", &command]).output().unwrap();
            let (left, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            if left.starts_with("0\nout\n") {
                let last = if writer.contains("export") { "indptr.npy" } else { "headwater.json" };
                assert!(left.contains(last), "{writer} on {kib} KiB left {left}");
                finished += 1;
            } else {
                assert!(left == "1\n" && said.contains("No space left"), "{writer} on {kib} KiB left {left}: {said}");
            }
        }
    }
    assert!((4..16).contains(&finished), "{finished} of 16 had room");
}

/// Wherever it is when it dies, there is a whole folder or none, and the next run is not in its way.
#[test]
fn a_killed_export_leaves_nothing_that_looks_finished() {
    let (_folder, data, out) = folder();
    for delay_ms in [0, 2, 4, 8, 16] {
        let out_name = out.to_str().unwrap();
        let mut child = Command::new(program()).args(["export", &data, "--npy", out_name]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        if !out.exists() {
            succeeds(&["export", &data, "--npy", out_name]);
        }
        assert_eq!(fs::read_dir(&out).unwrap().count(), 7);
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn benches_of_a_dataset_print_one_object() {
    let (_folder, data, _) = folder();
    let printed = succeeds(&["bench", "score", &data, "--rounds", "1", "--fanout", "2,2", "--json"]);
    let figures: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&figures["nodes"], &figures["edges"]), (&100.into(), &100.into()));
    // An id and a contribution of 4 bytes an edge, a sum of 8 a node.
    for (score, passes, bytes) in [("weighted-pagerank", 5, 1600), ("expected", 2, 1600), ("in-degree", 1, 1600)] {
        let rows = figures["scores"].as_array().unwrap();
        let row = rows.iter().find(|row| row["score"] == score).unwrap();
        assert_eq!((&row["passes"], &row["bytes_per_pass"]), (&passes.into(), &bytes.into()), "{score}");
    }
    fails_with(&["bench", "score", &data, "--fanout", "-2"], "-2");
    let printed = succeeds(&["bench", "reorder", &data, "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap()["graph"], "ring");
    fails_with(&["bench", "reorder", "not-there"], "not-there");
}

#[test]
fn help_has_examples() {
    for verb in ["inspect", "export"] {
        assert!(succeeds(&[verb, "--help"]).contains("Examples:"), "{verb}");
    }
}

#[test]
fn exported_nodes_have_the_names_they_came_with() {
    let folder = tempfile::tempdir().unwrap();
    let below = |name: &str| folder.path().join(name).display().to_string();
    let data = |name: &str, file: &str| fs::read(folder.path().join(name).join(file)).unwrap()[4096..].to_vec();
    let longs = |name: &str, file: &str| -> Vec<i64> {
        data(name, file).chunks(8).map(|eight| i64::from_le_bytes(eight.try_into().unwrap())).collect()
    };
    // Numbers that are not those of the nodes.
    fs::write(below("numbers.csv"), "10,30\n30,20\n20,10\n20,30\n").unwrap();
    succeeds(&["ingest", &below("numbers.csv"), "-o", &below("numbers")]);
    succeeds(&["reorder", &below("numbers"), "-o", &below("reordered"), "--by", "in-degree"]);
    succeeds(&["export", &below("reordered"), "--npy", &below("of-numbers")]);
    let ids = longs("of-numbers", "original_id.npy");
    assert_eq!((ids[0], ids.len()), (30, 3), "{ids:?}: most edges end at 30");
    // Names have lengths of their own, so they come with offsets.
    fs::write(below("names.csv"), "ann,jürgen\njürgen,eve\neve,ann\n").unwrap();
    succeeds(&["ingest", &below("names.csv"), "-o", &below("names")]);
    succeeds(&["export", &below("names"), "--npy", &below("of-names")]);
    let (bytes, offsets) = (data("of-names", "original_id.npy"), longs("of-names", "original_id_offsets.npy"));
    let offsets: Vec<usize> = offsets.into_iter().map(|at| usize::try_from(at).unwrap()).collect();
    let names: Vec<&str> =
        offsets.windows(2).map(|pair| std::str::from_utf8(&bytes[pair[0]..pair[1]]).unwrap()).collect();
    assert_eq!(names, ["ann", "eve", "jürgen"]);
}
