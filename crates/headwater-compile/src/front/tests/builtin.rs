//! The seven layers that come with the compiler: their programs as golden text, and all of their options.

use super::{arguments, text};
use crate::adjacency::SelfLoops;
use crate::front::{Arguments, BUILTIN, OptionValue, builtin, read, signature};
use crate::inter::text::{print, read as read_program};
use crate::inter::{Domain, verify};

fn golden(snapshot: &str, name: &str, arguments: &Arguments) {
    let read = read(name, builtin(name).unwrap(), arguments).unwrap_or_else(|error| panic!("{error}"));
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let shown = format!("self_loops {}\n{}", read.self_loops, print(&read.program));
    settings.bind(|| insta::assert_snapshot!(snapshot, shown));
}

#[test]
fn programs_are_as_they_were() {
    for (name, _) in BUILTIN {
        golden(name, name, &arguments(&[]));
    }
}

#[test]
fn programs_of_variants_are_as_they_were() {
    let no = OptionValue::Bool(false);
    golden("rgcn_without_features", "rgcn", &arguments(&[("features", no.clone())]));
    golden("rgcn_gcn", "rgcn", &arguments(&[("norm", text("gcn")), ("root", no)]));
    golden("rgat_shared_etype", "rgat", &arguments(&[("vectors", text("shared")), ("by", text("etype"))]));
    golden("hgt_hector", "hgt", &arguments(&[("variant", text("hector"))]));
    let mut same_width = arguments(&[]);
    same_width.sizes.insert("d_in".to_owned(), 4);
    golden("hgt_residual", "hgt", &same_width);
}

/// Every option alone with every value it may have gives a program that makes sense and reads back.
#[test]
fn every_option_makes_sense() {
    for (name, layer) in BUILTIN {
        let signature = signature(name, layer).unwrap();
        assert_eq!(signature.layer, name);
        for option in &signature.options {
            let values = match &option.default {
                OptionValue::Bool(on) => vec![OptionValue::Bool(!on)],
                OptionValue::Float(_) => vec![OptionValue::Float(0.5), OptionValue::Int(0)],
                OptionValue::Int(number) => vec![OptionValue::Int(number + 1)],
                OptionValue::Text(_) => option.choices.iter().map(|choice| text(choice)).collect(),
            };
            for value in values {
                let what = format!("{name} with {} = {value}", option.name);
                let read = read(name, layer, &arguments(&[(&option.name, value)]));
                let program = read.unwrap_or_else(|error| panic!("{what}: {error}")).program;
                verify(&program).unwrap();
                assert_eq!(read_program(&print(&program)).unwrap(), program, "{what}");
                assert_eq!(program[program.output("out").unwrap()].domain, Domain::DST, "{what}");
            }
        }
    }
}

#[test]
fn a_layer_says_what_it_asks_for() {
    let signature = signature("rgcn", builtin("rgcn").unwrap()).unwrap();
    let names =
        |declared: &[crate::front::Declared]| declared.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(" ");
    assert_eq!(names(&signature.inputs), "x edge_norm src_scale dst_scale");
    assert_eq!(names(&signature.weights), "W E root_W root_E b");
    assert_eq!(signature.sizes, ["d_in", "d_out"]);
    let norm = &signature.options[0];
    assert_eq!((norm.name.as_str(), &norm.default), ("norm", &text("rel_mean")));
    assert_eq!(norm.choices, ["rel_mean", "none", "given", "gcn"]);
    let pairs = &signature.weights[1];
    assert_eq!((pairs.annotation.as_str(), pairs.when.as_deref()), ("vector[src_pair, d_out]", Some("not features")));
    assert_eq!((pairs.domain, &pairs.sizes[..]), (Domain::Pair(crate::inter::Side::Src), &["d_out".to_owned()][..]));
    let order = "x W E root_W root_E b edge_norm src_scale dst_scale norm root bias features";
    assert_eq!(signature.parameters.join(" "), order);
}

#[test]
fn options_in_force_are_given_back() {
    let given = [("slope", OptionValue::Int(1)), ("self_loops", OptionValue::Bool(false))];
    let read = read("gat", builtin("gat").unwrap(), &arguments(&given)).unwrap();
    assert_eq!(read.self_loops, SelfLoops::AsTheyAre);
    assert_eq!(read.options["slope"], OptionValue::Float(1.0));
    assert_eq!(read.options["attention_dropout"], OptionValue::Float(0.0));
    assert_eq!(read.options.len(), 5);
    assert!(builtin("transformer").is_none());
}
