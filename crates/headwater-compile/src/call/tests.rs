//! A layer as a caller with an autograd of its own sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_cuda::{Allocation, Gpu, Span, Stream};
use headwater_graph::random::Key;

use super::{Arrays, Bound, DevicePlan, Direction, Level, Text, Wish};
use crate::adjacency::{Adjacency, SelfLoops};
use crate::cpu::fast::{Run, Workspace};
use crate::cuda::{CallMemory, DeviceGraph, Precision, StepKey};
use crate::error::Error;
use crate::front::{Arguments, OptionValue, builtin};
use crate::inter::Domain;
use crate::pass::{Optimisations, Statistics};
use crate::testing::{Recipe, numbers};

mod device_repeats;

type Shapes = BTreeMap<String, Vec<usize>>;
type Rows<'a> = &'a [(&'a str, &'a [usize])];
type Options<'a> = &'a [(&'a str, OptionValue)];

fn shapes(all: &[(&str, &[usize])]) -> Shapes {
    all.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect()
}

fn wish(gradients: &[&str], training: bool) -> Wish {
    let gradients = gradients.iter().map(|name| (*name).to_owned()).collect();
    Wish { gradients, training, without: BTreeSet::new() }
}

fn bound(name: &str, rows: Rows<'_>, options: Options<'_>, wish: &Wish) -> Result<Bound, Error> {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let arguments = Arguments { options, ..Arguments::default() };
    Bound::new(Text { name, text: builtin(name).unwrap() }, &shapes(rows), arguments, wish)
}

const GAT: [(&str, &[usize]); 5] = [("x", &[3]), ("W", &[3, 4]), ("al", &[1, 4]), ("ar", &[1, 4]), ("b", &[4])];

fn arrays(layer: &Bound, graph: &Adjacency) -> Arrays {
    let one = |taken: &super::Taken| {
        let count = graph.rows(taken.domain) * taken.row.iter().product::<usize>();
        #[expect(clippy::cast_possible_truncation, reason = "numbers of a test")]
        let values = numbers(3, &taken.name, count).into_iter().map(|number| number as f32).collect();
        (taken.name.clone(), values)
    };
    layer.taken().iter().map(one).collect()
}

/// The output, and the gradients of its sum.
fn run(layer: &Bound, graph: &Adjacency, step: u64) -> (Vec<f32>, Arrays) {
    let plan = layer.plan(&Statistics::of(graph), |make| make()).unwrap();
    let (run, mut workspace) = (Run { graph, step: Key::new(step) }, Workspace::default());
    let mut all = arrays(layer, graph);
    let made = plan.forward(run, &|name| all.get(name).map(Vec::as_slice), &mut workspace).unwrap();
    let out = made["out"].clone();
    all.extend(made);
    all.insert("d.out".to_owned(), vec![1.0; out.len()]);
    assert!(plan.backward_reads().iter().all(|name| all.contains_key(*name)));
    let gradients = plan.backward(run, &|name| all.get(name).map(Vec::as_slice), &mut workspace).unwrap();
    (out, gradients)
}

#[test]
fn only_gradients_that_are_wanted_are_made() {
    let graph = Recipe::plain(9).graph(1);
    let all = bound("gat", &GAT, &[], &wish(&["x", "W", "al", "ar", "b"], true)).unwrap();
    let (out, wanted) = run(&all, &graph, 0);
    assert_eq!(wanted.keys().collect::<Vec<_>>(), ["d.W", "d.al", "d.ar", "d.b", "d.x"]);
    for some in [&["x"][..], &["W", "b"], &[]] {
        let layer = bound("gat", &GAT, &[], &wish(some, true)).unwrap();
        let (same, found) = run(&layer, &graph, 0);
        let distance = out.iter().zip(&same).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(distance < 1e-5, "{some:?}: {distance}");
        let mut names: Vec<String> = some.iter().map(|name| format!("d.{name}")).collect();
        names.sort();
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), names);
        for (name, values) in found {
            let distance = values.iter().zip(&wanted[&name]).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(distance < 1e-4, "{name}: {distance}");
        }
    }
}

#[test]
fn dropouts_drop_in_training_alone() {
    let graph = Recipe::plain(30).graph(1);
    let options = [("attention_dropout", OptionValue::Float(0.5))];
    let training = bound("gat", &GAT, &options, &wish(&[], true)).unwrap();
    assert!(training.has_dropout() && run(&training, &graph, 1).0 != run(&training, &graph, 2).0);
    assert_eq!(run(&training, &graph, 1).0, run(&training, &graph, 1).0);
    let not = bound("gat", &GAT, &options, &wish(&["x"], false)).unwrap();
    let plain = bound("gat", &GAT, &[], &wish(&["x"], true)).unwrap();
    assert!(!not.has_dropout() && run(&not, &graph, 1) == run(&plain, &graph, 2));
}

