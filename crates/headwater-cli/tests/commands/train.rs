//! `headwater train` as a person and a program see it.

use std::process::{Command, Stdio};
use std::time::Duration;

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
        "test_accuracy",
        "best_val_accuracy",
        "epoch_seconds",
        "sample_seconds",
        "gather_seconds",
        "compute_seconds",
        "peak_bytes",
    ];
    for field in fields {
        assert!(summary[field].is_number(), "{field}: {summary}");
    }
    assert_eq!(summary["run_dir"], out);
    for file in ["config.toml", "metrics.jsonl", "curves.svg", "summary.json", "checkpoints"] {
        assert!(folder.path().join("run").join(file).exists(), "{file}");
    }
    fails_with(&["train", &data, "-o", out], "--resume");
    let more = succeeds(&["train", "--resume", out, "--epochs", "3", "--json"]);
    assert_eq!(more.lines().count(), 2, "one more epoch: {more}");
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

/// Goes on with a run while no file may be longer than so many blocks of 512 bytes.
fn resume_with_little_disk(run: &str, blocks: u32, epochs: &str) -> (Value, String) {
    // Writes that are refused end the process unless it ignores the signal.
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(program())
        .args(["train", "--resume", run, "--epochs", epochs, "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (last_json(&String::from_utf8(output.stdout).unwrap()), said)
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_full_disk_does_not_stop_a_run() {
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
        assert!(summary["test_accuracy"].is_number() && summary["epochs"] == 2, "{summary}");
        assert_eq!(names(&checkpoints), before, "the old checkpoint stays and nothing else is left");
    }
    // With room again the run goes on from there and ends as if nothing had been.
    let more = last_json(&succeeds(&["train", "--resume", &full, "--epochs", "4", "--json"]));
    let wanted: Value =
        serde_json::from_str(&std::fs::read_to_string(std::path::Path::new(&whole).join("summary.json")).unwrap())
            .unwrap();
    assert_eq!((&more["test_accuracy"], &more["best_epoch"]), (&wanted["test_accuracy"], &wanted["best_epoch"]));
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
