//! Whole datasets: written, read back, refused, damaged.

mod large;
mod reordered;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Error, Ids, Layout, NodeType, Relation, Result, Schema, Silent, Topology};

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
        relations: vec![EdgeFiles { features: name("author__writes__paper.features"), ..EdgeFiles::default() }],
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
    writer.rows("author__writes__paper.features", &[4, 2], features, &Silent)?;
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

/// A folder written by a version of this format. It is never written again.
fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/dataset-{version}"))
}

#[test]
fn every_version_stays_readable() {
    for (version, has_edge_features) in [("1.0", false), ("1.1", true)] {
        check_content(&golden(version));
        let dataset = Dataset::open(&golden(version)).unwrap();
        assert_eq!(dataset.manifest().version, version);
        assert_eq!(dataset.edge_features(0).is_some_and(|array| array.shape() == [4, 2]), has_edge_features);
        assert_eq!(dataset.manifest().blake3.is_some(), has_edge_features);
        assert!(dataset.edge_features(1).is_none() && dataset.edge_features(9).is_none());
    }
}

/// Fails when the bytes written change: then the version must.
#[test]
fn what_is_written_is_version_1_1_to_the_byte() {
    let (_folder, path) = folder();
    write(&path).unwrap();
    let mut files = 0;
    let golden = golden("1.1");
    for entry in fs::read_dir(&golden).unwrap() {
        let name = entry.unwrap().file_name();
        assert_eq!(fs::read(golden.join(&name)).unwrap(), fs::read(path.join(&name)).unwrap(), "{name:?}");
        files += 1;
    }
    assert_eq!(files, fs::read_dir(&path).unwrap().count());
}

#[test]
fn what_is_written_is_read() {
    let (_folder, path) = folder();
    write(&path).unwrap();
    check_content(&path);
    let mut names: Vec<_> =
        fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 18, "{names:?}");
    for name in ["author__writes__paper.neighbours.npy", "paper__cites__paper.offsets.npy", "headwater.json"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
}

/// Longer than several blocks, in rows that do not divide them, filled, given and appended: the same bytes.
#[test]
fn three_ways_to_write_give_one_file() {
    let (_folder, path) = folder();
    let writer = DatasetWriter::create(&path).unwrap();
    let (rows, width) = (9_001u64, 77);
    let value = |row: u64, column: u64| u32::try_from(row * 1000 + column).unwrap();
    let all: Vec<u32> = (0..rows).flat_map(|row| (0..width).map(move |column| value(row, column))).collect();
    let fill = |rows: std::ops::Range<u64>, out: &mut [u32]| {
        let first = usize::try_from(rows.start * width).unwrap();
        out.copy_from_slice(&all[first..first + out.len()]);
    };
    writer.rows("filled", &[rows, width], fill, &Silent).unwrap();
    writer.array("given", &[rows, width], &all).unwrap();
    let mut growing = writer.append::<u32>("appended", &[width]).unwrap();
    all.chunks(100_003).for_each(|piece| growing.push(piece).unwrap());
    assert_eq!((growing.rows(), growing.close().unwrap()), (rows, rows));
    for (shape, is_array) in [(&[0u64, 5][..], true), (&[5, 0], true), (&[0, u64::MAX], true), (&[2, u64::MAX], false)]
    {
        let wrote = writer.rows(&format!("{shape:?}"), shape, |_, _: &mut [u8]| (), &Silent);
        assert_eq!(wrote.is_ok(), is_array, "{shape:?}");
    }
    assert!(matches!(writer.array("short", &[3], &[1u8, 2]), Err(Error::Length { found: 2, expected: 3, .. })));
    let folder = path.parent().unwrap().join(".data.partial");
    let bytes = |name: &str| fs::read(folder.join(name)).unwrap();
    assert_eq!(bytes("filled.npy"), bytes("given.npy"));
    assert_eq!(bytes("filled.npy"), bytes("appended.npy"));
    assert_eq!(bytes("filled.npy")[4096..], *bytemuck::cast_slice::<u32, u8>(&all));
}

