//! What a reader has found: small things in memory, large ones already in the dataset's files.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;

use super::arrays::Array;
use super::edges::EdgeList;
use super::fault::Fault;
use super::features;
use super::labels::{self, Labels, Numbers, class_count};
use super::options::{LabelKind, Reverse};
use crate::dataset::{DatasetWriter, Links, NodeFiles};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::topology::Topology;

/// Everything that will be in the dataset.
#[derive(Debug, Default)]
pub struct Collected {
    /// The node types.
    pub nodes: Vec<Nodes>,
    /// The relations.
    pub relations: Vec<Edges>,
    /// Edges to predict.
    pub links: Links,
    /// How many of them, by split.
    pub link_counts: Option<LinkCounts>,
}

/// Edges to predict, which are kept beside the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// To learn from; these are edges of the graph, too.
    pub train: u64,
    /// To choose by.
    pub valid: u64,
    /// To report on.
    pub test: u64,
}

/// A node type.
#[derive(Debug, Default)]
pub struct Nodes {
    /// What it is called.
    pub name: String,
    /// How many there are.
    pub count: u64,
    /// Its arrays in the dataset.
    pub files: NodeFiles,
    /// The nodes of its splits so far, in ascending order.
    splits: Vec<(&'static str, Vec<i64>)>,
}

/// A relation.
#[derive(Debug)]
pub struct Edges {
    /// Position of the type its edges begin at.
    pub source: usize,
    /// What it is called.
    pub name: String,
    /// Position of the type its edges end at.
    pub target: usize,
    /// Its edges.
    pub edges: Found,
    /// Their features in the dataset.
    pub features: Option<String>,
}

impl Edges {
    /// A relation whose edges have no features.
    #[must_use]
    pub fn new(source: usize, name: impl Into<String>, target: usize, edges: Found) -> Self {
        Self { source, name: name.into(), target, edges, features: None }
    }
}

/// Edges as they were found.
#[derive(Debug)]
pub enum Found {
    /// One after the other.
    List(EdgeList),
    /// In lists already.
    Lists(Topology),
}

impl Found {
    /// How many edges there are.
    pub fn len(&self) -> u64 {
        match self {
            Self::List(edges) => edges.len() as u64,
            Self::Lists(topology) => topology.edges(),
        }
    }

    /// Bytes they take.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::List(edges) => edges.bytes(),
            Self::Lists(topology) => topology.bytes(),
        }
    }

    /// Bytes of one edge's weight and of its time; 0 where it has none.
    pub fn value_bytes(&self) -> [u64; 2] {
        let (weights, times) = match self {
            Self::List(edges) => (edges.weights.is_some(), edges.times.is_some()),
            Self::Lists(topology) => (topology.weights().is_some(), topology.times().is_some()),
        };
        [u64::from(weights) * 4, u64::from(times) * 8]
    }

    /// The edges one after the other, taken out of lists when they are in lists.
    pub fn into_list(self) -> EdgeList {
        match self {
            Self::List(edges) => edges,
            Self::Lists(topology) => EdgeList::from(&topology.to_coo()),
        }
    }
}

/// What readers write to and report to.
pub struct Sink<'a> {
    /// The dataset.
    pub writer: &'a DatasetWriter,
    /// Who wants to know how far it is.
    pub progress: &'a dyn Progress,
    /// Whether edges will also go the other way.
    pub reverse: Reverse,
    /// What labels are.
    pub labels: LabelKind,
}

impl Nodes {
    /// A type without arrays.
    #[must_use]
    pub fn new(name: impl Into<String>, count: u64) -> Self {
        Self { name: name.into(), count, ..Self::default() }
    }

    /// The name of one of its arrays.
    fn array(&self, what: &str) -> String {
        format!("{}.{what}", self.name)
    }

    /// Takes features: floats of half and single precision as they are, all others in single precision, which is what
    /// feature tables hold.
    pub fn features(&mut self, array: Array<'_>, sink: &Sink<'_>) -> Result<()> {
        let array = array.expect_rows(self.count, &format!("{} nodes", self.name))?;
        let name = self.array("features");
        features::of_nodes(&name, array, sink)?;
        self.files.features = Some(name);
        Ok(())
    }

    /// Features out of a table of text.
    pub fn features_of_text(&mut self, path: &Path, sink: &Sink<'_>) -> Result<()> {
        let name = self.array("features");
        let rows = features::read(&name, path, 1, sink)?;
        self.expect(rows, path)?;
        self.files.features = (rows > 0).then_some(name);
        Ok(())
    }

