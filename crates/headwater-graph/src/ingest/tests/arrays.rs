//! Named arrays of every type and form, against what they plainly mean.

use half::f16;
use headwater_tensor::DType;
use headwater_tensor::npy::NpyType;
use proptest::prelude::*;

use super::super::testing::{ZipStyle, npy, write, zip};
use super::*;

const STORED: ZipStyle = ZipStyle { deflate: false, wide: false };

type Member = (&'static str, Vec<u8>);

fn source(bench: &Bench, members: &[Member]) -> PathBuf {
    let path = bench.path("graph.npz");
    let edges = ("edge_index.npy", npy(DType::I64, &[2, 2], &[0i64, 1, 1, 2]));
    write(&path, zip(&[&[edges, ("num_nodes.npy", npy(DType::I64, &[], &[3i64]))], members].concat(), STORED));
    path
}

fn with_labels(labels: LabelKind) -> IngestOptions {
    IngestOptions { labels, ..IngestOptions::default() }
}

#[test]
fn features_of_any_type_are_such_that_can_be_trained_on() {
    let bench = Bench::new();
    let (whole, halves) = ([1.0f32, 0.0, 1.0, 1.0, 0.0, 0.0], [0.5f32, 1.0, 1.5, 2.0, 2.5, 3.0]);
    let bits = [1u8, 0, 1, 1, 0, 0];
    for (member, dtype, expected) in [
        (npy(DType::Bool, &[3, 2], &bits), "float32", whole),
        (npy(DType::U8, &[3, 2], &bits), "float32", whole),
        (npy(DType::I8, &[3, 2], &bits.map(|bit| bit.cast_signed())), "float32", whole),
        (npy(NpyType::I16, &[3, 2], &bits.map(i16::from)), "float32", whole),
        (npy(NpyType::U16, &[3, 2], &bits.map(u16::from)), "float32", whole),
        (npy(DType::I32, &[3, 2], &bits.map(i32::from)), "float32", whole),
        (npy(NpyType::U32, &[3, 2], &bits.map(u32::from)), "float32", whole),
        (npy(DType::I64, &[3, 2], &bits.map(i64::from)), "float32", whole),
        (npy(NpyType::U64, &[3, 2], &bits.map(u64::from)), "float32", whole),
        (npy(DType::F64, &[3, 2], &halves.map(f64::from)), "float32", halves),
        (npy(DType::F32, &[3, 2], &halves), "float32", halves),
        (npy(DType::F16, &[3, 2], &halves.map(f16::from_f32)), "float16", halves),
    ] {
        let dataset = bench.ingest(&source(&bench, &[("x.npy", member)]), IngestOptions::default());
        let features = dataset.features(0).unwrap();
        assert_eq!(features.kind().name(), dtype);
        let found: Vec<f32> = match dtype {
            "float16" => features.column::<f16>().unwrap().iter().map(|value| value.to_f32()).collect(),
            _ => features.column::<f32>().unwrap().to_vec(),
        };
        assert_eq!(found, expected, "{dtype}");
    }
    std::fs::remove_dir_all(bench.out()).unwrap();
    for (member, words) in [
        (
            npy(DType::I64, &[3, 1], &[0i64, 16_777_217, 0]),
            "x[1]: 16777217 is not a number that single precision holds",
        ),
        (npy(NpyType::U64, &[3, 1], &[0, 0, u64::MAX]), "x[2]: a 64-bit number is not a number below 2^63"),
        (npy(DType::F64, &[3, 1], &[0.0, 1e300, 0.0]), "x[1]: 1"),
        (npy(DType::F32, &[3, 0], &[0f32; 0]), "x: has shape [3, 0]"),
    ] {
        let said = bench.refusal(&source(&bench, &[("x.npy", member)]), IngestOptions::default());
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn labels_are_classes_answers_or_numbers() {
    use LabelKind::{Auto, Values};
    let bench = Bench::new();
    for (member, kind, dtype, shape, classes) in [
        (npy(DType::I64, &[3], &[0i64, -1, 4]), Auto, "int64", &[3][..], Some(5)),
        (npy(DType::Bool, &[3, 1], &[0u8, 1, 1]), Auto, "int64", &[3], Some(2)),
        (npy(DType::F32, &[3], &[0f32, f32::NAN, 2.0]), Auto, "int64", &[3], Some(3)),
        (npy(DType::F32, &[3], &[0.5f32, 1.0, 2.0]), Auto, "float32", &[3], None),
        (npy(DType::F64, &[3, 1], &[1f64, 2.0, 3.0]), Values, "float32", &[3], None),
        (npy(DType::I32, &[3], &[1990i32, -5, 2000]), Values, "float32", &[3], None),
        (npy(DType::U8, &[3, 2], &[0u8, 1, 1, 0, 1, 1]), Auto, "int64", &[3, 2], None),
        (npy(DType::F16, &[3, 2], &[0.25, 1.0, 1.0, 0.0, 1.0, 1.0].map(f16::from_f32)), Auto, "float32", &[3, 2], None),
    ] {
        let dataset = bench.ingest(&source(&bench, &[("y.npy", member)]), with_labels(kind));
        let labels = dataset.labels(0).unwrap();
        assert_eq!(
            (labels.kind().name(), labels.shape(), dataset.manifest().nodes[0].files.classes),
            (dtype, shape, classes)
        );
    }
    std::fs::remove_dir_all(bench.out()).unwrap();
    for (member, words) in [
        (npy(DType::I64, &[3], &[0i64, -100, 1]), "y[1]: -100 is not a class"),
        (npy(DType::I64, &[3, 2], &[0i64, 1, 1, 5, 0, 0]), "y[3]: 5 is not 0 or 1, where a node has several"),
        (npy(DType::F32, &[3], &[0.5f32, f32::INFINITY, 1.0]), "y[1]: inf is not a number"),
        (npy(DType::I64, &[2], &[0i64, 1]), "y: 2 elements, but 3 nodes"),
    ] {
        let said = bench.refusal(&source(&bench, &[("y.npy", member)]), IngestOptions::default());
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn splits_are_ids_or_truth_values() {
    let bench = Bench::new();
    for (name, member) in [
        ("train_idx.npy", npy(DType::I64, &[2], &[0i64, 2])),
        ("train_idx.npy", npy(DType::I32, &[2, 1], &[0i32, 2])),
        ("train.npy", npy(DType::Bool, &[3], &[1u8, 0, 1])),
        ("train_mask.npy", npy(DType::U8, &[3], &[1u8, 0, 1])),
        ("train_mask.npy", npy(DType::Bool, &[3, 1], &[1u8, 0, 1])),
    ] {
        let dataset = bench.ingest(&source(&bench, &[(name, member)]), IngestOptions::default());
        let ids: Vec<u64> = dataset.split(0, crate::dataset::Split::Train).unwrap().unwrap().iter().collect();
        assert_eq!(ids, [0, 2], "{name}");
    }
    std::fs::remove_dir_all(bench.out()).unwrap();
    for (name, member, words) in [
        (
            "train_mask.npy",
            npy(DType::Bool, &[3, 2], &[1u8, 0, 1, 0, 0, 0]),
            "train_mask: has shape [3, 2]; a list is wanted",
        ),
        ("train_mask.npy", npy(DType::I64, &[3], &[0i64, 2, 1]), "train_mask[1]: 2 is not 0 or 1: the array is a mask"),
        ("train.npy", npy(DType::Bool, &[2], &[1u8, 0]), "train: 2 elements, but 3 nodes"),
        ("edge_weight.npy", npy(DType::F32, &[2, 2], &[1f32; 4]), "edge_weight: has shape [2, 2]; a list is wanted"),
    ] {
        let said = bench.refusal(&source(&bench, &[(name, member)]), IngestOptions::default());
        assert!(said.contains(words), "{said}");
    }
    let skip = IngestOptions { sparse_features: SparseFeatures::Skip, ..IngestOptions::default() };
    assert!(bench.refusal(&source(&bench, &[]), skip).contains("a form of sparse features"));
}

#[test]
fn sparse_features_are_summed_and_kept_as_asked() {
    let bench = Bench::new();
    let members = |values: [f32; 3]| {
        vec![
            ("x_indptr.npy", npy(DType::I64, &[4], &[0i64, 2, 2, 3])),
            ("x_indices.npy", npy(DType::I64, &[3], &[1i64, 1, 0])),
            ("x_values.npy", npy(DType::F32, &[3], &values)),
            ("x_shape.npy", npy(DType::I64, &[2], &[3i64, 2])),
        ]
    };
    let dataset = bench.ingest(&source(&bench, &members([1.0, 2.0, 5.0])), IngestOptions::default());
    let features = dataset.features(0).unwrap().column::<f32>().unwrap().to_vec();
    assert_eq!(features, [0.0, 3.0, 0.0, 0.0, 5.0, 0.0]);
    std::fs::remove_dir_all(bench.out()).unwrap();
    let half = IngestOptions { sparse_features: SparseFeatures::Half, ..IngestOptions::default() };
    let said = bench.refusal(&source(&bench, &members([1.0, 2.0, 1e6])), half);
    assert!(said.contains("x_values[2]: 1000000 is not a number that half precision holds"), "{said}");
    let none = bench.path("none.npz");
    write(&none, zip(&[("edge_index.npy", npy(DType::I64, &[2, 0], &[0i64; 0]))], STORED));
    assert!(bench.refusal(&none, IngestOptions::default()).contains("none.npz: there are no nodes in it"));
}

/// Where lists begin.
fn starts(ends: impl Iterator<Item = u64>, nodes: u64) -> Vec<i64> {
    let mut counts = vec![0i64; usize::try_from(nodes).unwrap() + 1];
    ends.for_each(|end| counts[usize::try_from(end).unwrap() + 1] += 1);
    let mut sum = 0;
    counts.iter().map(|count| (sum += count, sum).1).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn edges_in_any_form_are_the_same(
        nodes in 1u64..8,
        seeds in prop::collection::vec((any::<u64>(), any::<u64>()), 0..12),
        form in 0usize..5,
        narrow in any::<bool>(),
    ) {
        let bench = Bench { folder: if Path::new("/dev/shm").is_dir() { tempfile::tempdir_in("/dev/shm") } else { tempfile::tempdir() }.unwrap() };
        let mut edges: Vec<(u64, u64)> = seeds.iter().map(|(one, other)| (one % nodes, other % nodes)).collect();
        match form {
            3 => edges.sort_by_key(|edge| edge.0),
            4 => edges.sort_by_key(|edge| edge.1),
            _ => {}
        }
        let wide = |values: Vec<u64>| values.into_iter().map(|value| i64::try_from(value).unwrap()).collect::<Vec<i64>>();
        let sources = wide(edges.iter().map(|edge| edge.0).collect());
        let targets = wide(edges.iter().map(|edge| edge.1).collect());
        let array = |shape: &[usize], values: &[i64]| {
            if narrow && shape.len() == 1 {
                let values: Vec<u16> = values.iter().map(|value| u16::try_from(*value).unwrap()).collect();
                return npy(NpyType::U16, shape, &values);
            }
            npy(DType::I64, shape, values)
        };
        let both: Vec<i64> = sources.iter().zip(&targets).flat_map(|(one, other)| [*one, *other]).collect();
        let count = edges.len();
        let lists = usize::try_from(nodes).unwrap() + 1;
        let members: Vec<(&str, Vec<u8>)> = match form {
            0 => vec![("edge_index.npy", array(&[2, count], &[sources, targets].concat()))],
            // Two edges as rows look like two rows of ends, which is what they are taken for.
            1 if count != 2 => vec![("edge_index.npy", array(&[count, 2], &both))],
            1 | 2 => vec![("row.npy", array(&[count], &sources)), ("col.npy", array(&[count], &targets))],
            3 => vec![
                ("indptr.npy", array(&[lists], &starts(edges.iter().map(|edge| edge.0), nodes))),
                ("indices.npy", array(&[count], &targets)),
            ],
            _ => vec![
                ("colptr.npy", array(&[lists], &starts(edges.iter().map(|edge| edge.1), nodes))),
                ("row.npy", array(&[count], &sources)),
            ],
        };
        let path = bench.path("graph.npz");
        let number = ("num_nodes.npy", npy(DType::I64, &[], &[i64::try_from(nodes).unwrap()]));
        write(&path, zip(&[members, vec![number]].concat(), STORED));
        let read = Ingest::read(Some(&path), &bench.out(), IngestOptions::default(), &Silent).unwrap();
        prop_assert_eq!(read.collected.nodes[0].count, nodes);
        let mut collected = read.collected;
        let list = collected.relations.remove(0).edges.into_list();
        let ids = |ids: super::edges::GrowingIds| Ids::from(ids).iter().collect::<Vec<u64>>();
        let found: Vec<(u64, u64)> = ids(list.sources).into_iter().zip(ids(list.targets)).collect();
        prop_assert_eq!(found, edges, "form {}", form);
    }
}
