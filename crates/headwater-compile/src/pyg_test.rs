//! Every model against PyG's own layers: `bench/peers/layers_pyg.py` ran those on small graphs and wrote down weights,
//! outputs and gradients.
//!
//! Names are the case's layer in PyG. Two of ours are not there on purpose: rgat with vectors a relation and hgt's `hector`
//! variant are Hector's; `formulas_test.rs` has those. RGATConv with several heads lets each head's logit see all heads; ours
//! sees its own, so the case has zeros elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::adjacency::{Adjacency, RelationEdges};
use crate::front::{self, Arguments};
use crate::models_test::{check_fast, run};
use crate::pass::autodiff::gradient_name;
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::Arrays;

#[derive(Deserialize)]
struct Written {
    graphs: BTreeMap<String, Graph>,
    cases: Vec<Case>,
}

/// Nodes of each type, read and written, and edges by destination, counted within their types.
#[derive(Deserialize)]
struct Graph {
    nodes: Vec<(usize, usize)>,
    relations: Vec<Relation>,
}

#[derive(Deserialize)]
struct Relation {
    src: usize,
    dst: usize,
    sources: Vec<u32>,
    destinations: Vec<usize>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    model: String,
    graph: String,
    #[serde(flatten)]
    arguments: Arguments,
    arrays: Arrays,
    out: Vec<f64>,
    d_out: Vec<f64>,
    gradients: Arrays,
}

impl Graph {
    /// The graph; layers that ask for it get an edge from every written node to itself.
    fn adjacency(&self, has_self_loops: bool) -> Adjacency {
        let lists: Vec<_> = self.relations.iter().map(|own| own.lists(self.nodes[own.dst].1, has_self_loops)).collect();
        let edges = |(own, (offsets, sources)): (&Relation, _)| RelationEdges {
            src_type: own.src,
            dst_type: own.dst,
            offsets,
            sources,
        };
        let pairs = lists.iter().map(|(offsets, sources)| (&offsets[..], &sources[..]));
        let relations: Vec<RelationEdges<'_>> = self.relations.iter().zip(pairs).map(edges).collect();
        let counts = |pick: fn(&(usize, usize)) -> usize| self.nodes.iter().map(pick).collect::<Vec<_>>();
        Adjacency::new(&counts(|n| n.0), &counts(|n| n.1), &relations).unwrap()
    }
}

impl Relation {
    fn lists(&self, nodes: usize, has_self_loops: bool) -> (Vec<usize>, Vec<u32>) {
        let (mut offsets, mut sources) = (vec![0], Vec::new());
        for node in 0..nodes {
            let edges = self.sources.iter().zip(&self.destinations);
            sources.extend(edges.filter(|(_, to)| **to == node).map(|(from, _)| *from));
            sources.extend(has_self_loops.then(|| u32::try_from(node).unwrap()));
            offsets.push(sources.len());
        }
        (offsets, sources)
    }
}

fn assert_close(what: &str, found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let far = found.iter().zip(wanted).position(|(a, b)| (a - b).abs() > 1e-9 * (1.0 + b.abs()));
    assert!(far.is_none(), "{what}: element {far:?} of {found:?} is not that of {wanted:?}");
}

#[test]
fn models_are_those_of_pyg() {
    let written: Written = serde_json::from_str(include_str!("testdata/layers_pyg.json")).unwrap();
    for case in &written.cases {
        let layer = front::read(&case.model, front::builtin(&case.model).unwrap(), &case.arguments).unwrap();
        let graph = written.graphs[&case.graph].adjacency(layer.self_loops.adds());
        let mut arrays = case.arrays.clone();
        arrays.insert(gradient_name("out"), case.d_out.clone());
        for on in [Optimisations::NONE, Optimisations::ALL, Optimisations::CPU] {
            let compiled = compile(&layer.program, &Statistics::of(&graph), on).unwrap();
            let found = run(&compiled, &graph, &arrays);
            let what = |name: &str| format!("{} on {}, {name}", case.name, case.graph);
            assert_close(&what("out"), &found["out"], &case.out);
            assert_eq!(found.len(), case.gradients.len() + 1, "{}", what("gradients"));
            for (name, wanted) in &case.gradients {
                assert_close(&what(name), &found[&gradient_name(name)], wanted);
            }
            let mut arrays = arrays.clone();
            for kernels in [&compiled.inference, &compiled.forward, &compiled.backward] {
                check_fast(kernels, &graph, &mut arrays);
            }
        }
    }
    assert_eq!(written.cases.len(), 21);
}