#[test]
fn checksums_are_those_of_b3sum() {
    let (_folder, path) = folder();
    write(&path).unwrap();
    for (name, entry) in &Dataset::open(&path).unwrap().manifest().files {
        let whole = blake3::hash(&fs::read(path.join(name)).unwrap());
        assert_eq!(entry.blake3.to_string(), whole.to_hex().to_string(), "{name}");
    }
}

fn refusal(path: &Path, change: impl FnOnce(&DatasetWriter, &mut Description) -> Result<()>) -> String {
    let writer = DatasetWriter::create(path).unwrap();
    let mut description = describe();
    let finished =
        fill(&writer).and_then(|()| change(&writer, &mut description)).and_then(|()| writer.finish(description));
    assert!(fs::read_dir(path.parent().unwrap()).unwrap().next().is_none(), "something is left");
    finished.unwrap_err().to_string()
}

#[test]
fn a_description_that_does_not_fit_is_refused_and_leaves_nothing() {
    let (_folder, path) = folder();
    let refused = |words: &str, change: fn(&DatasetWriter, &mut Description) -> Result<()>| {
        let said = refusal(&path, change);
        assert!(said.contains(words), "{said}");
    };
    refused("\"none.npy\"", |_, d| {
        d.nodes[0].features = Some("none".into());
        Ok(())
    });
    refused("expected [4, ...]", |_, d| {
        d.nodes[0].labels = Some("paper.train".into());
        Ok(())
    });
    refused("expected int64", |_, d| {
        d.nodes[1].times = Some("author__writes__paper.weights".into());
        Ok(())
    });
    refused("[1, 3]", |w, d| {
        d.links.test.as_mut().unwrap().triples = "pairs".into();
        w.array("pairs", &[1, 2], &[0u32, 1])
    });
    refused("author__writes__paper is stored as Csc", |_, d| {
        d.layout = Layout::Csr;
        Ok(())
    });
    refused("the schema has 2", |w, _| w.relation(2, &cites()));
    refused("paper.labels.npy is taken", |w, _| w.array("paper.labels", &[1], &[1u8]));
    refused("paper_labels.npy is taken", |w, _| {
        w.array("paper/labels", &[1], &[1u8])?;
        w.array("paper_labels", &[1], &[1u8])
    });
    refused("relation paper__likes__paper were not written", |_, d| {
        let third = Relation { source: 0, name: "likes".into(), target: 0 };
        let relations = [d.schema.relations(), &[third]].concat();
        d.schema = Schema::new(d.schema.node_types().to_vec(), relations)?;
        Ok(())
    });
    refused("begun and not brought to its end", |w, _| w.append::<u8>("open", &[]).map(drop));
    refused("whole rows", |w, _| {
        let mut growing = w.append::<u8>("uneven", &[2])?;
        growing.push(&[1])?;
        growing.close().map(|_| ())
    });
    refused("columns", |_, d| {
        let node_types = [("paper", 4), ("author", 2)].map(|(name, count)| NodeType { name: name.into(), count });
        d.schema = Schema::new(node_types.into(), d.schema.relations().to_vec())?;
        d.nodes.truncate(1);
        Ok(())
    });
}

/// No disk has room for this, and the file system says so before anything is computed.
#[test]
fn a_disk_that_is_too_small_is_named_before_the_work() {
    let (_folder, path) = folder();
    let writer = DatasetWriter::create(&path).unwrap();
    let never = |_: std::ops::Range<u64>, _: &mut [u8]| unreachable!("there is no room");
    let said = writer.rows("vast", &[1 << 54], never, &Silent).unwrap_err();
    assert!(matches!(&said, Error::File { action: "write", path, .. } if path.ends_with("vast.npy")), "{said}");
    let said = writer.finish(describe()).unwrap_err().to_string();
    assert!(said.contains("writes"), "{said}");
    assert!(!path.exists() && fs::read_dir(path.parent().unwrap()).unwrap().next().is_none());
}

