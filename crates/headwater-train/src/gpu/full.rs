//! Steps over the whole graph, which lies in GPU memory with all features.

use std::collections::BTreeMap;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::cuda::DeviceGraph;
use headwater_compile::inter::Domain;
use headwater_cuda::Stream;

use super::layers::Activations;
use super::passes::Brought;
use super::sampled::Step;
use super::site::{Found, Ground, Shared, Site, rows};
use super::wait::wait;
use crate::device::copy_of;
use crate::error::Result;
use crate::labels::Labels;
use crate::network::Extras;

/// The whole graph and a site for it.
#[derive(Debug)]
pub(crate) struct FullGraph {
    site: Site,
    labels: Labels,
    /// What the site points into.
    _graph: DeviceGraph,
    _activations: Activations,
}

/// What a whole graph is made of.
pub(crate) struct Everything<'a> {
    pub graph: &'a Adjacency,
    pub extras: &'a Extras,
    /// All features, where there are any.
    pub x: Option<Vec<f32>>,
    /// Labels of all nodes of the type that has them, known where they are to be learnt.
    pub labels: Labels,
    /// The row of the first of these nodes.
    pub first_row: usize,
}

impl FullGraph {
    /// Brings everything to the GPU.
    pub fn new(stream: &Stream, shared: &Shared<'_>, all: Everything<'_>) -> Result<Self> {
        let tables: Vec<_> = shared.layers.iter().flat_map(|layer| layer.tables()).collect();
        let graph = DeviceGraph::of(stream, all.graph, &tables)?;
        let graphs = vec![&graph; shared.layers.len()];
        let activations = Activations::new(stream, shared.layers, &graphs)?;
        let x = all.x.map(|values| copy_of(stream, bytemuck::cast_slice(&values))).transpose()?;
        let mut extras = BTreeMap::new();
        for (name, values) in all.extras {
            extras.insert(name.clone(), copy_of(stream, bytemuck::cast_slice(values))?);
        }
        let extras = vec![extras; shared.layers.len()];
        let most_rows = all.labels.nodes();
        let letter = Site::letter(stream, shared, most_rows)?;
        let keys = Site::keys(&letter, shared.layers.len())?;
        let brought = Brought { graphs: &graphs, x: x.as_ref().and_then(rows), extras: &extras, keys };
        let ground = Ground { brought, activations: &activations, first_row: all.first_row, most_rows };
        let site = Site::new(stream, shared, letter, &ground)?;
        debug_assert!(all.first_row + most_rows <= all.graph.rows(Domain::DST));
        Ok(Self { site, labels: all.labels, _graph: graph, _activations: activations })
    }

    /// One step. Returns when it is over.
    pub fn step(&mut self, stream: &Stream, shared: &Shared<'_>, step: &Step) -> Result<Found> {
        self.site.write(shared, step, &self.labels)?;
        self.site.send(stream)?;
        self.site.step(stream, shared, step)?;
        wait(&stream.record()?, "step")?;
        stream.take_fault()?;
        self.site.found()
    }
}
