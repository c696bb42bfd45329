//! Samplers against their distributions. Keys are fixed, so a test passes always or never.

use super::*;

/// Fails when counts are further from their expectations than one run in ten thousand would be.
pub fn chi_square(counts: &[u64], expected: &[f64]) {
    assert_eq!(counts.len(), expected.len());
    let statistic: f64 = counts.iter().zip(expected).map(|(&n, e)| (n as f64 - e).powi(2) / e).sum();
    let freedom = counts.len() as f64 - 1.0;
    // Wilson and Hilferty: the cube root of chi-square over its freedom is close to normal.
    let spread = 2.0 / (9.0 * freedom);
    let limit = freedom * (1.0 - spread + 3.72 * spread.sqrt()).powi(3);
    assert!(statistic < limit, "{statistic:.1} of {freedom} degrees of freedom is above {limit:.1}");
}

/// The neighbours of node 0 in each of many samples.
fn draws(graph: &Graph, options: &SampleOptions, trials: u64) -> impl Iterator<Item = Vec<u64>> {
    let sampler = NeighbourSampler::new(graph.clone(), options.clone()).unwrap();
    (0..trials).map(move |trial| {
        let sample = sampler.sample_alone(Seeds::of(&[0]), batch_key(7, 0, trial)).unwrap();
        sample.edges[0].ids.clone().unwrap()
    })
}

#[test]
fn every_subset_is_equally_likely() {
    // 35 subsets: inclusion, pairs and triples in one.
    let (options, trials) = (SampleOptions::fanouts(&[3]).unwrap(), 40_000);
    let mut counts = std::collections::BTreeMap::new();
    for mut chosen in draws(&star(7), &options, trials) {
        chosen.sort_unstable();
        *counts.entry(chosen).or_insert(0) += 1;
    }
    chi_square(&counts.into_values().collect::<Vec<u64>>(), &[trials as f64 / 35.0; 35]);
}

#[test]
fn every_order_slot_is_uniform_beyond_one_word() {
    // Degrees above 64 and fan-outs above 32 take other paths through the chooser.
    for (degree, fanout) in [(65u32, 5i64), (200, 33)] {
        let (options, trials) = (SampleOptions::fanouts(&[fanout]).unwrap(), 4000);
        let mut counts = vec![0u64; degree as usize];
        draws(&star(degree), &options, trials).flatten().for_each(|edge| counts[edge as usize] += 1);
        // Counts of one sample exclude each other: their variance is smaller by the share that is left out.
        let share = fanout as f64 / f64::from(degree);
        let expected = trials as f64 * share;
        let statistic: f64 = counts.iter().map(|&n| (n as f64 - expected).powi(2) / (expected * (1.0 - share))).sum();
        let scaled = statistic * f64::from(degree - 1) / f64::from(degree);
        let freedom = f64::from(degree - 1);
        assert!((scaled - freedom).abs() < 4.0 * (2.0 * freedom).sqrt(), "{scaled} of {freedom}");
    }
}

#[test]
fn pairs_of_a_longer_row() {
    // One pair of each sample, so that counts do not depend on each other, in tenths of the row: 55 kinds.
    let trials = 40_000u64;
    let (mut counts, mut pick) = (vec![0u64; 100], Key::new(77));
    for chosen in draws(&star(100), &SampleOptions::fanouts(&[10]).unwrap(), trials) {
        pick = pick.of(0);
        let first = pick.below(0, 10);
        let second = (first + 1 + pick.below(1, 9)) % 10;
        let (a, b) = (chosen[first as usize] / 10, chosen[second as usize] / 10);
        counts[(a.min(b) * 10 + a.max(b)) as usize] += 1;
    }
    let pair = trials as f64 / (100.0 * 99.0 / 2.0);
    let kinds = (0..10).flat_map(|a| (a..10).map(move |b| (a, b)));
    let (found, expected): (Vec<u64>, Vec<f64>) =
        kinds.map(|(a, b)| (counts[a * 10 + b], pair * if a == b { 45.0 } else { 100.0 })).unzip();
    assert_eq!(found.iter().sum::<u64>(), trials);
    chi_square(&found, &expected);
}

