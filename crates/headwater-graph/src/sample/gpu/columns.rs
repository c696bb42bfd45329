//! A sample as columns of 64 bits in memory of whoever asks: what torch and others index with.

use std::ops::Range;

use headwater_cuda::{Span, Stream};

use super::output::{DeviceNodes, DeviceSample};
use crate::error::{Error, Result};
use crate::sample::widen::widen;

impl DeviceSample {
    /// Nodes of a type.
    pub fn node_count(&self, node_type: usize) -> Result<usize> {
        Ok(self.of_type(node_type)?.ids.bytes() / 8)
    }

    /// Edges of a relation.
    pub fn edge_count(&self, relation: usize) -> Result<usize> {
        Ok(self.of_relation(relation)?.iter().map(ExactSizeIterator::len).sum())
    }

    /// Queues the columns of a graph of one type: nodes, both ends of edges, and ids of edges where they were kept.
    pub fn columns_into(&self, stream: &Stream, nodes: &Span, ends: &Span, edge_ids: &Span) -> Result<()> {
        stream.wait_for(&self.stream)?;
        self.copy_nodes(stream, 0, nodes)?;
        self.widen_ends(stream, 0, ends)?;
        self.copy_edge_ids(stream, 0, edge_ids)?;
        Ok(())
    }

    /// Queues the ids of a type's nodes into `out`.
    pub fn nodes_into(&self, stream: &Stream, node_type: usize, out: &Span) -> Result<()> {
        stream.wait_for(&self.stream)?;
        self.copy_nodes(stream, node_type, out)
    }

    fn copy_nodes(&self, stream: &Stream, node_type: usize, out: &Span) -> Result<()> {
        Ok(stream.copy(&self.of_type(node_type)?.ids, out)?)
    }

    /// With disjoint trees, queues the seed that each node of a type belongs to into `out`; whether there are trees.
    pub fn trees_into(&self, stream: &Stream, node_type: usize, out: &Span) -> Result<bool> {
        stream.wait_for(&self.stream)?;
        let Some(trees) = &self.of_type(node_type)?.trees else { return Ok(false) };
        let whole = 0..trees.bytes() / 4;
        widen(stream, trees, &[whole], out)?;
        Ok(true)
    }

    /// Queues both ends of a relation's edges into `out`: all neighbours, then the nodes that asked for them.
    pub fn ends_into(&self, stream: &Stream, relation: usize, out: &Span) -> Result<()> {
        stream.wait_for(&self.stream)?;
        self.widen_ends(stream, relation, out)
    }

    fn widen_ends(&self, stream: &Stream, relation: usize, out: &Span) -> Result<()> {
        let pieces = self.of_relation(relation)?;
        let half = 8 * self.edge_count(relation)?;
        let (neighbours, asking) = (out.part(0, half), out.part(half, half));
        let (Some(neighbours), Some(asking)) = (neighbours, asking) else {
            let (found, expected) = (out.bytes() as u64, 2 * half as u64);
            return Err(Error::Length { name: "output, in bytes,", found, expected, of: "both ends of edges" });
        };
        widen(stream, &self.row, pieces, &neighbours)?;
        widen(stream, &self.col, pieces, &asking)
    }

    /// Queues the ids of a relation's edges into `out`; whether they were kept.
    pub fn edge_ids_into(&self, stream: &Stream, relation: usize, out: &Span) -> Result<bool> {
        stream.wait_for(&self.stream)?;
        self.copy_edge_ids(stream, relation, out)
    }

    fn copy_edge_ids(&self, stream: &Stream, relation: usize, out: &Span) -> Result<bool> {
        let pieces = self.of_relation(relation)?;
        let Some(ids) = &self.edge_ids else { return Ok(false) };
        let mut at = 0;
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let outside = || Error::Options { why: "the output is shorter than the ids of edges" };
            let from = ids.part(8 * piece.start, 8 * piece.len()).ok_or_else(outside)?;
            stream.copy(&from, &out.part(at, 8 * piece.len()).ok_or_else(outside)?)?;
            at += 8 * piece.len();
        }
        Ok(true)
    }

    fn of_type(&self, at: usize) -> Result<&DeviceNodes> {
        self.nodes.get(at).ok_or_else(|| none("node type", at, self.nodes.len()))
    }

    fn of_relation(&self, at: usize) -> Result<&Vec<Range<usize>>> {
        self.segments.get(at).ok_or_else(|| none("relation", at, self.segments.len()))
    }
}

fn none(name: &'static str, at: usize, limit: usize) -> Error {
    Error::IdOutOfRange { name, position: 0, id: at as u64, limit: limit as u64 }
}
