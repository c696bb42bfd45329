//! Walks step along edges, with node2vec's chances.

use super::distribution::chi_square;
use super::*;

const PLAIN: WalkOptions = WalkOptions { length: 6, p: 1.0, q: 1.0 };

#[test]
fn every_step_is_an_edge_or_a_dead_end() {
    let graph = tangle(80, 4);
    let topology = graph.relation(0);
    let starts: Vec<u64> = (0..80).collect();
    for options in [PLAIN, WalkOptions { p: 0.5, q: 2.0, ..PLAIN }] {
        let walks = random_walks(topology, &starts, &options, Key::new(3)).unwrap();
        for (walk, &start) in walks.chunks(7).zip(&starts) {
            assert_eq!(walk[0], start);
            for step in walk.windows(2) {
                let stays = topology.degree(step[0]) == 0 && step[0] == step[1];
                assert!(stays || topology.has_edge(step[0], step[1]));
            }
        }
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(one.install(|| random_walks(topology, &starts, &options, Key::new(3)).unwrap()), walks);
    }
}

#[test]
fn node2vec_weighs_back_near_and_far() {
    // From 0 to 1 (its only neighbour), then from 1: back to 0, to 2 (next to 0 as seen from 0's list), or far to 3 and 4.
    let topology = lists(5, &[vec![1, 2], vec![0, 2, 3, 4], vec![], vec![], vec![]]);
    let options = WalkOptions { length: 2, p: 4.0, q: 0.5 };
    let walks = random_walks(&topology, &vec![0; 60_000], &options, Key::new(8)).unwrap();
    let mut counts = [0u64; 5];
    walks.chunks(3).filter(|walk| walk[1] == 1).for_each(|walk| counts[walk[2] as usize] += 1);
    let total = counts.iter().sum::<u64>() as f64;
    assert!((total - 30_000.0).abs() < 500.0);
    let weights = [0.25, 1.0, 2.0, 2.0];
    let sum: f64 = weights.iter().sum();
    let found = [counts[0], counts[2], counts[3], counts[4]];
    chi_square(&found, &weights.map(|weight| total * weight / sum));
}

#[test]
fn plain_steps_are_uniform() {
    let graph = star(9);
    let walks =
        random_walks(graph.relation(0), &vec![0; 18_000], &WalkOptions { length: 1, ..PLAIN }, Key::new(2)).unwrap();
    let mut counts = [0u64; 9];
    walks.chunks(2).for_each(|walk| counts[walk[1] as usize - 1] += 1);
    chi_square(&counts, &[2000.0; 9]);
}

#[test]
fn bad_walks_are_named() {
    use crate::Error;
    let graph = tangle(10, 1);
    let run = |starts: &[u64], options| random_walks(graph.relation(0), starts, &options, Key::new(1)).unwrap_err();
    assert!(matches!(run(&[3, 10], PLAIN), Error::IdOutOfRange { name: "starts", position: 1, id: 10, limit: 10 }));
    assert!(matches!(run(&[3], WalkOptions { p: 0.0, ..PLAIN }), Error::Parameter { name: "p", .. }));
    assert!(matches!(run(&[3], WalkOptions { q: 1e9, ..PLAIN }), Error::Parameter { .. }));
    assert!(random_walks(&tangled(4, 5, 1), &[0], &PLAIN, Key::new(1)).is_err());
}
