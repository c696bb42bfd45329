//! Networks learn, and their gradients are those of central differences.

mod batch_norm;
mod inputs;

use headwater_compile::adjacency::{Adjacency, RelationEdges};
use headwater_compile::cpu::fast::Given;
use headwater_compile::front::builtin;
use headwater_compile::pass::Statistics;
use headwater_graph::random::Key;

use super::{Extras, Facts, Inputs, Network, NodeInput, Nodes, Stage};
use crate::gradient::Gradient;
use crate::loss::{Loss, Rows, Targets};
use crate::optimiser::Optimiser;
use crate::run_config::{Activation, Architecture, Model, RunConfig, RunFile};

/// A ring whose nodes also hear of the node after the next.
fn ring(nodes: u32) -> Adjacency {
    let offsets: Vec<usize> = (0..=nodes as usize).map(|node| 2 * node).collect();
    let sources: Vec<u32> = (0..nodes).flat_map(|node| [(node + 1) % nodes, (node + 2) % nodes]).collect();
    let relation = RelationEdges { src_type: 0, dst_type: 0, offsets: &offsets, sources: &sources };
    Adjacency::new(&[nodes as usize], &[nodes as usize], &[relation]).unwrap()
}

fn config(model: Architecture) -> RunConfig {
    let flags = RunFile {
        model: Some(Model::Named(model)),
        hidden: Some(6),
        heads: Some(2),
        dropout: Some(0.0),
        attention_dropout: Some(0.0),
        full_graph: Some(true),
        ..RunFile::default()
    };
    RunConfig::resolve(RunFile::default(), flags).unwrap()
}

fn network(config: &RunConfig, graph: &Adjacency) -> Network {
    let Model::Named(model) = config.model else { panic!("a named model") };
    let nodes = graph.rows(headwater_compile::inter::Domain::SRC);
    let facts = Facts {
        node_types: &[NodeInput { name: "node".to_owned(), nodes, width: Some(5) }],
        classes: 4,
        graph,
        statistics: Statistics::of(graph),
        blocks: Vec::new(),
        text: builtin(model.name()).unwrap(),
        name: model.name(),
    };
    Network::new(config, &facts).unwrap()
}

fn features(nodes: usize) -> Vec<f32> {
    let key = Key::new(3);
    (0..nodes * 5).map(|at| key.below(at as u64, 1000) as f32 / 1000.0 - 0.5).collect()
}

fn extras(nodes: usize) -> Extras {
    ["src_scale", "dst_scale", "self_scale"].into_iter().map(|name| (name.to_owned(), vec![0.5; nodes])).collect()
}

fn loss(network: &mut Network, stages: &[Stage<'_>], x: &[f32], labels: &[i64]) -> (f64, Vec<Gradient>) {
    let (features, nodes) = ([Some(Given::Dense(x))], [Nodes::All(x.len() / 5)]);
    let inputs = Inputs { features: &features, nodes: &nodes };
    let trace = network.forward(stages, inputs, Key::new(1)).unwrap();
    let mut gradient = vec![0.0; trace.outputs().len()];
    let rows = Rows { outputs: trace.outputs(), columns: 4, targets: Targets::Classes(labels) };
    let found = Loss::CrossEntropy.of(rows, &mut gradient).unwrap();
    (found.mean, network.backward(stages, inputs, trace, gradient).unwrap())
}

#[test]
fn every_model_has_the_gradients_of_central_differences() {
    let graph = ring(9);
    let (x, extras) = (features(9), extras(9));
    let stages = [Stage { graph: &graph, extras: &extras }; 2];
    let labels: Vec<i64> = (0..9).map(|node| node % 4).collect();
    for model in Architecture::ALL {
        let config = RunConfig { activation: Activation::Tanh, ..config(model) };
        let mut network = network(&config, &graph);
        let (_, gradients) = loss(&mut network, &stages, &x, &labels);
        for (at, gradient) in gradients.iter().enumerate() {
            let gradient = gradient.values();
            let count = gradient.len();
            assert_eq!(count, network.parameters.iter().nth(at).unwrap().values.len(), "{model:?}");
            for element in [0, count / 2, count - 1] {
                let mut moved = |by: f32| {
                    network.parameters.values_mut().nth(at).unwrap()[element] += by;
                    let found = loss(&mut network, &stages, &x, &labels).0;
                    network.parameters.values_mut().nth(at).unwrap()[element] -= by;
                    found
                };
                let wanted = (moved(1e-3) - moved(-1e-3)) / 2e-3;
                let found = f64::from(gradient[element]);
                assert!((wanted - found).abs() < 2e-3, "{model:?} {at} {element}: {found}, differences say {wanted}");
            }
        }
    }
}

#[test]
fn every_model_learns_labels_by_heart() {
    let graph = ring(8);
    let (x, extras) = (features(8), extras(8));
    let stages = [Stage { graph: &graph, extras: &extras }; 2];
    let labels: Vec<i64> = (0..8).map(|node| node % 4).collect();
    for model in Architecture::ALL {
        let config = RunConfig { hidden: 16, ..config(model) };
        let mut network = network(&config, &graph);
        let mut optimiser = Optimiser::new(config.rule(), &config.groups(), &network.parameters).unwrap();
        let first = loss(&mut network, &stages, &x, &labels).0;
        for _ in 0..150 {
            let (_, gradients) = loss(&mut network, &stages, &x, &labels);
            optimiser.step(&mut network.parameters, &gradients, 0.02).unwrap();
            network.recycle(gradients);
        }
        let last = loss(&mut network, &stages, &x, &labels).0;
        assert!(last < 0.5 * first, "{model:?}: from {first} to {last}");
    }
}
