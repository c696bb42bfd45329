//! A program run on arrays of the host: they go to the GPU, and outputs come back.

use std::collections::BTreeMap;

use headwater_cuda::{Allocation, Span, Stream};
use headwater_graph::random::Key;

use super::cuda::{DeviceRows, Executor};
use super::graph::DeviceGraph;
use crate::adjacency::Adjacency;
use crate::cpu::fast::Given;
use crate::error::{Error, Result};
use crate::intra::{Buffer, Role};

impl Executor {
    /// Runs it on arrays of the host.
    pub fn run<'g>(
        &self,
        stream: &Stream,
        graph: &Adjacency,
        step: Key,
        given: &dyn Fn(&str) -> Option<Given<'g>>,
    ) -> Result<BTreeMap<String, Vec<f32>>> {
        self.run_over(stream, (graph, &DeviceGraph::of(stream, graph, &[&self.emitted().table])?), step, given)
    }

    /// The same over a graph that lies there already.
    pub(super) fn run_over<'g>(
        &self,
        stream: &Stream,
        (graph, device): (&Adjacency, &DeviceGraph),
        step: Key,
        given: &dyn Fn(&str) -> Option<Given<'g>>,
    ) -> Result<BTreeMap<String, Vec<f32>>> {
        let mut sent: BTreeMap<&str, DeviceRows> = BTreeMap::new();
        for buffer in &self.emitted().buffers {
            if matches!(buffer.role, Role::Input | Role::Parameter) {
                let expected = graph.rows(buffer.domain) * buffer.shape.len();
                sent.insert(&buffer.name, send(stream, buffer, expected, given(&buffer.name))?);
            }
        }
        let temporaries = room(stream, self.temporary_bytes(device))?;
        let bound = self.bind(stream, device, &temporaries, &|buffer| match buffer.role {
            Role::Output => {
                let bytes = 4 * graph.rows(buffer.domain) * buffer.shape.len();
                Ok(Some(DeviceRows::from(room(stream, bytes)?)))
            }
            _ => Ok(sent.get(buffer.name.as_str()).cloned()),
        })?;
        let step = of(stream, bytemuck::cast_slice(&[step.bits()]))?;
        self.queue(stream, &bound, &step)?;
        let mut found = BTreeMap::new();
        for (buffer, span) in bound.outputs() {
            let mut values = vec![0.0f32; graph.rows(buffer.domain) * buffer.shape.len()];
            if let Some(own) = span.part(0, 4 * values.len()).filter(|_| !values.is_empty()) {
                stream.download(&own, bytemuck::cast_slice_mut(&mut values))?;
            }
            found.insert(buffer.name.clone(), values);
        }
        Ok(found)
    }
}

/// An array of the host, and which rows of it are meant where it is a larger table.
fn send(stream: &Stream, buffer: &Buffer, expected: usize, given: Option<Given<'_>>) -> Result<DeviceRows> {
    let refused = |found| Err(Error::Binding { name: buffer.name.clone(), expected, found });
    let width = buffer.shape.len();
    match given {
        Some(Given::Dense(values)) if values.len() == expected => {
            Ok(DeviceRows::from(of(stream, bytemuck::cast_slice(values))?))
        }
        Some(Given::Picked { table, rows }) => {
            let is_inside = |row: &u32| (*row as usize + 1) * width <= table.len();
            if buffer.role != Role::Input || !rows.iter().all(is_inside) || rows.len() * width != expected {
                return refused(0);
            }
            let rows = Some(of(stream, bytemuck::cast_slice(rows))?);
            Ok(DeviceRows { data: of(stream, bytemuck::cast_slice(table))?, rows })
        }
        Some(Given::Dense(values)) => refused(values.len()),
        _ => refused(0),
    }
}

/// Room for some bytes, and never for none.
fn room(stream: &Stream, bytes: usize) -> Result<Span> {
    Ok(Span::whole(Allocation::on_stream(stream, bytes.max(16))?))
}

fn of(stream: &Stream, bytes: &[u8]) -> Result<Span> {
    let room = room(stream, bytes.len())?;
    if let Some(own) = room.part(0, bytes.len()).filter(|_| !bytes.is_empty()) {
        stream.upload(bytes, &own)?;
    }
    Ok(room)
}
