//! What is to be learnt: a graph, the features and labels of its nodes, and which nodes are for training.

use std::collections::HashSet;

use headwater_feature::{HostTable, RowFormat, Source, Stored};
use headwater_graph::build::EdgeIds;
use headwater_graph::dataset::Split;
use headwater_graph::generate::{Like, Population, Recipe};
use headwater_graph::reorder::Permutation;
use headwater_graph::topology::Layout;
use headwater_graph::{Dataset, Graph, NodeType, Progress, Relation, Schema, Silent, Topology};
use headwater_tensor::parallel;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::labels::Labels;
use crate::origin::Asked;
use crate::placement::{Purpose, place};
use crate::run_config::{Features, RunConfig};

/// Nodes and what they should be.
#[derive(Debug)]
pub struct Task {
    /// Neighbours by target.
    pub graph: Graph,
    /// Features of every node type, one table each; `None` where a type has none.
    pub features: Vec<Option<HostTable>>,
    /// The node type that has labels.
    pub node_type: usize,
    /// What each of its nodes should be.
    pub labels: Labels,
    /// Outputs of a node: classes, or numbers.
    pub classes: usize,
    /// Nodes to learn from, to choose by, and to measure with: each once, and those to learn from have labels.
    pub train: Vec<u64>,
    /// See `train`.
    pub valid: Vec<u64>,
    /// See `train`.
    pub test: Vec<u64>,
    /// What of the dataset is not used, in sentences.
    pub remarks: Vec<String>,
}

/// What is made of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inverse {
    /// Relations as they are.
    #[default]
    Off,
    /// Every relation also the other way.
    On,
}

/// What a run learns from a dataset, with its features where the run wants them.
pub fn open(config: &RunConfig, dataset: &Dataset) -> Result<Task> {
    let types = 0..dataset.schema().node_types().len();
    let width = |at: usize| Some(dataset.features(at)?.shape().get(1).copied().unwrap_or(1));
    config.check_widths(&types.map(width).collect::<Vec<_>>())?;
    let mut task = Task::open(dataset, if config.inverse_relations { Inverse::On } else { Inverse::Off })?;
    place(&mut task, config, dataset, Purpose::Training)?;
    Ok(task)
}

/// What a network that was trained is asked about: `asked` is what it was trained for, and labels may be missing. Every row is
/// read about as often as any other, so none is hot.
pub fn open_to_ask(config: &RunConfig, dataset: &Dataset, asked: Option<&Asked>) -> Result<Task> {
    let has_labels = (0..dataset.schema().node_types().len()).any(|at| dataset.labels(at).is_some());
    let inverse = if config.inverse_relations { Inverse::On } else { Inverse::Off };
    let mut task = match asked {
        Some(asked) if !has_labels => unlabelled(dataset, inverse, asked)?,
        Some(asked) => {
            let task = Task::open(dataset, inverse)?;
            Task { classes: task.classes.max(asked.classes), ..task }
        }
        None => Task::open(dataset, inverse)?,
    };
    let features = if config.features == Features::Tiered { Features::Auto } else { config.features };
    place(&mut task, &RunConfig { features, ..config.clone() }, dataset, Purpose::Asking)?;
    Ok(task)
}

fn unlabelled(dataset: &Dataset, inverse: Inverse, asked: &Asked) -> Result<Task> {
    let types = dataset.schema().node_types();
    let node_type = types.iter().position(|node_type| node_type.name == asked.node_type);
    let why = || format!("the dataset has no nodes of type {:?}", asked.node_type);
    let node_type = node_type.ok_or_else(|| Error::Model { why: why() })?;
    let labels = Labels::Classes(vec![-1; usize::try_from(types[node_type].count).unwrap_or(usize::MAX)]);
    let features = features(dataset)?;
    let graph = by_target(&dataset.graph()?, inverse)?;
    let none = Vec::new;
    let (train, valid, test, classes, remarks) = (none(), none(), none(), asked.classes, Vec::new());
    Ok(Task { graph, features, node_type, labels, classes, train, valid, test, remarks })
}

impl Task {
    /// Of a dataset.
    pub fn open(dataset: &Dataset, inverse: Inverse) -> Result<Self> {
        let schema = dataset.schema();
        let wrong = |why: String| Error::Model { why };
        let labelled = (0..schema.node_types().len()).find_map(|at| Some((at, dataset.labels(at)?)));
        let none = || wrong(without("labels", "labels or y"));
        let (node_type, array) = labelled.ok_or_else(none)?;
        let split = |split: Split| -> Result<Vec<u64>> {
            Ok(dataset.split(node_type, split)?.map_or_else(Vec::new, |ids| ids.iter().collect()))
        };
        let mut remarks = Vec::new();
        let [train, valid, test] =
            [split(Split::Train)?, split(Split::Valid)?, split(Split::Test)?].map(|ids| distinct(ids, &mut remarks));
        let named = dataset.manifest().nodes[node_type].files.classes;
        let (labels, classes) = Labels::open(array, named)?;
        let train = labelled_ones(train, &labels, &mut remarks);
        let features = features(dataset)?;
        let given = dataset.graph()?;
        if given.relations().iter().any(|lists| lists.weights().is_some()) {
            remarks.push("the dataset's edge weights are not used: models are trained on its edges alone".to_owned());
        }
        let graph = by_target(&given, inverse)?;
        Ok(Self { graph, features, node_type, labels, classes, train, valid, test, remarks })
    }

