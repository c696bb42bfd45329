//! Bad input: what is said, and that nothing is left.

use headwater_tensor::DType;
use proptest::prelude::*;

use super::super::testing::{ZipStyle, npy, write, write_gz, zip};
use super::*;

fn archive(bench: &Bench, members: &[(&str, Vec<u8>)]) -> PathBuf {
    let path = bench.path("bad.npz");
    write(&path, zip(members, ZipStyle { deflate: true, wide: false }));
    path
}

#[test]
fn text_is_refused_with_line_and_value() {
    let bench = Bench::new();
    let path = bench.path("bad.csv");
    let dense = IngestOptions { ids: IdKind::Dense, nodes: vec!["3".parse().unwrap()], ..IngestOptions::default() };
    let integers = IngestOptions { ids: IdKind::Integer, ..IngestOptions::default() };
    for (text, options, words) in [
        ("0,1\n0,1,2\n", &integers, "bad.csv: line 2: 3 fields, but the lines before have 2"),
        ("src,dst\n0,1\n\nann,1\n", &integers, "bad.csv: line 4: column \"src\": \"ann\" is not an id"),
        ("0,1\n0,-1\n", &integers, "bad.csv: line 2: column 1: \"-1\" is not an id"),
        ("0,1\n#\n2,3\n", &dense, "bad.csv: line 3: id 3 is out of range: there are 3 node nodes"),
        ("", &integers, "bad.csv"),
        ("0\n1\n", &integers, "second column"),
    ] {
        write(&path, text);
        let said = bench.refusal(&path, options.clone());
        assert!(said.contains(words), "{said}");
    }
    write(&path, "0,18000000000000000\n");
    let huge = IngestOptions { ids: IdKind::Dense, ..IngestOptions::default() };
    assert!(bench.refusal(&path, huge.clone()).contains("bad.csv: the largest id is 18000000000000000, but there are"));
    let declared = IngestOptions { nodes: vec![format!("{}", 1u64 << 60).parse().unwrap()], ..huge };
    assert!(bench.refusal(&path, declared).contains("more than"));
    write(&path, [0x80, 4, b'N', b'.']);
    assert!(bench.refusal(&path, IngestOptions::default()).contains("pickle"));
    assert!(bench.refusal(&bench.path("none"), IngestOptions::default()).contains("none: cannot be read"));
}

#[test]
fn arrays_are_refused_with_name_and_element() {
    let bench = Bench::new();
    let edges = ("edge_index.npy", npy(DType::I64, &[2, 1], &[0i64, 1]));
    for (member, words) in [
        (("y.npy", npy(DType::I64, &[3], &[0i64, 1, 2])), None),
        (("num_nodes.npy", npy(DType::I64, &[], &[1i64])), Some("target[0]: id 1 is out of range: there are 1 node")),
        (("num_nodes.npy", npy(DType::I64, &[], &[-1i64])), Some("num_nodes: has shape []")),
        (("num_nodes.npy", npy(DType::I64, &[], &[1i64 << 60])), Some("more than")),
        (("edge_weight.npy", npy(DType::F32, &[2], &[0f32, 1.0])), Some("edge_weight: 2 elements, but 1 edges")),
        (("edge_weight.npy", npy(DType::F32, &[1], &[f32::NAN])), Some("edge_weight[0]: NaN is not a weight")),
        (("edge_attr.npy", npy(DType::F32, &[2, 1], &[0f32, 1.0])), Some("edge_attr: 2 elements, but 1 edges")),
        (("train_idx.npy", npy(DType::I64, &[1], &[7i64])), Some("train node 7 is not one of the 2 node nodes")),
        (("train_idx.npy", npy(DType::F32, &[1], &[0f32])), Some("train_idx: has type <f4; integers are wanted")),
        (("x_shape.npy", npy(DType::I64, &[2], &[2i64, 3])), None),
    ] {
        let path = archive(&bench, &[edges.clone(), member]);
        match words {
            Some(words) => {
                let said = bench.refusal(&path, IngestOptions::default());
                assert!(said.contains(words), "{words}: {said}");
            }
            None => drop(bench.ingest(&path, IngestOptions::default())),
        }
        let _ = std::fs::remove_dir_all(bench.out());
    }
    for (edges, words) in [
        (npy(DType::I64, &[3, 1], &[0i64, 1, 2]), "[2, edges] or [edges, 2]"),
        (npy(DType::F32, &[2, 1], &[0f32, 1.0]), "integers are wanted"),
        (npy(DType::I64, &[2, 1], &[0i64, -9]), "edge_index[1]: -9 is not an id"),
        (npy(DType::I64, &[2, 1], &[0i64, 1 << 30]), "bad.npz: the largest id is 1073741824, but there are 1 edges"),
    ] {
        let path = archive(&bench, &[("edge_index.npy", edges)]);
        let said = bench.refusal(&path, IngestOptions::default());
        assert!(said.contains(words), "{words}: {said}");
    }
    let path = archive(&bench, &[("z.npy", npy(DType::I64, &[0], &[0i64; 0]))]);
    assert!(bench.refusal(&path, IngestOptions::default()).contains("edge_index, indptr and indices"));
}