    /// Labels, one a node or one row a node. `wrong` places a fault at an element.
    pub fn labels(
        &mut self,
        columns: usize,
        numbers: Numbers,
        wrong: impl Fn(Fault, u64) -> Error,
        path: &Path,
        sink: &Sink<'_>,
    ) -> Result<()> {
        let found = match &numbers {
            Numbers::Whole(labels) => labels.len(),
            Numbers::Real(labels) => labels.len(),
        };
        self.expect((found / columns.max(1)) as u64, path)?;
        let are_real = matches!(numbers, Numbers::Real(_));
        let name = self.array("labels");
        let shape = if columns == 1 { vec![self.count] } else { vec![self.count, columns as u64] };
        match labels::decide(numbers, columns, sink.labels).map_err(|(at, fault)| wrong(fault, at))? {
            Labels::Classes(labels) => {
                self.files.classes = class_count(&labels);
                if are_real && sink.labels == LabelKind::Auto {
                    log::warn!(
                        "{}: labels are floats, all of them whole, and taken for classes; --labels values takes them for \
                         numbers to predict",
                        path.display()
                    );
                }
                sink.writer.array(&name, &shape, &labels)?;
            }
            Labels::Answers(labels) => sink.writer.array(&name, &shape, &labels)?,
            Labels::Values(labels) => sink.writer.array(&name, &shape, &labels)?,
        }
        self.files.labels = Some(name);
        Ok(())
    }

    /// When each node appeared.
    pub fn times(&mut self, times: &[i64], path: &Path, sink: &Sink<'_>) -> Result<()> {
        self.expect(times.len() as u64, path)?;
        let name = self.array("times");
        sink.writer.array(&name, &[self.count], times)?;
        self.files.times = Some(name);
        Ok(())
    }

    /// A list of nodes; each must be one.
    pub fn split(&mut self, what: &'static str, ids: &[i64], path: &Path, sink: &Sink<'_>) -> Result<()> {
        let bad = ids.iter().find(|id| u64::try_from(**id).map_or(true, |id| id >= self.count));
        if let Some(bad) = bad {
            let expected = format!("one of the {} {} nodes, from 0", self.count, self.name);
            return Err(Fault::Value { value: format!("{what} node {bad}"), expected }.of(path));
        }
        self.tell_overlap(what, ids, path);
        let name = self.array(what);
        sink.writer.array(&name, &[ids.len() as u64], ids)?;
        let splits = &mut self.files.splits;
        match what {
            "train" => splits.train = Some(name),
            "valid" => splits.valid = Some(name),
            _ => splits.test = Some(name),
        }
        Ok(())
    }

    /// Says which nodes are in two splits, or twice in one.
    fn tell_overlap(&mut self, what: &'static str, ids: &[i64], path: &Path) {
        let mut sorted = ids.to_vec();
        sorted.par_sort_unstable();
        let repeated = sorted.windows(2).filter(|pair| pair[0] == pair[1]);
        if let (count @ 1.., Some(first)) = (repeated.clone().count(), repeated.map(|pair| pair[0]).min()) {
            log::warn!("{}: {what} names nodes more than once: {count} times, {} first", path.display(), first);
        }
        sorted.dedup();
        for (other, before) in &self.splits {
            let shared = sorted.iter().filter(|id| before.binary_search(id).is_ok());
            if let (count @ 1.., Some(first)) = (shared.clone().count(), shared.min()) {
                log::warn!("{}: {other} and {what} share nodes: {count} of them, {first} first", path.display());
            }
        }
        self.splits.push((what, sorted));
    }

    fn expect(&self, found: u64, path: &Path) -> Result<()> {
        let expected = self.count;
        if found == expected {
            return Ok(());
        }
        Err(Fault::Length { found, expected, of: format!("{} nodes", self.name) }.of(path))
    }
}

/// How many nodes there are when only their ids say so. One id that is far off would make a file of gigabytes that holds
/// nothing, so ids must be about as many as edges could need.
pub fn implied_count(largest: Option<u64>, edges: u64, path: &Path) -> Result<u64> {
    const FEW_NODES: u64 = 1 << 20;
    const NODES_PER_EDGE: u64 = 256;
    let Some(largest) = largest else { return Ok(0) };
    if largest < edges.saturating_mul(NODES_PER_EDGE).max(FEW_NODES) {
        return Ok(largest + 1);
    }
    let why = format!(
        "the largest id is {largest}, but there are {edges} edges: ids are not dense. If they are meant so, say how many \
         nodes there are with --nodes"
    );
    Err(Fault::Refused(why).of(path))
}

/// Checks that every end of an edge names a node.
pub fn check_ends(edges: &EdgeList, ends: [&Nodes; 2], path: &Path) -> Result<()> {
    for (what, ids, nodes) in [("source", &edges.sources, ends[0]), ("target", &edges.targets, ends[1])] {
        if let Some((at, id)) = ids.first_from(nodes.count) {
            let fault = Fault::IdOutOfRange { id, limit: nodes.count, of: nodes.name.clone() };
            return Err(fault.at(path, super::arrays::element(what, 0, at)));
        }
    }
    Ok(())
}

/// Says that a file is read, in its bytes.
pub fn begin(progress: &dyn Progress, what: &str, path: &Path) {
    progress.begin(what, path.metadata().map_or(0, |about| about.len()));
}

/// A file that may be there.
pub fn there(path: PathBuf) -> Option<PathBuf> {
    path.is_file().then_some(path)
}
