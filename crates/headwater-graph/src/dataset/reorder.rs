//! A dataset with its nodes renumbered: lists, features, labels, splits and everything else that names a node.
//!
//! Written as any dataset is: beside the old one, and seen when it is whole. Features, labels and times stream from the old
//! files to the new ones; the lists of one relation, the names of one type and the links of one split are in memory at a
//! time. Every node remembers its number in the dataset it began as.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use super::array::Array;
use super::loader::Dataset;
use super::manifest::{EdgeFiles, LinkFiles, Links, NodeFiles, Split, Splits};
use super::writer::{DatasetWriter, Description};
use crate::build::expect_room;
use crate::column::Ids;
use crate::error::{Error, Result};
use crate::lane::EdgeIds;
use crate::progress::Progress;
use crate::reorder::Permutation;
use crate::topology::{RowOrder, Topology, index};

/// Writes `dataset` into `out` with new numbers for its nodes, one permutation a node type. `how` says in words which. The
/// dataset is verified first.
pub fn reorder(dataset: &Dataset, nodes: &[Permutation], out: &Path, how: &str, progress: &dyn Progress) -> Result<()> {
    let (found, expected) = (nodes.len() as u64, dataset.schema().node_types().len() as u64);
    if found != expected {
        return Err(Error::Length { name: "permutations", found, expected, of: "the node types" });
    }
    for (permutation, node_type) in nodes.iter().zip(dataset.schema().node_types()) {
        let (found, expected) = (permutation.len(), node_type.count);
        if found != expected {
            return Err(Error::Length { name: "a permutation", found, expected, of: "its node type" });
        }
    }
    dataset.verify_once(progress)?;
    let writer = DatasetWriter::create(out)?;
    let renumbering = Renumbering { dataset, nodes, writer: &writer, progress, written: RefCell::default() };
    let relations =
        (0..dataset.schema().relations().len()).map(|at| renumbering.relation(at)).collect::<Result<_>>()?;
    let node_files = (0..nodes.len()).map(|at| renumbering.node_type(at)).collect::<Result<_>>()?;
    let links = Links {
        train: renumbering.links(Split::Train)?,
        valid: renumbering.links(Split::Valid)?,
        test: renumbering.links(Split::Test)?,
    };
    let manifest = dataset.manifest();
    let origin = format!("{}; nodes renumbered: {how}", manifest.origin);
    let described = Description::new(manifest.name.clone(), dataset.schema().clone(), manifest.layout, origin);
    writer.finish(Description { nodes: node_files, relations, links, ..described })
}

/// A reordering under way.
struct Renumbering<'a> {
    dataset: &'a Dataset,
    nodes: &'a [Permutation],
    writer: &'a DatasetWriter,
    progress: &'a dyn Progress,
    /// Arrays that are there already: one file may serve several purposes.
    written: RefCell<BTreeSet<String>>,
}

