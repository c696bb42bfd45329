//! `headwater train` as a person and a program see it.

use std::process::{Command, Stdio};
use std::time::Duration;

use headwater::graph::dataset::{DatasetWriter, Description, NodeFiles, Splits};
use headwater::graph::{Layout, NodeType, Relation, Schema, Topology};
use serde_json::Value;

use crate::program::{fails_with, headwater, made, program, succeeds};

fn last_json(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_run_prints_epochs_and_leaves_its_folder() {
    let (folder, data) = made("16");
    let out = folder.path().join("run");
    let out = out.to_str().unwrap();
    let small = ["--hidden", "8", "--epochs", "2", "--batch", "64", "--fanout", "4,4", "-o", out, "--json"];
    let text = succeeds(&[&["train", &data][..], &small].concat());
    assert_eq!(text.lines().count(), 3, "two epochs and a summary: {text}");
    let summary = last_json(&text);
    let fields = [
        "test",
        "valid",
        "valid_loss",
        "best_epoch",
        "epoch_seconds",
        "sample_seconds",
        "gather_seconds",
        "compute_seconds",
        "peak_bytes",
    ];
    for field in fields {
        assert!(summary[field].is_number(), "{field}: {summary}");
    }
    assert_eq!((&summary["run_dir"], &summary["metric"]), (&out.into(), &"accuracy".into()));
    let epochs: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&epochs[0]["epoch"], &epochs[1]["epoch"]), (&1.into(), &2.into()), "epochs are counted from 1");
    let best = &epochs[usize::try_from(summary["best_epoch"].as_u64().unwrap()).unwrap() - 1];
    assert_eq!((&best["valid"], &best["test"]), (&summary["valid"], &summary["test"]));
    for file in ["config.toml", "metrics.jsonl", "curves.svg", "summary.json", "checkpoints"] {
        assert!(folder.path().join("run").join(file).exists(), "{file}");
    }
    fails_with(&["train", &data, "-o", out], "--resume");
    let more = succeeds(&["train", "--resume", out, "--epochs", "3", "--json"]);
    assert_eq!(more.lines().count(), 2, "one more epoch: {more}");
}

#[test]
fn a_description_is_read_back_and_what_it_says_in_vain_is_refused() {
    let (folder, data) = made("16");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    succeeds(&["train", &data, "--hidden", "8", "--epochs", "1", "--fanout", "4,4", "-o", &path("one")]);
    succeeds(&["train", "--config", &path("one/config.toml"), "--epochs", "2", "-o", &path("two")]);
    std::fs::write(path("vain.toml"), "full_graph = true\nfanout = [3, 3]\n").unwrap();
    fails_with(&["train", &data, "--config", &path("vain.toml")], "fanout is [3,3]");
    fails_with(&["train", &data, "--config", &path("vain.toml")], "vain.toml");
}

