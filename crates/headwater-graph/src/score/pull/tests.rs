//! The forms of the pass against each other.
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

use super::*;

#[test]
fn vectors_add_what_a_loop_adds() {
    let contributions: Vec<f32> = (0..500u16).map(|at| f32::from(at).powi(3) * 1e9).collect();
    let ids: Vec<u32> = (0..3000u32).map(|at| at * 331 % 510).collect();
    let wide: Vec<u64> = ids.iter().map(|id| u64::from(*id)).collect();
    let mut offsets: Vec<u64> = (0..70u64).map(|row| row * row % 60 + row * 40).collect();
    offsets.sort_unstable();
    let sums = |add: &dyn Fn(&mut [u64])| {
        let mut sums = vec![3u64; offsets.len() - 1];
        add(&mut sums);
        sums
    };
    let want = sums(&|sums| cpu::add_each(&contributions, &ids, &offsets, sums));
    assert_eq!(sums(&|sums| cpu::add_each(&contributions, &wide, &offsets, sums)), want);
    let vectors = |sums: &mut [u64]| {
        if !headwater_memory::add_gathered(&contributions, &ids, &offsets, sums) {
            cpu::add_each(&contributions, &ids, &offsets, sums);
        }
    };
    assert_eq!(sums(&vectors), want);
}

/// What runs on a GPU, real or emulated.
mod device {
    use super::super::super::tests::wide;
    use super::*;
    use crate::random::Key;
    use crate::sample::tests::{citations, tangle};
    use crate::sample::{GpuNeighbourSampler, NeighbourSampler, SampleOptions, Seeds};
    use crate::score::{
        Expected, Purpose, RankOptions, Training, Workload, count_reads, count_reads_on, expected_reads,
        reverse_pagerank,
    };
    use crate::testing::stream;
    use crate::{Error, Silent, Storage, Wish};

    /// Hubs that fill several tiles, and long stretches of rows without edges.
    fn hubs() -> Graph {
        let degree = |row: u64| match row {
            3 | 9000 => 5000,
            row if row.is_multiple_of(97) => row % 7,
            _ => 0,
        };
        let offsets: Vec<u64> = std::iter::once(0)
            .chain((0..10_000).scan(0, |sum, row| {
                *sum += degree(row);
                Some(*sum)
            }))
            .collect();
        let edges = offsets[offsets.len() - 1];
        let neighbours: Vec<u32> = (0..edges).map(|edge| (Key::new(5).draw(edge) % 10_000) as u32).collect();
        Graph::homogeneous(Topology::new(Layout::Csc, 10_000, offsets.into(), neighbours.into()).unwrap()).unwrap()
    }

    fn graphs() -> Vec<Graph> {
        let empty = Topology::new(Layout::Csc, 5, vec![0; 6].into(), Vec::<u32>::new().into()).unwrap();
        let tangle = tangle(700, 3);
        vec![wide(&tangle), tangle, citations(3), hubs(), Graph::homogeneous(empty).unwrap()]
    }

    #[test]
    fn scores_are_those_of_the_cpu_to_the_bit() {
        let Some(stream) = stream() else { return };
        for graph in graphs() {
            let mut train: Vec<&[u64]> = vec![&[]; graph.schema().node_types().len()];
            train[0] = &[0, 3, 4];
            let options = SampleOptions::fanouts(&[4, 3]).unwrap();
            let scores = |outgoing: &Outgoing| {
                let expected = Expected { train: &train, batch: 2, options: &options };
                [
                    reverse_pagerank(outgoing, &RankOptions::weighted(&train)).unwrap(),
                    reverse_pagerank(outgoing, &RankOptions::converged()).unwrap(),
                    expected_reads(outgoing, &expected).unwrap(),
                ]
            };
            let want = scores(&Outgoing::of_sampling(&graph, &Silent).unwrap());
            for storage in [Storage::Cuda, Storage::ZeroCopy] {
                let placed = PlacedGraph::new(&graph, Wish::In(storage), Some(stream.gpu())).unwrap();
                assert!(scores(&Outgoing::of_placed(&placed, &stream).unwrap()) == want, "{storage}");
            }
        }
    }

    #[test]
    fn counts_are_those_of_the_cpu() {
        let Some(stream) = stream() else { return };
        for graph in [tangle(300, 2), citations(2)] {
            let placed = PlacedGraph::new(&graph, Wish::In(Storage::Cuda), Some(stream.gpu())).unwrap();
            let options = SampleOptions::fanouts(&[3, 2]).unwrap();
            let seeds: Vec<u64> = (0..20).collect();
            let batches: Vec<Seeds<'_>> = seeds.chunks(6).map(Seeds::of).collect();
            let cpu = NeighbourSampler::new(graph.clone(), options.clone()).unwrap();
            let gpu = GpuNeighbourSampler::new(placed.clone(), options.clone()).unwrap();
            let want = count_reads(&cpu, &batches, Key::new(7), &Silent).unwrap();
            assert_eq!(count_reads_on(&gpu, &stream, &batches, Key::new(7), &Silent).unwrap(), want);
            let mut train = vec![Vec::new(); graph.schema().node_types().len()];
            train[0] = seeds;
            let run = Workload::new(graph, Training { train, batch: 6, options, seed: 2 }).unwrap();
            let want = run.reads(Purpose::Scoring, 5, &Silent).unwrap();
            let run = run.on_gpu(&placed, &stream).unwrap();
            assert_eq!(run.reads(Purpose::Scoring, 5, &Silent).unwrap(), want);
            let deeper = run.with_options(SampleOptions::fanouts(&[2, 2, 2]).unwrap()).unwrap();
            assert!(deeper.reads(Purpose::Scoring, 5, &Silent).unwrap().nodes > want.nodes);
        }
    }

    #[test]
    fn graphs_that_cannot_be_read_are_errors() {
        let Some(stream) = stream() else { return };
        let graph = tangle(20, 1);
        let on_host = PlacedGraph::new(&graph, Wish::In(Storage::Cpu), Some(stream.gpu())).unwrap();
        assert!(matches!(Outgoing::of_placed(&on_host, &stream), Err(Error::Options { .. })));
        let spread = PlacedGraph::spread(&graph, &[stream.gpu().clone()], 2).unwrap();
        assert!(matches!(Outgoing::of_placed(&spread, &stream), Err(Error::Options { .. })));
        let damaged = Topology::trusted(Layout::Csc, 3, vec![0u64, 2, 1, 3].into(), vec![1u32, 2, 0].into()).unwrap();
        let damaged = Graph::homogeneous(damaged).unwrap();
        let placed = PlacedGraph::new(&damaged, Wish::In(Storage::Cuda), Some(stream.gpu())).unwrap();
        assert!(matches!(Outgoing::of_placed(&placed, &stream), Err(Error::FallingOffsets { .. })));
    }
}
