//! The command line as a user types it: README's commands, machine-readable output, pictures, and what it says when asked
//! for something it cannot do.

use std::path::Path;
use std::process::{Command, Output};

use crate::program::{fails_with, made, program, succeeds};

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn readme_commands_run() {
    commands_run("README.md", 5);
}

#[test]
fn commands_of_the_page_on_layers_run() {
    commands_run("docs/compile-a-layer.md", 2);
}

#[test]
fn commands_of_the_page_on_activations_run() {
    commands_run("docs/offload.md", 3);
}

#[test]
fn plans_for_models_that_are_none_are_refused() {
    for (words, said) in [
        ("--hidden 0", "--hidden is 0"),
        ("--batches 4,0", "a batch of 0 sequences"),
        ("--tflops 0", "--tflops is 0"),
        ("--host-gb nan", "--host-gb is NaN"),
        ("--slack -1", "unexpected argument"),
        ("--plot rok.txt", "rok.txt"),
    ] {
        fails_with(&["offload", "plan"].into_iter().chain(words.split(' ')).collect::<Vec<_>>(), said);
    }
}

/// Runs all commands of a page, of which there are at least so many, one after the other.
fn commands_run(page: &str, least: usize) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap();
    let commands: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("cargo run --release -- ")).collect();
    assert!(commands.len() >= least, "{page} lost its commands: {commands:?}");
    // As in a fresh clone: what the commands write below target/ is not there yet.
    let clone = tempfile::tempdir().unwrap();
    std::fs::create_dir(clone.path().join("target")).unwrap();
    for command in commands {
        // Tests run a program that is not optimised: one epoch of a narrow model shows that it trains.
        let few = if command == "train" { "--epochs 1 --hidden 32 --fanout 3,2" } else { "" };
        let mut program = Command::new(program());
        let output = program
            .args(command.split_whitespace())
            .args(few.split_whitespace())
            .current_dir(clone.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!stdout(&output).is_empty() || command.contains("--plot"), "{command} printed nothing");
        if command.starts_with("train") || command.starts_with("infer") {
            let reached = test_percent(&stdout(&output));
            // Of sixteen classes that tells a quarter, and features alone a tenth.
            let least = if few.is_empty() { 70.0 } else { 20.0 };
            assert!(reached.is_some_and(|percent| percent > least), "{command}: {}", stdout(&output));
        }
    }
}

/// What a run or a prediction says of the test nodes in the end.
fn test_percent(printed: &str) -> Option<f64> {
    let (_, behind) = printed.rsplit_once("test ")?;
    let (number, _) = behind.split_once('%')?;
    number.split_whitespace().last()?.parse().ok()
}

#[test]
fn json_has_a_row_a_figure_with_every_field() {
    let printed = succeeds(&["bench", "gather", "--table-gib", "0.01", "--width", "128", "--width", "44", "--json"]);
    let rows: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() >= 2);
    let fields = "table_bytes width_bytes rows variant gb_per_s ideal_gb_per_s cpu_seconds joules sms";
    for row in &rows {
        assert!(fields.split(' ').all(|field| row.get(field).is_some()), "{row}");
        assert!(row["gb_per_s"].as_f64().unwrap() > 0.0, "{row}");
    }
    let widths: Vec<u64> = rows.iter().map(|row| row["width_bytes"].as_u64().unwrap()).collect();
    assert!(widths.contains(&128) && widths.contains(&44));
}

#[test]
fn pictures_are_drawn_in_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    for (name, beginning) in [("gather.svg", &b"<svg"[..]), ("gather.png", &b"\x89PNG"[..])] {
        let path = folder.path().join(name);
        succeeds(&["bench", "gather", "--table-gib", "0.01", "--least-ms", "1", "--plot", path.to_str().unwrap()]);
        assert!(std::fs::read(&path).unwrap().starts_with(beginning), "{name}");
    }
}

#[test]
fn an_earlier_run_is_shown_and_drawn_again() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, picture) = (folder.path().join("rows.jsonl"), folder.path().join("again.svg"));
    let printed = succeeds(&["bench", "gather", "--table-gib", "0.01", "--width", "128", "--least-ms", "1", "--json"]);
    std::fs::write(&rows, &printed).unwrap();
    let (rows, picture) = (rows.to_str().unwrap(), picture.to_str().unwrap());
    assert_eq!(succeeds(&["bench", "gather", "--from", rows, "--json", "--plot", picture]), printed);
    assert!(succeeds(&["bench", "gather", "--from", rows]).contains("128"));
    std::fs::write(rows, "{}").unwrap();
    fails_with(&["bench", "gather", "--from", rows], "line 1");
    fails_with(&["bench", "gather", "--from", "not-there.jsonl"], "not-there.jsonl");
}

