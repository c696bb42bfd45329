//! Scores against plain references in 64-bit floats.
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

mod networkx;

use super::*;
use crate::random::Key;
use crate::reorder::Permutation;
use crate::sample::tests::{citations, tangle};
use crate::sample::{NeighbourSampler, SampleOptions, Seeds};
use crate::{Error, Graph, Silent, Topology};

/// The same graph of one relation with ids of 64 bits.
pub(super) fn wide(graph: &Graph) -> Graph {
    let lists = graph.relation(0);
    let ids: Vec<u64> = lists.neighbours().iter().collect();
    let made = Topology::new(lists.layout(), lists.columns(), lists.offsets().clone(), ids.into()).unwrap();
    Graph::homogeneous(made).unwrap()
}

/// Source and target of every edge, nodes of all types numbered through.
fn edges(graph: &Graph) -> (usize, Vec<(usize, usize)>) {
    let counts: Vec<usize> = graph.schema().node_types().iter().map(|node_type| node_type.count as usize).collect();
    let base = |node_type: usize| counts[..node_type].iter().sum::<usize>();
    let of = |(relation, topology): (&crate::Relation, &Topology)| {
        let coo = topology.to_coo();
        let (source, target) = (base(relation.source), base(relation.target));
        let ends = coo.sources.iter().zip(coo.targets.iter());
        ends.map(|(from, to)| (source + from as usize, target + to as usize)).collect::<Vec<_>>()
    };
    let all = graph.schema().relations().iter().zip(graph.relations()).flat_map(of).collect();
    (counts.iter().sum(), all)
}

/// Algorithm 1 of the data-tiering paper, word for word.
fn algorithm_1(graph: &Graph, iterations: usize, damping: f64, train: &[usize]) -> Vec<f64> {
    let (nodes, edges) = edges(graph);
    let mut score = vec![1.0 / nodes as f64; nodes];
    let mut in_degree = vec![0.0; nodes];
    edges.iter().for_each(|&(_, target)| in_degree[target] += 1.0);
    train.iter().for_each(|&id| score[id] *= nodes as f64 / train.len() as f64);
    for _ in 0..iterations {
        let given: Vec<f64> = score.iter().zip(&in_degree).map(|(score, degree)| score / degree).collect();
        let mut pulled = vec![0.0; nodes];
        edges.iter().for_each(|&(source, target)| pulled[source] += given[target]);
        score = pulled.iter().map(|pulled| (1.0 - damping) / nodes as f64 + damping * pulled).collect();
    }
    score
}

fn assert_close(found: &NodeScores, unit_log2: u32, want: &[f64], tolerance: f64) {
    let found: Vec<f64> = found.concat().iter().map(|&score| score as f64 / 2f64.powi(unit_log2 as i32)).collect();
    assert_eq!(found.len(), want.len());
    for (at, (found, want)) in found.iter().zip(want).enumerate() {
        assert!((found - want).abs() <= tolerance * want.abs().max(1e-9), "node {at}: {found}, expected {want}");
    }
}

#[test]
fn ranks_are_those_of_the_paper() {
    for graph in [tangle(200, 3), citations(5)] {
        let outgoing = Outgoing::of(&graph, &Silent).unwrap();
        let nodes: Vec<u64> = vec![0, 3, 7, 20, 3];
        let mut train: Vec<&[u64]> = vec![&[]; graph.schema().node_types().len()];
        train[0] = &nodes;
        let found = reverse_pagerank(&outgoing, &RankOptions::weighted(&train)).unwrap();
        assert_close(&found, 60, &algorithm_1(&graph, 5, 0.85, &[0, 3, 7, 20]), 1e-6);
        let found = reverse_pagerank(&outgoing, &RankOptions::converged()).unwrap();
        assert_close(
            &found,
            60,
            &algorithm_1(&graph, 100, 0.85, &(0..graph.nodes() as usize).collect::<Vec<_>>()),
            1e-3,
        );
    }
}

#[test]
fn ranks_do_not_depend_on_threads_or_on_the_layout() {
    let graph = tangle(5000, 1);
    let by_source = Graph::homogeneous(graph.relation(0).transposed(&Silent).unwrap()).unwrap();
    let rank = |graph: &Graph, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let outgoing = Outgoing::of(graph, &Silent).unwrap();
            reverse_pagerank(&outgoing, &RankOptions::weighted(&[&[1, 2, 3]])).unwrap()
        })
    };
    let one = rank(&graph, 1);
    assert_eq!(rank(&graph, 3), one);
    assert_eq!(rank(&wide(&graph), 2), one);
    assert_eq!(rank(&by_source, 2), one);
}

