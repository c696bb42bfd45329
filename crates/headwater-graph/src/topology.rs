//! Who is next to whom: the neighbour lists of one relation.
//!
//! Lists are kept compressed: `offsets` says where each row's list begins in `neighbours`. In CSC a row is a target and
//! its list the sources (in-bound sampling, what message passing wants); in CSR a row is a source. Everything that
//! belongs to an edge lies in the order of the lists; `edge_ids` leads back to where the edge came from.

use std::ops::Range;

use headwater_tensor::parallel::{self, PIECE};

use crate::column::{Column, Id, Ids};
use crate::error::{Error, Result};

/// Which end of an edge owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Rows are sources; a list has their targets.
    Csr,
    /// Rows are targets; a list has their sources.
    Csc,
}

impl Layout {
    /// Lists of the other end.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Csr => Self::Csc,
            Self::Csc => Self::Csr,
        }
    }
}

/// How the neighbours of each row are ordered, when it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowOrder {
    /// Nothing is known.
    #[default]
    Any,
    /// Ascending ids: lookups are binary searches.
    Neighbour,
    /// Ascending times: what has happened by some time is a prefix.
    Time,
}

/// The neighbour lists of one relation. Immutable; clones share the arrays.
#[derive(Debug, Clone)]
pub struct Topology {
    layout: Layout,
    columns: u64,
    offsets: Column<u64>,
    neighbours: Ids,
    edge_ids: Option<Ids>,
    weights: Option<Column<f32>>,
    times: Option<Column<i64>>,
    order: RowOrder,
}

impl Topology {
    /// Lists over `columns` possible neighbours. Every offset and every id is checked.
    pub fn new(layout: Layout, columns: u64, offsets: Column<u64>, neighbours: Ids) -> Result<Self> {
        let order = RowOrder::Any;
        let made = Self { layout, columns, offsets, neighbours, edge_ids: None, weights: None, times: None, order };
        made.check()?;
        Ok(made)
    }

    /// As [`Topology::new`], for arrays that were checked when they were written: only ends and lengths are looked at.
    /// Samplers still never read outside the arrays; a neighbour out of range is then found when it is met.
    pub fn trusted(layout: Layout, columns: u64, offsets: Column<u64>, neighbours: Ids) -> Result<Self> {
        let order = RowOrder::Any;
        let made = Self { layout, columns, offsets, neighbours, edge_ids: None, weights: None, times: None, order };
        made.check_ends()?;
        Ok(made)
    }

    /// With the id of every edge, in the order of the lists. Without, an edge's id is its position.
    pub fn with_edge_ids(self, edge_ids: Ids) -> Result<Self> {
        self.same_length("edge ids", edge_ids.len())?;
        Ok(Self { edge_ids: Some(edge_ids), ..self })
    }

    /// Without ids that are positions: edges have those anyway, and samplers need not read them.
    #[must_use]
    pub fn with_ids_implied(self) -> Self {
        let are_implied = match &self.edge_ids {
            Some(Ids::U32(ids)) => are_positions(ids),
            Some(Ids::U64(ids)) => are_positions(ids),
            None => return self,
        };
        if are_implied { Self { edge_ids: None, ..self } } else { self }
    }

