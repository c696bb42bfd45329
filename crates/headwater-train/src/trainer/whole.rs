//! The graph of a run, as its layers take it: all of it at once, or what blocks of it are made with.

use headwater_compile::adjacency::Adjacency;
use headwater_compile::cpu::fast::{Given, SparseRows};
use headwater_compile::pass::Statistics;

use crate::blocks::{SelfLoops, degrees, scales, whole};
use crate::error::{Error, Result};
use crate::layerwise::{Limits, MOST_FILLED, normalise, skeleton, sparse_features, statistics};
use crate::network::{Extras, Facts, Network};
use crate::run_config::RunConfig;
use crate::task::Task;

/// The whole graph.
#[derive(Debug)]
pub(crate) struct Whole {
    pub loops: SelfLoops,
    /// In-degrees, where the network asks for scales.
    pub degrees: Vec<Vec<f32>>,
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
    /// All features, where nodes have some.
    pub rows: Option<Rows>,
}

/// All features.
#[derive(Debug)]
pub(crate) enum Rows {
    Dense(Vec<f32>),
    Sparse(SparseRows),
}

impl Rows {
    pub fn given(&self) -> Given<'_> {
        match self {
            Self::Dense(values) => Given::Dense(values),
            Self::Sparse(rows) => Given::Sparse(rows),
        }
    }
}

impl Whole {
    /// The network of a run and the graph it is for. Whether nodes need an edge to themselves is known when the text is read,
    /// and how many rows some parameters have only with the graph; so where they do, both are made once more.
    pub fn with_network(config: &RunConfig, task: &Task, name: &str, text: &str) -> Result<(Network, Self)> {
        task.graph.relations().iter().try_for_each(|lists| Ok::<_, Error>(lists.check()?))?;
        let made = |loops: SelfLoops| {
            let (graph, statistics) = if config.full_graph {
                let graph = whole(&task.graph, loops)?;
                let statistics = Statistics::of(&graph);
                (graph, statistics)
            } else {
                (skeleton(&task.graph)?, statistics(&task.graph, loops))
            };
            let facts = Facts { in_width: task.width, classes: task.classes, graph: &graph, statistics, text, name };
            Ok::<_, Error>((Network::new(config, &facts)?, graph, loops))
        };
        let found = made(SelfLoops::AsTheyAre)?;
        let (network, graph, loops) = if found.0.wants_self_loops() { made(SelfLoops::Added)? } else { found };
        let degrees = if network.needs_scales() { degrees(&task.graph) } else { Vec::new() };
        let held = if config.full_graph { Some(Held::new(config, task, graph, &degrees)?) } else { None };
        let limits = Limits::default();
        let sparse = if config.full_graph {
            None
        } else {
            sparse_features(task, config.normalise_features, limits.chunk_bytes)?
        };
        Ok((network, Self { loops, degrees, sparse, held, limits }))
    }
}

impl Held {
    fn new(config: &RunConfig, task: &Task, graph: Adjacency, degrees: &[Vec<f32>]) -> Result<Self> {
        let all = degrees.concat();
        let extras = if all.is_empty() { Extras::new() } else { scales(&all, &all, &graph) };
        let rows = task.width.map(|width| all_rows(config, task, width)).transpose()?;
        Ok(Self { graph, extras, rows })
    }
}

fn all_rows(config: &RunConfig, task: &Task, width: usize) -> Result<Rows> {
    let ids: Vec<Vec<u64>> = task.node_counts().into_iter().map(|count| (0..count).collect()).collect();
    let lists: Vec<&[u64]> = ids.iter().map(Vec::as_slice).collect();
    let mut rows = vec![0.0; lists.iter().map(|ids| ids.len()).sum::<usize>() * width];
    task.gather(&lists, &mut rows)?;
    if config.normalise_features {
        normalise(&mut rows, width);
    }
    Ok(SparseRows::of(&rows, width, MOST_FILLED).map_or_else(|| Rows::Dense(rows), Rows::Sparse))
}
