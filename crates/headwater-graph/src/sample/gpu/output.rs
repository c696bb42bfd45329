//! A sample in GPU memory.

use std::ops::Range;

use bytemuck::Pod;
use headwater_cuda::{Scratch, Span, Stream};

use super::super::output::{RelationEdges, Sample, TypeNodes};
use crate::error::Result;

/// A sampled neighbourhood in GPU memory: what [`Sample`] is in host memory.
///
/// Edges stand hop after hop and in a hop relation after relation; `segments` says where. The memory is the stream's
/// again when the sample and every clone of its spans are dropped.
#[derive(Debug)]
pub struct DeviceSample {
    /// Nodes, one entry a type.
    pub nodes: Vec<DeviceNodes>,
    /// Local numbers of the neighbours, u32 each.
    pub row: Span,
    /// Local numbers of the nodes that asked for them, u32 each.
    pub col: Span,
    /// The edges' ids in the graph, u64 each, when kept.
    pub edge_ids: Option<Span>,
    /// For each relation and hop, which edges are its.
    pub segments: Vec<Vec<Range<usize>>>,
    pub(in crate::sample) stream: Stream,
    // Behind the spans, so that they are gone when it is given back.
    pub(in crate::sample) _memory: Scratch,
}

/// The nodes of one type.
#[derive(Debug)]
pub struct DeviceNodes {
    /// Their ids in the graph, u64 each; a position here is a node's local number.
    pub ids: Span,
    /// With disjoint trees, the seed each belongs to, u32 each.
    pub trees: Option<Span>,
    /// How many are seeds, and how many each hop added.
    pub per_hop: Vec<usize>,
}

impl DeviceSample {
    /// The stream it was drawn on. Other streams wait for it before they read.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The same sample in host memory.
    pub fn to_host(&self) -> Result<Sample> {
        let nodes = self.nodes.iter().map(|nodes| {
            let trees = nodes.trees.as_ref().map(|trees| self.read::<u32>(trees)).transpose()?;
            Ok(TypeNodes { ids: self.read(&nodes.ids)?, trees, per_hop: nodes.per_hop.clone() })
        });
        let (row, col): (Vec<u32>, Vec<u32>) = (self.read(&self.row)?, self.read(&self.col)?);
        let ids: Option<Vec<u64>> = self.edge_ids.as_ref().map(|ids| self.read(ids)).transpose()?;
        let edges = self.segments.iter().map(|hops| RelationEdges {
            row: joined(&row, hops),
            col: joined(&col, hops),
            ids: ids.as_ref().map(|ids| joined(ids, hops)),
            per_hop: hops.iter().map(ExactSizeIterator::len).collect(),
        });
        Ok(Sample { nodes: nodes.collect::<Result<_>>()?, edges: edges.collect() })
    }

    /// The ids of the nodes alone, type after type.
    pub fn node_ids(&self) -> Result<Vec<Vec<u64>>> {
        self.nodes.iter().map(|nodes| self.read(&nodes.ids)).collect()
    }

    fn read<T: Pod>(&self, span: &Span) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); span.bytes() / size_of::<T>()];
        self.stream.download(span, bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }
}

fn joined<T: Copy>(all: &[T], parts: &[Range<usize>]) -> Vec<T> {
    parts.iter().flat_map(|part| &all[part.clone()]).copied().collect()
}
