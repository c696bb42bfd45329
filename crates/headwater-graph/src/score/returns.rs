//! How many edges go both ways.
//!
//! A row that was found over an edge draws back over it where the edge is there the other way too. Whether it is, is known
//! of the graph as a whole: edges go both ways in almost all of a relation or in almost none. So some of them are looked at,
//! evenly spread.

use headwater_tensor::parallel;

use crate::column::{Id, Ids};
use crate::graph::Graph;
use crate::topology::{RowOrder, Topology, index};

/// Edges of a relation that are looked at.
const LOOKED_AT: u64 = 1 << 12;
/// Of those, how many a thread takes at a time: each takes several misses.
const LOOKED_AT_TOGETHER: usize = 1 << 6;
/// A smaller share is none.
const LEAST_SHARE: f32 = 1.0 / 64.0;

/// For every relation, the one over which most of its edges come back and the share of them that do.
pub(super) fn returns(graph: &Graph) -> Vec<Option<(usize, f32)>> {
    let all = 0..graph.relations().len();
    let of = |relation: usize| {
        let (rows, columns) = graph.ends(relation);
        let backwards = all.clone().filter(|back| graph.ends(*back) == (columns, rows));
        let shares = backwards.map(|back| (back, share(graph.relation(relation), graph.relation(back))));
        shares.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share >= LEAST_SHARE)
    };
    all.clone().map(of).collect()
}

/// The share of edges that are also in the lists of `back`.
fn share(lists: &Topology, back: &Topology) -> f32 {
    let (edges, looked_at) = (lists.edges(), lists.edges().min(LOOKED_AT));
    if looked_at == 0 {
        return 0.0;
    }
    let offsets = lists.offsets().as_slice();
    let goes_both_ways = |at: u64| {
        let edge = u64::try_from(u128::from(at) * u128::from(edges) / u128::from(looked_at)).unwrap_or(0);
        let row = offsets.partition_point(|offset| *offset <= edge).saturating_sub(1) as u64;
        has(back, lists.neighbours().at(index(edge)), row)
    };
    let found = parallel::sum(index(looked_at), LOOKED_AT_TOGETHER, &|range| {
        range.filter(|at| goes_both_ways(*at as u64)).count() as u64
    });
    found as f32 / looked_at as f32
}

/// Whether the list of a row has a node.
fn has(lists: &Topology, row: u64, node: u64) -> bool {
    let offsets = lists.offsets().as_slice();
    let Some(bounds) = offsets.get(index(row)..).and_then(|bounds| bounds.get(..2)) else { return false };
    let own = index(bounds[0])..index(bounds[1]);
    match lists.neighbours() {
        Ids::U32(ids) => ids.get(own).is_some_and(|list| stands_in(list, node, lists.order())),
        Ids::U64(ids) => ids.get(own).is_some_and(|list| stands_in(list, node, lists.order())),
    }
}

fn stands_in<I: Id>(list: &[I], node: u64, order: RowOrder) -> bool {
    match order {
        RowOrder::Neighbour => list.binary_search_by_key(&node, |id| id.wide()).is_ok(),
        _ => list.iter().any(|id| id.wide() == node),
    }
}