#[test]
fn an_array_still_open_is_not_lost_silently() {
    let (_folder, path) = folder();
    let writer = DatasetWriter::create(&path).unwrap();
    fill(&writer).unwrap();
    let growing = writer.append::<u8>("open", &[]).unwrap();
    assert!(writer.finish(describe()).unwrap_err().to_string().contains("close it first"));
    drop(growing);
    assert!(!path.exists());
}

fn edited(path: &Path, edit: impl FnOnce(&mut Value)) -> String {
    let file = path.join(MANIFEST);
    let before = fs::read(&file).unwrap();
    let mut value: Value = serde_json::from_slice(&before).unwrap();
    edit(&mut value);
    fs::write(&file, value.to_string()).unwrap();
    let said = Dataset::open(path).map(|_| ()).unwrap_err().to_string();
    fs::write(&file, before).unwrap();
    said
}

#[test]
fn manifests_that_lie_are_refused() {
    let (_folder, path) = folder();
    write(&path).unwrap();
    let edits: [(&str, Value, &str); 14] = [
        ("/version", json!("2.0"), "format version 2.0 is not read here"),
        ("/version", json!(1), "no manifest"),
        ("/format", json!("something"), "expected \"headwater dataset\""),
        ("/nodes/0/count", json!(5), "expected [5, ...]"),
        ("/nodes/0/count", json!(u64::MAX), "expected ["),
        ("/nodes/0/count", json!(-1), "invalid value"),
        ("/relations/0/edges", json!(5), "expected [5]"),
        ("/relations/0/source", json!("nobody"), "no node type \"nobody\""),
        ("/relations/0/offsets", json!("paper.train.npy"), "expected uint64"),
        ("/relations/0/neighbours", json!("../data/x.npy"), "not among the files"),
        ("/files/paper.train.npy/bytes", json!(1), "its length in bytes is 4104; expected 1"),
        ("/files/paper.train.npy/shape", json!([1]), "the shape is [2]; expected [1]"),
        ("/files/paper.train.npy/dtype", json!("int32"), "the element type is uint32; expected int32"),
        ("/files/paper.train.npy/blake3", json!("zz"), "no checksum"),
    ];
    for (pointer, value, words) in edits {
        let said = edited(&path, |manifest| *manifest.pointer_mut(pointer).unwrap() = value);
        assert!(said.contains(words), "{pointer}: {said}");
    }
    let said = edited(&path, |manifest| {
        let entry = manifest["files"]["paper.train.npy"].clone();
        manifest["files"]["../../outside.npy"] = entry;
    });
    assert!(said.contains("no plain file name"), "{said}");
    let said = edited(&path, |manifest| {
        let entry = manifest["files"]["paper.train.npy"].clone();
        (0..60_000).for_each(|at| manifest["files"][format!("{at}.npy")] = entry.clone());
    });
    assert!(said.contains("no more than 60000"), "{said}");
    // Fields that a later minor version may add do no harm.
    let file = path.join(MANIFEST);
    let mut value: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    (value["version"], value["news"]) = (json!("1.9"), json!({"x": [1, {}]}));
    value["blake3"] = json!(seal::sum(value.clone()).to_string());
    fs::write(&file, value.to_string()).unwrap();
    check_content(&path);
}

#[test]
fn a_manifest_has_a_checksum_of_what_it_says() {
    let (_folder, path) = folder();
    write(&path).unwrap();
    let file = path.join(MANIFEST);
    let text = fs::read_to_string(&file).unwrap();
    let verified = |text: String| {
        fs::write(&file, text).unwrap();
        let opened = Dataset::open(&path);
        opened.and_then(|dataset| dataset.verify(&Silent)).map_err(|error| error.to_string())
    };
    // Another indentation says the same; another name, another class and no checksum do not.
    assert_eq!(verified(text.replace("  ", " ")), Ok(()));
    for (from, to, words) in [
        ("citations", "quotations", "headwater.json: the checksum is"),
        ("\"classes\": 3", "\"classes\": 4", "headwater.json: the checksum is"),
        ("\"version\": \"1.1\"", "\"version\": \"1.0\"", "headwater.json: the checksum is"),
        ("  \"blake3\": \"", "  \"black3\": \"", "has no \"blake3\""),
    ] {
        let at = text.rfind(from).unwrap();
        let said = verified(format!("{}{to}{}", &text[..at], &text[at + from.len()..])).unwrap_err();
        assert!(said.contains(words), "{from}: {said}");
    }
}