    /// With the weight of every edge: finite, not negative.
    pub fn with_weights(self, weights: Column<f32>) -> Result<Self> {
        self.same_length("weights", weights.len())?;
        check_weights(&weights)?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// As [`Topology::with_weights`], for weights that were checked when they were written.
    pub fn with_trusted_weights(self, weights: Column<f32>) -> Result<Self> {
        self.same_length("weights", weights.len())?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// With the time of every edge. Temporal sampling also wants rows in the order of time.
    pub fn with_times(self, times: Column<i64>) -> Result<Self> {
        self.same_length("times", times.len())?;
        Ok(Self { times: Some(times), ..self })
    }

    /// Says how rows are ordered. The caller has ordered them or has checked it.
    #[must_use]
    pub fn with_order(self, order: RowOrder) -> Self {
        Self { order, ..self }
    }

    /// The lists alone, without ids, weights and times of edges.
    #[must_use]
    pub fn bare(&self) -> Self {
        Self { edge_ids: None, weights: None, times: None, ..self.clone() }
    }

    /// A copy in memory of large pages; see [`Column::in_memory`].
    pub fn in_memory(&self) -> Result<Self> {
        Ok(Self {
            offsets: self.offsets.in_memory()?,
            neighbours: self.neighbours.in_memory()?,
            edge_ids: self.edge_ids.as_ref().map(Ids::in_memory).transpose()?,
            weights: self.weights.as_ref().map(Column::in_memory).transpose()?,
            times: self.times.as_ref().map(Column::in_memory).transpose()?,
            ..*self
        })
    }

    /// Which end owns the lists.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Nodes that own lists.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Nodes that may stand in a list.
    #[must_use]
    pub fn columns(&self) -> u64 {
        self.columns
    }

    /// How many edges there are.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.neighbours.len() as u64
    }

    /// Where each row's list begins, and after the last one where it ends.
    #[must_use]
    pub fn offsets(&self) -> &Column<u64> {
        &self.offsets
    }

    /// All lists, one after the other.
    #[must_use]
    pub fn neighbours(&self) -> &Ids {
        &self.neighbours
    }

    /// The edges' own ids, unless they are their positions.
    #[must_use]
    pub fn edge_ids(&self) -> Option<&Ids> {
        self.edge_ids.as_ref()
    }

    /// The edges' weights.
    #[must_use]
    pub fn weights(&self) -> Option<&Column<f32>> {
        self.weights.as_ref()
    }

    /// The edges' times.
    #[must_use]
    pub fn times(&self) -> Option<&Column<i64>> {
        self.times.as_ref()
    }

    /// How rows are ordered.
    #[must_use]
    pub fn order(&self) -> RowOrder {
        self.order
    }

    /// Positions of a row's list. Panics when there is no such row, as a slice does.
    #[must_use]
    pub fn list(&self, row: u64) -> Range<usize> {
        let row = index(row);
        index(self.offsets[row])..index(self.offsets[row + 1])
    }

    /// As [`Topology::list`], and empty where the offsets fall or lead out of the lists: trusted arrays may be damaged.
    #[must_use]
    pub(crate) fn sound_list(&self, row: u64) -> Range<usize> {
        let list = self.list(row);
        if list.start <= list.end && list.end <= self.neighbours.len() { list } else { 0..0 }
    }

    /// Length of a row's list.
    #[must_use]
    pub fn degree(&self, row: u64) -> u64 {
        self.list(row).len() as u64
    }

    /// The id of the edge at a position.
    #[must_use]
    pub fn edge_id(&self, position: usize) -> u64 {
        self.edge_ids.as_ref().map_or(position as u64, |ids| ids.at(position))
    }

    /// Bytes of all arrays.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let ids = |ids: &Ids| (ids.len() * ids.id_bytes()) as u64;
        let own = self.offsets.len() as u64 * 8 + ids(&self.neighbours) + self.edge_ids.as_ref().map_or(0, ids);
        own + self.weights.as_ref().map_or(0, |w| w.len() as u64 * 4)
            + self.times.as_ref().map_or(0, |t| t.len() as u64 * 8)
    }

    fn same_length(&self, name: &'static str, found: usize) -> Result<()> {
        let (found, expected) = (found as u64, self.edges());
        if found == expected { Ok(()) } else { Err(Error::Length { name, found, expected, of: "the edges" }) }
    }

    /// Checks every offset and every id, as [`Topology::new`] does.
    pub fn check(&self) -> Result<()> {
        self.check_ends()?;
        let offsets = self.offsets.as_slice();
        let falls = |mut rows: Range<usize>| rows.find(|row| offsets[*row] > offsets[row + 1]);
        let falls = parallel::first(offsets.len().saturating_sub(1), PIECE, &falls);
        if let Some(row) = falls {
            let (before, after) = (self.offsets[row], self.offsets[row + 1]);
            return Err(Error::FallingOffsets { row: row as u64, before, after });
        }
        self.neighbours.check_below(self.columns, "neighbours")
    }

