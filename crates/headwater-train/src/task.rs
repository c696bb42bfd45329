//! What is to be learnt: a graph, the features and labels of its nodes, and which nodes are for training.

use headwater_feature::{HostTable, RowFormat, Source, Stored};
use headwater_graph::dataset::Split;
use headwater_graph::topology::Layout;
use headwater_graph::{Dataset, Graph, NodeType, Relation, Schema, Silent, Topology};

use crate::error::{Error, Result};
use crate::origin::Asked;
use crate::placement::place;
use crate::run_config::{Features, RunConfig};

/// A classification of nodes.
#[derive(Debug)]
pub struct Task {
    /// Neighbours by target.
    pub graph: Graph,
    /// Rows of every node type, one table each; empty where nodes have none.
    pub features: Vec<HostTable>,
    /// Elements of a node's features.
    pub width: Option<usize>,
    /// The node type that has labels.
    pub node_type: usize,
    /// Class of each of its nodes; -1 is none.
    pub labels: Vec<i64>,
    /// Classes.
    pub classes: usize,
    /// Nodes to learn from, to choose by, and to measure with.
    pub train: Vec<u64>,
    /// See `train`.
    pub valid: Vec<u64>,
    /// See `train`.
    pub test: Vec<u64>,
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
    let mut task = Task::open(dataset, if config.inverse_relations { Inverse::On } else { Inverse::Off })?;
    place(&mut task, config, dataset)?;
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
    place(&mut task, &RunConfig { features, ..config.clone() }, dataset)?;
    Ok(task)
}

fn unlabelled(dataset: &Dataset, inverse: Inverse, asked: &Asked) -> Result<Task> {
    let types = dataset.schema().node_types();
    let node_type = types.iter().position(|node_type| node_type.name == asked.node_type);
    let why = || format!("the dataset has no nodes of type {:?}", asked.node_type);
    let node_type = node_type.ok_or_else(|| Error::Model { why: why() })?;
    let labels = vec![-1; usize::try_from(types[node_type].count).unwrap_or(usize::MAX)];
    let (features, width) = features(dataset)?;
    let graph = by_target(&dataset.graph()?, inverse)?;
    let none = Vec::new;
    let (train, valid, test, classes) = (none(), none(), none(), asked.classes);
    Ok(Task { graph, features, width, node_type, labels, classes, train, valid, test })
}

impl Task {
    /// Of a dataset.
    pub fn open(dataset: &Dataset, inverse: Inverse) -> Result<Self> {
        let schema = dataset.schema();
        let wrong = |why: String| Error::Model { why };
        let labelled = (0..schema.node_types().len()).find(|at| dataset.labels(*at).is_some());
        let node_type = labelled.ok_or_else(|| wrong("no node type of the dataset has labels".to_owned()))?;
        let labels = dataset.labels(node_type).map(|array| array.column::<i64>()).transpose()?;
        let labels: Vec<i64> = labels.map_or_else(Vec::new, |labels| labels.as_slice().to_vec());
        let classes = dataset.manifest().nodes[node_type].files.classes;
        let most = labels.iter().copied().max().unwrap_or(-1) + 1;
        let classes = classes.unwrap_or_else(|| u64::try_from(most).unwrap_or(0));
        let classes = usize::try_from(classes).map_err(|_| wrong(format!("{classes} classes are too many")))?;
        let split = |split: Split| -> Result<Vec<u64>> {
            Ok(dataset.split(node_type, split)?.map_or_else(Vec::new, |ids| ids.iter().collect()))
        };
        let (train, valid, test) = (split(Split::Train)?, split(Split::Valid)?, split(Split::Test)?);
        let (features, width) = features(dataset)?;
        let graph = by_target(&dataset.graph()?, inverse)?;
        Ok(Self { graph, features, width, node_type, labels, classes, train, valid, test })
    }

    /// The features of nodes of every type, one type after the other.
    pub fn gather(&self, ids: &[&[u64]], out: &mut [f32]) -> Result<()> {
        let width = self.width.unwrap_or(0);
        let mut rest = out;
        for (table, ids) in self.features.iter().zip(ids) {
            let (own, behind) = rest.split_at_mut(ids.len() * width);
            table.gather(ids, Stored::F32, bytemuck::cast_slice_mut(own))?;
            rest = behind;
        }
        Ok(())
    }

    /// Nodes of every type.
    #[must_use]
    pub fn node_counts(&self) -> Vec<u64> {
        self.graph.schema().node_types().iter().map(|node_type| node_type.count).collect()
    }
}

/// Tables of all types, and the width they share.
fn features(dataset: &Dataset) -> Result<(Vec<HostTable>, Option<usize>)> {
    let types = dataset.schema().node_types();
    let mut tables = Vec::new();
    let mut widths = Vec::new();
    for (at, node_type) in types.iter().enumerate() {
        let Some(array) = dataset.features(at) else { continue };
        let elements = array.shape().iter().skip(1).product::<usize>();
        let stored = Stored::of(array.kind().dtype().map_err(headwater_tensor::Error::from)?)?;
        let source = Source::memory(array.data().clone(), Vec::new(), RowFormat::packed(elements, stored))?;
        if source.rows() < node_type.count {
            let why = format!("{} has {} rows for {} nodes", array.path().display(), source.rows(), node_type.count);
            return Err(Error::Model { why });
        }
        tables.push(HostTable::of(source));
        widths.push((node_type.name.clone(), elements));
    }
    let Some((_, width)) = widths.first().cloned() else { return Ok((tables, None)) };
    let differs = widths.iter().any(|(_, other)| *other != width);
    if differs || tables.len() != types.len() {
        let found: Vec<String> = widths.iter().map(|(name, width)| format!("{name} has {width}")).collect();
        let why = format!("node types need features of one width, or none of them any; {}", found.join(", "));
        return Err(Error::Model { why });
    }
    Ok((tables, Some(width)))
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
