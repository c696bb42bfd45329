//! Nodes renumbered: lists moved to their new places, ids relabelled, and everything that has a row a node moved along.
//!
//! As the data-tiering paper has it: a map from old ids to new ones, new offsets by a prefix sum, then every list copied
//! and every id looked up. Work is cut by edges and not by rows, so that a hub is shared by many threads. The new lists
//! are written front to back; what is read at random, first the places of many lists and then the map, is asked for many
//! at a time, so that the misses overlap.

use headwater_tensor::parallel;
use rayon::prelude::*;

use crate::build::inverse_of;
use crate::column::{Id, Ids};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::lane::{Carried, EdgeIds, Fill, Lane, Moved, count_from};
use crate::order::offsets_of;
use crate::progress::Progress;
use crate::topology::{RowOrder, Topology, index};

/// Edges that a thread moves before it looks for the next piece of work. They stay in its cache to be relabelled.
const PIECE_EDGES: usize = 1 << 15;
/// Lists whose places are looked up together.
const TOGETHER: usize = 128;

/// New numbers for the nodes of one type.
#[derive(Debug, Clone)]
pub struct Permutation {
    new_of_old: Ids,
    old_of_new: Ids,
}

impl Permutation {
    /// From the new id of every old one.
    pub fn from_new_of_old(new_of_old: Ids) -> Result<Self> {
        let old_of_new = inverse_of(&new_of_old)?;
        Ok(Self { new_of_old, old_of_new })
    }

    /// From the old id of every new one: the nodes in their new order.
    pub fn from_old_of_new(old_of_new: Ids) -> Result<Self> {
        let new_of_old = inverse_of(&old_of_new)?;
        Ok(Self { new_of_old, old_of_new })
    }

    /// Every node stays where it is.
    #[must_use]
    pub fn identity(nodes: u64) -> Self {
        fn all<T: Id + Default>(nodes: u64) -> Vec<T> {
            let mut ids = vec![T::default(); index(nodes)];
            parallel::for_parts(&mut ids, PIECE_EDGES, &count_from);
            ids
        }
        let ids: Ids = if nodes <= 1 << 32 { all::<u32>(nodes).into() } else { all::<u64>(nodes).into() };
        Self { new_of_old: ids.clone(), old_of_new: ids }
    }

    /// The highest score first; among equals the lower id.
    pub fn by_score(scores: &[f64]) -> Result<Self> {
        if let Some(at) = parallel::position(scores, |score| score.is_nan()) {
            return Err(Error::BadScore { position: at as u64 });
        }
        // Adding zero makes one zero of two. The bits of positive floats ascend with them, those of negative ones fall.
        let ascending = |score: f64| {
            let bits = (score + 0.0).to_bits();
            if bits >> 63 == 0 { bits | (1 << 63) } else { !bits }
        };
        Self::descending(scores.len(), &|at| ascending(scores[at]))
    }

    /// The highest degree first; among equals the lower id.
    pub fn by_degree(degrees: &[u64]) -> Result<Self> {
        Self::descending(degrees.len(), &|at| degrees[at])
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.new_of_old.len() as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.new_of_old.is_empty()
    }

    /// The new id of every old one.
    #[must_use]
    pub fn new_of_old(&self) -> &Ids {
        &self.new_of_old
    }

    /// The old id of every new one.
    #[must_use]
    pub fn old_of_new(&self) -> &Ids {
        &self.old_of_new
    }

