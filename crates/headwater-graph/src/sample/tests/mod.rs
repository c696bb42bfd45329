//! The samplers against plain references, against their distributions, and against themselves on other threads.
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

mod distribution;
mod links;
pub(in crate::sample) mod property;
mod reference;
mod walks;

use std::sync::LazyLock;

use headwater_cuda::Stream;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::*;
use crate::random::mix;
use crate::schema::{NodeType, Relation, Schema};
use crate::topology::RowOrder;
use crate::{Column, Graph, Ids, Layout, PlacedGraph, Storage, Topology, Wish};

/// A topology from lists.
pub(in crate::sample) fn lists(columns: u64, rows: &[Vec<u32>]) -> Topology {
    let mut offsets = vec![0u64];
    rows.iter().for_each(|row| offsets.push(offsets[offsets.len() - 1] + row.len() as u64));
    Topology::new(Layout::Csc, columns, offsets.into(), rows.concat().into()).unwrap()
}

/// One row with so many neighbours: node 0 is next to all others.
fn star(degree: u32) -> Graph {
    let mut rows = vec![(1..=degree).collect::<Vec<u32>>()];
    rows.resize(degree as usize + 1, Vec::new());
    Graph::homogeneous(lists(u64::from(degree) + 1, &rows)).unwrap()
}

/// Random lists with isolated nodes, self-loops, multi-edges and hubs.
pub(crate) fn tangle(nodes: u64, seed: u64) -> Graph {
    Graph::homogeneous(tangled(nodes, nodes, seed)).unwrap()
}

pub(in crate::sample) fn tangled(rows: u64, columns: u64, seed: u64) -> Topology {
    let mut edges = 0u64;
    let mut row = |at: u64| -> Vec<u32> {
        let degree = match mix(seed ^ at) % 8 {
            _ if columns == 0 => 0,
            0 | 1 => 0,
            2 => 1,
            3 => 40,
            4 if at.is_multiple_of(5) => 300,
            _ => mix(seed ^ at ^ 99) % 20,
        };
        (0..degree)
            .map(|_| {
                edges += 1;
                u32::try_from(mix(seed.wrapping_add(edges << 20)) % columns).unwrap()
            })
            .collect()
    };
    lists(columns, &(0..rows).map(&mut row).collect::<Vec<_>>())
}

/// Three types, four relations, one of them empty, one within a type.
pub(crate) fn citations(seed: u64) -> Graph {
    let node_types = [("paper", 60), ("author", 25), ("field", 0)];
    let relations = [(0, "cites", 0), (1, "writes", 0), (0, "written", 1), (2, "names", 0)];
    let counts = node_types.map(|(_, count)| count);
    let node_types = node_types.map(|(name, count)| NodeType { name: name.into(), count });
    let topologies = relations.iter().enumerate();
    let topologies = topologies
        .map(|(at, &(source, _, target))| tangled(counts[target], counts[source], seed + at as u64))
        .collect();
    let relations = relations.map(|(source, name, target)| Relation { source, name: name.into(), target });
    Graph::new(Schema::new(node_types.into(), relations.into()).unwrap(), topologies).unwrap()
}

/// Random graphs of one type in every width, layout and order of rows, and those with a hub, without edges, without
/// nodes.
pub(in crate::sample) fn shapes(nodes: u64) -> Vec<Topology> {
    let plain = tangled(nodes, nodes, 7);
    let wide = Ids::from(plain.neighbours().iter().collect::<Vec<u64>>());
    let wide = Topology::new(Layout::Csr, nodes, plain.offsets().clone(), wide).unwrap();
    let sorted = |topology: &Topology| topology.sorted(RowOrder::Neighbour, crate::lane::EdgeIds::Kept).unwrap();
    let (near, far) = (sorted(&plain), sorted(&wide));
    vec![plain, wide, near, far, star(5000).relation(0).clone(), lists(3, &[vec![], vec![], vec![]]), lists(0, &[])]
}

/// Graphs whose files were damaged: offsets that fall, that lead out of the lists, and neighbours that are none.
pub(in crate::sample) fn damaged() -> [Topology; 3] {
    let trusted = |offsets: Vec<u64>, neighbours: Vec<u32>| {
        Topology::trusted(Layout::Csc, 3, offsets.into(), neighbours.into()).unwrap()
    };
    [
        trusted(vec![0, 2, 1, 3], vec![1, 2, 0]),
        trusted(vec![0, 9, 2, 3], vec![1, 2, 0]),
        trusted(vec![0, 1, 2, 4], vec![7, 2, 1, u32::MAX]),
    ]
}

/// A relation where the GPU reads it.
pub(in crate::sample) fn on_gpu(stream: &Stream, topology: &Topology, storage: Storage) -> GpuRelation {
    let node_types = [topology.rows(), topology.columns()].into_iter().zip(["row", "column"]);
    let node_types = node_types.map(|(count, name)| NodeType { name: name.into(), count }).collect();
    let (source, target) = if topology.layout() == Layout::Csc { (1, 0) } else { (0, 1) };
    let schema = Schema::new(node_types, vec![Relation { source, name: "to".into(), target }]).unwrap();
    let graph = Graph::new(schema, vec![topology.clone()]).unwrap();
    GpuRelation::new(&PlacedGraph::new(&graph, Wish::In(storage), Some(stream.gpu())).unwrap(), 0).unwrap()
}

