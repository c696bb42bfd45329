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
