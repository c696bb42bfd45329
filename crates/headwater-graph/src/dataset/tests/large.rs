//! A relation of more than 2^32 edges, nearly all of them in a hole of a sparse file: positions at and beyond 2^31 and 2^32
//! are read, counted and sampled, and opening touches none of the lists.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use headwater_tensor::npy::{NpyElement, NpyType};

use super::super::{array_file, seal};
use super::*;
use crate::random::Key;
use crate::sample::{NeighbourSampler, SampleOptions, Seeds};
use crate::{Degrees, Graph};

const EDGES: u64 = (1 << 32) + (1 << 20);
/// Lists end here: a hub, a short list across 2^31, nothing, a hub, a short list across 2^32, the rest.
const OFFSETS: [u64; 7] = [0, (1 << 31) - 4, (1 << 31) + 4, (1 << 31) + 4, (1 << 32) - 4, (1 << 32) + 4, EDGES];
const ITEMS: u64 = 1000;

/// An array of which only a few pieces are written. The rest is zero and lies nowhere.
fn sparse<T: NpyElement>(folder: &Path, name: &str, length: u64, pieces: &[(u64, Vec<T>)]) -> FileEntry {
    let (header, data_bytes) = array_file::header(T::KIND, &[length]).unwrap();
    let file = File::create(folder.join(name)).unwrap();
    file.set_len(array_file::HEADER_BYTES + data_bytes).unwrap();
    file.write_all_at(&header, 0).unwrap();
    for (at, elements) in pieces {
        let start = array_file::HEADER_BYTES + at * size_of::<T>() as u64;
        file.write_all_at(bytemuck::cast_slice(elements), start).unwrap();
    }
    let bytes = array_file::HEADER_BYTES + data_bytes;
    // Small files are looked at when a dataset is opened.
    let sum =
        if bytes < 1 << 16 { blake3::hash(&fs::read(folder.join(name)).unwrap()).to_string() } else { "0".repeat(64) };
    FileEntry { dtype: NpyType::name(T::KIND).to_owned(), shape: vec![length], bytes, blake3: sum.parse().unwrap() }
}

/// Items 10 to 17 cross 2^31, items 20 to 27 cross 2^32, items 30 to 33 come last. All others are item 0.
fn write_large(folder: &Path, offsets: &[u64; 7]) {
    let items = |from: u32, count: u32| (from..from + count).collect::<Vec<u32>>();
    let pieces = [(OFFSETS[1], items(10, 8)), (OFFSETS[4], items(20, 8)), (EDGES - 4, items(30, 4))];
    let files = BTreeMap::from([
        ("offsets.npy".to_owned(), sparse(folder, "offsets.npy", 7, &[(0, offsets.to_vec())])),
        ("neighbours.npy".to_owned(), sparse(folder, "neighbours.npy", EDGES, &pieces)),
    ]);
    let node = |name: &str, count| NodeEntry { name: name.into(), count, files: NodeFiles::default() };
    let (offsets, neighbours) = ("offsets.npy".into(), "neighbours.npy".into());
    let lists = EdgeFiles { offsets, neighbours, ..EdgeFiles::default() };
    let (source, name, target) = ("item".into(), "bought_by".into(), "user".into());
    let manifest = Manifest {
        format: super::super::manifest::FORMAT.into(),
        version: super::super::manifest::VERSION.into(),
        name: "large".into(),
        origin: "a test".into(),
        layout: Layout::Csc,
        nodes: vec![node("item", ITEMS), node("user", 6)],
        relations: vec![RelationEntry { source, name, target, edges: EDGES, files: lists }],
        links: Links::default(),
        files,
        blake3: None,
    };
    let text = serde_json::to_string(&seal::seal(manifest).unwrap()).unwrap();
    fs::write(folder.join(MANIFEST), text).unwrap();
}