#[test]
fn degrees_of_both_ends() {
    for graph in [tangle(100, 2), citations(1)] {
        let (nodes, edges) = edges(&graph);
        let (mut into, mut out) = (vec![0u64; nodes], vec![0u64; nodes]);
        edges.iter().for_each(|&(source, target)| {
            out[source] += 1;
            into[target] += 1;
        });
        assert_eq!(degrees(&graph, End::Target).concat(), into);
        assert_eq!(degrees(&graph, End::Source).concat(), out);
    }
}

/// Edges of a graph of one type, whose lists are by target.
fn graph_of(nodes: u64, edges: &[(u64, u64)]) -> Graph {
    let mut lists: Vec<Vec<u32>> = vec![Vec::new(); nodes as usize];
    edges.iter().for_each(|(source, target)| lists[*target as usize].push(*source as u32));
    let offsets = lists.iter().scan(0u64, |sum, list| {
        *sum += list.len() as u64;
        Some(*sum)
    });
    let offsets: Vec<u64> = std::iter::once(0).chain(offsets).collect();
    let made = Topology::new(crate::Layout::Csc, nodes, offsets.into(), lists.concat().into()).unwrap();
    Graph::homogeneous(made).unwrap()
}

fn both_ways(edges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    edges.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect()
}

/// Half of the edges end at every tenth node.
fn hubs(nodes: u64) -> Vec<(u64, u64)> {
    let end = |at: u64| Key::new(3).draw(at) % nodes;
    (0..6 * nodes)
        .map(|at| (end(2 * at), if at.is_multiple_of(2) { end(2 * at + 1) / 10 * 10 } else { end(2 * at + 1) }))
        .collect()
}

fn planted(nodes: u64) -> Graph {
    let recipe = crate::generate::Planted { nodes, edges_per_node: 10, classes: 4, features: 0, ..Default::default() };
    let made = recipe.recipe().unwrap().graph(&Silent).unwrap();
    let by_target: Vec<Topology> = made
        .relations()
        .iter()
        .map(|lists| match lists.layout() {
            crate::Layout::Csc => lists.bare(),
            crate::Layout::Csr => lists.transposed(&Silent).unwrap(),
        })
        .collect();
    Graph::new(made.schema().clone(), by_target).unwrap()
}

/// Expected reads of nodes, in reads an epoch.
fn expected(graph: &Graph, train: &[u64], batch: usize, options: &SampleOptions) -> Vec<f64> {
    let outgoing = Outgoing::of_sampling(graph, &Silent).unwrap();
    let told = expected_reads(&outgoing, &Expected { train: &[train], batch, options }).unwrap();
    told[0].iter().map(|&reads| reads as f64 / 2f64.powi(20)).collect()
}

