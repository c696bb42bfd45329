//! Arrays and OGB's folders.

use half::f16;
use headwater_tensor::DType;

use super::super::testing::{ZipStyle, npy, write, write_gz, zip};
use super::*;
use crate::dataset::Split;

const PACKED: ZipStyle = ZipStyle { deflate: true, wide: false };

fn split(dataset: &Dataset, node_type: usize, split: Split) -> Vec<u64> {
    dataset.split(node_type, split).unwrap().map(|ids| ids.iter().collect()).unwrap_or_default()
}

fn edge_features(dataset: &Dataset, relation: usize) -> (Vec<usize>, Vec<f32>) {
    let features = dataset.edge_features(relation).unwrap();
    (features.shape().to_vec(), features.column::<f32>().unwrap().to_vec())
}

fn labels(dataset: &Dataset, node_type: usize) -> Vec<i64> {
    dataset.labels(node_type).unwrap().column::<i64>().unwrap().to_vec()
}

#[test]
fn an_archive_with_everything() {
    let bench = Bench::new();
    let path = bench.path("graph.npz");
    let members = [
        ("edge_index.npy", npy(DType::I64, &[2, 3], &[0i64, 1, 3, 1, 2, 0])),
        ("x.npy", npy(DType::F64, &[4, 2], &[0.0f64, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])),
        ("y.npy", npy(DType::I32, &[4], &[1i32, 0, -1, 2])),
        ("train_mask.npy", npy(DType::Bool, &[4], &[1u8, 0, 0, 1])),
        ("val_idx.npy", npy(DType::I64, &[1], &[1i64])),
        ("edge_weight.npy", npy(DType::F32, &[3], &[0.5f32, 1.0, 1.5])),
        ("edge_time.npy", npy(DType::I64, &[3], &[5i64, 6, 7])),
        ("edge_attr.npy", npy(DType::F64, &[3, 1], &[10.0f64, 11.0, 12.0])),
    ];
    write(&path, zip(&members, PACKED));
    let dataset = bench.ingest(&path, IngestOptions::default());
    assert_eq!(edges(&dataset, 0), [(0, 1), (1, 2), (3, 0)]);
    assert_eq!((labels(&dataset, 0), dataset.manifest().nodes[0].files.classes), (vec![1, 0, -1, 2], Some(3)));
    assert_eq!((split(&dataset, 0, Split::Train), split(&dataset, 0, Split::Valid)), (vec![0, 3], vec![1]));
    let features = dataset.features(0).unwrap();
    assert_eq!((features.shape(), &features.column::<f32>().unwrap()[..3]), (&[4, 2][..], &[0.0, 1.0, 2.0][..]));
    let topology = dataset.topology(0).unwrap();
    assert_eq!((&topology.weights().unwrap()[..], topology.times().unwrap()[0]), (&[1.5, 0.5, 1.0][..], 7));
    // Rows are those of the source; the ids in the lists lead to them.
    assert_eq!(edge_features(&dataset, 0), (vec![3, 1], vec![10.0, 11.0, 12.0]));
    assert_eq!((topology.list(0), topology.edge_id(0)), (0..1, 2));
    let dataset = bench.ingest(&path, IngestOptions { reverse: Reverse::Add, ..Default::default() });
    assert_eq!(edges(&dataset, 0), [(0, 1), (1, 2), (3, 0), (1, 0), (2, 1), (0, 3)]);
    assert_eq!(edge_features(&dataset, 0), (vec![6, 1], vec![10.0, 11.0, 12.0, 10.0, 11.0, 12.0]));
}

#[test]
fn arrays_in_every_arrangement_are_the_same_graph() {
    let bench = Bench::new();
    let expected = vec![(0, 1), (1, 2), (3, 0)];
    let pairs = [("edge_index.npy", npy(DType::I32, &[3, 2], &[0i32, 1, 1, 2, 3, 0]))];
    let lists = [
        ("indptr.npy", npy(DType::I64, &[5], &[0i64, 1, 2, 2, 3])),
        ("indices.npy", npy(DType::I32, &[3], &[1i32, 2, 0])),
    ];
    let ends = [("row.npy", npy(DType::I64, &[3], &[0i64, 1, 3])), ("col.npy", npy(DType::I64, &[3], &[1i64, 2, 0]))];
    let by_columns = String::from_utf8_lossy(&npy(DType::I64, &[2, 3], &[0i64; 0])).into_owned();
    assert!(by_columns.contains("'fortran_order': False, "));
    let mut fortran = npy(DType::I64, &[2, 3], &[0i64, 1, 1, 2, 3, 0]);
    let at = fortran.windows(5).position(|word| word == b"False").unwrap();
    fortran[at..at + 5].copy_from_slice(b"True ");
    let fortran = [("edge_index.npy", fortran)];
    for members in [&pairs[..], &lists, &ends, &fortran] {
        let (archive, folder) = (bench.path("a.npz"), bench.path("folder"));
        write(&archive, zip(members, PACKED));
        let _ = std::fs::remove_dir_all(&folder);
        members.iter().for_each(|(name, bytes)| write(&folder.join(name), bytes));
        for source in [archive, folder] {
            for layout in [Layout::Csc, Layout::Csr] {
                let dataset = bench.ingest(&source, IngestOptions { layout, ..IngestOptions::default() });
                assert_eq!(edges(&dataset, 0), expected, "{}", members[0].0);
            }
        }
    }
    let dataset = bench.ingest(&bench.path("a.npz"), IngestOptions { reverse: Reverse::Add, ..Default::default() });
    assert_eq!(edges(&dataset, 0)[3..], [(1, 0), (2, 1), (0, 3)]);
}