    /// Back again.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { new_of_old: self.old_of_new.clone(), old_of_new: self.new_of_old.clone() }
    }

    /// The new ids of a list of old ones: splits, seeds.
    pub fn relabel(&self, ids: &Ids) -> Result<Ids> {
        ids.check_below(self.len(), "ids")?;
        Ok(self.relabelled(ids))
    }

    /// As [`Permutation::relabel`], for ids that have been checked.
    pub(crate) fn relabelled(&self, ids: &Ids) -> Ids {
        fn all<T: Id, N: Id>(ids: &[T], names: &[N]) -> Vec<T> {
            parallel::map(ids, |id| T::narrow(names[index(id.wide())].wide()))
        }
        match (ids, &self.new_of_old) {
            (Ids::U32(ids), Ids::U32(names)) => all(ids, names).into(),
            (Ids::U32(ids), Ids::U64(names)) => all(ids, names).into(),
            (Ids::U64(ids), Ids::U32(names)) => all(ids, names).into(),
            (Ids::U64(ids), Ids::U64(names)) => all(ids, names).into(),
        }
    }

    /// Moves rows of bytes, one a node, to their new places: features, labels.
    pub fn permute_rows(&self, from: &[u8], row_bytes: usize, to: &mut [u8]) -> Result<()> {
        let expected = self.len() * row_bytes as u64;
        for (name, found) in [("rows to permute", from.len() as u64), ("permuted rows", to.len() as u64)] {
            if found != expected {
                return Err(Error::Length { name, found, expected, of: "the nodes, in bytes" });
            }
        }
        if expected == 0 {
            return Ok(());
        }
        let rows = (PIECE_EDGES / row_bytes).max(1);
        parallel::for_parts(to, rows * row_bytes, &|start, to| {
            for (at, to) in (start / row_bytes..).zip(to.chunks_exact_mut(row_bytes)) {
                let old = index(self.old_of_new.at(at)) * row_bytes;
                to.copy_from_slice(&from[old..old + row_bytes]);
            }
        });
        Ok(())
    }

    fn descending(nodes: usize, key: &(dyn Fn(usize) -> u64 + Sync)) -> Result<Self> {
        // A pair as one number: the key, and below it the position.
        let pair = |at: usize| u128::from(!key(at)) << 64 | at as u128;
        let mut order = parallel::tabulate(nodes, pair);
        order.par_sort_unstable();
        let old_of_new: Ids = if nodes as u64 <= 1 << 32 {
            parallel::map(&order, |pair| u32::narrow(low(*pair))).into()
        } else {
            parallel::map(&order, |pair| low(*pair)).into()
        };
        drop(order);
        Self::from_old_of_new(old_of_new)
    }
}

/// The lower half of a pair.
#[expect(clippy::cast_possible_truncation, reason = "the upper half is left out")]
pub(crate) fn low(pair: u128) -> u64 {
    pair as u64
}

impl Topology {
    /// The same edges with both ends renumbered. Edges of a row keep their order.
    pub fn reordered(
        &self,
        rows: &Permutation,
        columns: &Permutation,
        edge_ids: EdgeIds,
        progress: &dyn Progress,
    ) -> Result<Self> {
        for (name, found, expected) in
            [("row permutation", rows.len(), self.rows()), ("column permutation", columns.len(), self.columns())]
        {
            if found != expected {
                return Err(Error::Length { name, found, expected, of: "the nodes" });
            }
        }
        self.check()?;
        let offsets = match &rows.old_of_new {
            Ids::U32(old) => offsets_of(&new_degrees(self.offsets(), old)),
            Ids::U64(old) => offsets_of(&new_degrees(self.offsets(), old)),
        };
        let (lanes, labels) = Carried::by(self, edge_ids).into_lanes();
        progress.begin("moving lists", self.edges() * (1 + lanes.len() as u64));
        let mover = Mover { old_of_new: &rows.old_of_new, from: self.offsets(), to: &offsets, progress };
        let neighbours = mover.move_lane(&Lane::of(self.neighbours()), Some(&columns.new_of_old));
        let moved: Vec<Moved> = lanes.iter().map(|lane| mover.move_lane(lane, None)).collect();
        // Ascending ids are not ascending any more once they have new names; times are what they were.
        let order = if self.order() == RowOrder::Time { RowOrder::Time } else { RowOrder::Any };
        let made = Self::trusted(self.layout(), self.columns(), offsets.into(), neighbours.into())?;
        Ok(labels.attach(moved.into_iter(), made)?.with_order(order))
    }
}