#[test]
fn what_the_cpu_takes_in_vain_is_refused_where_nobody_named_it() {
    let (folder, data) = made("16");
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let run = at("run");
    // No GPU is to be seen, whatever the machine has.
    let train = |words: &[&str]| {
        let mut command = Command::new(program());
        let output =
            command.arg("train").args(words).args(["-o", &run]).env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (more, words) in [
        (&["--precision", "bf16"][..], "precision is bf16; expected tf32x3 where device is cpu"),
        (&["--scores", "pagerank"], "scores is pagerank; expected expected where features is not tiered"),
        (&["--model", "mlp", "--fanout", "3,3"], "where model is mlp: it reads no neighbours"),
        (&["--model", "mlp", "--inverse-relations"], "inverse_relations is true"),
        (&["--full-graph", "--sampler", "cpu"], "sampler is cpu; expected auto where full_graph is true"),
    ] {
        let (code, said) = train(&[&[data.as_str()], more].concat());
        assert!(code == Some(1) && said.contains(words), "{more:?}: {said}");
    }
    std::fs::write(at("vain.toml"), "precision = 'bf16'\n").unwrap();
    let (code, said) = train(&[&data, "--config", &at("vain.toml")]);
    assert!(code == Some(1) && said.contains("precision is bf16"), "{said}");
}

#[test]
fn optimisations_are_left_out_by_name() {
    let (folder, data) = made("16");
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let train = |run: &str, more: &[&str]| {
        let small = ["--epochs", "1", "--hidden", "4", "--device", "cpu", "--seed", "1", "-o", run];
        succeeds(&[&["train", &data][..], &small, more].concat());
        std::fs::read_to_string(folder.path().join(run).join("config.toml")).unwrap()
    };
    assert!(!train(&at("all"), &[]).contains("without"));
    let kept = train(&at("less"), &["--without", "fuse,compact"]);
    assert!(kept.contains("without = [") && kept.contains("\"fuse\"") && kept.contains("\"compact\""), "{kept}");
    fails_with(&["train", &data, "--without", "magic"], "magic");
    std::fs::write(at("run.toml"), "without = ['magic']\n").unwrap();
    fails_with(
        &["train", &data, "--config", &at("run.toml")],
        "without is magic; expected optimisations among one_type",
    );
}

#[test]
fn what_is_decided_and_what_was_reached_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, run) = (at("data"), at("run"));
    let shape = ["--nodes", "300", "--classes", "3", "--features", "8"];
    succeeds(&[&["generate", "planted"][..], &shape, &["-o", &data]].concat());
    let gcn = ["--model", "gcn", "--epochs", "21", "--hidden", "8", "--device", "cpu"];
    let output = headwater(&[&["train", &data, "-o", &run][..], &gcn].concat());
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("features have negative numbers: rows are not divided by their sums"), "{said}");
    let epochs: Vec<&str> = printed.lines().filter(|line| line.starts_with("epoch ")).collect();
    assert!(epochs.len() == 2 && epochs[1].starts_with("epoch   21"), "the last is shown too: {printed}");
    let summary: Value = serde_json::from_slice(&std::fs::read(at("run/summary.json")).unwrap()).unwrap();
    let best = summary["best_epoch"].as_u64().unwrap();
    assert!(printed.contains(&format!("in epoch {best}, the best for validation")), "{printed}");
    // Whoever asks the network is told the same, of the same epoch.
    let asked = last_json(&succeeds(&["infer", &run, "--json"]));
    for field in ["metric", "valid", "test"] {
        assert_eq!(asked[field], summary[field], "{field}");
    }
    assert_eq!(asked["epoch"], best);
    let more = succeeds(&["train", "--resume", &run, "--epochs", "23"]);
    assert!(more.starts_with("epoch   23"), "{more}");
}

#[test]
fn what_cannot_be_trained_is_said() {
    let (folder, data) = made("16");
    let out = folder.path().join("run");
    let out = out.to_str().unwrap();
    let refuses = |more: &[&str], words: &str| fails_with(&[&["train", &data, "-o", out][..], more].concat(), words);
    refuses(&["--model", "gatt"], "did you mean");
    refuses(&["--rate=-1"], "rate");
    refuses(&["--fanout", "3", "--layers", "2"], "fanout");
    refuses(&["--activation", "wave"], "activation");
    refuses(&["--loss", "nll"], "loss is nll; expected cross_entropy");
    refuses(&["--scores", "degree"], "weighted-pagerank");
    refuses(&["--scores", "presampled", "--features", "memory"], "neither auto nor tiered");
    refuses(&["--patience", "3", "--evaluate-every", "0"], "patience is 3");
    fails_with(&["train", "no/such/folder", "-o", out], "no/such/folder");
    fails_with(&["train", "--resume", "no/such/run"], "no/such/run");
    let text = folder.path().join("mine.py");
    std::fs::write(&text, "def mine(g, x: node[d_in]):\n    for n in g.nodes():\n        n[\"out\"] = linaer(n.x)\n")
        .unwrap();
    refuses(&["--model", text.to_str().unwrap()], "mine.py:3:20");
}