    /// Of a recipe of one node type, in memory alone: what a dataset of it would hold, without the disk. `order` may say in
    /// which order nodes are to lie.
    pub fn made(recipe: &Recipe, order: &NodeOrder<'_>, progress: &dyn Progress) -> Result<Self> {
        let population = recipe.population(0);
        let graph = recipe.graph(progress)?;
        let splits = population.splits();
        let order = order(&graph, &splits[0].iter().collect::<Vec<u64>>())?;
        let old = |node: u64| match &order {
            Some(order) => order.old_of_new().at(usize::try_from(node).unwrap_or(usize::MAX)),
            None => node,
        };
        let (graph, splits) = match &order {
            Some(order) => {
                let own = std::slice::from_ref(order);
                let [train, valid, test] = splits.map(|ids| order.relabel(&ids));
                (graph.reordered(own, EdgeIds::Dropped, progress)?, [train?, valid?, test?])
            }
            None => (graph, splits),
        };
        let [train, valid, test] = splits.map(|ids| {
            let mut ids: Vec<u64> = ids.iter().collect();
            ids.par_sort_unstable();
            ids
        });
        let label = |node: usize| i64::try_from(population.label(old(node as u64))).unwrap_or(-1);
        let count = usize::try_from(population.count()).unwrap_or(usize::MAX);
        Ok(Self {
            labels: Labels::Classes(parallel::tabulate(count, label)),
            features: vec![made_table(&population, &old)?],
            graph,
            node_type: 0,
            classes: usize::try_from(recipe.classes.max(1)).unwrap_or(usize::MAX),
            train,
            valid,
            test,
            remarks: Vec::new(),
        })
    }

    /// The features of nodes of one type.
    pub fn gather(&self, node_type: usize, ids: &[u64], out: &mut [f32]) -> Result<()> {
        match &self.features[node_type] {
            Some(table) => Ok(table.gather(ids, Stored::F32, bytemuck::cast_slice_mut(out))?),
            None => Ok(()),
        }
    }

    /// Elements of the features of every node type.
    #[must_use]
    pub fn widths(&self) -> Vec<Option<usize>> {
        let width = |table: &HostTable| usize::try_from(table.shape()[1]).unwrap_or(usize::MAX);
        self.features.iter().map(|table| table.as_ref().map(width)).collect()
    }

    /// All rows of the features, where nodes are of one type and their rows lie in memory as they are computed with.
    #[must_use]
    pub fn only_table(&self) -> Option<&[f32]> {
        match &self.features[..] {
            [Some(table)] => table.in_place(),
            _ => None,
        }
    }

    /// Counts rows that are read in place.
    pub(crate) fn note_reads(&self, rows: usize) {
        self.features.iter().flatten().for_each(|table| table.note_reads(rows as u64));
    }

    /// Whether there are several node types or relations.
    #[must_use]
    pub fn has_types(&self) -> bool {
        self.graph.schema().node_types().len() > 1 || self.graph.relations().len() > 1
    }

    /// Nodes of every type.
    #[must_use]
    pub fn node_counts(&self) -> Vec<u64> {
        self.graph.schema().node_types().iter().map(|node_type| node_type.count).collect()
    }
}

/// The nodes of a split, each once, in their order.
pub(crate) fn distinct(ids: Vec<u64>, remarks: &mut Vec<String>) -> Vec<u64> {
    if ids.is_sorted_by(|a, b| a < b) {
        return ids;
    }
    let (given, mut seen) = (ids.len(), HashSet::new());
    let ids: Vec<u64> = ids.into_iter().filter(|id| seen.insert(*id)).collect();
    if ids.len() < given {
        remarks.push(format!("a split names nodes twice; each of its {} nodes counts once", ids.len()));
    }
    ids
}

/// Nodes that have a label: others teach nothing, and would fill batches.
fn labelled_ones(nodes: Vec<u64>, labels: &Labels, remarks: &mut Vec<String>) -> Vec<u64> {
    let given = nodes.len();
    let nodes: Vec<u64> = nodes.into_iter().filter(|node| labels.is_known(*node)).collect();
    if nodes.len() < given {
        remarks.push(format!("{} of {given} training nodes have no label and are left out", given - nodes.len()));
    }
    nodes
}