impl Graph {
    /// The same graph with new numbers for the nodes of every type, one permutation a node type.
    pub fn reordered(&self, nodes: &[Permutation], edge_ids: EdgeIds, progress: &dyn Progress) -> Result<Self> {
        let (found, expected) = (nodes.len() as u64, self.schema().node_types().len() as u64);
        if found != expected {
            return Err(Error::Length { name: "permutations", found, expected, of: "the node types" });
        }
        let ends = self.schema().relations().iter().zip(self.relations());
        let moved = ends.map(|(relation, topology)| {
            let (rows, columns) = relation.ends(topology.layout());
            topology.reordered(&nodes[rows], &nodes[columns], edge_ids, progress)
        });
        Self::new(self.schema().clone(), moved.collect::<Result<_>>()?)
    }
}

fn new_degrees<T: Id>(offsets: &[u64], old_of_new: &[T]) -> Vec<u64> {
    let degree = |old: &T| offsets[index(old.wide()) + 1] - offsets[index(old.wide())];
    parallel::map(old_of_new, degree)
}

/// Lists on their way from where they were to where they belong.
struct Mover<'a> {
    old_of_new: &'a Ids,
    from: &'a [u64],
    to: &'a [u64],
    progress: &'a dyn Progress,
}

impl Mover<'_> {
    fn move_lane(&self, lane: &Lane<'_>, names: Option<&Ids>) -> Moved {
        let edges = index(self.to[self.to.len() - 1]);
        let mut moved = Moved::new(lane, edges);
        match (lane, &mut moved) {
            (Lane::Four(fill), Moved::Four(to)) => self.move_all(fill, names, to),
            (Lane::Eight(fill), Moved::Eight(to)) => self.move_all(fill, names, to),
            // The one is made from the other, so widths agree.
            _ => {}
        }
        moved
    }

    fn move_all<T: Id>(&self, fill: &Fill<'_, T>, names: Option<&Ids>, to: &mut [T]) {
        parallel::for_parts(to, PIECE_EDGES, &|start, piece| {
            match self.old_of_new {
                Ids::U32(old) => self.move_piece(old, fill, start, piece),
                Ids::U64(old) => self.move_piece(old, fill, start, piece),
            }
            if let Some(names) = names {
                relabel(piece, names);
            }
            self.progress.advance(piece.len() as u64);
        });
    }

    /// Copies the lists that belong at `start` and after. The first and the last may belong there in part only.
    fn move_piece<R: Id, T: Id>(&self, old_of_new: &[R], fill: &Fill<'_, T>, start: usize, mut piece: &mut [T]) {
        let mut row = self.to.partition_point(|offset| *offset <= start as u64) - 1;
        let mut skipped = start - index(self.to[row]);
        let mut places = [0; TOGETHER];
        while !piece.is_empty() {
            let together = TOGETHER.min(old_of_new.len() - row);
            for (place, old) in places.iter_mut().zip(&old_of_new[row..row + together]) {
                *place = index(self.from[index(old.wide())]);
            }
            for (place, bounds) in places[..together].iter().zip(self.to[row..].windows(2)) {
                let length = (index(bounds[1] - bounds[0]) - skipped).min(piece.len());
                fill(place + skipped, crate::pieces::take(&mut piece, length));
                skipped = 0;
            }
            row += together;
        }
    }
}

/// Gives every id its new name. All of them have one.
pub(crate) fn relabel<T: Id>(ids: &mut [T], names: &Ids) {
    fn all<T: Id, N: Id>(ids: &mut [T], names: &[N]) {
        for id in ids {
            *id = T::narrow(names[index(id.wide())].wide());
        }
    }
    match names {
        Ids::U32(names) => all(ids, names),
        Ids::U64(names) => all(ids, names),
    }
}

#[cfg(test)]
mod tests;