#[test]
fn ogb_tables_of_one_kind() {
    let bench = Bench::new();
    let root = bench.path("arxiv");
    let table = |name: &str, text: &str| write_gz(&root.join(name), text);
    table("raw/edge.csv.gz", "0,1\n2,0\n");
    table("raw/num-node-list.csv.gz", "3\n");
    table("raw/num-edge-list.csv.gz", "2\n");
    table("raw/node-feat.csv.gz", "0.5,-1\n1e-3,2\n3,4\n");
    table("raw/node-label.csv.gz", "4\nnan\n0\n");
    table("raw/node_year.csv.gz", "2013\n2014\n2015\n");
    table("raw/edge-feat.csv.gz", "0.5,7\n0.25,8\n");
    table("split/time/train.csv.gz", "2\n0\n");
    table("split/time/valid.csv.gz", "1\n");
    table("split/time/test.csv.gz", "");
    let dataset = bench.ingest(&root, IngestOptions { reverse: Reverse::Add, ..Default::default() });
    assert_eq!(edge_features(&dataset, 0), (vec![4, 2], vec![0.5, 7.0, 0.25, 8.0, 0.5, 7.0, 0.25, 8.0]));
    let dataset = bench.ingest(&root, IngestOptions::default());
    assert_eq!(edge_features(&dataset, 0), (vec![2, 2], vec![0.5, 7.0, 0.25, 8.0]));
    assert_eq!((edges(&dataset, 0), labels(&dataset, 0)), (vec![(0, 1), (2, 0)], vec![4, -1, 0]));
    assert_eq!(&dataset.features(0).unwrap().column::<f32>().unwrap()[..], [0.5, -1.0, 1e-3, 2.0, 3.0, 4.0]);
    assert_eq!(&dataset.times(0).unwrap().column::<i64>().unwrap()[..], [2013, 2014, 2015]);
    assert_eq!((split(&dataset, 0, Split::Train), split(&dataset, 0, Split::Test)), (vec![2, 0], vec![]));

    std::fs::remove_file(root.join("split/time/train.csv.gz")).unwrap();
    write(&root.join("split/time/split_dict.pt"), "PK");
    let fresh = Bench::new();
    let said = fresh.refusal(&root, IngestOptions::default());
    assert!(said.contains("split_dict.pt: is a pickle") && said.contains("{train,valid,test}.csv.gz"), "{said}");
}

#[test]
fn ogb_tables_of_several_kinds() {
    let bench = Bench::new();
    let root = bench.path("mag");
    let table = |name: &str, text: &str| write_gz(&root.join(name), text);
    table("raw/num-node-dict.csv.gz", "author,paper\n2,3\n");
    table("raw/triplet-type-list.csv.gz", "author,writes,paper\npaper,cites,paper\n");
    for (relation, text, count) in
        [("author___writes___paper", "0,2\n1,0\n", "2\n"), ("paper___cites___paper", "0,1\n", "1\n")]
    {
        table(&format!("raw/relations/{relation}/edge.csv.gz"), text);
        table(&format!("raw/relations/{relation}/num-edge-list.csv.gz"), count);
    }
    table("raw/relations/author___writes___paper/edge-feat.csv.gz", "1\n2\n");
    table("raw/node-feat/paper/node-feat.csv.gz", "1,2\n3,4\n5,6\n");
    table("raw/node-label/paper/node-label.csv.gz", "0\n1\n2\n");
    table("split/time/paper/train.csv.gz", "0\n");
    table("split/time/paper/valid.csv.gz", "1\n");
    table("split/time/paper/test.csv.gz", "2\n");
    let dataset = bench.ingest(&root, IngestOptions::default());
    assert_eq!(dataset.schema().relation_name(0), "author__writes__paper");
    assert_eq!((edges(&dataset, 0), edges(&dataset, 1)), (vec![(0, 2), (1, 0)], vec![(0, 1)]));
    assert_eq!((labels(&dataset, 1), split(&dataset, 1, Split::Test)), (vec![0, 1, 2], vec![2]));
    assert!(dataset.features(0).is_none() && dataset.features(1).unwrap().shape() == [3, 2]);
    assert!(edge_features(&dataset, 0) == (vec![2, 1], vec![1.0, 2.0]) && dataset.edge_features(1).is_none());
    // The reverse of a relation has its edges in the same order, so both share one file.
    let dataset = bench.ingest(&root, IngestOptions { reverse: Reverse::Add, ..Default::default() });
    let reverse = dataset.schema().relation("rev_writes").unwrap();
    assert_eq!(edges(&dataset, reverse), [(2, 0), (0, 1)]);
    let file = |at| dataset.edge_features(at).unwrap().path().to_owned();
    assert_eq!(file(reverse), file(0));

    table("raw/num-node-dict.csv.gz", "author,author\n2,3\n");
    let said = Bench::new().refusal(&root, IngestOptions::default());
    assert!(said.ends_with("node type \"author\" stands twice"), "{said}");
}

