//! How does a graph that others wrote come in?
//!
//! | the question | the room |
//! | --- | --- |
//! | What is this source? | [`mod@format`] |
//! | What may the user say about it? | `options` |
//! | Lines of text | [`text`], `edge_list`, `idmap`, `compact` |
//! | Arrays and archives | `arrays`, [`zip`], `npz`, `triples`, `sparse` |
//! | Features and labels | `features`, `labels` |
//! | OGB's folders | `ogb`, `mag240m` |
//! | What is wrong, and where? | [`fault`] |
//!
//! Readers put large arrays into the dataset as they read them and hold only edges and ids in memory. A dataset appears
//! under its name when it is whole; a killed ingest leaves nothing that looks finished. Pickles are never read.
//!
//! ```
//! use headwater_graph::ingest::{Ingest, IngestOptions};
//! use headwater_graph::Silent;
//! # let folder = tempfile::tempdir().unwrap();
//! # let (source, out) = (folder.path().join("edges.csv"), folder.path().join("out"));
//! std::fs::write(&source, "ann,bob\nbob,eve\n").unwrap();
//! let ingest = Ingest::read(Some(&source), &out, IngestOptions::default(), &Silent)?;
//! println!("building takes up to {} bytes", ingest.plan().peak_bytes);
//! let summary = ingest.build(&Silent)?;
//! assert_eq!((summary.nodes, summary.edges), (3, 2));
//! # Ok::<(), headwater_graph::Error>(())
//! ```

mod arrays;
mod collected;
mod compact;
mod edge_list;
mod edges;
pub mod fault;
mod features;
pub mod format;
mod idmap;
mod labels;
mod mag240m;
mod npz;
mod ogb;
mod options;
mod regular;
mod sparse;
pub mod text;
mod triples;
pub mod zip;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use headwater_memory::host_bytes_available;
use headwater_tensor::parallel;
use serde::Serialize;

use self::arrays::Arrays;
pub use self::collected::LinkCounts;
use self::collected::{Collected, Edges, Found, Sink, check_ends};
use self::fault::Fault;
pub use self::format::Format;
pub use self::options::{IdKind, IngestOptions, LabelKind, NodeCount, Reverse, SparseFeatures, TypedFile};
use crate::build::{BuildOptions, BuildSize, Coo, EdgeIds, build_plan};
use crate::column::{Column, Ids};
use crate::dataset::{DatasetWriter, Description, EdgeFiles};
use crate::error::Result;
use crate::order::sort_plan;
use crate::progress::Progress;
use crate::schema::{NodeType, Relation, Schema};
use crate::topology::{Layout, RowOrder, Topology};

/// A type with more nodes is a mistake: their offsets alone would take terabytes.
const MOST_NODES: u64 = 1 << 40;

/// More relations are a mistake, such as nodes in the place of relations. Each has files of its own, and a process maps no
/// more than some ten thousands.
const MOST_RELATIONS: usize = 1 << 14;

/// Relations with fewer edges are built side by side: there may be hundreds of them, and each waits for the disk.
const SMALL_EDGES: u64 = 1 << 20;

/// A source that has been read. Its neighbour lists are still to be built.
#[derive(Debug)]
pub struct Ingest {
    origin: PathBuf,
    format: Format,
    options: IngestOptions,
    collected: Collected,
    writer: DatasetWriter,
    name: String,
}

/// What building will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IngestPlan {
    /// Edges, those of the other direction included.
    pub edges: u64,
    /// Bytes that the edges take now.
    pub held_bytes: u64,
    /// The most bytes of memory at any time.
    pub peak_bytes: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// What the source was.
    pub format: &'static str,
    /// What the dataset is called.
    pub name: String,
    /// Nodes of all types.
    pub nodes: u64,
    /// Edges of all relations.
    pub edges: u64,
    /// Node types.
    pub node_types: usize,
    /// Relations.
    pub relations: usize,
    /// Edges to predict, which lie beside the graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkCounts>,
    /// What building was predicted to take.
    pub predicted_peak_bytes: u64,
}

