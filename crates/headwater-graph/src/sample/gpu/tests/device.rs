//! What runs on a GPU, real or emulated: every sample is compared with the CPU's, field by field.

use headwater_cuda::Stream;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::GpuNeighbourSampler;
use crate::random::{Key, mix};
use crate::sample::tests::{GOLDEN, citations, golden_cases, hash, tangle};
use crate::sample::*;
use crate::testing::stream;
use crate::{Column, Error, Graph, Ids, Layout, NodeType, PlacedGraph, Relation, Schema, Storage, Topology, Wish};

fn sampler(stream: &Stream, graph: &Graph, options: &SampleOptions, storage: Storage) -> GpuNeighbourSampler {
    let placed = PlacedGraph::new(graph, Wish::In(storage), Some(stream.gpu())).unwrap();
    GpuNeighbourSampler::new(placed, options.clone()).unwrap()
}

fn gpu(stream: &Stream, graph: &Graph, options: &SampleOptions, seeds: &[Seeds<'_>], key: Key) -> Sample {
    let sampler = sampler(stream, graph, options, Storage::Cuda);
    sampler.sample_types(stream, seeds, key).unwrap().to_host().unwrap()
}

fn agrees(stream: &Stream, graph: &Graph, options: &SampleOptions, seeds: &[Seeds<'_>], key: Key) {
    let cpu = NeighbourSampler::new(graph.clone(), options.clone()).unwrap().sample_types(seeds, key).unwrap();
    for visit in [Visit::AsFound, Visit::ByAddress] {
        let sampler = sampler(stream, graph, options, Storage::Cuda).visiting(visit);
        let sample = sampler.sample_types(stream, seeds, key).unwrap().to_host().unwrap();
        assert_eq!(sample, cpu, "{visit:?} {options:?} {seeds:?}");
    }
}

#[test]
fn golden_samples() {
    let Some(stream) = stream() else { return };
    let run = |(graph, options, seeds): &(Graph, SampleOptions, Vec<u64>)| {
        hash(&gpu(&stream, graph, options, &[Seeds::of(seeds)], batch_key(1, 2, 3)))
    };
    assert_eq!(golden_cases().iter().map(run).collect::<Vec<_>>(), GOLDEN);
}

#[test]
fn every_fan_out_of_one_type() {
    let Some(stream) = stream() else { return };
    let graph = tangle(80, 4);
    let seeds: Vec<u64> = (0..20).map(|i| mix(i) % 40).collect();
    for numbers in [&[][..], &[0], &[1], &[5, 0, 3], &[35, 2], &[-1, 1], &[3, -1], &[70, 40]] {
        for trees in [Trees::Shared, Trees::Disjoint] {
            for replacement in [Replacement::Without, Replacement::With] {
                let options = SampleOptions { trees, replacement, ..SampleOptions::fanouts(numbers).unwrap() };
                agrees(&stream, &graph, &options, &[Seeds::of(&seeds)], Key::new(7));
            }
        }
    }
}

#[test]
fn many_types() {
    let Some(stream) = stream() else { return };
    let fanouts = |numbers: &[i64]| numbers.iter().map(|&n| Fanout::from_number(n).unwrap()).collect::<Vec<_>>();
    for seed in 0..4 {
        let graph = citations(seed);
        let plain = SampleOptions::fanouts(&[4, 3, 2]).unwrap();
        let differing = vec![fanouts(&[2, 0, 35, 1]), fanouts(&[-1, 3, 4, 1]), fanouts(&[0, 1, 0, 9])];
        let differing = SampleOptions { fanouts: differing, edge_ids: EdgeIds::Dropped, ..plain.clone() };
        let disjoint = SampleOptions { trees: Trees::Disjoint, ..plain.clone() };
        let papers = Seeds::of(&[1, 2, 59, 2]);
        let authors = Seeds { node_type: 1, ..Seeds::of(&[24, 0, 24]) };
        let more = Seeds::of(&[5, 1]);
        for options in [&plain, &differing, &disjoint] {
            for seeds in [&[papers][..], &[authors], &[authors, papers, more], &[], &[Seeds::of(&[]), authors]] {
                agrees(&stream, &graph, options, seeds, Key::new(seed));
            }
        }
    }
}

#[test]
fn random_options() {
    let Some(stream) = stream() else { return };
    let mut runner = TestRunner::new(Config { cases: 30, failure_persistence: None, ..Config::default() });
    let cases = (crate::sample::tests::property::options(), 0u64..1000, prop::collection::vec(0u64..25, 0..12));
    let outcome = runner.run(&cases, |(options, seed, wanted)| {
        let key = batch_key(seed, 1, 2);
        agrees(&stream, &tangle(30, seed), &options, &[Seeds::of(&wanted)], key);
        agrees(&stream, &citations(seed), &options, &[Seeds { node_type: 1, ..Seeds::of(&wanted) }], key);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn damaged_lists_are_the_same_errors() {
    let Some(stream) = stream() else { return };
    let trusted = |offsets: Vec<u64>, neighbours: Vec<u32>| {
        let topology = Topology::trusted(Layout::Csc, 3, offsets.into(), neighbours.into()).unwrap();
        let options = SampleOptions::fanouts(&[5, 5]).unwrap();
        let sampler = sampler(&stream, &Graph::homogeneous(topology).unwrap(), &options, Storage::Cuda);
        sampler.sample(&stream, Seeds::of(&[0, 1, 2]), Key::new(1)).map(|sample| sample.to_host())
    };
    let bad = trusted(vec![0, 1, 2, 2], vec![7, 1]).unwrap_err();
    assert!(matches!(bad, Error::IdOutOfRange { name: "neighbours", position: 0, id: 7, limit: 3 }), "{bad}");
    let bad = trusted(vec![0, 9, 2, 2], vec![1, 1]).unwrap_err();
    assert!(matches!(bad, Error::FallingOffsets { .. }), "{bad}");
}

#[test]
fn weights_and_times() {
    let Some(stream) = stream() else { return };
    let plain = tangle(60, 9);
    let topology = plain.relation(0);
    let weights: Vec<f32> = (0..plain.edges()).map(|i| (mix(i) % 4) as f32 * 0.3).collect();
    let weighted = Graph::homogeneous(topology.clone().with_weights(weights.into()).unwrap()).unwrap();
    let times: Vec<i64> = (0..60).flat_map(|row| (0..topology.degree(row) as i64).map(|at| at * 3)).collect();
    let timed = topology.clone().with_times(times.into()).unwrap().with_order(crate::topology::RowOrder::Time);
    let timed = Graph::homogeneous(timed).unwrap();
    let seeds: Vec<u64> = (0..12).map(|i| mix(i) % 60).collect();
    let limits: Vec<i64> = (0..12).map(|i| i * 5 - 3).collect();
    let in_time = Seeds { times: Some(&limits), ..Seeds::of(&seeds) };
    for numbers in [&[4, 3][..], &[-1, 2], &[35, 1]] {
        let options = SampleOptions::fanouts(numbers).unwrap();
        for replacement in [Replacement::Without, Replacement::With] {
            let options = SampleOptions { bias: Bias::Weights, replacement, ..options.clone() };
            agrees(&stream, &weighted, &options, &[Seeds::of(&seeds)], Key::new(3));
        }
        let disjoint = SampleOptions { trees: Trees::Disjoint, ..options };
        let last = SampleOptions { recency: Recency::Last, ..disjoint.clone() };
        let with = SampleOptions { replacement: Replacement::With, ..disjoint.clone() };
        for options in [&disjoint, &last, &with] {
            agrees(&stream, &timed, options, &[in_time], Key::new(4));
            agrees(&stream, &timed, options, &[Seeds::of(&seeds)], Key::new(4));
        }
    }
}

#[test]
fn wide_ids_and_pinned_arrays() {
    let Some(stream) = stream() else { return };
    let graph = tangle(200, 2);
    let topology = graph.relation(0);
    let wide = Ids::from(topology.neighbours().iter().collect::<Vec<u64>>());
    let wide = Topology::new(Layout::Csr, 200, topology.offsets().clone(), wide).unwrap();
    let named = |ids: Ids| Graph::homogeneous(wide.clone().with_edge_ids(ids).unwrap()).unwrap();
    let far: Column<u64> = (0..topology.edges()).map(|at| at * 7 + (1 << 40)).collect::<Vec<_>>().into();
    let near: Vec<u32> = (0..topology.edges()).map(|at| mix(at) as u32).collect();
    let options = SampleOptions::fanouts(&[4, 40]).unwrap();
    for graph in [named(Ids::U64(far)), named(near.into())] {
        let cpu = NeighbourSampler::new(graph.clone(), options.clone()).unwrap();
        let cpu = cpu.sample(Seeds::of(&[1, 2, 3]), Key::new(1)).unwrap();
        for storage in [Storage::Cuda, Storage::ZeroCopy] {
            let sampler = sampler(&stream, &graph, &options, storage);
            assert_eq!(sampler.placed().storage(), storage);
            let sample = sampler.sample(&stream, Seeds::of(&[1, 2, 3]), Key::new(1)).unwrap();
            assert_eq!(sample.to_host().unwrap(), cpu);
        }
    }
}

#[test]
fn keys_of_64_bits() {
    let Some(stream) = stream() else { return };
    let nodes = u64::from(u32::MAX) / 3;
    let node_types = [("few", 40), ("many", nodes)].map(|(name, count)| NodeType { name: name.into(), count });
    let relation = |source, target| Relation { source, name: "to".into(), target };
    let schema = Schema::new(node_types.into(), vec![relation(0, 0), relation(1, 0)]).unwrap();
    let lists: Vec<u32> = (0..400).map(|at| (mix(at) % nodes) as u32).collect();
    let offsets: Vec<u64> = (0..=40).map(|row| row * 10).collect();
    let many = Topology::new(Layout::Csc, nodes, offsets.into(), lists.into()).unwrap();
    let graph = Graph::new(schema, vec![tangle(40, 3).relation(0).clone(), many]).unwrap();
    let options = SampleOptions { trees: Trees::Disjoint, ..SampleOptions::fanouts(&[6, 4]).unwrap() };
    agrees(&stream, &graph, &options, &[Seeds::of(&[0, 1, 2, 0, 7])], Key::new(2));
}

#[test]
fn a_batch_that_finds_no_room_runs_again() {
    let Some(stream) = stream() else { return };
    let (graph, options) = (tangle(80, 4), SampleOptions::fanouts(&[-1, -1]).unwrap());
    let seeds = [3, 4, 5, 6];
    let cpu = NeighbourSampler::new(graph.clone(), options.clone()).unwrap();
    let cpu = cpu.sample(Seeds::of(&seeds), Key::new(1)).unwrap();
    for visit in [Visit::AsFound, Visit::ByAddress] {
        let sampler = sampler(&stream, &graph, &options, Storage::Cuda).visiting(visit);
        sampler.room.store(2, std::sync::atomic::Ordering::Relaxed);
        let sample = sampler.sample(&stream, Seeds::of(&seeds), Key::new(1)).unwrap().to_host().unwrap();
        assert!(sampler.room.load(std::sync::atomic::Ordering::Relaxed) >= 16);
        assert_eq!(sample, cpu, "{visit:?}");
    }
}

#[test]
fn batches_that_are_begun_are_the_same_when_they_are_finished() {
    let Some(stream) = stream() else { return };
    let (graph, options) = (tangle(80, 4), SampleOptions::fanouts(&[5, 3]).unwrap());
    let sampler = sampler(&stream, &graph, &options, Storage::Cuda);
    let (seeds, others): (Vec<u64>, Vec<u64>) = ((0..20).collect(), (20..33).collect());
    let key = Key::new(7);
    let [first, second] = [&seeds, &others].map(|nodes| sampler.begin(&stream, Seeds::of(nodes), key).unwrap());
    // One that nobody waits for does no harm.
    drop(sampler.begin(&stream, Seeds::of(&others), Key::new(8)).unwrap());
    let cpu = NeighbourSampler::new(graph.clone(), options).unwrap();
    for (begun, nodes) in [(second, &others), (first, &seeds)] {
        let found = begun.finish().unwrap().to_host().unwrap();
        assert_eq!(found, cpu.sample(Seeds::of(nodes), key).unwrap());
    }
    // Without room for the edges of a hop it is drawn again.
    let all = SampleOptions::fanouts(&[-1, -1]).unwrap();
    let sampler = self::sampler(&stream, &graph, &all, Storage::Cuda);
    sampler.room.store(4, std::sync::atomic::Ordering::Relaxed);
    let begun = sampler.begin(&stream, Seeds::of(&seeds), key).unwrap();
    let expected = NeighbourSampler::new(graph, all).unwrap().sample(Seeds::of(&seeds), key).unwrap();
    assert_eq!(begun.finish().unwrap().to_host().unwrap(), expected);
    assert!(sampler.room.load(std::sync::atomic::Ordering::Relaxed) > 4);
}

#[test]
fn seeds_and_graphs_that_do_not_fit_are_errors() {
    let Some(stream) = stream() else { return };
    let (graph, options) = (tangle(50, 3), SampleOptions::fanouts(&[2]).unwrap());
    let sampler = sampler(&stream, &graph, &options, Storage::Cuda);
    let bad = sampler.sample(&stream, Seeds::of(&[1, 50]), Key::new(1)).unwrap_err();
    assert!(matches!(bad, Error::IdOutOfRange { name: "seeds", position: 1, id: 50, limit: 50 }), "{bad}");
    let elsewhere = Seeds { node_type: 3, ..Seeds::of(&[1]) };
    assert!(matches!(sampler.sample(&stream, elsewhere, Key::new(1)), Err(Error::IdOutOfRange { id: 3, .. })));
    let on_host = PlacedGraph::new(&graph, Wish::In(Storage::Cpu), Some(stream.gpu())).unwrap();
    assert!(matches!(GpuNeighbourSampler::new(on_host, options), Err(Error::Options { .. })));
}

#[test]
fn excluded_edges_are_not_seen() {
    let Some(stream) = stream() else { return };
    let plain = SampleOptions::fanouts(&[6, 40, 3]).unwrap();
    let disjoint = SampleOptions { trees: Trees::Disjoint, ..plain.clone() };
    let nameless = SampleOptions { edge_ids: EdgeIds::Dropped, ..SampleOptions::fanouts(&[5, 4]).unwrap() };
    for (graph, relations) in [(tangle(60, 8), 1), (citations(3), 3)] {
        let some = |excluded: Excluded, at: usize| {
            let topology = graph.relation(at);
            let edges = (0..topology.rows()).flat_map(|row| topology.list(row).map(move |edge| (row, edge)));
            let edges = edges.filter(|(row, edge)| mix(row ^ *edge as u64).is_multiple_of(3));
            let (rows, neighbours): (Vec<u64>, Vec<u64>) =
                edges.map(|(row, edge)| (row, topology.neighbours().at(edge))).unzip();
            excluded.and(&graph, at, &neighbours, &rows)
        };
        let excluded = (0..relations).fold(Excluded::none(), some);
        for options in [&plain, &disjoint, &nameless] {
            let seeds = [Seeds::of(&[1, 2, 40, 2, 17, 33])];
            let cpu = NeighbourSampler::new(graph.clone(), options.clone()).unwrap();
            let cpu = cpu.sample_without(&seeds, &excluded, Key::new(6)).unwrap();
            let sampler = sampler(&stream, &graph, options, Storage::Cuda).visiting(Visit::ByAddress);
            let sample = sampler.sample_without(&stream, &seeds, &excluded, Key::new(6)).unwrap();
            assert_eq!(sample.to_host().unwrap(), cpu, "{options:?}");
            assert!(
                cpu.edge_count() > 0
                    && cpu != sampler.sample(&stream, seeds[0], Key::new(6)).unwrap().to_host().unwrap()
            );
        }
    }
}

#[test]
fn batches_of_many_tiles() {
    let Some(stream) = stream() else { return };
    let seeds = |count: u64, nodes: u64| (0..count).map(|i| mix(i) % nodes).collect::<Vec<u64>>();
    let shared = SampleOptions::fanouts(&[6, 4]).unwrap();
    agrees(&stream, &tangle(3000, 5), &shared, &[Seeds::of(&seeds(700, 3000))], Key::new(1));
    // More rows than buckets.
    agrees(&stream, &tangle(20_000, 5), &shared, &[Seeds::of(&seeds(300, 20_000))], Key::new(1));
    let disjoint = SampleOptions { trees: Trees::Disjoint, ..shared };
    agrees(&stream, &citations(2), &disjoint, &[Seeds::of(&seeds(400, 60))], Key::new(2));
}

#[test]
fn a_graph_spread_over_a_group() {
    let Some(stream) = stream() else { return };
    let plain = tangle(90, 6);
    let topology = plain.relation(0);
    let edges = topology.edges();
    let weights: Vec<f32> = (0..edges).map(|i| (mix(i) % 4) as f32 * 0.3).collect();
    let named = topology.clone().with_edge_ids((0..edges).map(|at| at * 3 + 1).collect::<Vec<u64>>().into()).unwrap();
    let weighted = Graph::homogeneous(named.with_weights(weights.into()).unwrap()).unwrap();
    let times: Vec<i64> = (0..90).flat_map(|row| (0..topology.degree(row) as i64).map(|at| at * 3)).collect();
    let timed = topology.clone().with_times(times.into()).unwrap().with_order(crate::topology::RowOrder::Time);
    let timed = Graph::homogeneous(timed).unwrap();
    let uniform = SampleOptions::fanouts(&[6, 40, 2]).unwrap();
    let by_weight = SampleOptions { bias: Bias::Weights, ..uniform.clone() };
    let in_time = SampleOptions { trees: Trees::Disjoint, ..uniform.clone() };
    let (nodes, limits) = ([3, 4, 50, 3], [5, 9, -1, 40]);
    let (now, then) = (Seeds::of(&nodes), Seeds { times: Some(&limits), ..Seeds::of(&nodes) });
    let cases = [(&weighted, &by_weight, now), (&timed, &in_time, then), (&citations(4), &uniform, now)];
    for (graph, options, seeds) in cases {
        let cpu = NeighbourSampler::new(graph.clone(), options.clone()).unwrap().sample(seeds, Key::new(8)).unwrap();
        for (members, block_log2) in [(1, 0), (3, 1)] {
            // One GPU stands for all members: what is tested is where everything lies.
            let group = vec![stream.gpu().clone(); members];
            let placed = PlacedGraph::spread(graph, &group, block_log2).unwrap().seen_from(stream.gpu()).unwrap();
            let sampler = GpuNeighbourSampler::new(placed, options.clone()).unwrap();
            let sample = sampler.sample(&stream, seeds, Key::new(8)).unwrap().to_host().unwrap();
            assert_eq!(sample, cpu, "{members} members, blocks of 2^{block_log2}");
        }
    }
    let group = vec![stream.gpu().clone(); 3];
    let placed = PlacedGraph::spread(&plain, &group, 1).unwrap();
    let around = GpuSubgraphs::new(placed.clone(), 1).unwrap().khop(&stream, now).unwrap().to_host().unwrap();
    assert_eq!(around, khop_subgraph(&plain, now, 1).unwrap());
    let negatives = GpuRelation::new(&placed, 0).unwrap().negative_edges(&stream, 3, Strictness::Loose, Key::new(1));
    assert!(matches!(negatives, Err(Error::Options { .. })), "walks and negatives read what is in one piece");
    assert!(PlacedGraph::spread(&plain, &[], 0).is_err());
    let whole = PlacedGraph::new(&plain, Wish::In(Storage::Cuda), Some(stream.gpu())).unwrap();
    assert!(matches!(whole.seen_from(stream.gpu()), Err(Error::Options { .. })));
}