#[test]
fn triples_are_checked() {
    let bench = Bench::new();
    let of = |name, values: &[i64]| (name, npy(DType::I64, &[values.len()], values));
    let good = [of("head.npy", &[0, 1]), of("rel.npy", &[0, 1]), of("tail.npy", &[1, 2])];
    let with = |member| archive(&bench, &[good[0].clone(), good[1].clone(), good[2].clone(), member]);
    let dataset = bench.ingest(&with(of("split.npy", &[0, 2])), IngestOptions::default());
    assert_eq!((edges(&dataset, 0), edges(&dataset, 1)), (vec![(0, 1)], vec![]));
    let links = &dataset.manifest().links;
    assert_eq!(&dataset.array(&links.test.as_ref().unwrap().triples).unwrap().column::<u32>().unwrap()[..], [1, 1, 2]);
    std::fs::remove_dir_all(bench.out()).unwrap();
    for (member, words) in [
        (of("split.npy", &[0, 5]), "split[1]: 5 is not 0 (train)"),
        (of("split.npy", &[0]), "split: 1 elements, but 2 statements"),
        (of("num_rels.npy", &[1]), "rel[1]: 1 is not one of the 1 relations"),
        (of("num_nodes.npy", &[2]), "id 2 is out of range"),
        (of("num_rels.npy", &[1 << 20]), "rel: more than 16384 relations"),
    ] {
        let said = bench.refusal(&with(member), IngestOptions::default());
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn ogb_folders_that_disagree() {
    let bench = Bench::new();
    let root = bench.path("bad");
    let table = |name: &str, text: &str| write_gz(&root.join("raw").join(name), text);
    table("edge.csv.gz", "0,1\n2,0\n");
    table("num-node-list.csv.gz", "3\n");
    table("num-edge-list.csv.gz", "2\n");
    for (name, text, good, words) in [
        ("num-edge-list.csv.gz", "3\n", "2\n", "2 elements, but 3 edges by num-edge-list.csv.gz"),
        ("num-node-list.csv.gz", "2\n", "3\n", "source[1]: id 2 is out of range: there are 2 node nodes"),
        ("num-node-list.csv.gz", "3\n4\n", "3\n", "one count, of one graph"),
        ("node-label.csv.gz", "1\n2\n", "1\n2\n3\n", "2 elements, but 3 node nodes"),
        ("node-feat.csv.gz", "1,2\n3\n5,6\n", "1,2\n3,4\n5,6\n", "node-feat.csv.gz: line 2: 1 fields"),
        ("node-feat.csv.gz", "1,2\n3,a\n5,6\n", "1,2\n3,4\n5,6\n", "line 2: column 1: \"a\" is not a number"),
        ("edge-feat.csv.gz", "1,2\n", "1,2\n3,4\n", "edge-feat.csv.gz: 1 elements, but 2 edges"),
        ("edge.csv.gz", "0,1\n0.5,1\n", "0,1\n2,0\n", "edge.csv.gz: line 2: column 0: \"0.5\" is not an id"),
    ] {
        table(name, text);
        let said = bench.refusal(&root, IngestOptions::default());
        assert!(said.contains(words), "{words}: {said}");
        table(name, good);
    }
    let packed = std::fs::read(root.join("raw/edge.csv.gz")).unwrap();
    write(&root.join("raw/edge.csv.gz"), &packed[..packed.len() - 3]);
    assert!(bench.refusal(&root, IngestOptions::default()).contains("edge.csv.gz: cannot be read"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_sources_are_errors_or_graphs(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        which in 0usize..4,
    ) {
        let bench = Bench::new();
        let path = bench.path("source");
        match which {
            0 => write(&path, "source,target,w\nx,1,0.5\n\"a,b\",2,1\ny,z,1e3\n"),
            1 => write_gz(&path, &"10,11\n12,13\n".repeat(20)),
            2 => write(&path, npy(DType::I64, &[2, 3], &[0i64, 1, 2, 3, 4, 5])),
            _ => drop(std::fs::rename(
                archive(&bench, &[("edge_index.npy", npy(DType::I64, &[2, 1], &[0i64, 1]))]), &path)),
        }
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        if cut {
            bytes.truncate(keep.index(bytes.len()));
        }
        write(&path, &bytes);
        let done = Ingest::read(Some(&path), &bench.out(), IngestOptions::default(), &Silent)
            .and_then(|ingest| ingest.build(&Silent));
        prop_assert_eq!(done.is_ok(), bench.out().exists());
    }
}
