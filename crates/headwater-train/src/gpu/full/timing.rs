//! How long the passes of each layer take, one layer at a time: so much memory there has to be in any case.

use headwater_cuda::{Event, Stream};

use super::super::flat::Flat;
use super::super::layers::{Activations, DeviceLayer};
use super::super::passes::{Brought, bind};
use super::super::step_memory::{StepMemory, StepOp};
use super::super::wait::wait;
use crate::error::Result;

/// Seconds of the forward and the backward pass of every layer. Nothing is learnt from it: inputs of layers are zeros.
pub(crate) fn layer_seconds(
    stream: &Stream,
    layers: &[DeviceLayer],
    brought: &Brought<'_>,
    flat: &Flat,
) -> Result<Vec<(f64, f64)>> {
    let mut seconds = Vec::new();
    for at in 0..layers.len() {
        let own = Activations::of_layer(stream, layers, brought.graphs, at)?;
        let memory = StepMemory::Kept(&own);
        let pass = |op: StepOp| -> Result<f64> {
            let Some(bound) = bind(stream, layers, brought, (&memory, at, op), flat)? else { return Ok(0.0) };
            let program = op.program(&layers[at]);
            let (begun, ended) = (Event::timed(stream.gpu())?, Event::timed(stream.gpu())?);
            // The first run compiles what was never run.
            program.queue(stream, &bound, &brought.keys[at])?;
            begun.record_on(stream)?;
            program.queue(stream, &bound, &brought.keys[at])?;
            ended.record_on(stream)?;
            wait(&ended, "timing of a layer")?;
            stream.take_fault()?;
            Ok(f64::from(ended.ms_since(&begun)?) / 1e3)
        };
        seconds.push((pass(StepOp::Forward(at))?, pass(StepOp::Backward(at))?));
    }
    Ok(seconds)
}