#[test]
fn hubs_are_not_biased_to_their_front() {
    let (degree, trials) = (100_000u32, 4000);
    let options = SampleOptions::fanouts(&[10]).unwrap();
    let mut counts = vec![0u64; 50];
    draws(&star(degree), &options, trials).flatten().for_each(|edge| counts[(edge / 2000) as usize] += 1);
    chi_square(&counts, &[trials as f64 * 10.0 / 50.0; 50]);
}

#[test]
fn with_replacement_every_draw_is_uniform() {
    let options = SampleOptions { replacement: Replacement::With, ..SampleOptions::fanouts(&[2]).unwrap() };
    let mut counts = vec![0u64; 25];
    draws(&star(5), &options, 20_000).for_each(|pair| counts[(pair[0] * 5 + pair[1]) as usize] += 1);
    chi_square(&counts, &[20_000.0 / 25.0; 25]);
}

fn weighted(weights: &[f32]) -> Graph {
    let topology = star(u32::try_from(weights.len()).unwrap()).relation(0).clone();
    Graph::homogeneous(topology.with_weights(weights.to_vec().into()).unwrap()).unwrap()
}

#[test]
fn weights_are_kept_draw_after_draw() {
    let weights = [1.0, 2.0, 0.5, 4.0, 0.0, 2.5];
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let options = SampleOptions { bias: Bias::Weights, ..SampleOptions::fanouts(&[2]).unwrap() };
    let (mut counts, trials) = (vec![0u64; 36], 40_000);
    draws(&weighted(&weights), &options, trials).for_each(|pair| counts[(pair[0] * 6 + pair[1]) as usize] += 1);
    let probability = |a: usize, b: usize| {
        let (first, second) = (f64::from(weights[a]), f64::from(weights[b]));
        if a == b { 0.0 } else { first / total * second / (total - first) }
    };
    let kinds = (0..36).filter(|at| probability(at / 6, at % 6) > 0.0);
    let (found, expected): (Vec<u64>, Vec<f64>) =
        kinds.map(|at| (counts[at], trials as f64 * probability(at / 6, at % 6))).unzip();
    assert_eq!((found.len(), found.iter().sum::<u64>()), (20, trials));
    chi_square(&found, &expected);
}

#[test]
fn weights_with_replacement() {
    let weights = [3.0, 1.0, 0.0, 6.0];
    let options =
        SampleOptions { bias: Bias::Weights, replacement: Replacement::With, ..SampleOptions::fanouts(&[2]).unwrap() };
    let (mut counts, trials) = (vec![0u64; 16], 20_000);
    draws(&weighted(&weights), &options, trials).for_each(|pair| counts[(pair[0] * 4 + pair[1]) as usize] += 1);
    let share = |at: usize| f64::from(weights[at]) / 10.0;
    let kinds = (0..16).filter(|at| share(at / 4) * share(at % 4) > 0.0);
    let (found, expected): (Vec<u64>, Vec<f64>) =
        kinds.map(|at| (counts[at], trials as f64 * share(at / 4) * share(at % 4))).unzip();
    assert_eq!(found.iter().sum::<u64>(), trials);
    chi_square(&found, &expected);
}

#[test]
fn draws_of_different_batches_nodes_and_hops_are_independent() {
    // Two nodes with the same list, two hops: their choices agree as often as chance has it.
    let rows: Vec<Vec<u32>> = (0..2).map(|_| (2..10).collect()).chain((2..10).map(|_| (2..10).collect())).collect();
    let graph = Graph::homogeneous(lists(10, &rows)).unwrap();
    let sampler = NeighbourSampler::new(graph, SampleOptions::fanouts(&[1]).unwrap()).unwrap();
    let trials = 20_000;
    let mut counts = vec![0u64; 64];
    for trial in 0..trials {
        let sample = sampler.sample_alone(Seeds::of(&[0, 1]), batch_key(3, 0, trial)).unwrap();
        let edges = sample.edges[0].ids.as_ref().unwrap();
        counts[(edges[0] * 8 + (edges[1] - 8)) as usize] += 1;
    }
    chi_square(&counts, &[trials as f64 / 64.0; 64]);
}
