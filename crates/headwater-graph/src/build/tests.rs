//! The build against a sort anybody can read, for any graph and any number of threads.
#![allow(clippy::cast_possible_truncation, reason = "the numbers are small")]

use proptest::prelude::*;

use super::*;
use crate::progress::Silent;
use crate::topology::RowOrder;

/// An edge as the naive build sees it: neighbour, id, weight, time.
type Entry = (u64, u64, u32, i64);

fn naive(coo: &Coo, layout: Layout) -> Vec<Vec<Entry>> {
    let rows = if layout == Layout::Csr { coo.source_count } else { coo.target_count };
    let mut lists = vec![Vec::new(); rows as usize];
    for at in 0..coo.sources.len() {
        let (source, target) = (coo.sources.at(at), coo.targets.at(at));
        let (row, neighbour) = if layout == Layout::Csr { (source, target) } else { (target, source) };
        let id = coo.edge_ids.as_ref().map_or(at as u64, |ids| ids.at(at));
        let weight = coo.weights.as_ref().map_or(0, |weights| weights[at].to_bits());
        lists[row as usize].push((neighbour, id, weight, coo.times.as_ref().map_or(0, |times| times[at])));
    }
    lists
}

fn lists(topology: &Topology) -> Vec<Vec<Entry>> {
    let entry = |at: usize| {
        let weight = topology.weights().map_or(0, |weights| weights[at].to_bits());
        (topology.neighbours().at(at), topology.edge_id(at), weight, topology.times().map_or(0, |times| times[at]))
    };
    (0..topology.rows()).map(|row| topology.list(row).map(entry).collect()).collect()
}

fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

/// Graphs with isolated nodes, self-loops, repeats and hubs; sometimes empty.
fn graphs() -> impl Strategy<Value = Coo> {
    let sizes = (1u64..300, 1u64..300, 0usize..600);
    let wide = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (sizes, wide, any::<u64>()).prop_map(|((sources, targets, edges), (wide_a, wide_b, extras, own_ids), seed)| {
        let key = crate::random::Key::new(seed);
        // Every third edge goes to one hub.
        let end = |salt: u64, count: u64| {
            move |at: u64| if at.is_multiple_of(3) { count / 2 } else { key.of(salt).below(at, count) }
        };
        let ids = |salt: u64, count: u64, wide: bool| -> Ids {
            let all: Vec<u64> = (0..edges as u64).map(end(salt, count)).collect();
            if wide { all.into() } else { all.into_iter().map(|id| id as u32).collect::<Vec<_>>().into() }
        };
        let mut coo = Coo::new(ids(1, sources, wide_a), ids(2, targets, wide_b), sources, targets);
        if extras {
            coo.weights = Some((0..edges).map(|at| at as f32 / 7.0).collect::<Vec<_>>().into());
            coo.times = Some((0..edges as u64).map(|at| key.of(3).below(at, 9) as i64 - 4).collect::<Vec<_>>().into());
        }
        coo.edge_ids = own_ids.then(|| ids(4, 1 << 31, wide_a));
        coo
    })
}

proptest! {
    #[test]
    fn builds_equal_the_naive_one_for_any_number_of_threads(coo in graphs()) {
        for layout in [Layout::Csr, Layout::Csc] {
            let options = BuildOptions { layout, edge_ids: EdgeIds::Kept };
            for threads in [1, 2, 16] {
                let built = with_threads(threads, || coo.build(options, &Silent)).unwrap();
                prop_assert_eq!(lists(&built), naive(&coo, layout));
            }
        }
    }

    #[test]
    fn turning_twice_and_listing_lose_nothing(coo in graphs()) {
        let built = coo.build(BuildOptions::default(), &Silent).unwrap();
        let turned = built.transposed(&Silent).unwrap();
        prop_assert_eq!((turned.layout(), turned.order()), (Layout::Csr, RowOrder::Neighbour));
        let mut back = lists(&turned.transposed(&Silent).unwrap());
        let mut expected = naive(&coo, Layout::Csc);
        // Turning forgets the order within a row, and nothing else.
        back.iter_mut().chain(&mut expected).for_each(|list| list.sort_unstable());
        prop_assert_eq!(back, expected);
        let again = built.to_coo().build(BuildOptions::default(), &Silent).unwrap();
        prop_assert_eq!(lists(&again), lists(&built));
    }
}

/// Sizes at which strips, blocks, buckets and segments are many.
#[test]
fn large_graphs_go_through_every_step() {
    let (rows, edges) = (70_000u64, 600_000u64);
    let key = crate::random::Key::new(5);
    let ends = |salt: u64| (0..edges).map(|at| key.of(salt).below(at, rows) as u32).collect::<Vec<u32>>();
    let coo = Coo::new(ends(1).into(), ends(2).into(), rows, rows);
    let plan = coo.plan(BuildOptions::default());
    assert!(plan.segments > 1 && plan.buckets > 64 && plan.strips > 8, "{plan:?}");
    for threads in [1, 2, 16] {
        let built = with_threads(threads, || coo.build(BuildOptions::default(), &Silent)).unwrap();
        assert!(lists(&built) == naive(&coo, Layout::Csc), "{threads} threads");
    }
    let dropped = BuildOptions { edge_ids: EdgeIds::Dropped, ..Default::default() };
    let one_segment = Coo::new(vec![3u64; 9].into(), vec![1u64; 9].into(), 4, 2);
    assert_eq!(one_segment.build(dropped, &Silent).unwrap().edge_ids().map(Ids::len), None);
}

#[test]
fn ids_are_as_wide_as_columns_need() {
    let coo = |columns| Coo::new(vec![7u64].into(), vec![0u32].into(), columns, 1);
    let bytes = |columns| coo(columns).build(BuildOptions::default(), &Silent).unwrap().neighbours().id_bytes();
    assert_eq!((bytes(8), bytes(1 << 32), bytes((1 << 32) + 1)), (4, 4, 8));
}

#[test]
fn faults_are_named_with_place_and_value() {
    let coo = || Coo::new(vec![0u32, 2].into(), vec![1u32, 0].into(), 3, 2);
    let build = |coo: Coo| coo.build(BuildOptions::default(), &Silent).unwrap_err().to_string();
    let cases = [
        (Coo { source_count: 2, ..coo() }, "sources[1] is 2"),
        (Coo { target_count: 1, ..coo() }, "targets[0] is 1"),
        (Coo { targets: vec![0u32].into(), ..coo() }, "targets has 1"),
        (Coo { edge_ids: Some(vec![1u32].into()), ..coo() }, "edge ids has 1"),
        (Coo { weights: Some(vec![1.0].into()), ..coo() }, "weights has 1"),
        (Coo { times: Some(vec![1, 2, 3].into()), ..coo() }, "times has 3"),
        (Coo { weights: Some(vec![1.0, f32::NAN].into()), ..coo() }, "weight NaN at position 1"),
    ];
    for (coo, words) in cases {
        let said = build(coo);
        assert!(said.contains(words), "{said} lacks {words}");
    }
}

#[test]
fn more_nodes_than_memory_holds_are_refused() {
    let edges = |nodes| Coo::new(vec![0u32].into(), vec![0u32].into(), nodes, nodes);
    let options = BuildOptions::default();
    for (nodes, words) in [(u64::MAX, "source nodes is"), (1 << 48, "building lists takes"), (1 << 44, "are free")] {
        assert!(edges(nodes).plan(options).peak_bytes > 1 << 46);
        let said = edges(nodes).build(options, &Silent).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}
