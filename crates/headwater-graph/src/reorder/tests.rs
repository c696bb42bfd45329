//! Renumbering is a bijection on edges, whatever the graph, the widths and the number of threads.
#![allow(clippy::cast_possible_truncation, reason = "the numbers are small")]

use proptest::prelude::*;

use super::*;
use crate::build::{BuildOptions, Coo};
use crate::progress::Silent;
use crate::random::Key;
use crate::topology::Layout;

fn shuffled(nodes: u64, seed: u64, wide: bool) -> Permutation {
    let key = Key::new(seed);
    let mut ids: Vec<u64> = (0..nodes).collect();
    ids.sort_by_key(|id| key.draw(*id));
    let ids: Ids = if wide { ids.into() } else { ids.into_iter().map(|id| id as u32).collect::<Vec<_>>().into() };
    Permutation::from_new_of_old(ids).unwrap()
}

/// A third of the edges ends at one node.
fn random(sources: u64, targets: u64, edges: u64, seed: u64, wide: bool) -> Topology {
    let key = Key::new(seed);
    let ends = |salt: u64, count: u64| -> Vec<u64> { (0..edges).map(|at| key.of(salt).below(at, count)).collect() };
    let hubs = ends(2, targets).into_iter().enumerate().map(|(at, end)| if at % 3 == 0 { 0 } else { end });
    let sources_of = if wide { ends(1, sources).into() } else { narrow(ends(1, sources)) };
    let mut coo = Coo::new(sources_of, narrow(hubs.collect()), sources, targets);
    coo.weights = Some((0..edges).map(|at| at as f32).collect::<Vec<_>>().into());
    coo.build(BuildOptions { layout: Layout::Csc, edge_ids: EdgeIds::Dropped }, &Silent).unwrap()
}

fn narrow(ids: Vec<u64>) -> Ids {
    ids.into_iter().map(|id| id as u32).collect::<Vec<_>>().into()
}

fn check(given: &Topology, moved: &Topology, rows: &Permutation, columns: &Permutation) {
    for old in 0..given.rows() {
        let new = rows.new_of_old().at(old as usize);
        let entry = |of: &Topology, at: usize| (of.edge_id(at), of.weights().unwrap()[at].to_bits());
        let expected: Vec<_> = given
            .list(old)
            .map(|at| (columns.new_of_old().at(given.neighbours().at(at) as usize), entry(given, at)))
            .collect();
        let found: Vec<_> = moved.list(new).map(|at| (moved.neighbours().at(at), entry(moved, at))).collect();
        assert_eq!(found, expected, "row {old}, now {new}");
    }
}

proptest! {
    #[test]
    fn every_edge_keeps_its_ends_and_what_it_carries(
        (sources, targets, edges, seed, wide) in (1u64..80, 1u64..80, 0u64..400, any::<u64>(), any::<bool>())
    ) {
        let given = random(sources, targets, edges, seed, wide);
        let (rows, columns) = (shuffled(targets, seed ^ 1, wide), shuffled(sources, seed ^ 2, !wide));
        let moved = given.reordered(&rows, &columns, EdgeIds::Kept, &Silent).unwrap();
        check(&given, &moved, &rows, &columns);
        let back = moved.reordered(&rows.inverse(), &columns.inverse(), EdgeIds::Kept, &Silent).unwrap();
        prop_assert_eq!(&back.offsets()[..], &given.offsets()[..]);
        prop_assert!(back.neighbours().iter().eq(given.neighbours().iter()));
    }
}

#[test]
fn hubs_cross_pieces_for_any_number_of_threads() {
    let given = random(3000, 2000, 150_000, 9, false);
    let (rows, columns) = (shuffled(2000, 1, false), shuffled(3000, 2, false));
    for threads in [1, 2, 16] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let moved = pool.install(|| given.reordered(&rows, &columns, EdgeIds::Kept, &Silent)).unwrap();
        check(&given, &moved, &rows, &columns);
    }
}

#[test]
fn a_graph_moves_every_relation() {
    let topology = random(50, 50, 300, 3, false);
    let graph = Graph::homogeneous(topology.clone()).unwrap();
    let nodes = shuffled(50, 4, false);
    let moved = graph.reordered(std::slice::from_ref(&nodes), EdgeIds::Kept, &Silent).unwrap();
    check(&topology, moved.relation(0), &nodes, &nodes);
    assert!(matches!(graph.reordered(&[], EdgeIds::Kept, &Silent), Err(Error::Length { name: "permutations", .. })));
    let short = shuffled(49, 4, false);
    let why = topology.reordered(&short, &nodes, EdgeIds::Kept, &Silent).unwrap_err().to_string();
    assert!(why.contains("row permutation has 49"), "{why}");
}

#[test]
fn only_permutations_are_taken() {
    let refused = |ids: Vec<u32>| Permutation::from_new_of_old(ids.into()).unwrap_err().to_string();
    assert!(refused(vec![0, 1, 1]).contains("1 stands there 2 times"), "{}", refused(vec![0, 1, 1]));
    assert!(refused(vec![2, 0, 2]).contains("1 stands there 0 times"));
    assert!(refused(vec![1, 2, 3]).contains("permutation[2] is 3"));
    assert!(Permutation::from_new_of_old(Vec::<u64>::new().into()).unwrap().is_empty());
    let order = Permutation::from_old_of_new(vec![2u32, 0, 1].into()).unwrap();
    assert_eq!(order.new_of_old().iter().collect::<Vec<_>>(), [1, 2, 0]);
    assert_eq!(Permutation::identity(3).new_of_old().iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn scores_put_the_highest_first_and_keep_the_order_of_equals() {
    let order = |permutation: Permutation| permutation.old_of_new().iter().collect::<Vec<_>>();
    assert_eq!(order(Permutation::by_degree(&[1, 5, 1, 9, 5]).unwrap()), [3, 1, 4, 0, 2]);
    let scores = [0.0, -1.0, f64::INFINITY, -0.0, 2.5, f64::NEG_INFINITY];
    assert_eq!(order(Permutation::by_score(&scores).unwrap()), [2, 4, 0, 3, 1, 5]);
    assert!(matches!(Permutation::by_score(&[1.0, f64::NAN]), Err(Error::BadScore { position: 1 })));
}

#[test]
fn rows_and_lists_of_ids_move_along() {
    let nodes = Permutation::from_new_of_old(vec![2u32, 0, 1].into()).unwrap();
    let mut moved = [0; 6];
    nodes.permute_rows(b"aabbcc", 2, &mut moved).unwrap();
    assert_eq!(&moved, b"bbccaa");
    assert!(matches!(nodes.permute_rows(b"aabb", 2, &mut moved), Err(Error::Length { found: 4, expected: 6, .. })));
    assert!(nodes.permute_rows(&[], 0, &mut []).is_ok());
    assert_eq!(nodes.relabel(&vec![0u64, 2].into()).unwrap().iter().collect::<Vec<_>>(), [2, 1]);
    assert!(matches!(nodes.relabel(&vec![3u32].into()), Err(Error::IdOutOfRange { id: 3, .. })));
}