/// A sample, which is the same from one thread and from three.
fn run(graph: &Graph, options: &SampleOptions, seeds: Seeds<'_>, key: Key) -> Sample {
    static THREE: LazyLock<ThreadPool> = LazyLock::new(|| ThreadPoolBuilder::new().num_threads(3).build().unwrap());
    let sampler = NeighbourSampler::new(graph.clone(), options.clone()).unwrap();
    let alone = sampler.sample_alone(seeds, key).unwrap();
    assert_eq!(THREE.install(|| sampler.sample(seeds, key).unwrap()), alone);
    alone
}

/// A number that changes when anything in a sample does.
pub(in crate::sample) fn hash(sample: &Sample) -> u64 {
    let mut hash = 0;
    let mut add = |value: u64| hash = mix(hash ^ value).wrapping_add(1);
    for nodes in &sample.nodes {
        nodes.ids.iter().for_each(|&id| add(id));
        nodes.trees.iter().flatten().for_each(|&tree| add(u64::from(tree)));
        nodes.per_hop.iter().for_each(|&count| add(count as u64));
    }
    for edges in &sample.edges {
        edges.row.iter().chain(&edges.col).for_each(|&number| add(u64::from(number)));
        edges.ids.iter().flatten().for_each(|&id| add(id));
        edges.per_hop.iter().for_each(|&count| add(count as u64));
    }
    hash
}

#[test]
fn fan_out_beyond_the_degree_is_breadth_first_search() {
    // 0 <- 1, 2; 1 <- 3, 0; 2 <- 3.
    let graph = Graph::homogeneous(lists(4, &[vec![1, 2], vec![3, 0], vec![3], vec![]])).unwrap();
    for numbers in [[-1, -1], [9, 9]] {
        let options = SampleOptions::fanouts(&numbers).unwrap();
        let sample = run(&graph, &options, Seeds::of(&[0]), Key::new(1));
        assert_eq!((&sample.nodes[0].ids, &sample.nodes[0].per_hop), (&vec![0, 1, 2, 3], &vec![1, 2, 1]));
        let edges = &sample.edges[0];
        assert_eq!((&edges.row, &edges.col), (&vec![1, 2, 3, 0, 3], &vec![0, 0, 1, 1, 2]));
        assert_eq!((edges.ids.as_ref().unwrap(), &edges.per_hop), (&vec![0, 1, 2, 3, 4], &vec![2, 3]));
        let blocks = sample.blocks();
        let sizes = |block: &Block| (block.sources[0], block.targets[0], block.edges[0].clone());
        assert_eq!(blocks.iter().map(sizes).collect::<Vec<_>>(), [(4, 3, 0..5), (3, 1, 0..2)]);
    }
}

#[test]
fn seeds_stand_first_and_twice_when_given_twice() {
    let graph = tangle(50, 3);
    let seeds = [7, 3, 7, 49];
    let sample = run(&graph, &SampleOptions::fanouts(&[3, 2]).unwrap(), Seeds::of(&seeds), Key::new(5));
    assert_eq!(sample.nodes[0].ids[..4], seeds);
    assert_eq!(sample.nodes[0].per_hop[0], 4);
    let of = |col: u32| {
        let edges = &sample.edges[0];
        let rows = edges.col.iter().zip(&edges.row).filter(move |(c, _)| **c == col);
        rows.map(|(_, &row)| row).collect::<Vec<_>>()
    };
    assert!(!of(0).is_empty());
    assert_eq!(of(0), of(2));
}

#[test]
fn bad_seeds_and_options_are_named() {
    use crate::Error;
    let sampler = |options| NeighbourSampler::new(tangle(50, 3), options);
    let plain = SampleOptions::fanouts(&[2]).unwrap();
    let bad = sampler(plain.clone()).unwrap().sample(Seeds::of(&[1, 50]), Key::new(1));
    assert!(matches!(bad, Err(Error::IdOutOfRange { name: "seeds", position: 1, id: 50, limit: 50 })));
    assert!(matches!(SampleOptions::fanouts(&[-2]), Err(Error::Fanout { number: -2 })));
    let two = SampleOptions { fanouts: vec![vec![Fanout::All; 2]], ..plain.clone() };
    assert!(matches!(sampler(two), Err(Error::Length { found: 2, expected: 1, .. })));
    let weighted = SampleOptions { bias: Bias::Weights, ..plain.clone() };
    assert!(matches!(sampler(weighted), Err(Error::NoWeights { .. })));
    let timed = Seeds { times: Some(&[1]), ..Seeds::of(&[1]) };
    assert!(matches!(sampler(plain.clone()).unwrap().sample(timed, Key::new(1)), Err(Error::Options { .. })));
    let disjoint = SampleOptions { trees: Trees::Disjoint, ..plain };
    let short = Seeds { times: Some(&[1]), ..Seeds::of(&[1, 2]) };
    assert!(matches!(sampler(disjoint).unwrap().sample(short, Key::new(1)), Err(Error::Length { .. })));
}

