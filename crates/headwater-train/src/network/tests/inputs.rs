//! Node types of different widths, one without features: gradients are those of central differences, learnt rows included.

use headwater_compile::adjacency::{Adjacency, RelationEdges};
use headwater_compile::cpu::fast::{Given, SparseRows};
use headwater_compile::front::builtin;
use headwater_compile::pass::Statistics;
use headwater_graph::random::Key;

use super::super::input::TypePlan;
use super::super::{Extras, Facts, InputPlan, Inputs, Network, NodeInput, Nodes, Stage};
use super::config;
use crate::gradient::Gradient;
use crate::loss::{Loss, Rows, Targets};
use crate::run_config::{Activation, Architecture, RunConfig};

const COUNTS: [usize; 3] = [6, 5, 4];
const WIDTHS: [Option<usize>; 3] = [Some(8), Some(5), None];

/// Each type hears of the next one and of itself; some nodes of nobody.
fn graph() -> Adjacency {
    let lists = [(1, 0, [0, 2, 3, 3, 4, 6, 7]), (2, 1, [0, 1, 3, 3, 4, 5, 5]), (0, 2, [0, 3, 4, 5, 5, 5, 5])];
    let sources: [Vec<u32>; 3] = [vec![0, 1, 4, 2, 3, 1, 0], vec![3, 0, 1, 2, 2], vec![5, 0, 2, 1, 3]];
    let relations: Vec<RelationEdges<'_>> = lists
        .iter()
        .zip(&sources)
        .map(|((src_type, dst_type, offsets), sources)| RelationEdges {
            src_type: *src_type,
            dst_type: *dst_type,
            offsets: &offsets[..=COUNTS[*dst_type]],
            sources,
        })
        .collect();
    Adjacency::new(&COUNTS, &COUNTS, &relations).unwrap()
}

fn network(config: &RunConfig, graph: &Adjacency, widths: [Option<usize>; 3], model: Architecture) -> Network {
    let node_types: Vec<NodeInput> = ["paper", "author", "venue"]
        .into_iter()
        .zip(COUNTS)
        .zip(widths)
        .map(|((name, nodes), width)| NodeInput { name: name.to_owned(), nodes, width })
        .collect();
    let facts = Facts {
        node_types: &node_types,
        classes: 4,
        graph,
        statistics: Statistics::of(graph),
        blocks: Vec::new(),
        text: builtin(model.name()).unwrap(),
        name: model.name(),
    };
    Network::new(config, &facts).unwrap()
}

fn features(widths: [Option<usize>; 3]) -> Vec<Option<Vec<f32>>> {
    let key = Key::new(3);
    let rows = |count: usize, width: usize| {
        (0..count * width).map(|at| key.of(width as u64).below(at as u64, 1000) as f32 / 500.0 - 1.0).collect()
    };
    COUNTS.into_iter().zip(widths).map(|(count, width)| width.map(|width| rows(count, width))).collect()
}

fn step(network: &mut Network, graph: &Adjacency, inputs: Inputs<'_>) -> (f64, Vec<Gradient>) {
    let extras = Extras::new();
    let stages = [Stage { graph, extras: &extras }; 2];
    let trace = network.forward(&stages, inputs, Key::new(1)).unwrap();
    let labels: Vec<i64> = (0..15).map(|node| node % 4).collect();
    let mut gradient = vec![0.0; trace.outputs().len()];
    let rows = Rows { outputs: trace.outputs(), columns: 4, targets: Targets::Classes(&labels) };
    let found = Loss::CrossEntropy.of(rows, &mut gradient).unwrap();
    (found.mean, network.backward(&stages, inputs, trace, gradient).unwrap())
}

#[test]
fn gradients_are_those_of_central_differences() {
    let graph = graph();
    let kept = features(WIDTHS);
    let given: Vec<Option<Given<'_>>> = kept.iter().map(|rows| rows.as_deref().map(Given::Dense)).collect();
    let nodes = COUNTS.map(Nodes::All);
    let inputs = Inputs { features: &given, nodes: &nodes };
    for (model, embedding) in
        [(Architecture::Sage, 0), (Architecture::Rgcn, 3), (Architecture::Rgat, 0), (Architecture::Hgt, 3)]
    {
        let config = RunConfig { activation: Activation::Tanh, input_width: 7, embedding, ..config(model) };
        let mut network = network(&config, &graph, WIDTHS, model);
        assert_eq!(network.input_plan().width(), Some(7));
        let (_, gradients) = step(&mut network, &graph, inputs);
        for (at, gradient) in gradients.iter().enumerate() {
            let (name, count) = network.parameters.at(at).map(|p| (p.name.clone(), p.values.len())).unwrap_or_default();
            assert_eq!(gradient.values().len(), count, "{model:?} {name}");
            for element in [0, count / 3, count / 2, count - 1] {
                let mut moved = |by: f32| {
                    network.parameters.values_mut().nth(at).unwrap()[element] += by;
                    let found = step(&mut network, &graph, inputs).0;
                    network.parameters.values_mut().nth(at).unwrap()[element] -= by;
                    found
                };
                let wanted = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                let found = f64::from(gradient.values()[element]);
                assert!(
                    (wanted - found).abs() < 1e-3 + 0.01 * wanted.abs(),
                    "{model:?} {name} {element}: {found} {wanted}"
                );
            }
        }
    }
}