#[test]
fn a_plan_serves_graphs_like_its_first() {
    let layer = bound("gat", &GAT, &[], &wish(&["x"], true)).unwrap();
    for nodes in [40, 50, 60, 45] {
        run(&layer, &Recipe::plain(nodes).graph(1), 0);
    }
    assert_eq!(layer.plan_count(), 1);
    run(&layer, &Recipe::plain(400).graph(1), 0);
    assert_eq!(layer.plan_count(), 2);
    for power in 0..40 {
        let mut statistics = Statistics::of(&Recipe::plain(10).graph(1));
        statistics.edges = 5f64.powi(power);
        layer.plan(&statistics, |make| make()).unwrap();
    }
    assert_eq!(layer.plan_count(), super::plans::MOST_PLANS);
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let graph = Recipe::plain(9).graph(1);
    let layer = bound("gat", &GAT, &[], &wish(&[], false)).unwrap();
    assert_eq!((layer.out_row(), layer.self_loops()), (vec![4], SelfLoops::Added));
    assert_eq!(
        layer.taken().iter().map(|taken| taken.row.clone()).collect::<Vec<_>>(),
        GAT.map(|(_, row)| row.to_vec())
    );
    assert_eq!(layer.taken()[0].domain, Domain::SRC);
    let right: [(&str, &[usize]); 5] = [("x", &[9, 3]), ("W", &[3, 4]), ("al", &[1, 4]), ("ar", &[1, 4]), ("b", &[4])];
    let rows = |domain| graph.rows(domain);
    layer.check(&rows, &shapes(&right)).unwrap();
    let cases: [(&str, Option<&[usize]>, &str); 5] = [
        ("x", Some(&[8, 3]), "x: its shape is [8, 3]; expected [9, 3]: the graph has 9 nodes"),
        ("W", Some(&[4, 4]), "W: its shape is [4, 4]; expected [3, 4]"),
        ("al", Some(&[4]), "al: its shape is [4]; expected [1, 4]"),
        ("b", None, "b: it is missing; expected an array of [4]"),
        ("c", Some(&[4]), "c: the layer does not take it with these options"),
    ];
    for (name, shape, said) in cases {
        let mut shapes = shapes(&right);
        match shape {
            Some(shape) => drop(shapes.insert(name.to_owned(), shape.to_vec())),
            None => drop(shapes.remove(name)),
        }
        assert_eq!(layer.check(&rows, &shapes).unwrap_err().to_string(), said);
    }
}

#[test]
fn wrong_arguments_are_no_faults_of_the_text() {
    let cases: [(Rows<'_>, Options<'_>, &str); 3] = [
        (&GAT[..2], &[], "heads: no array tells this size; give it by name"),
        (&GAT, &[("slope", OptionValue::Bool(true))], "slope: expected float, found True"),
        (&GAT[..1], &[("slope", OptionValue::Text("x".to_owned()))], "slope: expected float, found \"x\""),
    ];
    for (rows, options, said) in cases {
        let error = bound("gat", rows, options, &wish(&[], false)).unwrap_err();
        assert!(matches!(error, Error::Argument { .. }) && error.to_string() == said, "{error}");
    }
    let gcn: [(&str, &[usize]); 2] = [("x", &[3]), ("W", &[3, 4])];
    let error = bound("gcn", &gcn, &[], &wish(&["src_scale"], true)).unwrap_err();
    assert!(error.to_string().starts_with("src_scale: its gradient"), "{error}");
}

#[test]
fn optimisations_are_left_out_by_name() {
    let graph = Recipe::plain(30).graph(1);
    let all: Vec<&str> = Optimisations::SWITCHES.iter().map(|(name, _)| *name).collect();
    let of = |names: &[&str]| {
        let without = names.iter().map(|name| (*name).to_owned()).collect();
        bound("gat", &GAT, &[], &Wish { without, ..wish(&["x", "W", "al"], true) })
    };
    let kernels = |layer: &Bound| {
        let plan = layer.plan(&Statistics::of(&graph), |make| make()).unwrap();
        plan.compiled().unwrap().forward.kernels.len()
    };
    let (with, without) = (of(&[]).unwrap(), of(&all).unwrap());
    assert!(kernels(&without) > kernels(&with) && kernels(&of(&["fuse"]).unwrap()) > kernels(&with));
    let ((out, gradients), (same, others)) = (run(&with, &graph, 3), run(&without, &graph, 3));
    let near = |found: &[f32], wanted: &[f32]| found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4);
    assert!(near(&out, &same) && gradients.iter().all(|(name, values)| near(values, &others[name])));
    let error = of(&["fuse", "dust"]).unwrap_err().to_string();
    assert!(
        error.starts_with("without: there is no optimisation \"dust\"; there are one_type, linear_linear"),
        "{error}"
    );
}

