//! `headwater bench layer` where there may be no GPU: every model on small graphs, what is printed and drawn, what is refused.

use serde_json::Value;

use crate::program::{fails_with, succeeds};

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
fn what_cannot_be_measured_is_refused_by_name() {
    let refuses = |more: &[&str], words: &str| fails_with(&[&SMALL[..], more].concat(), words);
    refuses(&["--model", "gcn"], "--model gcn is for graphs of one relation, and --like aifb has 104");
    refuses(&["--model", "rgat", "--heads", "3"], "--heads is 3; expected a divisor of --width, which is 64");
    refuses(&["--heads", "2"], "--heads would change nothing: no --model has attention heads");
    refuses(&["--width", "0"], "--width is 0; expected 1 to 4096");
    refuses(&["--layers", "0"], "--layers is 0; expected 1 to 64");
    refuses(&["--precision", "bf16"], "--precision would change nothing");
    refuses(&["--gpu", "1"], "--gpu would change nothing");
    refuses(&["--plot", "layers.bmp"], ".svg or .png");
    refuses(&["--model", "mlp"], "mlp");
    refuses(&["--without", "magic"], "magic");
    fails_with(&["bench", "layer", "--device", "cpu", "--rounds", "0"], "--rounds is 0; expected at least 1");
    for like in ["aifb", "hub"] {
        fails_with(&["bench", "layer", "--device", "cpu", "--like", like, "--scale", "0"], "scale");
    }
    fails_with(&["bench", "layer", "--like", "cora"], "wikikg2");
}
