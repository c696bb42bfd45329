//! `compile` as a user types it: every level of every layer, and what it refuses.

use std::fs;

use serde_json::Value;

use crate::program::{fails_with, made, succeeds};

#[test]
fn every_layer_is_shown_at_every_level() {
    for model in ["gcn", "sage", "gat", "gin", "rgcn", "rgat", "hgt"] {
        let said = succeeds(&["compile", model, "--size", "d_in=16", "--size", "d_out=16"]);
        for part in ["== source", "== values, backward", "== kernels, forward", "== plan", "FB15k-237", "gemm over"] {
            assert!(said.contains(part), "{model}: no `{part}`");
        }
    }
    // A layer that keeps nothing keeps 0 bytes.
    let said = succeeds(&["compile", "mlp", "--level", "plan"]);
    assert!(said.contains(" 0 B of temporaries") && !said.contains("-0 "), "{said}");
    let levels = [("source", "def rgcn"), ("values", "program rgcn forward"), ("kernels", "kernels rgcn backward")];
    for (level, part) in levels {
        let said = succeeds(&["compile", "rgcn", "--level", level]);
        assert!(said.contains(part) && !said.contains("== plan"), "{level}: {said}");
    }
}

#[test]
fn what_is_switched_off_does_not_happen_and_costs_more() {
    let json = |more: &[&str]| -> Value {
        serde_json::from_str(&succeeds(&[&["compile", "rgat", "--json"], more].concat())).unwrap()
    };
    let bytes = |found: &Value| -> f64 {
        let directions = found["directions"].as_array().unwrap();
        let each = directions[..2].iter().map(|one| &one["total"]);
        each.map(|total| total["read_bytes"].as_f64().unwrap() + total["written_bytes"].as_f64().unwrap()).sum()
    };
    let (all, less) = (json(&[]), json(&["--without", "dot_linear,aggregate_first"]));
    let rules =
        |found: &Value| found["plan"].as_array().unwrap().iter().map(|one| one["rule"].clone()).collect::<Vec<_>>();
    assert!(rules(&all).contains(&"dot_linear".into()), "{:?}", rules(&all));
    assert!(!rules(&less).contains(&"dot_linear".into()), "{:?}", rules(&less));
    assert!(bytes(&all) < bytes(&less));
    assert_eq!(all["savings"].as_array().unwrap().len(), 10);
    assert_eq!(less["savings"].as_array().unwrap().len(), 8);
    let saved = |found: &Value| found["saved_bytes"].as_f64().unwrap();
    let again = all["savings"].as_array().unwrap().iter().find(|one| one["switch"] == "recompute").unwrap();
    assert!(saved(&all["training"]) <= saved(&again["without"]), "what is computed again is not kept");
    let kernels = all["directions"][0]["costs"].as_array().unwrap();
    assert!(kernels.iter().all(|kernel| kernel["flops"].as_f64().unwrap() >= 0.0));
}

/// A CPU does without merged products and rows a head, and is what is meant where nobody says; a GPU without nests of three levels.
#[test]
fn the_target_decides_what_is_on() {
    let rules = |more: &[&str]| -> Vec<String> {
        let said = succeeds(&[&["compile", "sage", "--level", "plan", "--json"], more].concat());
        let found: Value = serde_json::from_str(&said).unwrap();
        let switches = found["savings"].as_array().unwrap().iter();
        switches.map(|one| one["switch"].as_str().unwrap().to_owned()).collect()
    };
    let (gpu, cpu) = (rules(&["--target", "gpu"]), rules(&["--target", "cpu"]));
    assert!(gpu.contains(&"merge".to_owned()) && !cpu.contains(&"merge".to_owned()), "{gpu:?} {cpu:?}");
    assert!(cpu.contains(&"deep".to_owned()) && !gpu.contains(&"deep".to_owned()), "{gpu:?} {cpu:?}");
    assert_eq!((gpu.len(), cpu.len(), &rules(&[])), (15, 10, &cpu));
}

