//! What kernels know of a graph: where its arrays lie, and how long they are.
//!
//! A relation is a line of words, as `relation.cuh` has them. An array in one piece is its address; one that is spread
//! over a group is the address of a table with the addresses of the shares.

use headwater_cuda::{Defines, Span, Stream};
use headwater_memory::{Buffer, Device};

use crate::error::Result;
use crate::interleave::{Interleave, MOST_MEMBERS};
use crate::placed::{PlacedArray, PlacedGraph, PlacedRelation};
use crate::topology::Topology;
use crate::width::IdWidth;

/// What kernels know of a graph.
#[derive(Debug)]
pub(super) struct Directory {
    /// One line a relation.
    pub relations: Buffer<u64, Device>,
    /// Addresses of the members' shares of each array, when the graph is spread over a group.
    _shares: Buffer<u64, Device>,
}

impl Directory {
    /// `type_bases` says where the ids of each type begin among the keys.
    pub fn new(stream: &Stream, placed: &PlacedGraph, type_bases: &[u64]) -> Result<Self> {
        let shares: Vec<u64> = placed.relations().iter().flat_map(arrays).flat_map(share_addresses).collect();
        let shares = Buffer::from_slice(stream, &shares)?;
        let mut next = shares.whole().pointer();
        let address = |array: &PlacedArray| match array {
            PlacedArray::Whole(span) => span.pointer(),
            PlacedArray::Spread(array) => match array.members() {
                [only] => only.pointer(),
                _ => {
                    let table = next;
                    next += SHARE_TABLE_BYTES;
                    table
                }
            },
        };
        let words = relation_words(placed, type_bases, address);
        Ok(Self { relations: Buffer::from_slice(stream, &words)?, _shares: shares })
    }
}

/// What kernels that read the directory share; after the header of `interleave`.
pub(in crate::sample) const RELATION: (&str, &str) = ("relation.cuh", include_str!("relation.cuh"));
/// Words of a relation in the kernels' table.
pub(in crate::sample) const RELATION_WORDS: usize = 13;
const SHARE_TABLE_BYTES: u64 = MOST_MEMBERS as u64 * 8;

/// What `relation.cuh` is compiled with.
pub(in crate::sample) fn spread_defines(spread: Option<Interleave>, defines: Defines) -> Defines {
    match spread.filter(|rule| rule.members() > 1) {
        Some(rule) => rule.define(defines),
        None => defines.with("MEMBERS", 1).with("BLOCK_LOG2", 0),
    }
}

/// The arrays of a relation, in the order of the kernels' words.
fn arrays(relation: &PlacedRelation) -> impl Iterator<Item = &PlacedArray> {
    let edge_ids = relation.edge_ids.as_ref().map(|ids| &ids.array);
    let rest = [edge_ids, relation.weights.as_ref(), relation.times.as_ref()];
    [&relation.offsets, &relation.neighbours.array].into_iter().chain(rest.into_iter().flatten())
}

/// The addresses of an array's shares, repeated until there are as many as a group may have; none when it is in one piece.
fn share_addresses(array: &PlacedArray) -> Vec<u64> {
    match array {
        PlacedArray::Whole(_) => Vec::new(),
        PlacedArray::Spread(array) => array.members().iter().map(Span::pointer).cycle().take(MOST_MEMBERS).collect(),
    }
}

/// The kernels' table of relations. `address` is asked once for each array, in the order of [`arrays`].
fn relation_words(placed: &PlacedGraph, type_bases: &[u64], mut address: impl FnMut(&PlacedArray) -> u64) -> Vec<u64> {
    let graph = placed.graph();
    let rows = super::bases(&graph.relations().iter().map(Topology::rows).collect::<Vec<_>>()).unwrap_or_default();
    let words = |(at, arrays): (usize, &PlacedRelation)| -> [u64; RELATION_WORDS] {
        let topology = graph.relation(at);
        let (asking, found) = graph.ends(at);
        let is_wide = |width: IdWidth| u64::from(width == IdWidth::U64);
        let edge_ids_wide = arrays.edge_ids.as_ref().map_or(0, |ids| is_wide(ids.width));
        [
            address(&arrays.offsets),
            address(&arrays.neighbours.array),
            arrays.edge_ids.as_ref().map_or(0, |ids| address(&ids.array)),
            arrays.weights.as_ref().map_or(0, &mut address),
            arrays.times.as_ref().map_or(0, &mut address),
            topology.rows(),
            topology.columns(),
            topology.edges(),
            type_bases[found],
            asking as u64,
            found as u64,
            is_wide(arrays.neighbours.width) | edge_ids_wide << 1,
            rows.get(at).copied().unwrap_or(0),
        ]
    };
    placed.relations().iter().enumerate().flat_map(words).collect()
}