#[test]
fn a_plan_is_told_as_text() {
    let statistics = Statistics::of(&Recipe::plain(9).graph(1));
    let told = |gradients: &[&str], level| {
        bound("gat", &GAT, &[], &wish(gradients, true))
            .unwrap()
            .plan(&statistics, |make| make())
            .unwrap()
            .explain(level)
    };
    let all = told(&["x", "W"], Level::All);
    for section in ["values, forward", "values, backward", "kernels, forward", "kernels, backward", "plan"] {
        assert!(all.contains(&format!("== {section}\n")), "{all}");
    }
    assert!(!told(&["x"], Level::Kernels).contains("== values"));
    assert!(told(&[], Level::All).starts_with("== kernels, inference\n"));
}

/// A direction on a GPU, out of arrays by name and back into them.
fn queue(plan: &DevicePlan, direction: Direction, stream: &Stream, graph: &Arc<DeviceGraph>, all: &mut Arrays) {
    let room = |bytes: usize| Span::whole(Allocation::on_stream(stream, bytes.max(16)).unwrap());
    let mut spans: BTreeMap<String, Span> = BTreeMap::new();
    for (name, values) in all.iter() {
        let span = room(4 * values.len());
        stream.upload(bytemuck::cast_slice(values), &span.part(0, 4 * values.len()).unwrap()).unwrap();
        spans.insert(name.clone(), span);
    }
    let made = plan.makes(direction, graph);
    spans.extend(made.iter().map(|(name, count)| ((*name).to_owned(), room(4 * count))));
    let temporaries = room(plan.temporary_bytes(direction, graph));
    let given: Vec<Span> = plan.takes(direction).into_iter().map(|name| spans[name].clone()).collect();
    let memory = CallMemory { given: &given, temporaries: &temporaries, key: StepKey::Told(Key::new(3)) };
    plan.queue(direction, stream, graph, memory).unwrap();
    for (name, count) in made {
        let mut values = vec![0.0; count];
        let span = spans[name].part(0, 4 * count).unwrap();
        stream.download(&span, bytemuck::cast_slice_mut(&mut values)).unwrap();
        all.insert(name.to_owned(), values);
    }
}

#[test]
fn device_runs_are_those_of_the_cpu() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (graph, stream) = (Recipe::plain(40).graph(1), gpu.stream().unwrap());
    let options = [("attention_dropout", OptionValue::Float(0.5))];
    let layer = bound("gat", &GAT, &options, &wish(&["x", "W", "al"], true)).unwrap();
    let (out, gradients) = run(&layer, &graph, 3);
    let plan = layer.device_plan(&Statistics::of(&graph), Precision::default(), &Ok, |make| make()).unwrap();
    let placed = Arc::new(DeviceGraph::of(stream, &graph, &plan.tables()).unwrap());
    assert!(plan.tables().into_iter().all(|table| placed.serves(table)));
    let mut all = arrays(&layer, &graph);
    queue(&plan, Direction::Forward, stream, &placed, &mut all);
    all.insert("d.out".to_owned(), vec![1.0; out.len()]);
    assert!(plan.backward_reads().iter().all(|name| all.contains_key(*name)));
    queue(&plan, Direction::Backward, stream, &placed, &mut all);
    let near = |found: &[f32], wanted: &[f32]| found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4);
    assert!(near(&all["out"], &out));
    assert_eq!(gradients.len(), 3);
    for (name, wanted) in &gradients {
        assert!(near(&all[name], wanted), "{name}");
    }
    // The same plan serves graphs like this one, and another precision is another plan.
    let statistics = Statistics::of(&Recipe::plain(45).graph(1));
    assert!(Arc::ptr_eq(&plan, &layer.device_plan(&statistics, Precision::default(), &Ok, |make| make()).unwrap()));
    assert!(!Arc::ptr_eq(&plan, &layer.device_plan(&statistics, Precision::F32, &Ok, |make| make()).unwrap()));
}