/// Nodes listed one by one give the rows of the gradient that all nodes have, and types without nodes none.
#[test]
fn rows_of_listed_nodes_are_rows_of_all() {
    let graph = graph();
    let kept = features(WIDTHS);
    let given: Vec<Option<Given<'_>>> = kept.iter().map(|rows| rows.as_deref().map(Given::Dense)).collect();
    let ids: Vec<Vec<u64>> = COUNTS.iter().map(|count| (0..*count as u64).collect()).collect();
    let config = config(Architecture::Rgcn);
    for embedding in [0, 3] {
        let config = RunConfig { embedding, ..config.clone() };
        let mut network = network(&config, &graph, WIDTHS, Architecture::Rgcn);
        let all = COUNTS.map(Nodes::All);
        let (loss, dense) = step(&mut network, &graph, Inputs { features: &given, nodes: &all });
        let listed: Vec<Nodes<'_>> = ids.iter().map(|ids| Nodes::Listed(ids)).collect();
        let (same, rows) = step(&mut network, &graph, Inputs { features: &given, nodes: &listed });
        assert_eq!(loss, same);
        let table = network.parameters.position("input.venue.embedding").unwrap();
        assert!(matches!((&dense[table], &rows[table]), (Gradient::Dense(_), Gradient::Rows(_))));
        assert!(dense.iter().zip(&rows).all(|(dense, rows)| dense.values() == rows.values()));
    }
}

#[test]
fn types_may_have_no_nodes_in_a_sample() {
    let counts = [2, 0, 0];
    let lists: Vec<RelationEdges<'_>> = [(1, 0), (2, 1), (0, 2)]
        .into_iter()
        .map(|(src_type, dst_type)| RelationEdges {
            src_type,
            dst_type,
            offsets: &[0, 0, 0][..=counts[dst_type]],
            sources: &[],
        })
        .collect();
    let block = Adjacency::new(&counts, &counts, &lists).unwrap();
    let config = RunConfig { embedding: 3, ..config(Architecture::Rgat) };
    let mut network = network(&config, &graph(), WIDTHS, Architecture::Rgat);
    let features = [Some(Given::Dense(&[0.5; 16][..])), Some(Given::Dense(&[])), None];
    let nodes = [Nodes::Listed(&[4, 1]), Nodes::Listed(&[]), Nodes::Listed(&[])];
    let inputs = Inputs { features: &features, nodes: &nodes };
    let extras = Extras::new();
    let stages = [Stage { graph: &block, extras: &extras }; 2];
    let trace = network.forward(&stages, inputs, Key::new(1)).unwrap();
    let gradient = vec![1.0; trace.outputs().len()];
    let gradients = network.backward(&stages, inputs, trace, gradient).unwrap();
    let at = |name: &str| gradients[network.parameters.position(name).unwrap()].values();
    assert_eq!(at("input.author.W"), [0.0; 30]);
    assert_eq!(at("input.venue.embedding").len(), 0);
}

/// What the text can do without features it does where no type has any and all nodes are there; else rows are learnt.
#[test]
fn texts_that_do_without_features_learn_their_own_rows() {
    let graph = graph();
    let learnt = || InputPlan::Apart { width: 6, types: vec![TypePlan::Learnt(6); 3] };
    for (full_graph, model, expected) in [
        (true, Architecture::Rgcn, InputPlan::Nothing),
        (false, Architecture::Rgcn, learnt()),
        (true, Architecture::Rgat, learnt()),
    ] {
        let config = RunConfig { full_graph, ..config(model) };
        assert_eq!(network(&config, &graph, [None; 3], model).input_plan(), &expected, "{model:?}");
    }
}

/// 2^60 rows of numbers are more than any machine has.
#[test]
fn a_table_without_room_is_refused() {
    let graph = graph();
    let facts = Facts {
        node_types: &[NodeInput { name: "atom".to_owned(), nodes: 1 << 60, width: None }],
        classes: 4,
        graph: &graph,
        statistics: Statistics::of(&graph),
        blocks: Vec::new(),
        text: builtin("sage").unwrap(),
        name: "sage",
    };
    for embedding in [1, 64] {
        let said =
            Network::new(&RunConfig { embedding, ..config(Architecture::Sage) }, &facts).unwrap_err().to_string();
        assert!(said.contains("input.atom.embedding") && said.contains("no memory"), "{said}");
    }
}

#[test]
fn sparse_features_are_projected_as_dense_ones() {
    let graph = graph();
    let kept = features(WIDTHS);
    let sparse = SparseRows::of(kept[0].as_deref().unwrap(), 8, 1.0).unwrap();
    let other = kept[1].as_deref().map(Given::Dense);
    let nodes = COUNTS.map(Nodes::All);
    let mut network = network(&config(Architecture::Rgcn), &graph, WIDTHS, Architecture::Rgcn);
    let mut found = Vec::new();
    for first in [Given::Dense(kept[0].as_deref().unwrap()), Given::Sparse(&sparse)] {
        let given = [Some(first), other, None];
        let (loss, gradients) = step(&mut network, &graph, Inputs { features: &given, nodes: &nodes });
        let at = network.parameters.position("input.paper.W").unwrap();
        found.push((loss, gradients[at].values().to_vec()));
    }
    assert!((found[0].0 - found[1].0).abs() < 1e-6, "{} {}", found[0].0, found[1].0);
    let pairs = found[0].1.iter().zip(&found[1].1);
    assert!(pairs.into_iter().all(|(dense, sparse)| (dense - sparse).abs() < 1e-5));
}
