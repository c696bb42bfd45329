//! Subgraphs on the CPU.

use super::super::index::{Entry, Index};
use super::super::neighbour::NeighbourSampler;
use super::super::output::{RelationEdges, TypeNodes};
use super::super::seeds::Seeds;
use super::{Subgraph, check_nodes, everything};
use crate::column::{Id, Ids};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::random::Key;

/// The nodes asked for, one list a type, and every edge between them. A node that is asked for twice is in it once.
/// Edges come relation by relation, targets in the order of the nodes, each list in its order.
pub fn induced_subgraph(graph: &Graph, nodes: &[&[u64]]) -> Result<Subgraph> {
    check_nodes(graph, nodes)?;
    let widest = graph.schema().node_types().iter().map(|node_type| node_type.count).max();
    if widest.unwrap_or(0) <= u64::MOST { induced::<u64>(graph, nodes) } else { induced::<u128>(graph, nodes) }
}

/// All nodes within `hops` of the seeds, and every edge between them, also those that no shortest way uses.
pub fn khop_subgraph(graph: &Graph, seeds: Seeds<'_>, hops: usize) -> Result<Subgraph> {
    let reached = NeighbourSampler::new(graph.clone(), everything(hops)?)?.sample(seeds, Key::new(0))?;
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
    for (wanted, known) in nodes.iter().zip(&mut known) {
        let (mut kept, mut mapping) = (TypeNodes::default(), Vec::with_capacity(wanted.len()));
        for &id in *wanted {
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
        subgraph.sample.edges.push(edges?);
    }
    Ok(subgraph)
}

fn edges_between<I: Id, E: Entry>(
    graph: &Graph,
    at: usize,
    lists: &[I],
    nodes: &[TypeNodes],
    known: &[Index<E>],
) -> Result<RelationEdges> {
    let (topology, (asking, found)) = (graph.relation(at), graph.ends(at));
    let (mut edges, mut ids) = (RelationEdges::default(), Vec::new());
    for (col, &row) in nodes[asking].ids.iter().enumerate() {
        let list = topology.list(row);
        let (before, after) = (list.start as u64, list.end as u64);
        let neighbours = lists.get(list).ok_or(Error::FallingOffsets { row, before, after })?;
        for (position, neighbour) in (before..).zip(neighbours) {
            if let Some(number) = known[found].get(neighbour.wide()) {
                edges.row.push(number);
                edges.col.push(Id::narrow(col as u64));
                ids.push(topology.edge_id(crate::topology::index(position)));
            }
        }
    }
    edges.per_hop.push(edges.row.len());
    Ok(RelationEdges { ids: Some(ids), ..edges })
}
