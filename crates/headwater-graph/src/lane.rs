//! The arrays that belong to edges, as something that can be moved without knowing what it means.
//!
//! Sorting and reordering move bits: floats and integers of one width are the same to them, so there are two widths and
//! not a dozen types. What is moved need not exist: an edge's position or its row can be written as it is asked for.

use crate::column::{Column, Id, Ids};
use crate::error::Result;
use crate::topology::Topology;

/// Writes the values of the edges from a position on.
pub(crate) type Fill<'a, T> = Box<dyn Fn(usize, &mut [T]) + Sync + 'a>;

/// Where one array of the edges comes from.
pub(crate) enum Lane<'a> {
    Four(Fill<'a, u32>),
    Eight(Fill<'a, u64>),
}

/// One array of edges, moved.
pub(crate) enum Moved {
    Four(Vec<u32>),
    Eight(Vec<u64>),
}

/// Whether edges remember who they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeIds {
    /// Every edge keeps its id, which is its position where it has no other.
    #[default]
    Kept,
    /// Ids are forgotten: an edge's id is its position in the result.
    Dropped,
}

impl<'a> Lane<'a> {
    /// Values as they lie.
    pub(crate) fn four<T: bytemuck::Pod>(values: &'a [T]) -> Self {
        let bits: &[u32] = bytemuck::cast_slice(values);
        Self::Four(Box::new(move |start, out| out.copy_from_slice(&bits[start..start + out.len()])))
    }

    /// Values as they lie.
    pub(crate) fn eight<T: bytemuck::Pod>(values: &'a [T]) -> Self {
        let bits: &[u64] = bytemuck::cast_slice(values);
        Self::Eight(Box::new(move |start, out| out.copy_from_slice(&bits[start..start + out.len()])))
    }

    /// Ids as they lie.
    pub(crate) fn of(ids: &'a Ids) -> Self {
        match ids {
            Ids::U32(ids) => Self::four(ids.as_slice()),
            Ids::U64(ids) => Self::eight(ids.as_slice()),
        }
    }

    /// Ids below a limit, as narrow as that allows.
    pub(crate) fn of_ids(ids: &'a Ids, limit: u64) -> Self {
        match (ids, limit <= 1 << 32) {
            (Ids::U32(_), true) | (Ids::U64(_), false) => Self::of(ids),
            (Ids::U32(ids), false) => Self::Eight(Box::new(|start, out| recast(&ids[start..], out))),
            (Ids::U64(ids), true) => Self::Four(Box::new(|start, out| recast(&ids[start..], out))),
        }
    }

    /// The ids edges have, or their positions.
    pub(crate) fn of_edge_ids(ids: Option<&'a Ids>, edges: u64) -> Self {
        match ids {
            Some(ids) => Self::of(ids),
            None if edges <= 1 << 32 => Self::Four(Box::new(count_from)),
            None => Self::Eight(Box::new(count_from)),
        }
    }

    /// Bytes of a value.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Four(_) => 4,
            Self::Eight(_) => 8,
        }
    }
}

impl Moved {
    /// Room for as many values of a lane.
    pub(crate) fn new(lane: &Lane<'_>, length: usize) -> Self {
        match lane {
            Lane::Four(_) => Self::Four(vec![0; length]),
            Lane::Eight(_) => Self::Eight(vec![0; length]),
        }
    }
}

impl From<Moved> for Ids {
    fn from(moved: Moved) -> Self {
        match moved {
            Moved::Four(ids) => ids.into(),
            Moved::Eight(ids) => ids.into(),
        }
    }
}

/// What edges carry besides their ends.
pub(crate) struct Carried<'a> {
    pub(crate) edge_ids: Option<Lane<'a>>,
    pub(crate) weights: Option<&'a Column<f32>>,
    pub(crate) times: Option<&'a Column<i64>>,
}

impl<'a> Carried<'a> {
    /// What the edges of a topology carry.
    pub(crate) fn by(topology: &'a Topology, edge_ids: EdgeIds) -> Self {
        let ids = || Lane::of_edge_ids(topology.edge_ids(), topology.edges());
        let edge_ids = (edge_ids == EdgeIds::Kept).then(ids);
        Self { edge_ids, weights: topology.weights(), times: topology.times() }
    }

    /// Bytes an edge of every lane there is.
    pub(crate) fn lane_bytes(&self) -> Vec<u64> {
        let ids = self.edge_ids.as_ref().map(Lane::bytes);
        ids.into_iter().chain(self.weights.map(|_| 4)).chain(self.times.map(|_| 8)).collect()
    }

    /// The lanes, one a kind that is there, and what puts them back once they are moved.
    pub(crate) fn into_lanes(self) -> (Vec<Lane<'a>>, Labels) {
        let labels =
            Labels { edge_ids: self.edge_ids.is_some(), weights: self.weights.is_some(), times: self.times.is_some() };
        let weights = self.weights.map(|weights| Lane::four(weights.as_slice()));
        let times = self.times.map(|times| Lane::eight(times.as_slice()));
        (self.edge_ids.into_iter().chain(weights).chain(times).collect(), labels)
    }
}

/// Which lanes are there.
pub(crate) struct Labels {
    edge_ids: bool,
    weights: bool,
    times: bool,
}

impl Labels {
    /// Gives moved lanes to the topology whose edges they belong to.
    pub(crate) fn attach(self, lanes: impl Iterator<Item = Moved>, mut to: Topology) -> Result<Topology> {
        let mut lanes = lanes.map(Ids::from);
        if let Some(ids) = self.edge_ids.then(|| lanes.next()).flatten() {
            to = to.with_edge_ids(ids)?;
        }
        if let Some(weights) = self.weights.then(|| lanes.next()).flatten() {
            to = to.with_weights(Column::over(weights.into_foreign(), "weights")?)?;
        }
        if let Some(times) = self.times.then(|| lanes.next()).flatten() {
            to = to.with_times(Column::over(times.into_foreign(), "times")?)?;
        }
        Ok(to)
    }
}

/// The numbers from `start` on.
pub(crate) fn count_from<T: Id>(start: usize, out: &mut [T]) {
    for (at, out) in out.iter_mut().enumerate() {
        *out = T::narrow((start + at) as u64);
    }
}

fn recast<A: Id, B: Id>(from: &[A], to: &mut [B]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = B::narrow(from.wide());
    }
}