impl Renumbering<'_> {
    /// Writes the lists of a relation; labels and features of edges are written beside them.
    fn relation(&self, at: usize) -> Result<EdgeFiles> {
        let (topology, files) = (self.dataset.topology(at)?, &self.dataset.manifest().relations[at].files);
        // Features lie in the order of edge ids, so edges that have some keep theirs.
        let keeps = topology.edge_ids().is_some() || files.features.is_some();
        let edge_ids = if keeps { EdgeIds::Kept } else { EdgeIds::Dropped };
        expect_room("renumbering a relation", topology.bytes() * 2)?;
        let mut moved = self.renumber(at, &topology, edge_ids)?;
        // Labels follow the lists as they were moved, so such lists stay as they are.
        if topology.order() == RowOrder::Neighbour && files.labels.is_none() {
            moved = moved.sorted(RowOrder::Neighbour, edge_ids)?;
        }
        self.writer.relation(at, &moved)?;
        let labels = files.labels.as_ref().map(|file| self.edge_labels(at, &topology, file)).transpose()?;
        let features = files.features.as_ref().map(|file| self.copy(file)).transpose()?;
        Ok(EdgeFiles { labels, features, ..EdgeFiles::default() })
    }

    fn renumber(&self, at: usize, topology: &Topology, edge_ids: EdgeIds) -> Result<Topology> {
        let relation = &self.dataset.schema().relations()[at];
        let (rows, columns) = relation.ends(topology.layout());
        topology.reordered(&self.nodes[rows], &self.nodes[columns], edge_ids, self.progress)
    }

    /// Labels lie in the order of the lists, so they move with them.
    fn edge_labels(&self, at: usize, topology: &Topology, file: &str) -> Result<String> {
        let moved = self.renumber(at, &topology.bare(), EdgeIds::Kept)?;
        self.rows(file, |position| moved.edge_id(index(position)))
    }

    fn node_type(&self, at: usize) -> Result<NodeFiles> {
        let files = &self.dataset.manifest().nodes[at].files;
        let moved = |file: &Option<String>| file.as_ref().map(|file| self.node_rows(at, file)).transpose();
        let split = |split| {
            let Some(ids) = self.dataset.split(at, split)? else { return Ok(None) };
            let Some(file) = files.splits.get(split) else { return Ok(None) };
            self.ids(file, &self.nodes[at].relabel(&ids)?).map(Some)
        };
        let (original_ids, original_id_offsets) = match &files.original_id_offsets {
            Some(offsets) => self.names(at, files.original_ids.as_deref(), offsets)?,
            None => (moved(&files.original_ids)?, None),
        };
        Ok(NodeFiles {
            features: moved(&files.features)?,
            labels: moved(&files.labels)?,
            classes: files.classes,
            times: moved(&files.times)?,
            original_ids,
            original_id_offsets,
            first_numbers: Some(self.first_numbers(at, files.first_numbers.as_deref())?),
            splits: Splits { train: split(Split::Train)?, valid: split(Split::Valid)?, test: split(Split::Test)? },
        })
    }

    /// What the nodes' numbers were in the dataset this one began as.
    fn first_numbers(&self, at: usize, earlier: Option<&str>) -> Result<String> {
        let old_of_new = self.nodes[at].old_of_new();
        match earlier {
            Some(file) => self.node_rows(at, file),
            None => {
                let name = format!("{}.first_numbers", self.dataset.schema().node_types()[at].name);
                self.write_ids(name, &[old_of_new.len() as u64], old_of_new)
            }
        }
    }

    /// One row a node, moved to the node's new place.
    fn node_rows(&self, at: usize, file: &str) -> Result<String> {
        let old_of_new = self.nodes[at].old_of_new();
        self.rows(file, |row| old_of_new.at(index(row)))
    }

    /// Names of nodes: bytes behind each other, with offsets.
    fn names(&self, at: usize, file: Option<&str>, offsets: &str) -> Result<(Option<String>, Option<String>)> {
        let Some(file) = file else { return Ok((None, None)) };
        let (array, offsets_array) = (self.dataset.file(file)?, self.dataset.file(offsets)?.column::<u64>()?);
        let bytes = array.data().as_slice();
        let (mut moved, mut ends) = (Vec::with_capacity(bytes.len()), vec![0u64]);
        for old in self.nodes[at].old_of_new().iter() {
            let range = index(offsets_array[index(old)])..index(offsets_array[index(old) + 1]);
            let name = bytes.get(range).ok_or_else(|| Error::ArrayFile {
                path: array.path().to_owned(),
                what: "a name",
                found: format!("damaged at node {old}"),
                expected: "bytes where the offsets say".into(),
            })?;
            moved.extend_from_slice(name);
            ends.push(moved.len() as u64);
        }
        let (file, offsets) = (self.name(file), self.name(offsets));
        self.writer.array(&file, &[moved.len() as u64], &moved)?;
        self.writer.array(&offsets, &[ends.len() as u64], &ends)?;
        Ok((Some(file), Some(offsets)))
    }

    /// Edges to predict: both ends of each, and those to rank it against.
    fn links(&self, split: Split) -> Result<Option<LinkFiles>> {
        let Some(files) = self.dataset.manifest().links.get(split) else { return Ok(None) };
        let triples = self.dataset.file(&files.triples)?.ids()?;
        let relations = self.dataset.schema().relations();
        let relation_of = |link: usize| {
            let (id, limit) = (triples.at(3 * link + 1), relations.len() as u64);
            let out = Error::IdOutOfRange { name: "relations of links", position: link as u64, id, limit };
            relations.get(index(id)).ok_or(out)
        };
        let ends = (0..triples.len()).map(|at| {
            let relation = relation_of(at / 3)?;
            match at % 3 {
                0 => self.renumbered(relation.source, triples.at(at), at),
                1 => Ok(triples.at(at)),
                _ => self.renumbered(relation.target, triples.at(at), at),
            }
        });
        let written = self.ids(&files.triples, &ends.collect::<Result<Vec<u64>>>()?.into())?;
        let others = |file: &Option<String>, is_source: bool| {
            let Some(file) = file else { return Ok(None) };
            let ids = self.dataset.file(file)?.ids()?;
            let width = ids.len() / (triples.len() / 3).max(1);
            let moved = (0..ids.len()).map(|at| {
                let relation = relation_of(at / width.max(1))?;
                self.renumbered(if is_source { relation.source } else { relation.target }, ids.at(at), at)
            });
            self.ids(file, &moved.collect::<Result<Vec<u64>>>()?.into()).map(Some)
        };
        let labels = files.labels.as_ref().map(|file| self.copy(file)).transpose()?;
        let other_sources = others(&files.other_sources, true)?;
        Ok(Some(LinkFiles {
            triples: written,
            labels,
            other_sources,
            other_targets: others(&files.other_targets, false)?,
        }))
    }

    fn renumbered(&self, node_type: usize, id: u64, at: usize) -> Result<u64> {
        let (position, limit) = (at as u64, self.nodes[node_type].len());
        let out = Error::IdOutOfRange { name: "links", position, id, limit };
        if id < limit { Ok(self.nodes[node_type].new_of_old().at(index(id))) } else { Err(out) }
    }

    /// The same file again.
    fn copy(&self, file: &str) -> Result<String> {
        if self.written.borrow().contains(stem(file)) {
            return Ok(stem(file).to_owned());
        }
        self.rows(file, |row| row)
    }

    /// A file whose row `row` is the old one's row `from(row)`.
    fn rows(&self, file: &str, from: impl Fn(u64) -> u64 + Sync) -> Result<String> {
        let (name, array) = (self.name(file), self.dataset.file(file)?);
        self.writer.rows_from(&name, array, from, self.progress)?;
        Ok(name)
    }

    /// Ids in place of those of a file, in its shape.
    fn ids(&self, file: &str, ids: &Ids) -> Result<String> {
        let shape: Vec<u64> = self.dataset.file(file)?.shape().iter().map(|dim| *dim as u64).collect();
        self.write_ids(self.name(file), &shape, ids)
    }

    /// A name for what comes of a file: its own, or a new one where two purposes share it.
    fn name(&self, file: &str) -> String {
        let mut written = self.written.borrow_mut();
        let candidates =
            (1..).map(|at: u32| if at == 1 { stem(file).to_owned() } else { format!("{}-{at}", stem(file)) });
        let free = candidates.into_iter().find(|name| !written.contains(name)).unwrap_or_default();
        written.insert(free.clone());
        free
    }

    fn write_ids(&self, name: String, shape: &[u64], ids: &Ids) -> Result<String> {
        match ids {
            Ids::U32(ids) => self.writer.array(&name, shape, ids)?,
            Ids::U64(ids) => self.writer.array(&name, shape, ids)?,
        }
        Ok(name)
    }
}

/// The name an array was written under.
fn stem(file: &str) -> &str {
    file.strip_suffix(".npy").unwrap_or(file)
}

impl DatasetWriter {
    /// Writes an array of the same kind and shape as `array`, whose row `row` is that one's row `from(row)`.
    fn rows_from(
        &self,
        name: &str,
        array: &Array,
        from: impl Fn(u64) -> u64 + Sync,
        progress: &dyn Progress,
    ) -> Result<()> {
        let bytes = array.data().as_slice();
        let shape: Vec<u64> = array.shape().iter().map(|dim| *dim as u64).collect();
        let row_bytes = bytes.len() / array.shape().first().copied().unwrap_or(0).max(1);
        self.raw_rows(name, array.kind(), &shape, progress, |rows, out| {
            for (row, out) in rows.zip(out.chunks_exact_mut(row_bytes.max(1))) {
                let start = index(from(row)) * row_bytes;
                out.copy_from_slice(&bytes[start..start + row_bytes]);
            }
        })
    }
}
