//! The neighbour lists of a graph, as inference walks them.

use headwater_graph::{Graph, Ids, Topology};

/// The relations that end at nodes of a type, with the type they begin at.
pub(super) fn into_type(graph: &Graph, of_type: usize) -> impl Iterator<Item = (usize, &Topology)> {
    let ends = graph.schema().relations().iter().zip(graph.relations());
    ends.filter(move |(relation, _)| relation.target == of_type).map(|(relation, lists)| (relation.source, lists))
}

/// The sources of all edges that end at a node.
pub(super) fn each_source(lists: &Topology, node: u64, mut visit: impl FnMut(u64)) {
    let list = lists.list(node);
    match lists.neighbours() {
        Ids::U32(ids) => ids.as_slice()[list].iter().for_each(|id| visit(u64::from(*id))),
        Ids::U64(ids) => ids.as_slice()[list].iter().for_each(|id| visit(*id)),
    }
}
