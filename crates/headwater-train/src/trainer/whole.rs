//! The graph of a run, as its layers take it: all of it at once, or what blocks of it are made with.

use std::sync::Arc;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::cpu::fast::SparseRows;
use headwater_compile::pass::Statistics;

use super::draw::typical;
use crate::blocks::{SelfLoops, degrees, scales, whole};
use crate::error::{Error, Result};
use crate::features::{Reader, WholeRows};
use crate::layerwise::{Limits, skeleton, sparse_features, statistics};
use crate::network::{Extras, Facts, Network, NodeInput};
use crate::run_config::RunConfig;
use crate::task::Task;

/// The whole graph.
#[derive(Debug)]
pub(crate) struct Whole {
    pub loops: SelfLoops,
    /// In-degrees, where the network asks for scales.
    pub degrees: Arc<Vec<Vec<f32>>>,
    /// All features, where blocks are made of few enough elements.
    pub sparse: Option<SparseRows>,
    /// What a run that always sees the whole graph holds of it.
    pub held: Option<Held>,
    /// What inference may hold.
    pub limits: Limits,
}

/// Everything, at once.
#[derive(Debug)]
pub(crate) struct Held {
    pub graph: Adjacency,
    pub extras: Extras,
    /// All features.
    pub rows: WholeRows,
}

impl Whole {
    /// The network of a run and the graph it is for. What becomes of edges from nodes to themselves is known when the text is
    /// read, and how many rows some parameters have only with the graph.
    pub fn with_network(config: &RunConfig, task: &Task, name: &str, text: &str) -> Result<(Network, Self)> {
        task.graph.relations().iter().try_for_each(|lists| Ok::<_, Error>(lists.check()?))?;
        let node_types = node_types(task);
        let (node_types, classes, skeleton) = (&node_types[..], task.classes, skeleton(&task.graph)?);
        let (statistics, blocks) = (Statistics::of(&skeleton), Vec::new());
        let facts = Facts { node_types, classes, graph: &skeleton, statistics, blocks, text, name };
        let loops = Network::self_loops(config, &facts)?;
        let (network, whole) = if config.full_graph {
            let graph = whole(&task.graph, loops)?;
            let statistics = Statistics::of(&graph);
            (Network::new(config, &Facts { graph: &graph, statistics, ..facts })?, Some(graph))
        } else {
            let (statistics, blocks) = (self::statistics(&task.graph, loops), typical(config, task, loops)?);
            (Network::new(config, &Facts { statistics, blocks, ..facts })?, None)
        };
        let degrees = Arc::new(if network.needs_scales() { degrees(&task.graph) } else { Vec::new() });
        let reader = Reader { task, plan: network.input_plan().clone(), normalise: config.normalises() };
        let held = whole.map(|graph| Held::new(&reader, graph, &degrees)).transpose()?;
        let limits = Limits::default();
        let sparse = if config.full_graph { None } else { sparse_features(&reader, limits.chunk_bytes)? };
        Ok((network, Self { loops, degrees, sparse, held, limits }))
    }
}

impl Held {
    fn new(reader: &Reader<'_>, graph: Adjacency, degrees: &[Vec<f32>]) -> Result<Self> {
        let all = degrees.concat();
        let extras = if all.is_empty() { Extras::new() } else { scales(&all, &all, &graph) };
        Ok(Self { graph, extras, rows: reader.whole()? })
    }
}

/// The node types of a task, as a network sees them.
fn node_types(task: &Task) -> Vec<NodeInput> {
    let types = task.graph.schema().node_types().iter().zip(task.widths());
    types
        .map(|(own, width)| NodeInput {
            name: own.name.clone(),
            nodes: usize::try_from(own.count).unwrap_or(usize::MAX),
            width,
        })
        .collect()
}