/// Made-up shapes that a run can learn from: those with classes and training nodes, of one node type and relation alone where
/// that is asked for.
#[must_use]
pub fn trainable_shapes(is_plain: bool) -> Vec<&'static str> {
    let is_trainable = |name: &str| {
        let recipe = Like { name: name.to_owned(), scale: 1.0, seed: 0 }.recipe();
        let has_all = |recipe: &Recipe| recipe.nodes.iter().any(|nodes| nodes.labelled && nodes.splits[0] > 0);
        recipe.is_ok_and(|recipe| has_all(&recipe) && (!is_plain || recipe.schema.is_homogeneous()))
    };
    Like::NAMES.into_iter().filter(|name| is_trainable(name)).collect()
}

/// What is said of a dataset that lacks what is learnt.
pub(crate) fn without(what: &str, arrays: &str) -> String {
    format!(
        "the dataset has no {what}, and there is nothing to learn without; `ingest` takes them ({arrays}), and these made-up \
         shapes have them: {}",
        trainable_shapes(false).join(", ")
    )
}

/// In which order nodes of a graph are to lie, if in another; told the graph and its training nodes.
pub type NodeOrder<'a> = dyn Fn(&Graph, &[u64]) -> Result<Option<Permutation>> + 'a;

/// Features that are made up, in memory of large pages; `old` says which node a row is of.
fn made_table(population: &Population, old: &(impl Fn(u64) -> u64 + Sync)) -> Result<Option<HostTable>> {
    let width = usize::try_from(population.recipe().features).unwrap_or(usize::MAX);
    if width == 0 {
        return Ok(None);
    }
    let rows = usize::try_from(population.count()).unwrap_or(usize::MAX);
    // Pieces end where rows do not, so each makes the rows it cuts whole.
    let bytes = headwater_memory::filled(rows * width * 4, |at, piece| {
        let (first, end) = (at / 4 / width, (at + piece.len()).div_ceil(4 * width));
        let mut values = vec![0.0f32; (end - first) * width];
        for (row, values) in (first as u64..).zip(values.chunks_exact_mut(width)) {
            let node = old(row);
            population.fill_features(node..node + 1, values);
        }
        let from = at - first * width * 4;
        piece.copy_from_slice(&bytemuck::cast_slice::<f32, u8>(&values)[from..from + piece.len()]);
    })?;
    let source = Source::memory(bytes, Vec::new(), RowFormat::packed(width, Stored::F32))?;
    Ok(Some(HostTable::of(source)))
}

/// Tables of all types that have features.
fn features(dataset: &Dataset) -> Result<Vec<Option<HostTable>>> {
    let mut tables = Vec::new();
    for (at, node_type) in dataset.schema().node_types().iter().enumerate() {
        let Some(array) = dataset.features(at) else {
            tables.push(None);
            continue;
        };
        let elements = array.shape().iter().skip(1).product::<usize>();
        let stored = Stored::of(array.kind().dtype().map_err(headwater_tensor::Error::from)?)?;
        let source = Source::memory(array.data().clone(), Vec::new(), RowFormat::packed(elements, stored))?;
        if source.rows() < node_type.count {
            let why = format!("{} has {} rows for {} nodes", array.path().display(), source.rows(), node_type.count);
            return Err(Error::Model { why });
        }
        tables.push(Some(HostTable::of(source)));
    }
    Ok(tables)
}

/// The graph with lists of every target's sources, and with inverse relations where they are asked for.
fn by_target(graph: &Graph, inverse: Inverse) -> Result<Graph> {
    let turned = |topology: &Topology| Ok::<_, Error>(topology.transposed(&Silent)?);
    let (mut relations, mut lists) = (graph.schema().relations().to_vec(), Vec::new());
    for topology in graph.relations() {
        lists.push(if topology.layout() == Layout::Csc { topology.bare() } else { turned(&topology.bare())? });
    }
    if inverse == Inverse::On {
        for (relation, topology) in graph.schema().relations().iter().zip(graph.relations()) {
            let name = format!("inverse_{}", relation.name);
            relations.push(Relation { source: relation.target, name, target: relation.source });
            // The lists of the other end are the inverse's lists, read the other way round.
            let other = if topology.layout() == Layout::Csc { turned(&topology.bare())? } else { topology.bare() };
            lists.push(Topology::new(
                Layout::Csc,
                other.columns(),
                other.offsets().clone(),
                other.neighbours().clone(),
            )?);
        }
    }
    let types: Vec<NodeType> = graph.schema().node_types().to_vec();
    Ok(Graph::new(Schema::new(types, relations)?, lists)?)
}
