//! `headwater bench layer` where there may be no GPU: every model on small graphs, suites, what is printed and drawn, what is
//! refused.

use std::path::Path;

use serde_json::{Value, json};

use crate::program::{fails_with, headwater, succeeds};

const BASE: [&str; 6] = ["bench", "layer", "--device", "cpu", "--rounds", "2"];
const SMALL: [&str; 8] = ["bench", "layer", "--device", "cpu", "--rounds", "2", "--scale", "0.02"];

fn cases(more: &[&str]) -> Vec<Value> {
    let base = if more.contains(&"--scale") { &BASE[..] } else { &SMALL[..] };
    let printed = succeeds(&[base, more, &["--json"]].concat());
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(case: &Value, name: &str) -> f64 {
    case[name].as_f64().unwrap()
}

#[test]
fn every_case_has_every_figure() {
    let found = cases(&["--like", "aifb", "--model", "rgcn,rgat,hgt", "--direction", "both", "--heads", "1,2"]);
    assert_eq!(found.len(), 2 + 4 + 4);
    for case in &found {
        for name in ["total_ms", "launches", "peak_bytes", "moved_bytes", "flops", "moved_gb_per_s", "tflop_per_s"] {
            assert!(number(case, name) > 0.0, "{name}: {case}");
        }
        for name in ["compulsory_bytes", "compulsory_ms", "of_compulsory", "gather_bytes", "gather_ms", "of_gather"] {
            assert!(number(case, name) > 0.0, "{name}: {case}");
        }
        assert!(number(case, "out_mean").is_normal() && number(case, "spread") >= 0.0, "{case}");
        assert_eq!((case["device"].as_str(), case["precision"].as_str()), (Some("cpu"), Some("f32")));
        assert!(number(case, "compulsory_bytes") <= number(case, "moved_bytes"), "{case}");
    }
    let both = |name: &str| (number(&found[0], name), number(&found[1], name));
    let (inference, training) = both("gather_bytes");
    assert_eq!(2.0 * inference, training, "a gather a direction");
    let (one, other) = both("out_mean");
    assert!((one - other).abs() < 1e-4 * one, "{one} and {other}: the same rows and weights");
}

#[test]
fn models_of_one_relation_run_where_there_is_one() {
    let found = cases(&["--like", "arxiv,hub", "--model", "gcn,sage,gat,gin", "--width", "8", "--scale", "0.002"]);
    assert_eq!(found.len(), 8);
    assert!(found.iter().all(|case| number(case, "out_mean").is_normal()), "{found:?}");
    let mixed = cases(&["--like", "aifb,arxiv", "--model", "rgcn,gcn", "--width", "8", "--scale", "0.002"]);
    assert_eq!(mixed.len(), 3, "{mixed:?}");
}

#[test]
fn a_stack_moves_and_has_to_move_as_much_as_its_layers() {
    let found = cases(&["--layers", "1,3", "--width", "8"]);
    for name in ["launches", "moved_bytes", "flops", "compulsory_bytes", "gather_bytes"] {
        assert_eq!(3.0 * number(&found[0], name), number(&found[1], name), "{name}");
    }
    assert!(number(&found[1], "peak_bytes") > number(&found[0], "peak_bytes"));
}

#[test]
fn tables_and_pictures_have_every_case() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("layers.svg");
    let more = ["--width", "8,16", "--plot", picture.to_str().unwrap()];
    let text = succeeds(&[&SMALL[..], &more].concat());
    for words in ["aifb rgcn training f32 8", "aifb rgcn training f32 16", "compulsory", "one gather", "CPU threads"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let drawn = std::fs::read_to_string(picture).unwrap();
    assert!(drawn.contains("aifb rgcn training f32 16") && drawn.matches("<rect").count() >= 3, "{drawn}");
    assert!(succeeds(&["bench", "layer", "--help"]).contains("Examples:"));
}

#[test]
fn variants_of_a_text_are_other_layers() {
    let found = |variant: &str| {
        let asked = cases(&["--model", "hgt", "--variant", variant, "--width", "8", "--direction", "inference"]);
        assert_eq!((asked.len(), asked[0]["variant"].as_str()), (1, Some(variant)));
        number(&asked[0], "out_mean")
    };
    let (pyg, hector) = (found("pyg"), found("hector"));
    assert!((pyg - hector).abs() > 0.01 * pyg, "{pyg} and {hector}");
    let plain = cases(&["--model", "hgt,rgcn", "--width", "8", "--direction", "inference"]);
    assert_eq!((plain[0]["variant"].as_str(), plain[1].get("variant")), (Some("pyg"), None));
}

const WIDTH: [&str; 10] =
    ["bench", "layer", "--suite", "width", "--device", "cpu", "--rounds", "1", "--scale", "0.0001"];

/// A run of the suite `width` over a file: what it prints and how many cases it says it measures.
fn suite(out: &Path, more: &[&str]) -> (String, usize) {
    let output = headwater(&[&WIDTH[..], &["--out", out.to_str().unwrap()], more].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let measured = said.lines().filter(|line| line.contains(" of 52: ")).count();
    (String::from_utf8(output.stdout).unwrap(), measured)
}

#[test]
fn a_suite_goes_on_where_it_was_stopped_and_ends_with_its_tables() {
    let folder = tempfile::tempdir().unwrap();
    let (out, picture) = (folder.path().join("cases.jsonl"), folder.path().join("width.svg"));
    let (text, measured) = suite(&out, &["--plot", picture.to_str().unwrap()]);
    assert_eq!(measured, 52);
    for words in ["am hgt (hector) training f32 64 8 heads: ", "# bench layer --suite width", "## biokg, milliseconds"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let tables = text.split_once("# bench layer").unwrap().1.lines();
    let tables: Vec<&str> = tables.filter(|line| line.starts_with('|')).collect();
    assert_eq!(tables.len(), 2 * (2 + 5), "{text}");
    assert!(tables.iter().all(|line| line.matches(" |").count() == 7), "{tables:?}");
    assert!(std::fs::read_to_string(&picture).unwrap().matches("<rect").count() > 52);

    // As a run leaves it that was killed, with a case that there was no memory for.
    let whole = std::fs::read_to_string(&out).unwrap();
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    let mut short: Value = serde_json::from_str(&lines[0]).unwrap();
    let fields = short.as_object_mut().unwrap();
    fields.retain(|name, _| name != "total_ms");
    fields.insert("failed".to_owned(), json!("out of memory"));
    lines[0] = short.to_string();
    lines.truncate(50);
    std::fs::write(&out, format!("{}\n{}", lines.join("\n"), &whole.lines().nth(50).unwrap()[..40])).unwrap();
    let (text, measured) = suite(&out, &[]);
    assert_eq!(measured, 2, "{text}");
    let now = std::fs::read_to_string(&out).unwrap();
    assert_eq!((now.lines().count(), now.lines().nth(49)), (52, whole.lines().nth(49)));
    for words in [": failed: out of memory", "| width 32, 1 head | no memory |", "Not measured:"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let asked = ["bench", "layer", "--suite", "width", "--json", "--from", out.to_str().unwrap()];
    let shown: Vec<Value> = succeeds(&asked).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((shown.len(), shown[0]["failed"].as_str()), (52, Some("out of memory")));
    assert!(shown[1..].iter().all(|case| number(case, "total_ms") > 0.0));
}

#[test]
fn cases_in_a_file_stand_beside_other_systems_and_are_found_by_how_they_were_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, peers) = (path("cases.jsonl"), path("peers.jsonl"));
    let line = |what: &str, ms: &str| {
        format!(r#"{{"shape": "aifb", "model": "rgcn", "what": "{what}", "who": "PyG", "ms": {ms}, "by": "a clock"}}"#)
    };
    std::fs::write(&peers, [line("training", "1e6"), line("inference", "null")].join("\n")).unwrap();
    let first = cases(&["--direction", "both", "--out", &out]);
    assert_eq!(cases(&["--direction", "both", "--out", &out]), first);
    let other = cases(&["--direction", "both", "--out", &out, "--seed", "2"]);
    assert_ne!(other[0]["out_mean"], first[0]["out_mean"]);
    let text = succeeds(&["bench", "layer", "--suite", "systems", "--from", &out, "--peers", &peers]);
    assert!(text.contains("## PyG, milliseconds (as a multiple of Headwater's)"), "{text}");
    assert!(text.contains("| aifb | - | 1000000 ("), "{text}");
    assert_eq!(succeeds(&["bench", "layer", "--json", "--from", &out]).lines().count(), 4);
    fails_with(&["bench", "layer", "--suite", "width", "--from", &out], "nothing was measured");
    fails_with(&["bench", "layer", "--suite", "systems", "--from", &out, "--peers", &out], "--peers");
}

#[test]
fn what_a_suite_fixes_is_refused_beside_it() {
    let refuses = |more: &[&str], words: &str| fails_with(&[&["bench", "layer", "--suite"], more].concat(), words);
    for (option, value) in [
        ("--like", "am"),
        ("--model", "rgcn"),
        ("--direction", "both"),
        ("--heads", "2"),
        ("--width", "8"),
        ("--layers", "2"),
        ("--without", "fuse"),
    ] {
        let words = format!("the argument '--suite <SUITE>' cannot be used with '{option} ");
        refuses(&["memory", option, value], &words);
    }
    refuses(&["width", "--peers", "p.jsonl"], "--peers would change nothing: it belongs to --suite systems");
    refuses(&["kernels", "--device", "cpu"], "--suite kernels has times of kernels, which a GPU has");
    refuses(&["systems", "--precision", "f32,bf16"], "--precision has 2 names; a suite is measured with one");
    refuses(&["systems", "--from", "a.jsonl", "--rounds", "3"], "--rounds would change nothing");
    refuses(&["systems", "--from", "nothing.jsonl"], "nothing.jsonl");
    refuses(&["everything"], "optimisations");
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes.txt");
    std::fs::write(&notes, "notes\n").unwrap();
    fails_with(&[&WIDTH[..], &["--out", notes.to_str().unwrap()]].concat(), "line 1 is no case of `bench layer`");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "notes\n");
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    let refuses = |more: &[&str], words: &str| fails_with(&[&SMALL[..], more].concat(), words);
    refuses(&["--model", "gcn"], "--model gcn is for graphs of one relation, and --like aifb has 104");
    refuses(&["--model", "rgat", "--heads", "3"], "--heads is 3; expected a divisor of --width, which is 64");
    refuses(&["--heads", "2"], "--heads would change nothing: no --model has attention heads");
    refuses(&["--variant", "hector"], "--variant would change nothing: no --model has variants");
    refuses(&["--width", "0"], "--width is 0; expected 1 to 4096");
    refuses(&["--layers", "0"], "--layers is 0; expected 1 to 64");
    refuses(&["--precision", "bf16"], "--precision would change nothing");
    refuses(&["--gpu", "1"], "--gpu would change nothing");
    refuses(
        &["--tune", "measure"],
        "--tune would change nothing: CPU threads run layers, whose kernels have no schedules",
    );
    refuses(&["--tune", "lanes=5"], "lanes is 5; expected a power of two from 4 to 32");
    refuses(&["--tune", "nodes=100"], "nodes is 100; expected one of [384, 192, 96, 48]");
    refuses(&["--tune", "rows=4"], "there are lanes, ahead, chunks and nodes");
    refuses(
        &["--tune", "fast"],
        "expected fixed, model, measure, or parts of schedules such as lanes=8,ahead=4,chunks=528",
    );
    refuses(&["--plot", "layers.bmp"], ".svg or .png");
    refuses(&["--model", "mlp"], "mlp");
    refuses(&["--without", "magic"], "magic");
    fails_with(&["bench", "layer", "--device", "cpu", "--rounds", "0"], "--rounds is 0; expected at least 1");
    for like in ["aifb", "hub"] {
        fails_with(&["bench", "layer", "--device", "cpu", "--like", like, "--scale", "0"], "scale");
    }
    fails_with(&["bench", "layer", "--like", "cora"], "wikikg2");
}
