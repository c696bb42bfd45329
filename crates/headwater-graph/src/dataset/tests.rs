//! Whole datasets: written, read back, refused, damaged.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::{Ids, Layout, NodeType, Relation, Result, Schema, Silent, Topology};

/// Papers and authors, with everything a dataset can have.
fn schema() -> Schema {
    let node_types = [("paper", 4), ("author", 3)].map(|(name, count)| NodeType { name: name.into(), count });
    let relations = [(1, "writes", 0), (0, "cites", 0)];
    let relations = relations.map(|(source, name, target)| Relation { source, name: name.into(), target });
    Schema::new(node_types.into(), relations.into()).unwrap()
}

fn writes() -> Topology {
    let made = Topology::new(Layout::Csc, 3, vec![0u64, 2, 2, 3, 4].into(), vec![2u32, 0, 1, 1].into()).unwrap();
    let made = made.with_edge_ids(Ids::from(vec![3u64, 0, 2, 1])).unwrap();
    made.with_weights(vec![0.5, 0.0, 2.0, 1.0].into()).unwrap().with_times(vec![-1i64, 5, 7, 1 << 40].into()).unwrap()
}

fn cites() -> Topology {
    Topology::new(Layout::Csc, 4, vec![0u64, 0, 1, 1, 3].into(), vec![0u64, 3, 2].into()).unwrap()
}

fn describe() -> Description {
    let name = |name: &str| Some(name.to_owned());
    let papers = NodeFiles {
        features: name("paper.features"),
        labels: name("paper.labels"),
        classes: Some(3),
        original_ids: name("paper.names"),
        original_id_offsets: name("paper.name_offsets"),
        splits: Splits { train: name("paper.train"), valid: None, test: name("paper.test") },
        ..NodeFiles::default()
    };
    let authors = NodeFiles { original_ids: name("author.ids"), times: name("author.times"), ..NodeFiles::default() };
    let links = LinkFiles { triples: "links.test".into(), ..LinkFiles::default() };
    Description {
        nodes: vec![papers, authors],
        links: Links { test: Some(links), ..Links::default() },
        ..Description::new("citations", schema(), Layout::Csc, "made by a test")
    }
}

fn fill(writer: &DatasetWriter) -> Result<()> {
    writer.relation(0, &writes())?;
    writer.relation(1, &cites())?;
    let features = |rows: std::ops::Range<u64>, out: &mut [f32]| {
        for (row, out) in rows.zip(out.chunks_mut(2)) {
            out[1] = row as f32;
        }
    };
    writer.rows("paper.features", &[4, 2], features, &Silent)?;
    writer.array("paper.labels", &[4], &[0i64, -1, 2, 1])?;
    let mut names = writer.append::<u8>("paper.names", &[])?;
    for name in ["Graphs", "", "Größe", "x"] {
        names.push(name.as_bytes())?;
    }
    names.close()?;
    writer.array("paper.name_offsets", &[5], &[0u64, 6, 6, 13, 14])?;
    writer.array("paper.train", &[2], &[3u32, 0])?;
    writer.array("paper.test", &[1], &[2i64])?;
    writer.array("author.ids", &[3], &[-7i64, 0, i64::MAX])?;
    writer.array("author.times", &[3], &[1i64, 2, 3])?;
    writer.array("links.test", &[1, 3], &[2u32, 0, 1])
}

fn write(path: &Path) -> Result<()> {
    let writer = DatasetWriter::create(path)?;
    fill(&writer)?;
    writer.finish(describe())
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    (folder, path)
}

fn same(found: &Topology, expected: &Topology) {
    assert_eq!(found.offsets()[..], expected.offsets()[..]);
    assert!(found.neighbours().iter().eq(expected.neighbours().iter()));
    assert_eq!(found.neighbours().id_bytes(), expected.neighbours().id_bytes());
    assert_eq!(
        found.edge_ids().map(|ids| ids.iter().collect::<Vec<_>>()),
        expected.edge_ids().map(|ids| ids.iter().collect())
    );
    assert_eq!(found.weights().map(|w| w.to_vec()), expected.weights().map(|w| w.to_vec()));
    assert_eq!(found.times().map(|t| t.to_vec()), expected.times().map(|t| t.to_vec()));
    assert_eq!(
        (found.columns(), found.order(), found.layout()),
        (expected.columns(), expected.order(), expected.layout())
    );
}

fn check_content(path: &Path) {
    let dataset = Dataset::open(path).unwrap();
    dataset.verify(&Silent).unwrap();
    let graph = dataset.graph().unwrap();
    assert_eq!(graph.schema(), &schema());
    same(graph.relation(0), &writes());
    same(graph.relation(1), &cites());
    let features = dataset.features(0).unwrap();
    assert_eq!(
        (features.shape(), &features.column::<f32>().unwrap()[..]),
        (&[4, 2][..], &[0., 0., 0., 1., 0., 2., 0., 3.][..])
    );
    assert_eq!(dataset.labels(0).unwrap().column::<i64>().unwrap()[..], [0, -1, 2, 1]);
    assert_eq!(dataset.times(1).unwrap().column::<i64>().unwrap()[..], [1, 2, 3]);
    assert!(dataset.features(1).is_none() && dataset.features(9).is_none());
    let split = |split| dataset.split(0, split).unwrap().map(|ids| ids.iter().collect::<Vec<_>>());
    assert_eq!(Split::ALL.map(split), [Some(vec![3, 0]), None, Some(vec![2])]);
    let id = |node_type, node| dataset.original_id(node_type, node).unwrap().unwrap();
    assert_eq!([id(0, 0), id(0, 1), id(0, 2), id(1, 0)], ["Graphs", "", "Größe", "-7"]);
    assert!(dataset.original_id(0, 4).is_err());
    assert_eq!(dataset.manifest().links.test.as_ref().unwrap().triples, "links.test.npy");
    assert_eq!(dataset.array("links.test").unwrap().shape(), [1, 3]);
}

#[test]
fn what_is_written_is_read() {
    let (_folder, path) = folder();
    write(&path).unwrap();
    check_content(&path);
    let mut names: Vec<_> =
        fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 17, "{names:?}");
    for name in ["author__writes__paper.neighbours.npy", "paper__cites__paper.offsets.npy", "headwater.json"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
}
