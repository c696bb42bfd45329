//! Writing a dataset: arrays in any order, then what they are.
//!
//! Arrays are written under names of the caller's choice and lie in files of (nearly) those names. Nothing of it is seen
//! before [`DatasetWriter::finish`] has checked that the description and the arrays agree, with the same rules a reader
//! checks, so what was finished can be opened.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_tensor::npy::{NpyElement, NpyType};

use super::describe::{Written, manifest, relation_array};
use super::growing::Growing;
use super::manifest::{EdgeFiles, FileEntry, Links, Manifest, NodeFiles};
use super::staged::Staged;
use super::{MANIFEST, array_file, names, refused, seal};
use crate::column::Ids;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::progress::{Progress, Silent};
use crate::schema::Schema;
use crate::topology::{Layout, Topology};

/// A dataset being written. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct DatasetWriter {
    files: Arc<Files>,
    relations: Mutex<BTreeMap<usize, Written>>,
}

/// What a dataset is, once its arrays are written. Arrays go by the names they were written under.
#[derive(Debug, Clone)]
pub struct Description {
    /// What it is called.
    pub name: String,
    /// Its node types and relations.
    pub schema: Schema,
    /// How its relations are stored.
    pub layout: Layout,
    /// The arrays of each node type, in the schema's order. May be shorter.
    pub nodes: Vec<NodeFiles>,
    /// The arrays of each relation, in the schema's order. May be shorter; what [`DatasetWriter::relation`] wrote stands
    /// where nothing is said.
    pub relations: Vec<EdgeFiles>,
    /// Edges to predict.
    pub links: Links,
    /// How it was made, in words.
    pub origin: String,
}

impl Description {
    /// A dataset that is nothing but a graph.
    #[must_use]
    pub fn new(name: impl Into<String>, schema: Schema, layout: Layout, origin: impl Into<String>) -> Self {
        let (nodes, relations, links) = (Vec::new(), Vec::new(), Links::default());
        Self { name: name.into(), schema, layout, nodes, relations, links, origin: origin.into() }
    }
}

impl DatasetWriter {
    /// Begins a dataset in a hidden folder beside `dir`, which must not be there or be empty.
    pub fn create(dir: &Path) -> Result<Self> {
        let files = Files { staged: Staged::create(dir)?, entries: Mutex::default() };
        Ok(Self { files: Arc::new(files), relations: Mutex::default() })
    }

    /// Writes an array that is in memory.
    pub fn array<T: NpyElement>(&self, name: &str, shape: &[u64], elements: &[T]) -> Result<()> {
        self.raw_array(name, T::KIND, shape, bytemuck::cast_slice(elements), &Silent)
    }

    /// As [`DatasetWriter::array`], for elements of any kind as their bytes.
    pub(super) fn raw_array(
        &self,
        name: &str,
        kind: NpyType,
        shape: &[u64],
        bytes: &[u8],
        progress: &dyn Progress,
    ) -> Result<()> {
        let file = self.files.reserve(name)?;
        let entry = array_file::write_bytes(&self.files.folder().join(&file), kind, shape, bytes, progress)?;
        self.files.put(&file, entry);
        Ok(())
    }

    /// Writes an array whose rows `fill` computes, by all threads, in blocks. `fill` gets the rows and their elements,
    /// which are zero. It must not depend on what it was asked before: blocks come in any order, and a row may be asked
    /// for twice. Progress is counted in bytes.
    pub fn rows<T: NpyElement>(
        &self,
        name: &str,
        shape: &[u64],
        fill: impl Fn(Range<u64>, &mut [T]) + Sync,
        progress: &dyn Progress,
    ) -> Result<()> {
        let file = self.files.reserve(name)?;
        let entry = array_file::write_rows(&self.files.folder().join(&file), shape, fill, progress)?;
        self.files.put(&file, entry);
        Ok(())
    }

    /// As [`DatasetWriter::rows`], for elements of any kind as their bytes.
    pub(super) fn raw_rows(
        &self,
        name: &str,
        kind: NpyType,
        shape: &[u64],
        progress: &dyn Progress,
        fill: impl Fn(Range<u64>, &mut [u8]) + Sync,
    ) -> Result<()> {
        let file = self.files.reserve(name)?;
        let entry = array_file::write_raw_rows(&self.files.folder().join(&file), kind, shape, fill, progress)?;
        self.files.put(&file, entry);
        Ok(())
    }

    /// Begins an array of unknown length: rows of `row_shape`, or single elements when that is empty. What is returned
    /// takes elements, and must be closed before the dataset is finished.
    pub fn append<T: NpyElement>(&self, name: &str, row_shape: &[u64]) -> Result<Growing<T>> {
        let file = self.files.reserve(name)?;
        Growing::begin(self.files.clone(), file, row_shape)
    }

