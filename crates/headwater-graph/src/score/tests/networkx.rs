//! Converged ranks against PageRank as networkx has it, on graphs made up and real.
//!
//! networkx spreads the score of nodes that hand nothing on evenly over all nodes; the paper's algorithm lets it go. Both
//! are solutions of one linear system with a constant on the right that differs by a factor, so networkx's ranks are the
//! paper's divided by their sum. Real graphs are found as the ingest tests find them, and left out where they are not.

use std::path::{Path, PathBuf};

use super::*;
use crate::Dataset;
use crate::ingest::{Ingest, IngestOptions, SparseFeatures};

/// Power iteration on the reversed graph, word for word, until nothing changes.
fn networkx(graph: &Graph, damping: f64) -> Vec<f64> {
    let (nodes, edges) = edges(graph);
    let (mut rank, mut in_degree) = (vec![1.0 / nodes as f64; nodes], vec![0.0f64; nodes]);
    edges.iter().for_each(|&(_, target)| in_degree[target] += 1.0);
    loop {
        let dangling: f64 =
            rank.iter().zip(&in_degree).filter(|(_, degree)| **degree == 0.0).map(|(rank, _)| rank).sum();
        let mut next = vec![(1.0 - damping + damping * dangling) / nodes as f64; nodes];
        edges.iter().for_each(|&(source, target)| next[source] += damping * rank[target] / in_degree[target]);
        let change: f64 = rank.iter().zip(&next).map(|(before, after)| (before - after).abs()).sum();
        rank = next;
        if change < 1e-11 {
            return rank;
        }
    }
}

fn check(name: &str, graph: &Graph) {
    let stop = Stop::Converged { tolerance: 1e-11, most: 200 };
    let outgoing = Outgoing::of(graph, &Silent).unwrap();
    let found = reverse_pagerank(&outgoing, &RankOptions { stop, ..RankOptions::converged() }).unwrap().concat();
    let total: f64 = found.iter().map(|&rank| rank as f64).sum();
    let found: Vec<f64> = found.iter().map(|&rank| rank as f64 / total).collect();
    let want = networkx(graph, 0.85);
    let is_near = |found: f64, want: f64| (found - want).abs() <= 1e-6 * want;
    for (at, (&found, &want)) in found.iter().zip(&want).enumerate() {
        assert!(is_near(found, want), "{name}, node {at}: {found}, expected {want}");
    }
    // The hundred highest in their order, but for those that are equal as far as this can tell.
    let order = |ranks: &[f64]| {
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        order.sort_by(|a, b| ranks[*b].total_cmp(&ranks[*a]).then(a.cmp(b)));
        order.truncate(100);
        order
    };
    for (at, (ours, theirs)) in order(&found).into_iter().zip(order(&want)).enumerate() {
        assert!(is_near(want[ours], want[theirs]), "{name}: place {at} has node {ours}, expected {theirs}");
    }
}

#[test]
fn graphs_made_up() {
    // Some of their nodes have nothing that points at them.
    for (at, graph) in [tangle(400, 6), citations(4)].iter().enumerate() {
        check(&format!("graph {at}"), graph);
    }
}

#[test]
fn real_graphs() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("HEADWATER_SHARED_DATA").map_or(beside, PathBuf::from);
    for name in ["cora", "pubmed", "amazon_computers"] {
        let source = data.join(name).join(format!("{name}.npz"));
        if !source.is_file() {
            eprintln!("no {}: skipped", source.display());
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let options = IngestOptions { sparse_features: SparseFeatures::Skip, ..IngestOptions::default() };
        let out = folder.path().join("out");
        Ingest::read(Some(&source), &out, options, &Silent).unwrap().build(&Silent).unwrap();
        check(name, &Dataset::open(&out).unwrap().graph().unwrap());
    }
}
