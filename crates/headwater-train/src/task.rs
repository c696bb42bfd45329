//! What is to be learnt: a graph, the features and labels of its nodes, and which nodes are for training.

use headwater_feature::{Feature, FeatureOptions, RowFormat, Source, Stored};
use headwater_graph::dataset::Split;
use headwater_graph::topology::Layout;
use headwater_graph::{Dataset, Graph, NodeType, Relation, Schema, Silent, Topology};

use crate::error::{Error, Result};
use crate::labels::Labels;

/// Nodes and what they should be.
#[derive(Debug)]
pub struct Task {
    /// Neighbours by target.
    pub graph: Graph,
    /// Features of every node type, one table each; `None` where a type has none.
    pub features: Vec<Option<Feature>>,
    /// The node type that has labels.
    pub node_type: usize,
    /// What each of its nodes should be.
    pub labels: Labels,
    /// Outputs of a node: classes, or numbers.
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

impl Task {
    /// Of a dataset.
    pub fn open(dataset: &Dataset, inverse: Inverse) -> Result<Self> {
        let schema = dataset.schema();
        let wrong = |why: String| Error::Model { why };
        let labelled = (0..schema.node_types().len()).find_map(|at| Some((at, dataset.labels(at)?)));
        let none = || wrong("no node type of the dataset has labels".to_owned());
        let (node_type, array) = labelled.ok_or_else(none)?;
        let split = |split: Split| -> Result<Vec<u64>> {
            Ok(dataset.split(node_type, split)?.map_or_else(Vec::new, |ids| ids.iter().collect()))
        };
        let (train, valid, test) = (split(Split::Train)?, split(Split::Valid)?, split(Split::Test)?);
        if train.is_empty() {
            return Err(wrong("the dataset names no training nodes".to_owned()));
        }
        let named = dataset.manifest().nodes[node_type].files.classes;
        let (labels, classes) = Labels::open(array, named, &[&train, &valid, &test])?;
        let features = features(dataset)?;
        let graph = by_target(&dataset.graph()?, inverse)?;
        Ok(Self { graph, features, node_type, labels, classes, train, valid, test })
    }

    /// The features of nodes of one type.
    pub fn gather(&self, node_type: usize, ids: &[u64], out: &mut [f32]) -> Result<()> {
        match &self.features[node_type] {
            Some(table) => Ok(table.cpu_get(ids, Stored::F32, bytemuck::cast_slice_mut(out))?),
            None => Ok(()),
        }
    }

    /// Elements of the features of every node type.
    #[must_use]
    pub fn widths(&self) -> Vec<Option<usize>> {
        let width = |table: &Feature| usize::try_from(table.shape()[1]).unwrap_or(usize::MAX);
        self.features.iter().map(|table| table.as_ref().map(width)).collect()
    }

    /// Nodes of every type.
    #[must_use]
    pub fn node_counts(&self) -> Vec<u64> {
        self.graph.schema().node_types().iter().map(|node_type| node_type.count).collect()
    }
}

/// Tables of all types that have features.
fn features(dataset: &Dataset) -> Result<Vec<Option<Feature>>> {
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
        tables.push(Some(Feature::new(source, FeatureOptions { with_gpu: false, ..FeatureOptions::default() })?));
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