impl Ingest {
    /// Reads a source, or the edge lists the options name. Nothing is seen at `out` yet.
    pub fn read(source: Option<&Path>, out: &Path, options: IngestOptions, progress: &dyn Progress) -> Result<Self> {
        let of_edges = options.edges.first().map(|file| file.path.clone());
        let Some(origin) = source.map(Path::to_owned).or(of_edges) else {
            return Err(Fault::Refused("there is no source to read".into()).of(out));
        };
        let format = match (options.format, source) {
            (Some(format), _) => format,
            (None, Some(source)) => format::detect(source)?,
            (None, None) => Format::EdgeList,
        };
        let refused = |why: String| Fault::Refused(why).of(&origin);
        options.check(format).map_err(refused)?;
        let writer = DatasetWriter::create(out)?;
        let sink = Sink { writer: &writer, progress, reverse: options.reverse, labels: options.labels };
        let collected = collect(format, source, &origin, &options, &sink)?;
        if collected.nodes.iter().all(|kind| kind.count == 0) {
            return Err(refused("there are no nodes in it".into()));
        }
        let types: Vec<&str> = collected.nodes.iter().map(|kind| kind.name.as_str()).collect();
        options.check_counts(&types).map_err(refused)?;
        if collected.nodes.iter().any(|kind| kind.count > MOST_NODES) {
            return Err(Fault::TooMany { what: "nodes; are ids dense?", limit: MOST_NODES }.of(&origin));
        }
        let folder_name = out.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = options.name.clone().or(folder_name).unwrap_or_else(|| "dataset".into());
        let mut ingest = Self { origin, format, options, collected, writer, name };
        ingest.add_reverses();
        Ok(ingest)
    }

    /// What building will take.
    #[must_use]
    pub fn plan(&self) -> IngestPlan {
        let relations = &self.collected.relations;
        let held: u64 = relations.iter().map(|relation| relation.edges.bytes()).sum();
        let beyond = |relation: &Edges| {
            let size = self.build_size(relation);
            let plan = build_plan(&size);
            // Rows are ordered by time when what they were made of is gone.
            let by_time = sort_plan(size.edges, size.edge_bytes, plan.output_bytes, size.threads).peak_bytes;
            let peak = if relation.edges.value_bytes()[1] > 0 { plan.peak_bytes.max(by_time) } else { plan.peak_bytes };
            peak.saturating_sub(plan.input_bytes)
        };
        let most = relations.iter().map(beyond).max().unwrap_or(0);
        let edges = relations.iter().map(|relation| relation.edges.len()).sum();
        IngestPlan { edges, held_bytes: held, peak_bytes: held.saturating_add(most) }
    }

    /// Builds the neighbour lists, writes them, and gives the dataset its name.
    pub fn build(mut self, progress: &dyn Progress) -> Result<Summary> {
        let plan = self.plan();
        let (peak, held, free) = (plan.peak_bytes, plan.held_bytes, host_bytes_available() as u64);
        if peak.saturating_sub(held) > free {
            let why = format!("building takes {peak} bytes of memory; {held} are in use already and {free} are free");
            return Err(Fault::Refused(why).of(&self.origin));
        }
        let schema = self.schema()?;
        let relations: Vec<_> = std::mem::take(&mut self.collected.relations).into_iter().enumerate().collect();
        let files =
            |(_, relation): &(usize, Edges)| EdgeFiles { features: relation.features.clone(), ..Default::default() };
        let edge_files = relations.iter().map(files).collect();
        let (small, large): (Vec<_>, Vec<_>) = relations.into_iter().partition(|(_, r)| r.edges.len() < SMALL_EDGES);
        let write = |(at, relation)| self.writer.relation(at, &self.topology(relation, progress)?);
        large.into_iter().try_for_each(write)?;
        parallel::try_for_each(small.into_iter(), write)?;
        let summary = Summary {
            format: self.format.name(),
            name: self.name.clone(),
            nodes: schema.node_types().iter().map(|kind| kind.count).sum(),
            edges: plan.edges,
            node_types: schema.node_types().len(),
            relations: schema.relations().len(),
            links: self.collected.link_counts,
            predicted_peak_bytes: plan.peak_bytes,
        };
        let origin = format!("ingested from {} ({})", self.origin.display(), self.format);
        let described = Description::new(self.name, schema, self.options.layout, origin);
        let nodes = self.collected.nodes.into_iter().map(|kind| kind.files).collect();
        self.writer.finish(Description { nodes, relations: edge_files, links: self.collected.links, ..described })?;
        Ok(summary)
    }

