//! Every edge among some nodes.

use super::index::{Entry, Index};
use super::neighbour::NeighbourSampler;
use super::options::{EdgeIds, SampleOptions};
use super::output::{RelationEdges, Sample, TypeNodes};
use super::seeds::Seeds;
use crate::column::{Id, Ids};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::random::Key;
use crate::topology::{Layout, index};

/// A part of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subgraph {
    /// Its nodes, each once, and every edge among them.
    pub sample: Sample,
    /// For every type, the local numbers of the nodes that were asked for.
    pub mapping: Vec<Vec<u32>>,
}

/// The nodes asked for, one list a type, and every edge between them. A node that is asked for twice is in it once.
/// Edges come relation by relation, targets in the order of the nodes, each list in its order.
pub fn induced_subgraph(graph: &Graph, nodes: &[&[u64]]) -> Result<Subgraph> {
    let (found, expected) = (nodes.len() as u64, graph.schema().node_types().len() as u64);
    if found != expected {
        return Err(Error::Length { name: "lists of nodes", found, expected, of: "the node types" });
    }
    let widest = graph.schema().node_types().iter().map(|node_type| node_type.count).max();
    if widest.unwrap_or(0) <= u64::MOST { induced::<u64>(graph, nodes) } else { induced::<u128>(graph, nodes) }
}

/// All nodes within `hops` of the seeds, and every edge between them, also those that no shortest way uses.
pub fn khop_subgraph(graph: &Graph, seeds: Seeds<'_>, hops: usize) -> Result<Subgraph> {
    let options = SampleOptions { edge_ids: EdgeIds::Dropped, ..SampleOptions::fanouts(&vec![-1; hops])? };
    let reached = NeighbourSampler::new(graph.clone(), options)?.sample(seeds, Key::new(0))?;
    let nodes: Vec<&[u64]> = reached.nodes.iter().map(|nodes| nodes.ids.as_slice()).collect();
    let mut subgraph = induced_subgraph(graph, &nodes)?;
    // Only the seeds were asked for.
    for (at, mapping) in subgraph.mapping.iter_mut().enumerate() {
        mapping.truncate(if at == seeds.node_type { seeds.nodes.len() } else { 0 });
    }
    Ok(subgraph)
}

fn induced<E: Entry>(graph: &Graph, nodes: &[&[u64]]) -> Result<Subgraph> {
    let mut known: Vec<Index<E>> = nodes.iter().map(|_| Index::new()).collect();
    let mut subgraph = Subgraph::default();
    for ((wanted, known), node_type) in nodes.iter().zip(&mut known).zip(graph.schema().node_types()) {
        let (mut kept, mut mapping) = (TypeNodes::default(), Vec::with_capacity(wanted.len()));
        for (at, &id) in wanted.iter().enumerate() {
            if id >= node_type.count {
                return Err(Error::IdOutOfRange { name: "nodes", position: at as u64, id, limit: node_type.count });
            }
            let next = u32::try_from(kept.ids.len()).map_err(|_| Error::SampleTooLarge)?;
            let (number, is_new) = known.number(id, next);
            kept.ids.extend(is_new.then_some(id));
            mapping.push(number);
        }
        kept.per_hop.push(kept.ids.len());
        subgraph.sample.nodes.push(kept);
        subgraph.mapping.push(mapping);
    }
    for at in 0..graph.relations().len() {
        let edges = match graph.relation(at).neighbours() {
            Ids::U32(lists) => edges_between(graph, at, lists, &subgraph.sample.nodes, &known),
            Ids::U64(lists) => edges_between(graph, at, lists, &subgraph.sample.nodes, &known),
        };
        subgraph.sample.edges.push(edges);
    }
    Ok(subgraph)
}

fn edges_between<I: Id, E: Entry>(
    graph: &Graph,
    at: usize,
    lists: &[I],
    nodes: &[TypeNodes],
    known: &[Index<E>],
) -> RelationEdges {
    let (topology, relation) = (graph.relation(at), &graph.schema().relations()[at]);
    let (asking, found) = match topology.layout() {
        Layout::Csc => (relation.target, relation.source),
        Layout::Csr => (relation.source, relation.target),
    };
    let (mut edges, mut ids) = (RelationEdges::default(), Vec::new());
    for (col, &id) in nodes[asking].ids.iter().enumerate() {
        for position in topology.list(id) {
            if let Some(row) = known[found].get(lists[position].wide()) {
                edges.row.push(row);
                edges.col.push(Id::narrow(col as u64));
                ids.push(topology.edge_id(position));
            }
        }
    }
    edges.per_hop.push(edges.row.len());
    debug_assert_eq!(index(edges.row.len() as u64), ids.len());
    RelationEdges { ids: Some(ids), ..edges }
}