#[test]
fn info_says_what_is_there_and_what_is_not() {
    let text = succeeds(&["info"]);
    assert!(["driver", "NVRTC", "cuBLAS", "host"].iter().all(|word| text.contains(word)), "{text}");
    let all: serde_json::Value = serde_json::from_str(&succeeds(&["info", "--json"])).unwrap();
    assert!(all["host_available_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn graphs_are_made_as_planned() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let rmat = ["generate", "rmat", "--nodes-log2", "8", "--features", "4", "--classes", "3", "-o", &path("rmat")];
    let text = succeeds(&rmat);
    assert!(["256 nodes", "4096 edges", "memory", "made"].iter().all(|word| text.contains(word)), "{text}");
    fails_with(&rmat, "rmat");
    let kinds: [&[&str]; 3] = [
        &["planted", "--nodes", "300", "-o", &path("planted")],
        &["like", "aifb", "--scale", "0.1", "-o", &path("aifb")],
        &["--like", "mag", "--scale", "0.001", "-o", &path("mag")],
    ];
    for kind in kinds {
        let printed = succeeds(&[&["generate"], kind, &["--json"]].concat());
        let made: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(made["edges"].as_u64().unwrap() > 0 && made["peak_bytes"].as_u64().unwrap() > 0, "{made}");
        let directory = made["directory"].as_str().unwrap();
        assert!(Path::new(directory).join("headwater.json").exists(), "{made}");
    }
    let planned = succeeds(&["generate", "--like", "papers100m", "--plan", "--json", "-o", &path("papers")]);
    assert!(planned.contains("1615685872") && !Path::new(&path("papers")).exists(), "{planned}");
    fails_with(&["generate", "rmat", "--nodes-log2", "39", "-o", &path("huge")], "smaller --scale");
    fails_with(&["generate", "rmat", "--nodes-log2", "99", "-o", &path("huge")], "nodes-log2 is 99");
    fails_with(&["generate", "like", "cora", "-o", &path("cora")], "papers100m");
}

#[test]
fn refusals_are_clear() {
    fails_with(&["bench", "gather", "--width", "0", "--table-gib", "0.01"], "width");
    fails_with(&["bench", "gather", "--table-gib", "1000000"], "nothing to run");
    fails_with(&["bench", "gather", "--table-gib", "0.01", "--plot", "gather.bmp"], ".svg or .png");
    fails_with(&["bench", "gather", "--variant", "magic"], "magic");
    fails_with(&["nonsense"], "nonsense");
    let micro = ["bench", "gather", "--suite", "micro"];
    fails_with(&[&micro[..], &["--table-gib", "0.01"]].concat(), "--table-gib would change nothing: it belongs to");
    fails_with(&[&micro[..], &["--gathered-mib", "1"]].concat(), "--gathered-mib would change nothing: it belongs to");
}

const HUGE: &str = "9223372036854775807";

#[test]
fn counts_that_no_memory_holds_are_refused() {
    let gather = ["bench", "gather", "--table-gib", "0.001", "--least-ms", "1"];
    fails_with(&[&gather[..], &["--gathered-mib", HUGE]].concat(), "; expected 1 to");
    fails_with(&[&gather[..], &["--gathered-mib", "0"]].concat(), "--gathered-mib is 0; expected 1 to");
    fails_with(&[&gather[..], &["--width", HUGE]].concat(), "expected at most the 1073741 bytes of the table");
    succeeds(&[&gather[..], &["--width", "128", "--gathered-mib", "1", "--cpu-threads", HUGE]].concat());
    let (_folder, data) = made("4");
    for option in ["--batch", "--batches"] {
        fails_with(&["bench", "sample", &data, option, HUGE], "whose seeds fit in memory");
        fails_with(&["bench", "sample", &data, option, "0"], "is 0; expected 1 to");
    }
    fails_with(&["bench", "score", &data, "--batch", "0"], "--batch is 0; expected at least 1");
}

#[test]
fn help_has_examples() {
    for arguments in [
        &["--help"][..],
        &["info", "--help"],
        &["generate", "rmat", "--help"],
        &["tier", "--help"],
        &["bench", "gather", "--help"],
    ] {
        assert!(succeeds(arguments).contains("Examples:"), "{arguments:?}");
    }
}
