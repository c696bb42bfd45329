//! What the targets share: a folder in memory for sources and datasets, and everything a reader can be asked for.

use std::path::{Path, PathBuf};

use headwater_graph::dataset::{Dataset, MANIFEST, Split, export_npy};
use headwater_graph::ingest::{Ingest, IngestOptions};
use headwater_graph::random::Key;
use headwater_graph::sample::{NeighbourSampler, SampleOptions, Seeds};
use headwater_graph::{Degrees, Silent, isolated};
use headwater_tensor::DType;
use headwater_tensor::npy::{NpyType, header_bytes};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// A folder that is gone when the input is done with.
pub struct Place(tempfile::TempDir);

impl Place {
    /// In memory where there is some to write to: datasets are synced.
    #[must_use]
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self(folder.expect("a folder can be made"))
    }

    /// Path of the folder, below which inputs are written.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file below it.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder can be made");
        std::fs::write(path, bytes).expect("a file can be written");
    }

    /// Ingests what is called `source`. What is finished must be sound.
    pub fn ingest(&self) {
        let (source, out) = (self.0.path().join("source"), self.0.path().join("out"));
        let done = Ingest::read(Some(&source), &out, IngestOptions::default(), &Silent)
            .and_then(|ingest| ingest.build(&Silent));
        assert_eq!(done.is_ok(), out.exists());
        if done.is_ok() {
            let dataset = Dataset::open(&out).expect("what was finished opens");
            dataset.verify(&Silent).expect("what was finished is whole");
            let graph = dataset.graph().expect("what was finished is a graph");
            graph.relations().iter().for_each(|topology| topology.check().expect("what was finished is sound"));
        }
    }

    /// Copies the dataset of the tests; returns the names of its files.
    #[must_use]
    pub fn copy_golden(&self) -> Vec<String> {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/headwater-graph/tests/golden/dataset-1.1");
        let entries = std::fs::read_dir(&golden).expect("the tests have a dataset");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("it is readable").file_name();
        let mut names: Vec<String> = entries.map(name).map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        for name in &names {
            self.write(&format!("dataset/{name}"), &std::fs::read(golden.join(name)).expect("it is readable"));
        }
        names
    }

    /// Overwrites a part of a file, or cuts it there. The data of arrays begins after a long header.
    pub fn change(&self, name: &str, at: usize, bytes: &[u8], cut: bool) {
        let path = self.dataset().join(name);
        let mut content = std::fs::read(&path).expect("it is readable");
        let at = at.min(content.len());
        let end = (at + bytes.len()).min(content.len());
        match (name == MANIFEST, cut) {
            // Text may grow.
            (true, false) => drop(content.splice(at..end, bytes.iter().copied())),
            (false, false) => content[at..end].copy_from_slice(&bytes[..end - at]),
            (_, true) => content.truncate(at),
        }
        std::fs::remove_file(&path).expect("it can be replaced");
        std::fs::write(path, content).expect("it can be replaced");
    }

    /// Reads, samples and exports what is called `dataset`.
    pub fn read_all(&self) {
        let Ok(dataset) = Dataset::open(&self.dataset()) else { return };
        let _ = dataset.verify(&Silent);
        for node_type in 0..dataset.schema().node_types().len() {
            Split::ALL.into_iter().for_each(|split| drop(dataset.split(node_type, split)));
            (0..5).for_each(|node| drop(dataset.original_id(node_type, node)));
        }
        let _ = export_npy(&dataset, &self.0.path().join("exported"), &Silent);
        let Ok(graph) = dataset.graph() else { return };
        graph.relations().iter().for_each(|topology| drop(Degrees::of(topology)));
        let _ = isolated(&graph);
        for fanout in [-1, 2] {
            let options = SampleOptions::fanouts(&[fanout, fanout]).expect("these are fan-outs");
            let Ok(sampler) = NeighbourSampler::new(graph.clone(), options) else { continue };
            for node_type in 0..dataset.schema().node_types().len() {
                let _ = sampler.sample(Seeds { node_type, nodes: &[0, 1, 2], times: None }, Key::new(1));
            }
        }
    }

    fn dataset(&self) -> PathBuf {
        self.0.path().join("dataset")
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

/// An array with a header that fits it, more or less.
#[derive(Debug, Arbitrary)]
pub struct FuzzArray {
    kind: u8,
    shape: Vec<u8>,
    /// Small numbers, which ids are.
    small: bool,
    content: Vec<u8>,
}

impl FuzzArray {
    /// The file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        const KINDS: [NpyType; 8] = [
            NpyType::Tensor(DType::I64),
            NpyType::Tensor(DType::I32),
            NpyType::Tensor(DType::F32),
            NpyType::Tensor(DType::F64),
            NpyType::Tensor(DType::Bool),
            NpyType::U64,
            NpyType::I16,
            NpyType::Tensor(DType::F16),
        ];
        let kind = KINDS[usize::from(self.kind) % KINDS.len()];
        let shape: Vec<usize> = self.shape.iter().take(3).map(|dim| usize::from(*dim)).collect();
        let elements: usize = shape.iter().product();
        let mut content: Vec<u8> = if self.small {
            let wide = |byte: &u8| std::iter::once(*byte).chain(std::iter::repeat_n(0, kind.size_bytes() - 1));
            self.content.iter().flat_map(wide).collect()
        } else {
            self.content.clone()
        };
        content.resize((elements * kind.size_bytes()).min(1 << 20), 0);
        [header_bytes(kind, &shape), content].concat()
    }
}
