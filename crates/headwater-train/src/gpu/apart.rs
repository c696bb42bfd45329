//! Steps over batches of several node types or relations: blocks are put together on the host and brought batch by batch.

use std::collections::BTreeMap;

use headwater_compile::cuda::DeviceGraph;
use headwater_cuda::{Span, Stream};

use super::layers::Activations;
use super::passes::Brought;
use super::sampled::Step;
use super::site::{Found, Ground, Shared, Site, rows};
use super::step_memory::StepMemory;
use super::wait::wait;
use crate::device::copy_of;
use crate::error::Result;
use crate::network::Extras;
use crate::trainer::draw::Batch;

/// A step over a batch whose features were read. Returns when it is over.
pub(crate) fn step(
    stream: &Stream,
    shared: &Shared<'_>,
    batch: &Batch,
    x: Option<&[f32]>,
    step: &Step,
) -> Result<Found> {
    let mut graphs = Vec::new();
    for (layer, (graph, _)) in shared.layers.iter().zip(&batch.blocks) {
        graphs.push(DeviceGraph::of(stream, graph, &layer.tables())?);
    }
    let graphs: Vec<&DeviceGraph> = graphs.iter().collect();
    let activations = Activations::new(stream, shared.layers, &graphs)?;
    let extras = batch.blocks.iter().map(|(_, extras)| send_all(stream, extras)).collect::<Result<Vec<_>>>()?;
    let x = x.map(|values| copy_of(stream, bytemuck::cast_slice(values))).transpose()?;
    let most_rows = batch.labels.nodes();
    let letter = Site::letter(stream, shared, most_rows)?;
    let keys = Site::keys(&letter, shared.layers.len())?;
    let brought = Brought { graphs: &graphs, x: x.as_ref().and_then(rows), extras: &extras, keys };
    let ground = Ground { brought, memory: StepMemory::Kept(&activations), first_row: 0, most_rows };
    let mut site = Site::new(stream, shared, letter, &ground)?;
    site.write(shared, step, &batch.labels)?;
    site.send(stream)?;
    site.step(stream, shared, step)?;
    wait(&stream.record()?, "step")?;
    stream.take_fault()?;
    site.found()
}

fn send_all(stream: &Stream, extras: &Extras) -> Result<BTreeMap<String, Span>> {
    extras.iter().map(|(name, values)| Ok((name.clone(), copy_of(stream, bytemuck::cast_slice(values))?))).collect()
}