#[test]
fn papers_as_one_archive() {
    let bench = Bench::new();
    let root = bench.path("papers100M-bin");
    let halves: Vec<f16> = (0..6i8).map(|i| f16::from_f32(i.into())).collect();
    for wide in [false, true] {
        let members = [
            ("edge_index.npy", npy(DType::I64, &[2, 2], &[0i64, 2, 1, 0])),
            ("node_feat.npy", npy(DType::F16, &[3, 2], &halves)),
            ("node_year.npy", npy(DType::I64, &[3, 1], &[2001i64, 2002, 2003])),
            ("num_nodes_list.npy", npy(DType::I64, &[1], &[3i64])),
            ("num_edges_list.npy", npy(DType::I64, &[1], &[2i64])),
            ("edge_feat.npy", npy(DType::F32, &[2, 1], &[3f32, 4.0])),
        ];
        write(&root.join("raw/data.npz"), zip(&members, ZipStyle { deflate: true, wide }));
        let label = npy(DType::F32, &[3, 1], &[f32::NAN, 1.0, 0.0]);
        write(&root.join("raw/node-label.npz"), zip(&[("node_label.npy", label)], PACKED));
        write_gz(&root.join("split/time/train.csv.gz"), "1\n");
        write_gz(&root.join("split/time/valid.csv.gz"), "2\n");
        write_gz(&root.join("split/time/test.csv.gz"), "");
        let dataset = bench.ingest(&root, IngestOptions::default());
        assert_eq!((edges(&dataset, 0), labels(&dataset, 0)), (vec![(0, 1), (2, 0)], vec![-1, 1, 0]));
        assert_eq!(&dataset.features(0).unwrap().column::<f16>().unwrap()[..], halves);
        assert_eq!(&dataset.times(0).unwrap().column::<i64>().unwrap()[..], [2001, 2002, 2003]);
        assert_eq!(edge_features(&dataset, 0), (vec![2, 1], vec![3.0, 4.0]));
    }
}

#[test]
fn mag240m_without_its_pickles() {
    let bench = Bench::new();
    let root = bench.path("mag240m_kddcup2021");
    let array = |name: &str, bytes: Vec<u8>| write(&root.join(name), bytes);
    array("processed/paper/node_feat.npy", npy(DType::F16, &[3, 1], &[f16::ONE, f16::ZERO, f16::ONE]));
    array("processed/paper/node_label.npy", npy(DType::F32, &[3], &[3.0f32, 0.0, f32::NAN]));
    array("processed/paper/node_year.npy", npy(headwater_tensor::npy::NpyType::I16, &[3], &[2018i16, 2019, 2020]));
    array("processed/author___writes___paper/edge_index.npy", npy(DType::I64, &[2, 2], &[0i64, 4, 2, 1]));
    array("processed/author___affiliated_with___institution/edge_index.npy", npy(DType::I64, &[2, 1], &[1i64, 0]));
    array("processed/paper___cites___paper/edge_index.npy", npy(DType::I64, &[2, 1], &[1i64, 0]));
    array("processed/paper___cites___paper/edge_feat.npy", npy(DType::F32, &[1, 2], &[1f32, 2.0]));
    array("meta.pt", b"PK".to_vec());
    let dataset = bench.ingest(&root, IngestOptions::default());
    let counts: Vec<(&str, u64)> = dataset.schema().node_types().iter().map(|t| (t.name.as_str(), t.count)).collect();
    assert_eq!(counts, [("author", 5), ("institution", 1), ("paper", 3)]);
    let writes = dataset.schema().relation("writes").unwrap();
    assert_eq!(edges(&dataset, writes), [(0, 2), (4, 1)]);
    let cites = dataset.schema().relation("cites").unwrap();
    assert_eq!(edge_features(&dataset, cites), (vec![1, 2], vec![1.0, 2.0]));
    assert_eq!((split(&dataset, 2, Split::Train), split(&dataset, 2, Split::Valid)), (vec![0], vec![1]));

    array("split/train.npy", npy(DType::I64, &[1], &[2i64]));
    let nodes = vec!["author=9".parse().unwrap()];
    let dataset = bench.ingest(&root, IngestOptions { nodes, ..IngestOptions::default() });
    assert_eq!((dataset.schema().node_types()[0].count, split(&dataset, 2, Split::Train)), (9, vec![2]));
    let nodes = vec!["author=4".parse().unwrap()];
    let said = Bench::new().refusal(&root, IngestOptions { nodes, ..IngestOptions::default() });
    assert!(said.ends_with("edge_index.npy: source[1]: id 4 is out of range: there are 4 author nodes"), "{said}");
}