#[test]
fn a_run_that_is_killed_ends_with_the_same_weights() {
    let (folder, data) = made("16");
    let settings =
        ["--hidden", "32", "--epochs", "8", "--batch", "32", "--fanout", "8,8", "--seed", "5", "--keep", "1"];
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, killed) = (at("whole"), at("killed"));
    succeeds(&[&["train", &data, "-o", &whole][..], &settings].concat());
    let mut arguments: Vec<String> = ["train", &data, "-o", &killed].iter().map(ToString::to_string).collect();
    arguments.extend(settings.iter().map(ToString::to_string));
    // Every time a little later, until one ends by itself.
    for wait in 1.. {
        let mut child =
            Command::new(program()).args(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(120 * wait));
        let ended = child.try_wait().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        if ended.is_some_and(|status| status.success()) {
            break;
        }
        assert!(wait < 100, "the run never ends");
        let has_begun = std::path::Path::new(&killed).join("config.toml").exists();
        let has_checkpoint =
            std::fs::read_dir(std::path::Path::new(&killed).join("checkpoints")).is_ok_and(|mut entries| {
                entries
                    .any(|entry| entry.is_ok_and(|entry| entry.path().extension().is_some_and(|e| e == "safetensors")))
            });
        if has_begun && has_checkpoint {
            arguments = vec!["train".to_owned(), "--resume".to_owned(), killed.clone()];
        } else {
            let _ = std::fs::remove_dir_all(&killed);
        }
    }
    let weights = |run: &str| {
        let mut files: Vec<_> = std::fs::read_dir(std::path::Path::new(run).join("checkpoints"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
            .collect();
        files.sort();
        std::fs::read(files.last().unwrap()).unwrap()
    };
    let tensors = |bytes: Vec<u8>| {
        let header = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
        bytes[8 + header..].to_vec()
    };
    assert!(tensors(weights(&whole)) == tensors(weights(&killed)), "weights and the optimiser's memory");
    assert!(
        headwater(&["train", "--resume", &killed, "--json"]).status.success(),
        "a run that is over goes on to nothing"
    );
}

/// Papers with features of one width, authors with those of another, venues with none. Whose paper it is tells its class.
fn typed(path: &std::path::Path) {
    let labels: Vec<i64> = (0..60).map(|node| node % 3).collect();
    typed_with(path, |writer| writer.array("labels", &[60], &labels).unwrap());
}

/// The same with other labels.
fn typed_with(path: &std::path::Path, labels: impl Fn(&DatasetWriter)) {
    let counts = [("paper", 60u64), ("author", 30), ("venue", 3)];
    let types = counts.map(|(name, count)| NodeType { name: name.to_owned(), count });
    let ends = [(1, "writes", 0), (2, "prints", 0), (0, "written_by", 1), (0, "printed_in", 2)];
    let relations = ends.map(|(source, name, target)| Relation { source, name: name.to_owned(), target });
    let schema = Schema::new(types.into(), relations.into()).unwrap();
    let writer = DatasetWriter::create(path).unwrap();
    for (at, (source, _, target)) in ends.into_iter().enumerate() {
        let offsets: Vec<u64> = (0..=counts[target].1).map(|node| 2 * node).collect();
        let near = |node: u64, by: u64| u32::try_from((node + 3 * by) % counts[source].1).unwrap();
        let lists: Vec<u32> = (0..counts[target].1).flat_map(|node| [near(node, 0), near(node, 1)]).collect();
        let made = Topology::new(Layout::Csc, counts[source].1, offsets.into(), lists.into()).unwrap();
        writer.relation(at, &made).unwrap();
    }
    let rows = |name: &str, count: u64, width: u64| {
        let values: Vec<f32> = (0..count * width).map(|at| (at * 7919 % 100) as f32 / 100.0).collect();
        writer.array(name, &[count, width], &values).unwrap();
        Some(name.to_owned())
    };
    let mut nodes = vec![NodeFiles::default(); 3];
    nodes[0].features = rows("paper.features", 60, 8);
    nodes[1].features = rows("author.features", 30, 5);
    labels(&writer);
    nodes[0].labels = Some("labels".to_owned());
    let split = |name: &str, ids: std::ops::Range<u32>| {
        writer.array(name, &[ids.len() as u64], &ids.collect::<Vec<u32>>()).unwrap();
        Some(name.to_owned())
    };
    nodes[0].splits =
        Splits { train: split("train", 0..30), valid: split("valid", 30..45), test: split("test", 45..60) };
    writer.finish(Description { nodes, ..Description::new("typed", schema, Layout::Csc, "made by a test") }).unwrap();
}

#[test]
fn node_types_of_any_width_are_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    typed(&data);
    let data = data.to_str().unwrap();
    for (model, more) in [
        ("rgat", &["--batch", "16"][..]),
        ("rgat", &["--full-graph", "--embedding", "4"]),
        ("hgt", &["--batch", "16", "--input-width", "12"]),
        ("hgt", &["--full-graph"]),
    ] {
        let out = folder.path().join(format!("{model}-{}", more.len()));
        let small = ["--model", model, "--hidden", "8", "--heads", "2", "--epochs", "6", "--dropout", "0", "--json"];
        let out = out.to_str().unwrap();
        let text = succeeds(&[&["train", data, "-o", out][..], &small, more].concat());
        let losses: Vec<f64> =
            text.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64()).collect();
        assert!(losses.len() == 6 && losses[5] < losses[0], "{model} {more:?}: {losses:?}");
    }
}

