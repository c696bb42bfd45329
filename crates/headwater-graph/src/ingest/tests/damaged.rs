//! Every reader against its own small sources, cut everywhere and with bits turned everywhere: a dataset that is whole and
//! sound comes of it, or an error that names the source, and never anything else.

use half::f16;
use headwater_tensor::DType;
use headwater_tensor::npy::NpyType;

use super::super::testing::{ZipStyle, npy, packed, write, zip};
use super::*;

/// About as many places of a file are damaged.
const PLACES: usize = 32;

/// The files of a source below its folder. A source of one file has no name for it.
type Files = Vec<(&'static str, Vec<u8>)>;

/// Damages one file at a time and sees what an ingest makes of it.
fn survives(files: &Files) {
    // Memory where there is some to write to: a dataset is synced, and there are thousands of them.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let bench = Bench { folder };
    let source = bench.path("source");
    let at = |name: &str| if name.is_empty() { source.clone() } else { source.join(name) };
    files.iter().for_each(|(name, bytes)| write(&at(name), bytes));
    assert_eq!(tried(&bench, &source), Ok(()), "the source is sound before it is damaged");
    for (name, bytes) in files {
        for damaged in damages(bytes) {
            write(&at(name), &damaged);
            if let Err(said) = tried(&bench, &source) {
                assert!(said.contains(source.to_str().unwrap()), "{name}: the source is not named: {said}");
            }
        }
        write(&at(name), bytes);
    }
}

/// Cut short, and with bits turned.
fn damages(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let step = bytes.len().div_ceil(PLACES).max(1);
    (0..bytes.len()).step_by(step).flat_map(move |at| {
        let turned = [0x01, 0x10, 0xff].map(|bits| {
            let mut turned = bytes.to_vec();
            turned[at] ^= bits;
            turned
        });
        turned.into_iter().chain([bytes[..at].to_vec()])
    })
}

/// What an ingest says. What it finishes is sound, and what it does not finish is not there.
fn tried(bench: &Bench, source: &Path) -> Result<(), String> {
    let done = Ingest::read(Some(source), &bench.out(), IngestOptions::default(), &Silent)
        .and_then(|ingest| ingest.build(&Silent));
    assert_eq!(done.is_ok(), bench.out().exists());
    if done.is_ok() {
        let dataset = Dataset::open(&bench.out()).unwrap();
        dataset.verify(&Silent).unwrap();
        dataset.graph().unwrap().relations().iter().for_each(|topology| topology.check().unwrap());
        std::fs::remove_dir_all(bench.out()).unwrap();
    }
    done.map(|_| ()).map_err(|error| error.to_string())
}

fn longs(shape: &[usize], values: &[i64]) -> Vec<u8> {
    npy(DType::I64, shape, values)
}

#[test]
fn edge_lists() {
    let text = "source,target,w\nx,1,0.5\n\"a,b\",2,1\n# c\ny,z,1e3\n";
    survives(&vec![("", text.into())]);
    survives(&vec![("", packed(&"10\t11\n12\t13\n".repeat(9)))]);
}

#[test]
fn arrays_and_archives() {
    survives(&vec![("", longs(&[2, 3], &[0, 1, 2, 3, 4, 5]))]);
    let members = [
        ("edge_index.npy", longs(&[2, 2], &[0, 1, 1, 2])),
        ("x_indptr.npy", longs(&[4], &[0, 1, 1, 2])),
        ("x_indices.npy", longs(&[2], &[1, 0])),
        ("x_values.npy", npy(DType::F32, &[2], &[1f32, 2.0])),
        ("x_shape.npy", longs(&[2], &[3, 2])),
        ("edge_attr.npy", npy(DType::F16, &[2, 1], &[f16::ONE, f16::ZERO])),
    ];
    let files: Files = members.to_vec();
    survives(&files);
    for style in [ZipStyle { deflate: true, wide: false }, ZipStyle { deflate: false, wide: true }] {
        survives(&vec![("", zip(&members[..1], style))]);
    }
}

#[test]
fn lists_and_triples() {
    survives(&vec![("indptr.npy", longs(&[4], &[0, 1, 1, 2])), ("indices.npy", longs(&[2], &[2, 0]))]);
    survives(&vec![
        ("head.npy", longs(&[2], &[0, 1])),
        ("rel.npy", longs(&[2], &[0, 1])),
        ("tail.npy", longs(&[2], &[1, 2])),
        ("split.npy", npy(DType::I8, &[2], &[0i8, 2])),
    ]);
}

#[test]
fn ogb_tables_of_one_kind() {
    survives(&vec![
        ("raw/edge.csv.gz", packed("0,1\n2,0\n")),
        ("raw/num-node-list.csv.gz", packed("3\n")),
        ("raw/num-edge-list.csv.gz", "2\n".into()),
        ("raw/node-feat.csv.gz", "0.5,-1\n1e-3,2\n3,4\n".into()),
        ("raw/node-label.csv.gz", "4\nnan\n0\n".into()),
        ("raw/edge-feat.csv.gz", "1,2\n3,4\n".into()),
        ("split/time/train.csv.gz", "2\n".into()),
        ("split/time/valid.csv.gz", "1\n".into()),
        ("split/time/test.csv.gz", "0\n".into()),
    ]);
}

#[test]
fn ogb_tables_of_several_kinds() {
    survives(&vec![
        ("raw/num-node-dict.csv.gz", "author,paper\n2,3\n".into()),
        ("raw/triplet-type-list.csv.gz", packed("author,writes,paper\n")),
        ("raw/relations/author___writes___paper/edge.csv.gz", "0,2\n1,0\n".into()),
        ("raw/relations/author___writes___paper/num-edge-list.csv.gz", "2\n".into()),
        ("raw/relations/author___writes___paper/edge-feat.csv.gz", "1\n2\n".into()),
        ("raw/node-label/paper/node-label.csv.gz", "0\n1\n2\n".into()),
    ]);
}

#[test]
fn papers_and_mag240m() {
    let members = [
        ("edge_index.npy", longs(&[2, 2], &[0, 2, 1, 0])),
        ("num_nodes_list.npy", longs(&[1], &[3])),
        ("num_edges_list.npy", longs(&[1], &[2])),
    ];
    survives(&vec![("raw/data.npz", zip(&members, ZipStyle { deflate: true, wide: true }))]);
    survives(&vec![
        ("processed/paper/node_label.npy", npy(DType::F32, &[3], &[3.0f32, 0.0, f32::NAN])),
        ("processed/paper/node_year.npy", npy(NpyType::I16, &[3], &[2018i16, 2019, 2020])),
        ("processed/author___writes___paper/edge_index.npy", longs(&[2, 2], &[0, 4, 2, 1])),
        ("split/train.npy", longs(&[1], &[2])),
    ]);
}
