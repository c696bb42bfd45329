//! Reading a dataset: the manifest is checked, the arrays are mapped, nothing is copied.
//!
//! Opening looks at the manifest and its checksum, at the header and length of every file, and at the checksums of small
//! files, so it takes milliseconds whatever the size. Whether all bytes are those that were written is what
//! [`Dataset::verify`] finds out, and it reads them all. Whoever writes a dataset anew verifies first: damage would get fresh
//! checksums.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::array::Array;
use super::manifest::{EdgeFiles, Manifest, Split, read_text};
use super::{MANIFEST, names, seal, verify};
use crate::column::Ids;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::progress::Progress;
use crate::schema::Schema;
use crate::topology::{Layout, Topology};

/// An open dataset.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Empty for one that is in memory alone.
    pub(super) folder: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) schema: Schema,
    pub(super) arrays: BTreeMap<String, Array>,
    /// Whether every byte was read and found to be what was written.
    pub(super) verified: Arc<AtomicBool>,
}

impl Dataset {
    /// Opens the dataset in a folder, after a quick check: the manifest has its checksum, every file the length and the
    /// header that the manifest says, and files of up to 64 KiB, as far as they are 4 MiB together, have their checksums.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(MANIFEST);
        let text = read_text(&path)?;
        let manifest = Manifest::parse(&text, &path)?;
        let schema = manifest.schema()?;
        let open = |(name, entry)| Ok((String::clone(name), Array::open(&dir.join(name), entry)?));
        let arrays = manifest.files.iter().map(open).collect::<Result<_>>()?;
        seal::check(&text, &path)?;
        verify::small_files(dir, &manifest)?;
        Ok(Self { folder: dir.to_owned(), manifest, schema, arrays, verified: Arc::default() })
    }

    /// Opens the dataset in a folder and reads all of it, as [`Dataset::verify`] does.
    pub fn open_verified(dir: &Path, progress: &dyn Progress) -> Result<Self> {
        let dataset = Self::open(dir)?;
        dataset.verify(progress)?;
        Ok(dataset)
    }

    /// The folder; an empty path for a dataset in memory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the manifest says.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The node types and relations.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The graph over the mapped arrays. Ends and lengths are checked, not every list.
    pub fn graph(&self) -> Result<Graph> {
        let topologies = (0..self.manifest.relations.len()).map(|at| self.topology(at)).collect::<Result<_>>()?;
        Graph::new(self.schema.clone(), topologies)
    }

    /// One relation of the graph.
    pub fn topology(&self, at: usize) -> Result<Topology> {
        let relation = &self.schema.relations()[at];
        let columns = match self.manifest.layout {
            Layout::Csr => relation.target,
            Layout::Csc => relation.source,
        };
        let files = &self.manifest.relations[at].files;
        let EdgeFiles { offsets, neighbours, edge_ids, weights, times, labels: _, features: _, order } = files;
        let (offsets, neighbours) = (self.file(offsets)?.column()?, self.file(neighbours)?.ids()?);
        let columns = self.schema.node_types()[columns].count;
        let mut made = Topology::trusted(self.manifest.layout, columns, offsets, neighbours)?.with_order(*order);
        if let Some(edge_ids) = edge_ids {
            made = made.with_edge_ids(self.file(edge_ids)?.ids()?)?;
        }
        if let Some(weights) = weights {
            made = made.with_trusted_weights(self.file(weights)?.column()?)?;
        }
        if let Some(times) = times {
            made = made.with_times(self.file(times)?.column()?)?;
        }
        Ok(made)
    }

    /// An array by the name it was written under or by its file's name.
    #[must_use]
    pub fn array(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name).or_else(|| self.arrays.get(&names::file_name(name)))
    }

    /// The features of the node type at a position of the schema.
    #[must_use]
    pub fn features(&self, node_type: usize) -> Option<&Array> {
        self.array(self.manifest.nodes.get(node_type)?.files.features.as_ref()?)
    }

    /// The labels of a node type.
    #[must_use]
    pub fn labels(&self, node_type: usize) -> Option<&Array> {
        self.array(self.manifest.nodes.get(node_type)?.files.labels.as_ref()?)
    }

    /// The times of a node type.
    #[must_use]
    pub fn times(&self, node_type: usize) -> Option<&Array> {
        self.array(self.manifest.nodes.get(node_type)?.files.times.as_ref()?)
    }

    /// The features of the edges of a relation, one row an edge id.
    #[must_use]
    pub fn edge_features(&self, relation: usize) -> Option<&Array> {
        self.array(self.manifest.relations.get(relation)?.files.features.as_ref()?)
    }

    /// The nodes of a split. Every id is checked.
    pub fn split(&self, node_type: usize, split: Split) -> Result<Option<Ids>> {
        let Some(node) = self.manifest.nodes.get(node_type) else { return Ok(None) };
        let Some(file) = node.files.splits.get(split) else { return Ok(None) };
        let ids = self.file(file)?.ids()?;
        let bad = ids.iter().position(|id| id >= node.count);
        match bad {
            Some(at) => {
                let (position, id, limit) = (at as u64, ids.at(at), node.count);
                Err(Error::IdOutOfRange { name: split.name(), position, id, limit })
            }
            None => Ok(Some(ids)),
        }
    }

    /// What nodes of a type were called where the dataset came from: numbers, or the bytes of names with where each begins.
    pub(super) fn original_ids(&self, node_type: usize) -> Result<Option<(&Array, Option<&Array>)>> {
        let Some(files) = self.manifest.nodes.get(node_type).map(|entry| &entry.files) else { return Ok(None) };
        let Some(ids) = &files.original_ids else { return Ok(None) };
        let offsets = files.original_id_offsets.as_ref().map(|offsets| self.file(offsets)).transpose()?;
        Ok(Some((self.file(ids)?, offsets)))
    }

    /// What a node was called where the dataset came from, when that is known.
    pub fn original_id(&self, node_type: usize, node: u64) -> Result<Option<String>> {
        let Some((ids, offsets)) = self.original_ids(node_type)? else { return Ok(None) };
        let limit = self.schema.node_types()[node_type].count;
        let Some(at) = usize::try_from(node).ok().filter(|_| node < limit) else {
            return Err(Error::IdOutOfRange { name: "original ids", position: 0, id: node, limit });
        };
        let Some(offsets) = offsets else { return Ok(Some(ids.integer_at(at)?.to_string())) };
        let offsets = offsets.column::<u64>()?;
        let range = usize::try_from(offsets[at]).unwrap_or(usize::MAX)..usize::try_from(offsets[at + 1]).unwrap_or(0);
        let name = ids.data().as_slice().get(range).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let wrong = || Error::ArrayFile {
            path: ids.path().to_owned(),
            what: "a name",
            found: format!("damaged at node {node}"),
            expected: "UTF-8 where the offsets say".into(),
        };
        name.map(|name| Some(name.to_owned())).ok_or_else(wrong)
    }

    /// Reads every file and compares its checksum, the manifest's first. What differs first is the error. Progress is
    /// counted in bytes. A dataset in memory has nothing to compare with.
    pub fn verify(&self, progress: &dyn Progress) -> Result<()> {
        if self.is_held() {
            return Ok(());
        }
        verify::verify(&self.folder, &self.manifest, progress)?;
        self.verified.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// As [`Dataset::verify`], unless that was done already. Nothing is written out of a dataset before this.
    pub(super) fn verify_once(&self, progress: &dyn Progress) -> Result<()> {
        if self.verified.load(Ordering::Relaxed) { Ok(()) } else { self.verify(progress) }
    }

    pub(super) fn file(&self, file: &str) -> Result<&Array> {
        let missing = || Error::Manifest { path: self.folder.join(MANIFEST), why: format!("{file:?} is not listed") };
        self.arrays.get(file).ok_or_else(missing)
    }
}