    fn check_ends(&self) -> Result<()> {
        let Some((&first, &last)) = self.offsets.first().zip(self.offsets.last()) else {
            return Err(Error::Length { name: "offsets", found: 0, expected: 1, of: "a graph without rows" });
        };
        if first != 0 {
            return Err(Error::FirstOffset { first });
        }
        let found = self.neighbours.len() as u64;
        if found == last {
            Ok(())
        } else {
            Err(Error::Length { name: "neighbours", found, expected: last, of: "the offsets" })
        }
    }
}

/// Whether every id is its own position.
fn are_positions<T: Id>(ids: &[T]) -> bool {
    parallel::first(ids.len(), PIECE, &|mut range| range.find(|at| ids[*at].wide() != *at as u64)).is_none()
}

/// Whether all weights are finite and none is negative.
pub(crate) fn check_weights(weights: &[f32]) -> Result<()> {
    let bad = parallel::position(weights, |weight| !(weight.is_finite() && *weight >= 0.0));
    bad.map_or(Ok(()), |at| Err(Error::BadWeight { position: at as u64, weight: weights[at] }))
}

/// Addresses are 64 bits wide on every machine this runs on.
pub(crate) fn index(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(offsets: &[u64], neighbours: &[u32]) -> Result<Topology> {
        Topology::new(Layout::Csc, 4, offsets.to_vec().into(), neighbours.to_vec().into())
    }

    #[test]
    fn lists_are_where_the_offsets_say() {
        let topology = make(&[0, 2, 2, 3], &[3, 0, 1]).unwrap();
        assert_eq!((topology.rows(), topology.edges(), topology.degree(1), topology.list(2)), (3, 3, 0, 2..3));
        assert_eq!(topology.edge_id(2), 2);
        let named = topology.with_edge_ids(Ids::from(vec![5u64, 1 << 40, 7])).unwrap();
        assert_eq!((named.edge_id(1), named.bytes()), (1 << 40, 4 * 8 + 3 * 4 + 3 * 8));
    }

    #[test]
    fn ids_that_are_positions_are_implied() {
        let with = |ids: Ids| make(&[0, 2, 3], &[3, 0, 1]).unwrap().with_edge_ids(ids).unwrap().with_ids_implied();
        for ids in [Ids::from(vec![0u64, 1, 2]), Ids::from(vec![0u32, 1, 2])] {
            let plain = with(ids);
            assert!(plain.edge_ids().is_none());
            assert_eq!((plain.edge_id(0), plain.edge_id(2)), (0, 2));
        }
        for ids in [Ids::from(vec![0u64, 2, 1]), Ids::from(vec![0u32, 1, 3])] {
            assert!(with(ids).edge_ids().is_some());
        }
        assert!(make(&[0], &[]).unwrap().with_ids_implied().edge_ids().is_none());
    }

    #[test]
    fn every_fault_is_named() {
        assert!(matches!(make(&[], &[]), Err(Error::Length { name: "offsets", .. })));
        assert!(matches!(make(&[1, 2], &[0, 0]), Err(Error::FirstOffset { first: 1 })));
        assert!(matches!(make(&[0, 2], &[0]), Err(Error::Length { name: "neighbours", found: 1, expected: 2, .. })));
        assert!(matches!(make(&[0, 2, 1, 2], &[0, 0]), Err(Error::FallingOffsets { row: 1, before: 2, after: 1 })));
        assert!(matches!(make(&[0, 2], &[0, 4]), Err(Error::IdOutOfRange { position: 1, id: 4, limit: 4, .. })));
        let weighted = |weights: Vec<f32>| make(&[0, 2], &[0, 1]).unwrap().with_weights(weights.into());
        assert!(matches!(weighted(vec![1.0]), Err(Error::Length { name: "weights", .. })));
        assert!(matches!(weighted(vec![1.0, f32::NAN]), Err(Error::BadWeight { position: 1, .. })));
        assert!(matches!(weighted(vec![-1.0, 1.0]), Err(Error::BadWeight { position: 0, .. })));
        assert!(weighted(vec![0.0, 1.0]).is_ok());
    }
}
