//! The same subgraphs through both.

/// What runs on a GPU, real or emulated.
mod device {
    use headwater_cuda::Stream;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use crate::random::mix;
    use crate::sample::tests::{citations, damaged, shapes, tangle};
    use crate::sample::{GpuSubgraphs, Seeds, induced_subgraph, khop_subgraph};
    use crate::testing::stream;
    use crate::{Error, Graph, Ids, Layout, NodeType, PlacedGraph, Relation, Schema, Storage, Topology, Wish};

    fn on_gpu(stream: &Stream, graph: &Graph, storage: Storage, hops: usize) -> GpuSubgraphs {
        let placed = PlacedGraph::new(graph, Wish::In(storage), Some(stream.gpu())).unwrap();
        GpuSubgraphs::new(placed, hops).unwrap()
    }

    fn agrees(stream: &Stream, graph: &Graph, storage: Storage, nodes: &[&[u64]]) {
        let gpu = on_gpu(stream, graph, storage, 0).induced(stream, nodes).unwrap().to_host().unwrap();
        assert!(gpu == induced_subgraph(graph, nodes).unwrap(), "{nodes:?} in {storage}");
    }

    #[test]
    fn shapes_of_one_type() {
        let Some(stream) = stream() else { return };
        let healthy = shapes(80).into_iter().map(|topology| Graph::homogeneous(topology).unwrap());
        // A neighbour that is no node is in no subgraph.
        let [.., strange] = damaged();
        let named = tangle(60, 3).relation(0).clone();
        let ids: Vec<u64> = (0..named.edges()).map(|at| at * 7 + (1 << 40)).collect();
        let named = named.with_edge_ids(Ids::from(ids)).unwrap();
        for graph in healthy.chain([strange, named].map(|topology| Graph::homogeneous(topology).unwrap())) {
            let count = graph.nodes();
            let all: Vec<u64> = (0..count).rev().collect();
            let some: Vec<u64> = (0..70.min(count * 70)).map(|at| mix(at) % count).collect();
            for (nodes, storage) in
                [(&all, Storage::Cuda), (&some, Storage::Cuda), (&some, Storage::ZeroCopy), (&vec![], Storage::Cuda)]
            {
                agrees(&stream, &graph, storage, &[nodes]);
            }
        }
    }

    #[test]
    fn random_nodes_of_many_types() {
        let Some(stream) = stream() else { return };
        let graphs: Vec<Graph> = (0..3).map(citations).collect();
        let list = |nodes: u64| prop::collection::vec(0..nodes, 0..40);
        let mut runner = TestRunner::new(Config { cases: 20, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&(0usize..3, list(60), list(25)), |(at, papers, authors)| {
            agrees(&stream, &graphs[at], Storage::Cuda, &[&papers, &authors, &[]]);
            Ok(())
        });
        outcome.unwrap();
    }

    #[test]
    fn many_tiles() {
        let Some(stream) = stream() else { return };
        let nodes: Vec<u64> = (0..2500).map(|at| mix(at) % 3000).collect();
        agrees(&stream, &tangle(3000, 5), Storage::Cuda, &[&nodes]);
    }

    #[test]
    fn keys_of_64_bits() {
        let Some(stream) = stream() else { return };
        let many = 1u64 << 33;
        let node_types = [("few", 20), ("many", many)].map(|(name, count)| NodeType { name: name.into(), count });
        let relation = Relation { source: 1, name: "to".into(), target: 0 };
        let schema = Schema::new(node_types.into(), vec![relation]).unwrap();
        let lists: Vec<u64> = (0..200).map(|at| mix(at) % many).collect();
        let offsets: Vec<u64> = (0..=20).map(|row| row * 10).collect();
        let wanted = [lists[7], lists[150], 3, lists[7], many - 1];
        let topology = Topology::new(Layout::Csc, many, offsets.into(), lists.into()).unwrap();
        let graph = Graph::new(schema, vec![topology]).unwrap();
        agrees(&stream, &graph, Storage::Cuda, &[&[15, 0, 19, 0], &wanted]);
    }

    #[test]
    fn every_hop() {
        let Some(stream) = stream() else { return };
        let seeds = [3, 17, 3, 20];
        let authors = Seeds { node_type: 1, ..Seeds::of(&seeds) };
        for (graph, seeds, storage) in [
            (tangle(60, 2), Seeds::of(&seeds), Storage::Cuda),
            (citations(4), authors, Storage::ZeroCopy),
            (citations(4), Seeds::of(&[]), Storage::Cuda),
        ] {
            for hops in 0..3 {
                let gpu = on_gpu(&stream, &graph, storage, hops).khop(&stream, seeds).unwrap();
                let cpu = khop_subgraph(&graph, seeds, hops).unwrap();
                assert!(gpu.to_host().unwrap() == cpu, "{hops} hops in {storage}");
            }
        }
    }

    #[test]
    fn bad_nodes_and_damaged_lists_are_the_same_errors() {
        let Some(stream) = stream() else { return };
        let subgraphs = on_gpu(&stream, &citations(1), Storage::Cuda, 1);
        let bad = subgraphs.induced(&stream, &[&[3], &[0, 25], &[]]).unwrap_err();
        assert!(matches!(bad, Error::IdOutOfRange { name: "nodes", position: 1, id: 25, limit: 25 }), "{bad}");
        assert!(matches!(subgraphs.induced(&stream, &[&[3]]), Err(Error::Length { found: 1, expected: 3, .. })));
        assert!(matches!(subgraphs.khop(&stream, Seeds::of(&[60])), Err(Error::IdOutOfRange { id: 60, .. })));
        let [falling, beyond, _] = damaged();
        for topology in [falling, beyond] {
            let graph = Graph::homogeneous(topology).unwrap();
            let nodes: &[&[u64]] = &[&[2, 1, 0]];
            let bad = on_gpu(&stream, &graph, Storage::Cuda, 0).induced(&stream, nodes).unwrap_err();
            assert!(matches!(bad, Error::FallingOffsets { .. }), "{bad}");
            assert!(matches!(induced_subgraph(&graph, nodes), Err(Error::FallingOffsets { .. })));
        }
    }
}
