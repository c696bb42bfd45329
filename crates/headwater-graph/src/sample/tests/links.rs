//! Links, negatives, exclusion, subgraphs.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::distribution::chi_square;
use super::*;

const STRICT: Strictness = Strictness::Strict { trials: 20 };

fn pairs(graph: &Graph) -> BTreeSet<(u64, u64)> {
    let topology = graph.relation(0);
    (0..topology.rows()).flat_map(|row| topology.list(row).map(move |at| (topology.neighbours().at(at), row))).collect()
}

#[test]
fn negatives_are_no_edges_and_all_others_are_equally_likely() {
    let graph =
        Graph::homogeneous(lists(5, &[vec![1, 2], vec![0, 0, 4], vec![], vec![3], vec![0, 1, 2, 3, 4]])).unwrap();
    let edges = pairs(&graph);
    let drawn = negative_edges(graph.relation(0), 20_000, STRICT, Key::new(5)).unwrap();
    let mut counts = [0u64; 25];
    for (&source, &target) in drawn.sources.iter().zip(&drawn.targets) {
        assert!(!edges.contains(&(source, target)));
        counts[(source * 5 + target) as usize] += 1;
    }
    assert_eq!(drawn.unresolved + drawn.sources.len() as u64, 20_000);
    assert!(drawn.unresolved < 10);
    let free: Vec<u64> =
        (0..25).filter(|at| !edges.contains(&(at / 5, at % 5))).map(|at| counts[at as usize]).collect();
    chi_square(&free, &vec![drawn.sources.len() as f64 / free.len() as f64; free.len()]);
    // Sorted rows are searched, and find the same.
    let sorted =
        Topology::new(Layout::Csc, 5, graph.relation(0).offsets().clone(), graph.relation(0).neighbours().clone());
    let sorted = sorted.unwrap().with_order(crate::topology::RowOrder::Neighbour);
    assert_eq!(negative_edges(&sorted, 20_000, STRICT, Key::new(5)).unwrap(), drawn);
}