    fn build_size(&self, relation: &Edges) -> BuildSize {
        let [source, target] = [relation.source, relation.target].map(|end| self.collected.nodes[end].count);
        let (rows, columns) = if self.options.layout == Layout::Csc { (target, source) } else { (source, target) };
        let edges = relation.edges.len();
        let id_bytes = |ids: u64| if u32::try_from(ids).is_ok() { 4 } else { 8 };
        let [weights, times] = relation.edges.value_bytes();
        let lanes = 2 + u64::from(weights > 0) + u64::from(times > 0);
        let edge_bytes = id_bytes(columns) + id_bytes(edges) + weights + times;
        let threads = rayon::current_num_threads() as u64;
        BuildSize { rows, edges, input_bytes: relation.edges.bytes(), edge_bytes, lanes, threads }
    }

    fn schema(&self) -> Result<Schema> {
        let kind = |nodes: &collected::Nodes| NodeType { name: nodes.name.clone(), count: nodes.count };
        let relation =
            |edges: &Edges| Relation { source: edges.source, name: edges.name.clone(), target: edges.target };
        let (nodes, relations) = (&self.collected.nodes, &self.collected.relations);
        Schema::new(nodes.iter().map(kind).collect(), relations.iter().map(relation).collect())
    }

    fn topology(&self, relation: Edges, progress: &dyn Progress) -> Result<Topology> {
        let ends = [relation.source, relation.target].map(|end| &self.collected.nodes[end]);
        let layout = self.options.layout;
        let built = match relation.edges {
            Found::Lists(lists) if lists.layout() == layout => lists,
            Found::Lists(lists) => lists.transposed(progress)?,
            Found::List(edges) => {
                check_ends(&edges, ends, &self.origin)?;
                let mut coo =
                    Coo::new(Ids::from(edges.sources), Ids::from(edges.targets), ends[0].count, ends[1].count);
                coo.weights = edges.weights.map(Column::from);
                coo.times = edges.times.map(Column::from);
                coo.build(BuildOptions { layout, ..BuildOptions::default() }, progress)?
            }
        };
        // What has happened by some time is then the start of a list, as temporal sampling wants it.
        if built.times().is_some() { built.sorted(RowOrder::Time, EdgeIds::Kept) } else { Ok(built) }
    }

    /// Adds the other direction, where it is asked for.
    fn add_reverses(&mut self) {
        if self.options.reverse == Reverse::None {
            return;
        }
        let (mut all, mut others) = (Vec::new(), Vec::new());
        for relation in std::mem::take(&mut self.collected.relations) {
            let Edges { source, name, target, edges, features } = relation;
            let mut edges = edges.into_list();
            if source == target {
                edges.add_reverses();
            } else {
                let reversed = Edges::new(target, format!("rev_{name}"), source, Found::List(edges.reversed()));
                others.push(Edges { features: features.clone(), ..reversed });
            }
            all.push(Edges { features, ..Edges::new(source, name, target, Found::List(edges)) });
        }
        all.extend(others);
        self.collected.relations = all;
    }
}

fn collect(
    format: Format,
    source: Option<&Path>,
    origin: &Path,
    options: &IngestOptions,
    sink: &Sink<'_>,
) -> Result<Collected> {
    match format {
        Format::EdgeList => edge_list::read(source, options, sink),
        Format::Arrays => npz::read(&Arrays::open(origin)?, options, sink),
        Format::OgbCsv => ogb::read_csv(origin, sink),
        Format::OgbCsvHetero => ogb::read_csv_hetero(origin, sink),
        Format::OgbNpz => ogb::read_npz(origin, sink),
        Format::Mag240m => mag240m::read(origin, options, sink),
    }
}