/// A GPU runs every kernel by a schedule, which the plan tells; a CPU has none.
#[test]
fn plans_for_a_gpu_have_schedules() {
    let asked = ["compile", "rgat", "--level", "plan", "--target"];
    let (gpu, cpu) = (succeeds(&[&asked[..], &["gpu"]].concat()), succeeds(&[&asked[..], &["cpu"]].concat()));
    assert!(gpu.contains("  [lanes=") && gpu.contains(",ahead=") && gpu.contains("  [chunks="), "{gpu}");
    assert!(!gpu.contains("[-]") && !cpu.contains("[lanes=") && !cpu.contains("[chunks="), "{gpu} {cpu}");
    for target in ["gpu", "cpu"] {
        let found: Value = serde_json::from_str(&succeeds(&[&asked[..], &[target, "--json"]].concat())).unwrap();
        let directions = found["directions"].as_array().unwrap().iter();
        let kernels: Vec<&Value> = directions.flat_map(|one| one["costs"].as_array().unwrap()).collect();
        assert!(!kernels.is_empty());
        for kernel in kernels {
            let schedule = kernel.get("schedule").map(|own| own.as_str().unwrap());
            assert_eq!(schedule.is_some(), target == "gpu", "{kernel}");
            let is_known = |own: &str| own == "-" || own.starts_with("lanes=") || own.starts_with("chunks=");
            assert!(schedule.is_none_or(is_known), "{kernel}");
        }
    }
}

#[test]
fn json_has_what_the_level_asks_for() {
    let cases = [
        ("source", vec!["source"], vec![]),
        ("values", vec![], vec!["values"]),
        ("kernels", vec![], vec!["kernels"]),
        ("plan", vec!["plan", "savings", "training"], vec!["costs", "temporary_bytes", "total"]),
    ];
    let all = ["source", "plan", "savings", "training", "values", "kernels", "costs", "temporary_bytes", "total"];
    for (level, whole, each) in cases {
        let said = succeeds(&["compile", "sage", "--level", level, "--json"]);
        let found: Value = serde_json::from_str(&said).unwrap();
        for name in all {
            assert_eq!(found.get(name).is_some(), whole.contains(&name), "{level}, {name}");
            let is_there = found["directions"][0].get(name).is_some();
            assert_eq!(is_there, each.contains(&name), "{level}, directions, {name}");
        }
        assert_eq!(found["layer"], "sage");
    }
}

#[test]
fn a_dataset_gives_the_rows() {
    let (folder, data) = made("8");
    let file = folder.path().join("mine.py");
    let text = "def mine(g, x: node[d], W: matrix[d, d]):\n    for n in g.dst_nodes():\n        \
                n[\"out\"] = linear(mean(e.src.x for e in n.incoming_edges()), W)\n";
    fs::write(&file, text).unwrap();
    let said = succeeds(&["compile", file.to_str().unwrap(), "--graph", &data, "--level", "plan", "--size", "d=8"]);
    assert!(said.contains("1024 nodes of 1 types"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let wrong = file("wrong.py", b"def f(g, x: node[d]):\n    for n in g.dst_nodes():\n        n[\"out\"] = n.y\n");
    let (binary, long) = (file("binary.py", &[0xff, 0xfe, 0]), file("long.py", &vec![b'#'; 2 << 20]));
    let cases: [(&[&str], &str); 11] = [
        (&["compile", "transformer"], "expected one of gcn"),
        (&["compile", &wrong], "^"),
        (&["compile", &wrong], "wrong.py:3:"),
        (&["compile", &binary], "UTF-8"),
        (&["compile", &long], "longer than a layer text"),
        (&["compile", "gat", "--size", "d_in=0"], "d_in"),
        (&["compile", "gat", "--size", "width=4"], "has the sizes d_in"),
        (&["compile", "gat", "--option", "slope=steep"], "slope"),
        (&["compile", "gat", "--without", "magic"], "magic"),
        (&["compile", "gat", "--target", "tpu"], "tpu"),
        (&["compile", "gat", "--graph", "/nowhere"], "/nowhere"),
    ];
    for (arguments, words) in cases {
        fails_with(arguments, words);
    }
}