#[test]
fn labels_of_every_kind_are_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let answers: Vec<u8> = (0..120).map(|at| u8::from(at % 3 == 0)).collect();
    typed_with(at("answers").as_ref(), |writer| writer.array("labels", &[60, 2], &answers).unwrap());
    let numbers: Vec<f32> = (0..60u8).map(|at| f32::from(at % 3) + 0.5).collect();
    typed_with(at("numbers").as_ref(), |writer| writer.array("labels", &[60], &numbers).unwrap());
    for (data, more) in
        [("answers", &["--metric", "roc_auc", "--norm", "batch"][..]), ("answers", &["--full-graph"]), ("numbers", &[])]
    {
        let (data, out) = (at(data), at(&format!("{data}-{}", more.len())));
        let small = ["train", &data, "-o", &out, "--model", "rgcn", "--hidden", "8", "--epochs", "2", "--json"];
        let summary = last_json(&succeeds(&[&small[..], more].concat()));
        assert!(summary["test"].is_number(), "{summary}");
    }
    fails_with(&["train", &at("numbers"), "-o", &at("wrong"), "--metric", "accuracy"], "accuracy takes classes");
    typed_with(at("bad").as_ref(), |writer| {
        let labels: Vec<i64> = (0..60).map(|node| if node == 41 { -3 } else { node % 3 }).collect();
        writer.array("labels", &[60], &labels).unwrap();
    });
    fails_with(&["train", &at("bad"), "-o", &at("wrong")], "node 41 has label -3");
}