/// Whether files here may have holes. Elsewhere the test would fill the disk.
fn has_holes(folder: &Path) -> bool {
    let path = folder.join("probe");
    let file = File::create(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    let blocks = file.metadata().unwrap().blocks();
    fs::remove_file(path).unwrap();
    blocks * 512 < 1 << 20
}

/// Nodes and edge ids of all or some neighbours of a user.
fn sampled(graph: &Graph, user: u64, fanout: i64) -> Vec<(u64, u64)> {
    let sampler = NeighbourSampler::new(graph.clone(), SampleOptions::fanouts(&[fanout]).unwrap()).unwrap();
    let seeds = Seeds { node_type: 1, nodes: &[user], times: None };
    let sample = sampler.sample(seeds, Key::new(user)).unwrap();
    let edges = &sample.edges[0];
    let node = |row: &u32| sample.nodes[0].ids[usize::try_from(*row).unwrap()];
    edges.row.iter().map(node).zip(edges.ids.clone().unwrap()).collect()
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped should say so")]
fn more_than_2_to_the_32_edges_are_read_counted_and_sampled() {
    let folder = tempfile::tempdir().unwrap();
    if !has_holes(folder.path()) {
        eprintln!("skipped: files in {} have no holes", folder.path().display());
        return;
    }
    write_large(folder.path(), &OFFSETS);
    let dataset = Dataset::open(folder.path()).unwrap();
    let graph = dataset.graph().unwrap();
    let topology = graph.relation(0);
    assert_eq!((graph.edges(), topology.bytes()), (EDGES, 7 * 8 + EDGES * 4));

    let expected: Vec<u64> = OFFSETS.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(topology.degrees(), expected);
    let degrees = Degrees::of(topology);
    assert_eq!((degrees.max, degrees.min, degrees.empty), (expected[0].max(expected[3]), 0, 1));
    let row = |user| topology.list(user).map(|at| topology.neighbours().at(at)).collect::<Vec<_>>();
    assert_eq!((row(1), row(2), row(4)), ((10..18).collect(), vec![], (20..28).collect()));
    assert!(topology.has_edge(1, 17) && topology.has_edge(4, 27) && !topology.has_edge(4, 17));
    assert_eq!((topology.edge_id(topology.list(5).end - 1), topology.list(5).end as u64), (EDGES - 1, EDGES));

    for (user, first_item) in [(1, 10), (4, 20)] {
        let mut all = sampled(&graph, user, -1);
        all.sort_unstable();
        let first = OFFSETS[usize::try_from(user).unwrap()];
        assert_eq!(all, (0..8).map(|at| (first_item + at, first + at)).collect::<Vec<_>>());
    }
    for user in [0, 3, 5] {
        let (list, some) = (topology.list(user), sampled(&graph, user, 60));
        assert!(some.iter().all(|(item, id)| {
            let at = usize::try_from(*id).unwrap();
            list.contains(&at) && topology.neighbours().at(at) == *item
        }));
        // Sixty draws from a long list reach both of its halves.
        let middle = (list.start + list.end) as u64 / 2;
        let late = some.iter().filter(|(_, id)| *id >= middle).count();
        assert!(some.len() == 60 && (10..50).contains(&late), "user {user}: {late} of {} are late", some.len());
    }
}

#[test]
fn large_files_that_lie_are_refused_without_reading_them() {
    let folder = tempfile::tempdir().unwrap();
    if !has_holes(folder.path()) {
        return;
    }
    for (last, words) in
        [(EDGES + 1, "neighbours has 4296015872 elements, but 4296015873"), (EDGES & 0xffff_ffff, "1048576")]
    {
        let mut offsets = OFFSETS;
        offsets[6] = last;
        write_large(folder.path(), &offsets);
        let said = Dataset::open(folder.path()).unwrap().graph().unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    let neighbours = File::options().write(true).open(folder.path().join("neighbours.npy")).unwrap();
    neighbours.set_len(array_file::HEADER_BYTES + (EDGES & 0xffff_ffff) * 4).unwrap();
    let said = Dataset::open(folder.path()).unwrap_err().to_string();
    assert!(said.contains("neighbours.npy: its length in bytes is"), "{said}");
}
