//! Batch norm, against the formulas of torch's `BatchNorm1d` in f64.

use headwater_compile::adjacency::Adjacency;
use headwater_compile::cpu::fast::Given;
use headwater_graph::random::Key;

use super::super::{Extras, Inputs, Network, Nodes, Stage};
use super::{config, extras, loss, network, ring};
use crate::run_config::{Activation, Architecture, Norm, RunConfig};

const WIDTH: usize = 6;
const EPSILON: f64 = 1e-5;

fn made(model: Architecture, graph: &Adjacency) -> Network {
    network(&RunConfig { norm: Norm::Batch, activation: Activation::Tanh, ..config(model) }, graph)
}

fn batch(seed: u64, nodes: usize) -> Vec<f32> {
    let key = Key::new(seed);
    (0..nodes * 5).map(|at| key.below(at as u64, 1000) as f32 / 250.0 - 1.0).collect()
}

fn values(network: &Network, name: &str) -> Vec<f64> {
    network.parameters.get(name).unwrap().values.iter().map(|value| f64::from(*value)).collect()
}

/// `x W + b`, row by row.
fn linear(x: &[f64], w: &[f64], b: &[f64]) -> Vec<f64> {
    let inputs = w.len() / b.len();
    x.chunks_exact(inputs)
        .flat_map(|row| {
            (0..b.len())
                .map(move |column| b[column] + (0..inputs).map(|at| row[at] * w[at * b.len() + column]).sum::<f64>())
        })
        .collect()
}

/// Mean and biased variance of every column.
fn moments(rows: &[f64]) -> Vec<(f64, f64)> {
    let count = (rows.len() / WIDTH) as f64;
    let column = |at: usize| rows.iter().skip(at).step_by(WIDTH);
    (0..WIDTH)
        .map(|at| {
            let mean = column(at).sum::<f64>() / count;
            (mean, column(at).map(|value| (value - mean).powi(2)).sum::<f64>() / count)
        })
        .collect()
}

fn near(found: &[f32], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    let distance = |(found, wanted): (&f32, &f64)| (f64::from(*found) - wanted).abs();
    assert!(found.iter().zip(wanted).map(distance).all(|distance| distance < 2e-5), "{found:?} {wanted:?}");
}

/// Two batches of different sizes are seen, then a third is inferred.
#[test]
fn batches_and_inference_are_torchs() {
    let mut network = made(Architecture::Mlp, &ring(9));
    let extras = Extras::new();
    let parameter = |name: &str| values(&network, name);
    let first = (parameter("layers.0.W"), parameter("layers.0.b"));
    let last = (parameter("layers.1.W"), parameter("layers.1.b"));
    let (mut mean, mut variance) = ([0.0f64; WIDTH], [1.0f64; WIDTH]);
    let through = |x: &[f32], moments: &[(f64, f64)]| -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let hidden = linear(&x, &first.0, &first.1);
        let normal = |(at, value): (usize, f64)| {
            let (mean, variance) = moments[at % WIDTH];
            ((value - mean) / (variance + EPSILON).sqrt()).tanh()
        };
        linear(&hidden.into_iter().enumerate().map(normal).collect::<Vec<_>>(), &last.0, &last.1)
    };
    for (seed, nodes) in [(1, 9), (2, 4)] {
        let (x, graph) = (batch(seed, nodes), ring(u32::try_from(nodes).unwrap()));
        let own: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let found = moments(&linear(&own, &first.0, &first.1));
        for (at, (own, spread)) in found.iter().enumerate() {
            mean[at] = 0.9 * mean[at] + 0.1 * own;
            variance[at] = 0.9 * variance[at] + 0.1 * spread * nodes as f64 / (nodes - 1) as f64;
        }
        let (features, all) = ([Some(Given::Dense(&x))], [Nodes::All(nodes)]);
        let inputs = Inputs { features: &features, nodes: &all };
        let stages = [Stage { graph: &graph, extras: &extras }; 2];
        let trace = network.forward(&stages, inputs, Key::new(1)).unwrap();
        near(trace.outputs(), &through(&x, &found));
        drop(trace);
        near(&network.buffers()[0].values, &mean);
        near(&network.buffers()[1].values, &variance);
    }
    let (x, graph) = (batch(3, 5), ring(5));
    let stage = Stage { graph: &graph, extras: &extras };
    let hidden = network.infer(0, stage, Some(Given::Dense(&x))).unwrap();
    let found = network.infer(1, stage, Some(Given::Dense(&hidden))).unwrap();
    let running: Vec<(f64, f64)> = mean.into_iter().zip(variance).collect();
    near(&found, &through(&x, &running));
}

#[test]
fn gradients_are_those_of_central_differences() {
    let graph = ring(9);
    let (x, extras) = (batch(4, 9), extras(9));
    let stages = [Stage { graph: &graph, extras: &extras }; 2];
    let labels: Vec<i64> = (0..9).map(|node| node % 4).collect();
    for model in [Architecture::Sage, Architecture::Gcn, Architecture::Gat] {
        let mut network = made(model, &graph);
        let (_, gradients) = loss(&mut network, &stages, &x, &labels);
        for (at, gradient) in gradients.iter().enumerate() {
            let count = gradient.values().len();
            for element in [0, count / 2, count - 1] {
                let mut moved = |by: f32| {
                    network.parameters.values_mut().nth(at).unwrap()[element] += by;
                    let found = loss(&mut network, &stages, &x, &labels).0;
                    network.parameters.values_mut().nth(at).unwrap()[element] -= by;
                    found
                };
                let wanted = (moved(2e-3) - moved(-2e-3)) / 4e-3;
                let found = f64::from(gradient.values()[element]);
                assert!((wanted - found).abs() < 1e-3 + 0.01 * wanted.abs(), "{model:?} {at}: {found} {wanted}");
            }
        }
    }
}

#[test]
fn one_row_teaches_nothing() {
    let mut running = super::super::running::Running::new(0, 2);
    let before = running.clone();
    running.see(&[1.0, 2.0], &[0.0, 0.0], 1).unwrap();
    assert_eq!(running, before);
    assert!(running.see(&[1.0], &[0.0, 0.0], 3).is_err());
}