#[test]
fn numbers_that_are_not_known_are_left_out_as_classes_are() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Of each split some.
    let is_known = |node: u8| !node.is_multiple_of(10);
    let numbers: Vec<f32> =
        (0..60).map(|node| if is_known(node) { f32::from(node % 3) + 0.5 } else { f32::NAN }).collect();
    typed_with(at("numbers").as_ref(), |writer| writer.array("labels", &[60], &numbers).unwrap());
    let classes: Vec<i64> = (0..60).map(|node| if is_known(node) { i64::from(node % 3) } else { -1 }).collect();
    typed_with(at("classes").as_ref(), |writer| writer.array("labels", &[60], &classes).unwrap());
    for data in ["numbers", "classes"] {
        let (data, out) = (at(data), at(&format!("{data}-run")));
        let output =
            headwater(&["train", &data, "-o", &out, "--hidden", "8", "--model", "rgcn", "--epochs", "2", "--json"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("3 of 30 training nodes have no label and are left out"), "{said}");
        let summary = last_json(&String::from_utf8(output.stdout).unwrap());
        assert!(summary["test"].is_number() && summary["valid_loss"].is_number(), "{summary}");
    }
}

/// Goes on with a run while no file may be longer than so many blocks of 512 bytes.
fn resume_with_little_disk(run: &str, blocks: u32, epochs: &str) -> (Value, String) {
    let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(program())
        .args(["train", "--resume", run, "--epochs", epochs, "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("error: results of the run could not be written"),
        "{said}"
    );
    (last_json(&String::from_utf8(output.stdout).unwrap()), said)
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_full_disk_does_not_stop_a_run_but_is_its_failure() {
    let (folder, data) = made("64");
    let settings = ["--hidden", "16", "--batch", "256", "--fanout", "4,4", "--seed", "2"];
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, full) = (at("whole"), at("full"));
    for (run, epochs) in [(&whole, "4"), (&full, "1")] {
        succeeds(&[&["train", &data, "-o", run, "--epochs", epochs][..], &settings].concat());
    }
    let checkpoints = std::path::Path::new(&full).join("checkpoints");
    let before = names(&checkpoints);
    for (blocks, lost) in
        [(8, &["no checkpoint was written, training goes on"][..]), (0, &["not in the journal", "summary"])]
    {
        let (summary, said) = resume_with_little_disk(&full, blocks, "3");
        assert!(lost.iter().all(|words| said.contains(words)), "{said}");
        assert!(summary["test"].is_number() && summary["epochs"] == 2, "{summary}");
        assert_eq!(names(&checkpoints), before, "the old checkpoint stays and nothing else is left");
    }
    // With room again the run goes on from there and ends as if nothing had been.
    let more = last_json(&succeeds(&["train", "--resume", &full, "--epochs", "4", "--json"]));
    let wanted: Value =
        serde_json::from_str(&std::fs::read_to_string(std::path::Path::new(&whole).join("summary.json")).unwrap())
            .unwrap();
    assert_eq!((&more["test"], &more["best_epoch"]), (&wanted["test"], &wanted["best_epoch"]));
}

#[test]
fn where_features_lie_is_said_and_refused_where_it_cannot_be() {
    let (folder, data) = made("16");
    let out = folder.path().join("run");
    let out = out.to_str().unwrap();
    for words in ["dma", "zero-copy", "all-gpu"] {
        fails_with(&["train", &data, "-o", out, "--features", words], "auto, memory, disk or tiered");
    }
    fails_with(&["train", &data, "-o", out, "--features", "attic"], "attic");
    let small = ["--hidden", "8", "--epochs", "1", "--fanout", "4,4", "--features", "tiered", "--hot-share", "0.25"];
    let summary = last_json(&succeeds(&[&["train", &data, "-o", out, "--json"][..], &small].concat()));
    let features = &summary["features"];
    let hit_rate = summary["feature_hit_rate"].as_f64().unwrap();
    assert!(hit_rate > 0.25 && hit_rate < 1.0, "{summary}");
    for field in ["memory_rows", "memory_bytes", "disk_rows", "disk_bytes", "read_bytes"] {
        assert!(features[field].as_u64().unwrap() > 0, "{field}: {summary}");
    }
    let more = succeeds(&["train", "--resume", out, "--epochs", "2", "--features", "memory", "--json"]);
    assert_eq!(last_json(&more)["feature_hit_rate"], 1.0, "they may lie elsewhere when a run goes on");
}