#[test]
fn files_that_are_none_are_refused_without_waiting() {
    let (_folder, path) = folder();
    write(&path).unwrap();
    let file = path.join("paper.train.npy");
    fs::remove_file(&file).unwrap();
    assert!(Dataset::open(&path).unwrap_err().to_string().contains("paper.train.npy"));
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(Dataset::open(&path).unwrap_err().to_string().contains("a regular file"));
    assert!(Dataset::open(path.parent().unwrap()).unwrap_err().to_string().contains(MANIFEST));
}

#[test]
fn splits_name_nodes_that_are_there() {
    let (_folder, path) = folder();
    let writer = DatasetWriter::create(&path).unwrap();
    fill(&writer).unwrap();
    writer.array("far", &[2], &[0u64, 4]).unwrap();
    writer.array("negative", &[1], &[-1i64]).unwrap();
    let mut description = describe();
    description.nodes[0].splits.valid = Some("far".into());
    description.nodes[0].splits.test = Some("negative".into());
    writer.finish(description).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let far = dataset.split(0, Split::Valid).unwrap_err();
    assert!(matches!(far, Error::IdOutOfRange { name: "valid", position: 1, id: 4, limit: 4 }), "{far}");
    assert!(dataset.split(0, Split::Test).unwrap_err().to_string().contains("none below 0"));
}

/// Reads all there is to read.
fn read(path: &Path) -> Result<()> {
    let dataset = Dataset::open(path)?;
    // A mistake in the manifest may pass unseen; nothing may panic then either.
    let graph = dataset.graph()?;
    for at in 0..graph.relations().len() {
        let _ = crate::Degrees::of(graph.relation(at));
    }
    for node_type in 0..dataset.schema().node_types().len() {
        for split in Split::ALL {
            dataset.split(node_type, split)?;
        }
        dataset.original_id(node_type, 0)?;
    }
    dataset.verify(&Silent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn damage_is_found_and_named(which in 0usize..17, at in any::<prop::sample::Index>(), bits in 1u8.., cut in any::<bool>()) {
        let (_folder, path) = folder();
        write(&path).unwrap();
        let names: Vec<String> = Dataset::open(&path).unwrap().manifest().files.keys().cloned().collect();
        let name = &names[which % names.len()];
        let mut bytes = fs::read(path.join(name)).unwrap();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= bits;
        }
        // A new file: the old one's pages may still be mapped.
        fs::remove_file(path.join(name)).unwrap();
        fs::write(path.join(name), bytes).unwrap();
        let _ = read(&path);
        let said = Dataset::open(&path).and_then(|dataset| dataset.verify(&Silent)).unwrap_err().to_string();
        prop_assert!(said.contains(name.as_str()), "{}", said);
    }

    #[test]
    fn damaged_manifests_are_found(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let golden = golden("1.1");
        let before = fs::read(golden.join(MANIFEST)).unwrap();
        let mut text = before.clone();
        let at = at.index(text.len());
        if cut {
            text.truncate(at);
        } else {
            text[at] = byte;
        }
        let (_folder, path) = folder();
        fs::create_dir(&path).unwrap();
        for name in Dataset::open(&golden).unwrap().manifest().files.keys() {
            std::os::unix::fs::symlink(golden.join(name), path.join(name)).unwrap();
        }
        fs::write(path.join(MANIFEST), &text).unwrap();
        // White space may be lost; what the manifest says may not.
        let says = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
        prop_assert_eq!(read(&path).is_ok(), says(&text) == says(&before));
    }
}