#[test]
fn draws_that_are_certain_are_read_in_every_batch() {
    let chain: Vec<(u64, u64)> = (0..5).map(|node| (node + 1, node)).collect();
    let star: Vec<(u64, u64)> = (1..50).map(|leaf| (leaf, 0)).collect();
    let turned: Vec<(u64, u64)> = star.iter().map(|&(a, b)| (b, a)).collect();
    for (edges, nodes, train, batch, fanouts, want) in [
        (chain.clone(), 6, vec![0u64], 1, &[-1i64, -1, -1][..], vec![1.0, 1.0, 1.0, 1.0, 0.0, 0.0]),
        (chain.clone(), 6, vec![0], 1, &[1, 7], vec![1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
        (both_ways(&chain), 6, vec![2], 1, &[-1, 2], vec![1.0; 5].into_iter().chain([0.0]).collect()),
        (star.clone(), 50, vec![0], 1, &[-1], vec![1.0; 50]),
        (star, 50, vec![0], 1, &[49], vec![1.0; 50]),
        // One seed a batch, whichever: the middle is in all of them.
        (turned, 50, (1..50).collect(), 1, &[1], std::iter::once(49.0).chain([1.0; 49]).collect()),
    ] {
        let options = SampleOptions::fanouts(fanouts).unwrap();
        let found = expected(&graph_of(nodes, &edges), &train, batch, &options);
        for (node, (found, want)) in found.iter().zip(&want).enumerate() {
            assert!((found - want).abs() < 1e-3 * want.max(0.01), "{fanouts:?} node {node}: {found}, expected {want}");
        }
    }
}

#[test]
fn expected_reads_are_what_batches_read() {
    let plain = tangle(400, 7);
    let (offsets, neighbours) = (plain.relation(0).offsets().clone(), plain.relation(0).neighbours().clone());
    let by_source = Topology::new(crate::Layout::Csr, 400, offsets, neighbours).unwrap();
    let by_source = Graph::homogeneous(by_source).unwrap();
    let options = SampleOptions::fanouts(&[3, 2]).unwrap();
    let turned = Outgoing::of(&by_source, &Silent).unwrap();
    let refused = expected_reads(&turned, &Expected { train: &[&[0]], batch: 2, options: &options });
    assert!(matches!(refused, Err(Error::Options { .. })));
    let weighted = SampleOptions { bias: crate::sample::Bias::Weights, ..options.clone() };
    let outgoing = Outgoing::of_sampling(&plain, &Silent).unwrap();
    let refused = expected_reads(&outgoing, &Expected { train: &[&[0]], batch: 2, options: &weighted });
    assert!(matches!(refused, Err(Error::Options { .. })));
    let with = SampleOptions { replacement: crate::sample::Replacement::With, ..options.clone() };
    let star: Vec<(u64, u64)> = (1..200).map(|leaf| (leaf, 0)).collect();
    let of = |numbers: &[i64]| SampleOptions::fanouts(numbers).unwrap();
    let mut wrong = Vec::new();
    for (name, graph, train, batch, options, all, each) in [
        ("tangle", plain, 120, 12, options.clone(), 0.02, 0.1),
        ("by source", by_source, 120, 12, options, 0.02, 0.1),
        ("replacement", tangle(400, 7), 120, 12, with, 0.02, 0.1),
        ("star", graph_of(200, &both_ways(&star)), 150, 10, of(&[5, 5]), 0.02, 0.1),
        ("star, one seed", graph_of(200, &both_ways(&star)), 150, 1, of(&[5, 5]), 0.02, 0.1),
        ("hubs", graph_of(500, &hubs(500)), 300, 20, of(&[4, 3]), 0.02, 0.1),
        ("hubs both ways", graph_of(500, &both_ways(&hubs(500))), 300, 20, of(&[4, 3]), 0.02, 0.1),
        ("planted", planted(1000), 600, 40, of(&[5, 5]), 0.02, 0.1),
        ("planted, three hops", planted(1000), 600, 20, of(&[3, 3, 3]), 0.03, 0.1),
        ("planted, all", planted(1000), 300, 10, of(&[-1, -1]), 0.03, 0.1),
    ] {
        let (sum, single) = misses(&graph, &(0..train).collect::<Vec<u64>>(), batch, &options);
        if sum.abs() > all || single > each {
            wrong.push(format!("{name}: {sum:.4} in all, {single:.4} node by node"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// How far expected reads are from those of many epochs of the sampler, as parts of what is read: the sum over all nodes, and
/// node by node, where chance has a little to say too.
fn misses(graph: &Graph, train: &[u64], batch: usize, options: &SampleOptions) -> (f64, f64) {
    let told = expected(graph, train, batch, options);
    let sampler = NeighbourSampler::new(graph.clone(), options.clone()).unwrap();
    let epochs = 60;
    let mut counts = vec![0u64; told.len()];
    for epoch in 0..epochs {
        let shuffled = shuffle(train, epoch);
        let batches: Vec<Seeds<'_>> = shuffled.chunks(batch).map(Seeds::of).collect();
        let reads = count_reads(&sampler, &batches, Key::new(1000 + epoch), &Silent).unwrap();
        assert_eq!((reads.batches, reads.counts[0].iter().sum::<u64>()), (batches.len() as u64, reads.nodes));
        counts.iter_mut().zip(&reads.counts[0]).for_each(|(sum, count)| *sum += count);
    }
    let read: Vec<f64> = counts.iter().map(|&count| count as f64 / epochs as f64).collect();
    let (all, missed): (f64, f64) = (read.iter().sum(), told.iter().zip(&read).map(|(a, b)| (a - b).abs()).sum());
    (told.iter().sum::<f64>() / all - 1.0, missed / all)
}

/// Two types and one relation with its inverse: what a node drew draws it back over the other relation.
#[test]
fn expected_reads_of_types_are_what_batches_read() {
    let counts = [300u64, 100];
    let types = ["a", "b"].into_iter().zip(counts).map(|(name, count)| crate::NodeType { name: name.into(), count });
    let relations = [(1, "to", 0), (0, "from", 1)];
    let relations = relations.map(|(source, name, target)| crate::Relation { source, name: name.into(), target });
    let schema = crate::Schema::new(types.collect(), relations.into()).unwrap();
    let list = |row: u64| (0..4).map(move |at| (Key::new(9).of(row).draw(at) % 100) as u32);
    let offsets: Vec<u64> = (0..=300).map(|row| 4 * row).collect();
    let to = Topology::new(crate::Layout::Csc, 100, offsets.into(), (0..300).flat_map(list).collect::<Vec<_>>().into());
    let to = to.unwrap();
    let turned = to.transposed(&Silent).unwrap();
    let from = Topology::new(crate::Layout::Csc, 300, turned.offsets().clone(), turned.neighbours().clone()).unwrap();
    let graph = Graph::new(schema, vec![to, from]).unwrap();
    let (train, options) = ((0..200).collect::<Vec<u64>>(), SampleOptions::fanouts(&[2, 3, 2]).unwrap());
    let outgoing = Outgoing::of_sampling(&graph, &Silent).unwrap();
    let told = expected_reads(&outgoing, &Expected { train: &[&train, &[]], batch: 10, options: &options }).unwrap();
    let run = run_of(graph, &[2, 3, 2], train, 10).unwrap();
    let read = run.reads(Purpose::Measurement, 60 * run.batches_per_epoch(), &Silent).unwrap().counts;
    for (told, read) in told.iter().zip(&read) {
        let sum = |all: &[u64], unit: f64| all.iter().map(|&own| own as f64 / unit).sum::<f64>();
        let (told, read) = (sum(told, 2f64.powi(20)), sum(read, 60.0));
        assert!((told / read - 1.0).abs() < 0.03, "told {told}, read {read}");
    }
}

fn shuffle(ids: &[u64], key: u64) -> Vec<u64> {
    let mut keyed: Vec<(u64, u64)> = ids.iter().map(|&id| (Key::new(key).draw(id), id)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, id)| id).collect()
}

#[test]
fn training_nodes_that_are_none_are_errors() {
    let graph = tangle(20, 1);
    let outgoing = Outgoing::of(&graph, &Silent).unwrap();
    let bad = reverse_pagerank(&outgoing, &RankOptions::weighted(&[&[1, 20]])).unwrap_err();
    assert!(matches!(bad, Error::IdOutOfRange { name: "training nodes", position: 1, id: 20, limit: 20 }), "{bad}");
    let options = SampleOptions::fanouts(&[2]).unwrap();
    let expected = Expected { train: &[], batch: 2, options: &options };
    assert!(matches!(expected_reads(&outgoing, &expected), Err(Error::Length { .. })));
    let fanouts = vec![vec![crate::sample::Fanout::All; 3]];
    let expected = Expected { train: &[&[1]], batch: 2, options: &SampleOptions { fanouts, ..options.clone() } };
    assert!(matches!(expected_reads(&outgoing, &expected), Err(Error::Length { name: "fan-outs of a hop", .. })));
    let damping = RankOptions { damping: 1.5, ..RankOptions::converged() };
    assert!(matches!(reverse_pagerank(&outgoing, &damping), Err(Error::Parameter { name: "damping", .. })));
}

#[test]
fn damaged_lists_are_errors() {
    let damaged = Topology::trusted(crate::Layout::Csr, 3, vec![0u64, 2, 1, 3].into(), vec![1u32, 2, 0].into());
    let damaged = Graph::homogeneous(damaged.unwrap()).unwrap();
    assert!(matches!(Outgoing::of(&damaged, &Silent), Err(Error::FallingOffsets { .. })));
    assert!(matches!(Outgoing::of_sampling(&damaged, &Silent), Err(Error::FallingOffsets { .. })));
}

fn run_of(graph: Graph, fanouts: &[i64], train: Vec<u64>, batch: usize) -> crate::Result<Workload> {
    let mut lists = vec![Vec::new(); graph.schema().node_types().len()];
    lists[0] = train;
    let options = SampleOptions::fanouts(fanouts).unwrap();
    Workload::new(graph, Training { train: lists, batch, options, seed: 3 })
}

#[test]
fn no_order_serves_more_than_that_of_the_counts_themselves() {
    for graph in [tangle(600, 4), citations(2)] {
        let run = run_of(graph, &[3, 3], (0..30).collect(), 8).unwrap();
        let outgoing = Outgoing::of_sampling(run.graph(), &Silent).unwrap();
        let reads = run.reads(Purpose::Measurement, 12, &Silent).unwrap();
        let served = |scores: &NodeScores| -> Vec<Vec<u64>> {
            let order = hottest_first(scores).unwrap();
            let sums = |(order, reads): (&Permutation, &Vec<u64>)| {
                let add = |sum: &mut u64, read: u64| {
                    *sum += read;
                    Some(*sum)
                };
                in_order(order, reads).scan(0, add).collect::<Vec<u64>>()
            };
            order.iter().zip(&reads.counts).map(sums).collect()
        };
        let oracle = served(&reads.counts);
        for score in Score::ALL {
            let found = served(&score.of(&run, &outgoing, 6, &Silent).unwrap());
            for (found, oracle) in found.concat().iter().zip(oracle.concat()) {
                assert!(*found <= oracle, "{}", score.name());
            }
            let ends = |sums: &[Vec<u64>]| sums.iter().map(|sums| sums.last().copied()).collect::<Vec<_>>();
            assert_eq!(ends(&found), ends(&oracle), "{}", score.name());
        }
    }
}

#[test]
fn batches_are_drawn_for_a_purpose_epoch_after_epoch() {
    // Without hops a batch reads its seeds, so an epoch reads each training node once.
    let run = run_of(tangle(100, 4), &[], (0..30).collect(), 8).unwrap();
    assert_eq!(run.batches_per_epoch(), 4);
    for (batches, most, nodes) in [(4, 1, 30), (8, 2, 60), (2, 1, 16), (6, 2, 46)] {
        let reads = run.reads(Purpose::Scoring, batches, &Silent).unwrap();
        assert_eq!((reads.batches, reads.nodes), (batches, nodes));
        assert_eq!(reads.counts[0][..30].iter().max(), Some(&most));
        assert_eq!(reads.counts[0][30..].iter().sum::<u64>(), 0);
    }
    let drawn = |purpose| run.reads(purpose, 2, &Silent).unwrap();
    assert_eq!(drawn(Purpose::Scoring), drawn(Purpose::Scoring));
    assert_ne!(drawn(Purpose::Scoring), drawn(Purpose::Measurement));
    assert_ne!(drawn(Purpose::Forecast), drawn(Purpose::Measurement));
    let deeper = run.with_options(SampleOptions::fanouts(&[2]).unwrap()).unwrap();
    assert!(deeper.reads(Purpose::Scoring, 2, &Silent).unwrap().nodes > 16);
}

#[test]
fn seeds_of_all_types_take_part() {
    let graph = citations(2);
    let train: Vec<Vec<u64>> =
        graph.schema().node_types().iter().map(|node_type| (0..node_type.count.min(20)).collect()).collect();
    let options = SampleOptions::fanouts(&[]).unwrap();
    let run = Workload::new(graph, Training { train: train.clone(), batch: 4, options, seed: 1 }).unwrap();
    let reads = run.reads(Purpose::Forecast, run.batches_per_epoch(), &Silent).unwrap();
    for (counts, train) in reads.counts.iter().zip(&train) {
        assert_eq!(counts.iter().sum::<u64>(), train.len() as u64);
        assert!(counts.iter().all(|&count| count <= 1));
    }
}

#[test]
fn runs_that_cannot_be_are_errors() {
    let refused = |train: Vec<u64>, batch: usize| run_of(tangle(20, 1), &[2], train, batch).unwrap_err();
    assert!(matches!(refused(vec![], 4), Error::Options { .. }));
    assert!(matches!(refused(vec![1], 0), Error::Parameter { .. }));
    assert!(matches!(refused(vec![1, 20], 4), Error::IdOutOfRange { position: 1, id: 20, limit: 20, .. }));
    let options = SampleOptions::fanouts(&[2]).unwrap();
    let lists = Training { train: vec![], batch: 1, options, seed: 0 };
    assert!(matches!(Workload::new(tangle(20, 1), lists), Err(Error::Length { .. })));
}
