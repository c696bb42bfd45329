//! Whole sources of every format, good and bad, into datasets.

mod arrays;
mod bad;
mod damaged;
mod folders;
mod real;
mod reference;
mod text;

use std::path::{Path, PathBuf};

use super::*;
use crate::dataset::Dataset;
use crate::progress::Silent;

/// A folder with a source in it and room for a dataset.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// Ingests, and opens and checks what came out.
    fn ingest(&self, source: &Path, options: IngestOptions) -> Dataset {
        let _ = std::fs::remove_dir_all(self.out());
        Ingest::read(Some(source), &self.out(), options, &Silent).unwrap().build(&Silent).unwrap();
        let dataset = Dataset::open(&self.out()).unwrap();
        dataset.verify(&Silent).unwrap();
        dataset
    }

    /// What an ingest that fails says. Nothing may be left of it.
    fn refusal(&self, source: &Path, options: IngestOptions) -> String {
        let failed = Ingest::read(Some(source), &self.out(), options, &Silent).and_then(|ingest| ingest.build(&Silent));
        assert!(!self.out().exists(), "a failed ingest left a dataset");
        failed.unwrap_err().to_string()
    }
}

/// All edges of a relation as (source, target, id), in the order of their ids.
fn edges(dataset: &Dataset, relation: usize) -> Vec<(u64, u64)> {
    let topology = dataset.topology(relation).unwrap();
    let mut found: Vec<(u64, u64, u64)> = Vec::new();
    for row in 0..topology.rows() {
        for at in topology.list(row) {
            let neighbour = topology.neighbours().at(at);
            let (source, target) = if topology.layout() == Layout::Csc { (neighbour, row) } else { (row, neighbour) };
            found.push((topology.edge_id(at), source, target));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, source, target)| (source, target)).collect()
}

fn original_ids(dataset: &Dataset, node_type: usize) -> Vec<Option<String>> {
    let count = dataset.schema().node_types()[node_type].count;
    (0..count).map(|node| dataset.original_id(node_type, node).unwrap()).collect()
}

fn words(list: &[&str]) -> Vec<Option<String>> {
    list.iter().map(|word| Some((*word).to_owned())).collect()
}