#[test]
fn a_graph_without_gaps_leaves_every_draw_unresolved() {
    let full = lists(3, &vec![vec![0, 1, 2]; 3]);
    let none = negative_edges(&full, 50, STRICT, Key::new(1)).unwrap();
    assert_eq!((none.sources.len(), none.unresolved), (0, 50));
    let loose = negative_edges(&full, 50, Strictness::Loose, Key::new(1)).unwrap();
    assert_eq!((loose.sources.len(), loose.unresolved), (50, 0));
    assert_eq!(negative_edges(&lists(0, &[]), 5, STRICT, Key::new(1)).unwrap().unresolved, 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn ends_are_found_again_and_excluded_edges_are_not(
        seed in 0u64..500, chosen in prop::collection::vec(any::<prop::sample::Index>(), 1..12), kind in 0..3, disjoint in any::<bool>(),
    ) {
        let graph = tangle(60, seed);
        let edges: Vec<(u64, u64)> = pairs(&graph).into_iter().collect();
        let (sources, targets): (Vec<u64>, Vec<u64>) = chosen.iter().map(|at| *at.get(&edges)).unzip();
        let trees = if disjoint { Trees::Disjoint } else { Trees::Shared };
        let options = SampleOptions { trees, ..SampleOptions::fanouts(&[-1, 3]).unwrap() };
        let sampler = NeighbourSampler::new(graph.clone(), options).unwrap();
        let negative = match kind {
            0 => Negative::None,
            1 => Negative::Binary { amount: 1.5, strictness: STRICT },
            _ => Negative::Triplet { amount: 2, strictness: STRICT },
        };
        let excluded = Excluded::none().and(&graph, 0, &sources, &targets).and(&graph, 0, &targets, &sources);
        let links = LinkSeeds { relation: 0, sources: &sources, targets: &targets, times: None };
        let made = sample_links(&sampler, links, negative, &excluded, Key::new(seed)).unwrap();
        let (nodes, count) = (&made.sample.nodes[0], sources.len());
        let ids = |numbers: &[u32]| numbers.iter().map(|&at| nodes.ids[at as usize]).collect::<Vec<_>>();
        prop_assert_eq!(&ids(&made.sources)[..count], &sources[..]);
        prop_assert_eq!(&ids(&made.targets)[..count], &targets[..]);
        let expected = match kind { 0 => (count, count), 1 => (count + (count * 3).div_ceil(2), count + (count * 3).div_ceil(2)), _ => (count, count * 3) };
        prop_assert_eq!((made.sources.len(), made.targets.len()), expected);
        let known = pairs(&graph);
        if made.unresolved == 0 && kind == 1 {
            prop_assert!(ids(&made.sources)[count..].iter().zip(&ids(&made.targets)[count..]).all(|(&s, &t)| !known.contains(&(s, t))));
        }
        if made.unresolved == 0 && kind == 2 {
            prop_assert!(ids(&made.targets)[count..].iter().enumerate().all(|(at, &t)| !known.contains(&(sources[at / 2], t))));
        }
        for (&row, &col) in made.sample.edges[0].row.iter().zip(&made.sample.edges[0].col) {
            let pair = (nodes.ids[row as usize], nodes.ids[col as usize]);
            prop_assert!(known.contains(&pair));
            prop_assert!(!edges_of(&sources, &targets).any(|edge| edge == pair || (edge.1, edge.0) == pair));
        }
        if let Some(trees) = &nodes.trees {
            // Both ends of an edge belong to it.
            for at in 0..count {
                prop_assert_eq!((trees[made.sources[at] as usize], trees[made.targets[at] as usize]), (at as u32, at as u32));
            }
        }
    }

    #[test]
    fn induced_edges_are_all_edges_between(seed in 0u64..500, wanted in prop::collection::vec(0u64..60, 0..20)) {
        let graph = tangle(60, seed);
        let subgraph = induced_subgraph(&graph, &[&wanted]).unwrap();
        let (nodes, edges) = (&subgraph.sample.nodes[0].ids, &subgraph.sample.edges[0]);
        prop_assert_eq!(subgraph.mapping[0].iter().map(|&at| nodes[at as usize]).collect::<Vec<_>>(), wanted.clone());
        let topology = graph.relation(0);
        let expected: Vec<u64> = nodes.iter().flat_map(|&node| topology.list(node))
            .filter(|&at| wanted.contains(&topology.neighbours().at(at))).map(|at| at as u64).collect();
        prop_assert_eq!(edges.ids.as_ref().unwrap(), &expected);
        for ((&row, &col), &edge) in edges.row.iter().zip(&edges.col).zip(&expected) {
            prop_assert_eq!(nodes[row as usize], topology.neighbours().at(edge as usize));
            prop_assert!(topology.list(nodes[col as usize]).contains(&(edge as usize)));
        }
    }
}

fn edges_of<'a>(sources: &'a [u64], targets: &'a [u64]) -> impl Iterator<Item = (u64, u64)> + 'a {
    sources.iter().copied().zip(targets.iter().copied())
}

#[test]
fn k_hops_reach_every_node_and_keep_every_edge() {
    // A ring with a chord: two hops from 0 reach 1, 2, 4, 5 against the arrows, and the chord between two of them.
    let graph = Graph::homogeneous(lists(6, &[vec![1, 5], vec![2], vec![3], vec![4], vec![5], vec![4, 2]])).unwrap();
    let subgraph = khop_subgraph(&graph, Seeds::of(&[0]), 2).unwrap();
    assert_eq!(subgraph.sample.nodes[0].ids, [0, 1, 5, 2, 4]);
    assert_eq!(subgraph.mapping, [[0]]);
    // 2 <- 3 is the only edge left out: 3 is three hops away. 4 <- 5 closes a circle that the search did not need.
    assert_eq!(subgraph.sample.edges[0].ids.as_ref().unwrap(), &[0, 1, 2, 6, 7, 5]);
    assert!(induced_subgraph(&graph, &[]).is_err() && induced_subgraph(&graph, &[&[6]]).is_err());
}

#[test]
fn bad_links_are_named() {
    let sampler = NeighbourSampler::new(tangle(60, 1), SampleOptions::fanouts(&[2]).unwrap()).unwrap();
    let run = |links, negative| sample_links(&sampler, links, negative, &Excluded::none(), Key::new(1)).unwrap_err();
    let good = LinkSeeds { relation: 0, sources: &[1, 2], targets: &[3, 4], times: None };
    use crate::Error;
    assert!(matches!(run(LinkSeeds { targets: &[3], ..good }, Negative::None), Error::Length { name: "targets", .. }));
    assert!(matches!(
        run(LinkSeeds { relation: 1, ..good }, Negative::None),
        Error::IdOutOfRange { name: "relation", .. }
    ));
    assert!(matches!(run(LinkSeeds { sources: &[1, 60], ..good }, Negative::None), Error::IdOutOfRange { id: 60, .. }));
    assert!(matches!(run(LinkSeeds { times: Some(&[1, 2]), ..good }, Negative::None), Error::Options { .. }));
    let endless = Negative::Binary { amount: f64::NAN, strictness: STRICT };
    assert!(matches!(run(good, endless), Error::Parameter { name: "amount", .. }));
}