    /// Writes the arrays of the relation at a position of the schema.
    pub fn relation(&self, at: usize, topology: &Topology) -> Result<()> {
        let ids = |name: String, ids: &Ids| match ids {
            Ids::U32(ids) => self.array(&name, &[ids.len() as u64], ids).map(|()| name),
            Ids::U64(ids) => self.array(&name, &[ids.len() as u64], ids).map(|()| name),
        };
        let edges = topology.edges();
        let name = |what: &str| relation_array(at, what);
        self.array(&name("offsets"), &[topology.rows() + 1], topology.offsets())?;
        let optional = |what, wrote: Option<Result<()>>| wrote.map(|wrote| wrote.map(|()| name(what))).transpose();
        let files = EdgeFiles {
            offsets: name("offsets"),
            neighbours: ids(name("neighbours"), topology.neighbours())?,
            edge_ids: topology.edge_ids().map(|edge_ids| ids(name("edge_ids"), edge_ids)).transpose()?,
            weights: optional("weights", topology.weights().map(|w| self.array(&name("weights"), &[edges], w)))?,
            times: optional("times", topology.times().map(|t| self.array(&name("times"), &[edges], t)))?,
            labels: None,
            features: None,
            order: topology.order(),
        };
        let written = Written { files, layout: topology.layout(), columns: topology.columns() };
        self.relations.lock().unwrap_or_else(PoisonError::into_inner).insert(at, written);
        Ok(())
    }

    /// Writes all relations of a graph.
    pub fn graph(&self, graph: &Graph) -> Result<()> {
        graph.relations().iter().enumerate().try_for_each(|(at, topology)| self.relation(at, topology))
    }

    /// Checks the description, brings everything to the disk and gives the folder its name.
    pub fn finish(self, description: Description) -> Result<()> {
        let relations = self.relations.into_inner().unwrap_or_else(PoisonError::into_inner);
        let files = Arc::into_inner(self.files);
        let files = files.ok_or_else(|| Error::DatasetFolder {
            path: description.name.clone().into(),
            why: "an array is still being appended to; close it first".into(),
        })?;
        let manifest = manifest(&files, description, relations)?;
        let manifest = seal::seal(manifest).map_err(|why| files.unfit(why.to_string()))?;
        let mut text = serde_json::to_string_pretty(&manifest).map_err(|why| files.unfit(why.to_string()))?;
        text.push('\n');
        Manifest::parse(text.as_bytes(), &files.staged.target().join(MANIFEST))?;
        files.staged.publish(Some((MANIFEST, text.as_bytes())))
    }
}

/// The files of a dataset being written.
#[derive(Debug)]
pub(super) struct Files {
    staged: Staged,
    /// By name; nothing while it is being written.
    entries: Mutex<BTreeMap<String, Option<FileEntry>>>,
}

impl Files {
    pub(super) fn folder(&self) -> &Path {
        self.staged.path()
    }

    /// An array that was begun is there.
    pub(super) fn put(&self, file: &str, entry: FileEntry) {
        self.lock().insert(file.to_owned(), Some(entry));
    }

    /// Takes a file's name for an array. Two arrays cannot have the same.
    pub(super) fn reserve(&self, name: &str) -> Result<String> {
        let file = names::file_name(name);
        match self.lock().entry(file.clone()) {
            Entry::Vacant(place) => place.insert(None),
            Entry::Occupied(_) => {
                let why = format!("array {name:?}: {file} is taken by another array; choose another name");
                return Err(self.unfit(why));
            }
        };
        Ok(file)
    }

    /// Gives an array that is there another name. Returns its new file.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<String> {
        let file = self.reserve(to)?;
        let (old, new) = (self.folder().join(from), self.folder().join(&file));
        std::fs::rename(&old, &new).map_err(refused("rename", &old))?;
        let entry = self.lock().remove(from).flatten();
        self.lock().insert(file.clone(), entry);
        Ok(file)
    }

    /// All files, or the name of one that was begun and never closed.
    pub(super) fn entries(&self) -> Result<BTreeMap<String, FileEntry>> {
        let closed = |(file, entry): (&String, &Option<FileEntry>)| match entry {
            Some(entry) => Ok((file.clone(), entry.clone())),
            None => Err(self.unfit(format!("{file} was begun and not brought to its end"))),
        };
        self.lock().iter().map(closed).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Option<FileEntry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn unfit(&self, why: String) -> Error {
        Error::DatasetFolder { path: self.staged.target().to_owned(), why }
    }
}
