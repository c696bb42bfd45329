//! Random graphs, random options: the sampler is the reference, on any number of threads, and never leaves the graph.

use proptest::prelude::*;

use super::*;

pub(in crate::sample) fn options() -> impl Strategy<Value = SampleOptions> {
    let numbers = prop::collection::vec(prop_oneof![Just(-1i64), 0i64..40], 0..4);
    (numbers, any::<bool>(), any::<bool>()).prop_map(|(numbers, with, disjoint)| SampleOptions {
        replacement: if with { Replacement::With } else { Replacement::Without },
        trees: if disjoint { Trees::Disjoint } else { Trees::Shared },
        ..SampleOptions::fanouts(&numbers.iter().map(|&n| n.min(35)).collect::<Vec<_>>()).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn one_type(options in options(), seed in 0u64..1000, wanted in prop::collection::vec(0u64..80, 0..20)) {
        let graph = tangle(80, seed);
        let key = batch_key(seed, 1, 2);
        let ours = run(&graph, &options, Seeds::of(&wanted), key);
        prop_assert_eq!(ours, reference::sample(&graph, &options, Seeds::of(&wanted), key));
    }

    #[test]
    fn many_types(options in options(), seed in 0u64..1000, wanted in prop::collection::vec(0u64..25, 0..9)) {
        let graph = citations(seed);
        let key = batch_key(seed, 1, 2);
        let seeds = Seeds { node_type: 1, ..Seeds::of(&wanted) };
        prop_assert_eq!(run(&graph, &options, seeds, key), reference::sample(&graph, &options, seeds, key));
    }

    #[test]
    fn time_is_never_ahead(seed in 0u64..1000, last in any::<bool>(), seeds in prop::collection::vec((0u64..80, 0i64..50), 1..9)) {
        let graph = tangle(80, seed);
        // Times rise along every row.
        let topology = graph.relation(0);
        let times: Vec<i64> = (0..80).flat_map(|row| (0..topology.degree(row) as i64).map(|at| at * 3)).collect();
        let topology = topology.clone().with_times(times.clone().into()).unwrap().with_order(crate::topology::RowOrder::Time);
        let graph = Graph::homogeneous(topology.clone()).unwrap();
        let options = SampleOptions {
            trees: Trees::Disjoint,
            recency: if last { Recency::Last } else { Recency::Any },
            ..SampleOptions::fanouts(&[4, 3]).unwrap()
        };
        let (nodes, limits): (Vec<u64>, Vec<i64>) = seeds.into_iter().unzip();
        let sample = run(&graph, &options, Seeds { times: Some(&limits), ..Seeds::of(&nodes) }, Key::new(seed));
        let (edges, trees) = (&sample.edges[0], sample.nodes[0].trees.as_ref().unwrap());
        for (&edge, &col) in edges.ids.as_ref().unwrap().iter().zip(&edges.col) {
            prop_assert!(times[edge as usize] <= limits[trees[col as usize] as usize]);
        }
        // Each row gives all that can be seen, or the fan-out; the last ones when asked.
        for (tree, &node) in nodes.iter().enumerate() {
            let seen = (0..topology.degree(node) as i64).filter(|at| at * 3 <= limits[tree]).count();
            let got: Vec<u64> = edges.ids.as_ref().unwrap().iter().zip(&edges.col)
                .filter(|(_, col)| **col == tree as u32).map(|(&edge, _)| edge - topology.list(node).start as u64).collect();
            prop_assert_eq!(got.len(), seen.min(4));
            if last {
                prop_assert_eq!(got, (seen.saturating_sub(4) as u64..seen as u64).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn any_number_of_threads() {
    let graph = tangle(20_000, 7);
    let seeds: Vec<u64> = (0..3000).map(|i| mix(i) % 20_000).collect();
    let targets: Vec<u64> = (0..200).collect();
    let first = |&row: &u64| graph.relation(0).neighbours().iter().nth(graph.relation(0).list(row).start).unwrap_or(0);
    let sources: Vec<u64> = targets.iter().map(first).collect();
    let excluded = Excluded::none().and(&graph, 0, &sources, &targets);
    for trees in [Trees::Shared, Trees::Disjoint] {
        let options = SampleOptions { trees, ..SampleOptions::fanouts(&[6, 4]).unwrap() };
        let sampler = NeighbourSampler::new(graph.clone(), options).unwrap();
        let with = |threads: usize| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let draw = || sampler.sample_without(&[Seeds::of(&seeds)], &excluded, Key::new(9)).unwrap();
            pool.install(draw)
        };
        let alone = with(1);
        assert!(alone.node_count() > 5000);
        for threads in [2, 3, 16, 100] {
            assert!(with(threads) == alone, "{threads} threads");
        }
    }
}

/// Trees times nodes beyond 32 bits.
#[test]
fn wide_keys_sample_the_same() {
    let (nodes, seeds) = (1u64 << 23, 600u64);
    let offsets: Vec<u64> = (0..=nodes).map(|row| row.min(5000) * 3).collect();
    let neighbours: Vec<u32> = (0..15_000).map(|at| (mix(at) % 5000) as u32).collect();
    let topology = Topology::new(Layout::Csc, nodes, offsets.into(), neighbours.into()).unwrap();
    let graph = Graph::homogeneous(topology).unwrap();
    let options = SampleOptions { trees: Trees::Disjoint, ..SampleOptions::fanouts(&[3, 2]).unwrap() };
    let seeds: Vec<u64> = (0..seeds).collect();
    let ours = run(&graph, &options, Seeds::of(&seeds), Key::new(4));
    assert_eq!(ours, reference::sample(&graph, &options, Seeds::of(&seeds), Key::new(4)));
}

#[test]
fn wide_ids_sample_the_same() {
    let graph = tangle(300, 2);
    let topology = graph.relation(0);
    let wide = Ids::from(topology.neighbours().iter().collect::<Vec<u64>>());
    let ids: Column<u64> = (0..topology.edges()).map(|at| at * 7 + (1 << 40)).collect::<Vec<_>>().into();
    let wide = Topology::new(Layout::Csc, 300, topology.offsets().clone(), wide).unwrap();
    let wide = Graph::homogeneous(wide.with_edge_ids(Ids::U64(ids)).unwrap()).unwrap();
    let options = SampleOptions::fanouts(&[4, 4]).unwrap();
    let (narrow, mut wide) = (
        run(&graph, &options, Seeds::of(&[1, 2, 3]), Key::new(1)),
        run(&wide, &options, Seeds::of(&[1, 2, 3]), Key::new(1)),
    );
    let ids = wide.edges[0].ids.take().unwrap();
    assert_eq!(ids, narrow.edges[0].ids.as_ref().unwrap().iter().map(|at| at * 7 + (1 << 40)).collect::<Vec<_>>());
    assert_eq!((narrow.edges[0].row.clone(), narrow.nodes), (wide.edges[0].row.clone(), wide.nodes));
}