#[test]
fn damaged_lists_are_errors_not_crashes() {
    let trusted = |offsets: Vec<u64>, neighbours: Vec<u32>| {
        let topology = Topology::trusted(Layout::Csc, 3, offsets.into(), neighbours.into()).unwrap();
        let sampler =
            NeighbourSampler::new(Graph::homogeneous(topology).unwrap(), SampleOptions::fanouts(&[5, 5]).unwrap());
        sampler.unwrap().sample_alone(Seeds::of(&[0, 1, 2]), Key::new(1))
    };
    assert!(matches!(trusted(vec![0, 1, 2, 2], vec![7, 1]), Err(crate::Error::IdOutOfRange { id: 7, .. })));
    assert!(matches!(trusted(vec![0, 9, 2, 2], vec![1, 1]), Err(crate::Error::FallingOffsets { .. })));
}

/// The first fault in the order of the sample is the one that is told, however many threads look for it.
#[test]
fn threads_find_the_same_fault() {
    let nodes = 4000u64;
    let offsets: Vec<u64> = (0..=nodes).map(|row| if row == 3500 { 9 } else { row * 3 }).collect();
    let pool = ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let seeds: Vec<u64> = (0..nodes).collect();
    for damaged in [vec![], vec![2500], vec![9000, 2500], vec![11_990]] {
        let mut neighbours: Vec<u32> = (0..nodes * 3).map(|at| (mix(at) % nodes) as u32).collect();
        damaged.iter().for_each(|&at| neighbours[at] = u32::MAX - at as u32);
        let topology = Topology::trusted(Layout::Csc, nodes, offsets.clone().into(), neighbours.into()).unwrap();
        let graph = Graph::homogeneous(topology).unwrap();
        let sampler = NeighbourSampler::new(graph, SampleOptions::fanouts(&[3]).unwrap()).unwrap();
        let alone = sampler.sample_alone(Seeds::of(&seeds), Key::new(1)).unwrap_err().to_string();
        for _ in 0..5 {
            let together = pool.install(|| sampler.sample(Seeds::of(&seeds), Key::new(1)));
            assert_eq!(together.unwrap_err().to_string(), alone);
        }
    }
}

/// Samples may never change: a checkpoint resumes in the middle of an epoch.
#[test]
fn golden_samples() {
    let found = golden_cases()
        .map(|(graph, options, seeds)| hash(&run(&graph, &options, Seeds::of(&seeds), batch_key(1, 2, 3))));
    assert_eq!(found, GOLDEN);
}

/// Graphs, options and seeds whose samples are known.
pub(in crate::sample) fn golden_cases() -> [(Graph, SampleOptions, Vec<u64>); 5] {
    let tangle = tangle(300, 11);
    let seeds: Vec<u64> = (0..40).map(|i| mix(i) % 300).collect();
    let plain = SampleOptions::fanouts(&[5, 3, 2]).unwrap();
    let with = SampleOptions { replacement: Replacement::With, ..plain.clone() };
    let disjoint = SampleOptions { trees: Trees::Disjoint, ..plain.clone() };
    let by_weight = SampleOptions { bias: Bias::Weights, ..plain.clone() };
    let weights: Vec<f32> = (0..tangle.edges()).map(|i| (mix(i) % 5) as f32).collect();
    let weighted = tangle.relation(0).clone().with_weights(weights.into()).unwrap();
    [
        (tangle.clone(), plain.clone(), seeds.clone()),
        (tangle.clone(), with, seeds.clone()),
        (tangle, disjoint, seeds.clone()),
        (citations(5), plain, vec![1, 2, 3, 59]),
        (Graph::homogeneous(weighted).unwrap(), by_weight, seeds),
    ]
}

pub(in crate::sample) const GOLDEN: [u64; 5] = [
    7_294_198_599_040_669_881,
    18_252_140_661_423_382_176,
    7_163_942_831_688_562_135,
    2_111_962_724_677_304_455,
    3_584_280_754_479_390_343,
];

/// What is drawn with replacement can be larger than any memory; an allocation that fails would end the process.
#[test]
fn a_hop_that_cannot_be_held_is_refused() {
    use crate::Error;

    let options = SampleOptions::fanouts(&[i64::from(u32::MAX)]).unwrap();
    let with = SampleOptions { replacement: Replacement::With, ..options.clone() };
    let seeds = vec![0; 100_000];
    for threads in [1, 4] {
        let sample = |options: &SampleOptions, nodes: &[u64]| {
            let sampler = NeighbourSampler::new(star(4), options.clone()).unwrap();
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| sampler.sample(Seeds::of(nodes), Key::new(1)))
        };
        let found = sample(&with, &seeds);
        assert!(matches!(found, Err(Error::HopTooLarge { .. })), "{found:?}");
        assert_eq!(sample(&options, &[0]).unwrap().edges[0].row.len(), 4, "without it there are as many as there are");
    }
}
