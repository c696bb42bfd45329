//! The same links through both.

/// What runs on a GPU, real or emulated.
mod device {
    use headwater_cuda::Stream;

    use crate::random::{Key, mix};
    use crate::sample::tests::{citations, tangle};
    use crate::sample::*;
    use crate::testing::stream;
    use crate::topology::RowOrder;
    use crate::{Error, Graph, PlacedGraph, Storage, Wish};

    const STRICT: Strictness = Strictness::Strict { trials: 3 };
    const NEGATIVES: [Negative; 5] = [
        Negative::None,
        Negative::Binary { amount: 1.5, strictness: Strictness::Loose },
        Negative::Binary { amount: 2.0, strictness: STRICT },
        Negative::Triplet { amount: 3, strictness: Strictness::Loose },
        Negative::Triplet { amount: 2, strictness: STRICT },
    ];

    fn sampler(stream: &Stream, graph: &Graph, options: &SampleOptions, storage: Storage) -> GpuNeighbourSampler {
        let placed = PlacedGraph::new(graph, Wish::In(storage), Some(stream.gpu())).unwrap();
        GpuNeighbourSampler::new(placed, options.clone()).unwrap()
    }

    /// Samples around some edges, with every kind of negatives, without the edges themselves.
    fn agrees(stream: &Stream, graph: &Graph, options: &SampleOptions, links: LinkSeeds<'_>, storage: Storage) {
        let cpu = NeighbourSampler::new(graph.clone(), options.clone()).unwrap();
        let gpu = sampler(stream, graph, options, storage);
        let excluded = Excluded::none().and(graph, links.relation, links.sources, links.targets);
        for negative in NEGATIVES {
            let made = gpu.sample_links(stream, links, negative, &excluded, Key::new(2)).unwrap().to_host().unwrap();
            assert_eq!(made, sample_links(&cpu, links, negative, &excluded, Key::new(2)).unwrap(), "{negative:?}");
        }
    }

    #[test]
    fn links_agree_with_the_cpu() {
        let Some(stream) = stream() else { return };
        let shared = SampleOptions::fanouts(&[4, 2]).unwrap();
        let disjoint = SampleOptions { trees: Trees::Disjoint, ..shared.clone() };
        let ends = |count: u64, nodes: u64, seed: u64| (0..count).map(|at| mix(at ^ seed) % nodes).collect::<Vec<_>>();
        for (graph, relation, nodes, storage) in
            [(tangle(50, 3), 0, [50, 50], Storage::Cuda), (citations(1), 1, [25, 60], Storage::ZeroCopy)]
        {
            let (sources, targets) = (ends(7, nodes[0], 1), ends(7, nodes[1], 9));
            let links = LinkSeeds { relation, sources: &sources, targets: &targets, times: None };
            for options in [&shared, &disjoint] {
                agrees(&stream, &graph, options, links, storage);
            }
            agrees(&stream, &graph, &disjoint, LinkSeeds { sources: &[], targets: &[], ..links }, storage);
        }
    }

    #[test]
    fn links_with_times_agree_with_the_cpu() {
        let Some(stream) = stream() else { return };
        let plain = tangle(60, 9);
        let topology = plain.relation(0);
        let times: Vec<i64> =
            (0..60).flat_map(|row| (0..topology.degree(row).cast_signed()).map(|at| at * 3)).collect();
        let timed = topology.clone().with_times(times.into()).unwrap().with_order(RowOrder::Time);
        let graph = Graph::homogeneous(timed).unwrap();
        let options = SampleOptions { trees: Trees::Disjoint, ..SampleOptions::fanouts(&[4, 3]).unwrap() };
        let links = LinkSeeds { relation: 0, sources: &[1, 2, 3], targets: &[40, 2, 7], times: Some(&[5, 30, -1]) };
        agrees(&stream, &graph, &options, links, Storage::Cuda);
    }

    #[test]
    fn bad_links_are_the_same_errors() {
        let Some(stream) = stream() else { return };
        let sampler = sampler(&stream, &tangle(60, 1), &SampleOptions::fanouts(&[2]).unwrap(), Storage::Cuda);
        let run = |links, negative| {
            sampler.sample_links(&stream, links, negative, &Excluded::none(), Key::new(1)).map(|_| ()).unwrap_err()
        };
        let good = LinkSeeds { relation: 0, sources: &[1, 2], targets: &[3, 4], times: None };
        assert!(matches!(run(LinkSeeds { relation: 1, ..good }, NEGATIVES[2]), Error::IdOutOfRange { id: 1, .. }));
        let outside = LinkSeeds { sources: &[1, 60], ..good };
        assert!(matches!(run(outside, NEGATIVES[4]), Error::IdOutOfRange { name: "seeds", id: 60, .. }));
        assert!(matches!(run(LinkSeeds { times: Some(&[1, 2]), ..good }, NEGATIVES[0]), Error::Options { .. }));
        let many = Negative::Triplet { amount: u32::MAX, strictness: STRICT };
        assert!(matches!(run(good, many), Error::SampleTooLarge));
    }
}
