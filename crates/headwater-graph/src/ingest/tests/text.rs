//! Edge lists.

use super::super::testing::{write, write_gz};
use super::*;
use crate::ingest::text::Asked;

#[test]
fn dense_ids_stay_and_others_are_numbered_in_ascending_order() {
    let bench = Bench::new();
    let path = bench.path("edges.csv");
    write(&path, "# made by hand\nsrc,dst\n2,0\n0,1\n2,0\n");
    let dataset = bench.ingest(&path, IngestOptions::default());
    assert_eq!((edges(&dataset, 0), original_ids(&dataset, 0)), (vec![(2, 0), (0, 1), (2, 0)], vec![None; 3]));
    assert_eq!(dataset.manifest().name, "out");

    write(&path, "700,30\n30,41\n5000000000,30\n");
    let dataset = bench.ingest(&path, IngestOptions::default());
    assert_eq!(edges(&dataset, 0), [(2, 0), (0, 1), (3, 0)]);
    assert_eq!(original_ids(&dataset, 0), words(&["30", "41", "700", "5000000000"]));

    // Node 3 has no edges.
    write(&path, "0 1\n4 2\n");
    let dense = |nodes: &[&str]| IngestOptions {
        ids: IdKind::Dense,
        nodes: nodes.iter().map(|count| count.parse().unwrap()).collect(),
        layout: Layout::Csr,
        ..IngestOptions::default()
    };
    assert_eq!(bench.ingest(&path, dense(&[])).schema().node_types()[0].count, 5);
    let dataset = bench.ingest(&path, dense(&["9"]));
    assert_eq!((dataset.schema().node_types()[0].count, edges(&dataset, 0)), (9, vec![(0, 1), (4, 2)]));
}

#[test]
fn words_are_numbered_in_the_order_of_their_bytes() {
    let bench = Bench::new();
    let path = bench.path("edges.tsv.gz");
    write_gz(&path, "eve\tann\nbob\teve\n7\tann\n");
    let dataset = bench.ingest(&path, IngestOptions::default());
    assert_eq!(original_ids(&dataset, 0), words(&["7", "ann", "bob", "eve"]));
    assert_eq!(edges(&dataset, 0), [(3, 1), (2, 3), (0, 1)]);
}

#[test]
fn weights_and_times_go_with_their_edges() {
    let bench = Bench::new();
    let path = bench.path("edges.csv");
    write(&path, "when,source,w,target\n30,0,0.5,1\n-10,2,1.5,1\n20,1,2.5,0\n");
    let name = |text: &str| Some(text.parse().unwrap());
    let text = Asked { weight: name("w"), time: name("when"), ..Asked::default() };
    let dataset = bench.ingest(&path, IngestOptions { text, ..IngestOptions::default() });
    let topology = dataset.topology(0).unwrap();
    let of_one = topology.list(1);
    assert_eq!(&topology.weights().unwrap()[of_one.clone()], [1.5, 0.5]);
    assert_eq!(&topology.times().unwrap()[of_one], [-10, 30]);
}

#[test]
fn relations_come_from_columns_or_from_files() {
    let bench = Bench::new();
    let path = bench.path("kg.tsv");
    write(&path, "ann\tknows\tbob\nbob\tlikes\tann\nann\tknows\teve\n");
    let text = Asked { relation: Some("1".parse().unwrap()), ..Asked::default() };
    let dataset = bench.ingest(&path, IngestOptions { text, ..IngestOptions::default() });
    assert_eq!(dataset.schema().relation_name(1), "node__likes__node");
    assert_eq!((edges(&dataset, 0), edges(&dataset, 1)), (vec![(0, 1), (0, 2)], vec![(1, 0)]));

    let typed = bench.path("typed.csv");
    write(&typed, "from_type,from,rel,to,to_type\nauthor,7,writes,100,paper\npaper,100,cites,90,paper\n");
    let name = |text: &str| Some(text.parse().unwrap());
    let text = Asked {
        source_type: name("from_type"),
        relation: name("rel"),
        target_type: name("to_type"),
        ..Asked::default()
    };
    let dataset = bench.ingest(&typed, IngestOptions { text, ..IngestOptions::default() });
    assert_eq!(dataset.schema().relation_name(0), "author__writes__paper");
    assert_eq!((edges(&dataset, 0), edges(&dataset, 1)), (vec![(0, 1)], vec![(1, 0)]));
    assert_eq!(original_ids(&dataset, 1), words(&["90", "100"]));
}

#[test]
fn several_files_share_their_node_types() {
    let bench = Bench::new();
    let (writes, cites) = (bench.path("writes.csv"), bench.path("cites.csv"));
    write(&writes, "5,1\n6,3\n");
    write(&cites, "1,2\n");
    let typed = |relation: &str, path: &Path| format!("{relation}={}", path.display()).parse().unwrap();
    let options = IngestOptions {
        edges: vec![typed("author:writes:paper", &writes), typed("paper:cites:paper", &cites)],
        reverse: Reverse::Add,
        ..IngestOptions::default()
    };
    let ingest = Ingest::read(None, &bench.out(), options, &Silent).unwrap();
    assert_eq!(ingest.plan().edges, 6);
    let summary = ingest.build(&Silent).unwrap();
    assert_eq!((summary.nodes, summary.edges, summary.relations), (5, 6, 3));
    let dataset = Dataset::open(&bench.out()).unwrap();
    assert_eq!(dataset.schema().relation_name(2), "paper__rev_writes__author");
    assert_eq!((edges(&dataset, 0), edges(&dataset, 2)), (vec![(0, 0), (1, 2)], vec![(0, 0), (2, 1)]));
    assert_eq!(edges(&dataset, 1), [(0, 1), (1, 0)]);
}

#[test]
fn threads_do_not_change_the_result() {
    let bench = Bench::new();
    let path = bench.path("edges.csv");
    let line = |i: u64| format!("n{},n{}\n", i * i % 10_007, i * 31 % 977);
    write(&path, (0..200_000).map(line).collect::<String>());
    let checksums = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| bench.ingest(&path, IngestOptions::default())).manifest().files.clone()
    });
    assert_eq!(checksums[0], checksums[1]);
}
