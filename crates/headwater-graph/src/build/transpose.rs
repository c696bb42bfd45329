//! Lists turned round: from the other end's point of view, or back into an edge list.

use headwater_tensor::parallel::{self, PIECE};

use super::{BuildPlan, Coo, EdgeIds, Edges};
use crate::column::{Id, Ids};
use crate::error::Result;
use crate::lane::{Carried, Lane};
use crate::progress::Progress;
use crate::reorder::{Permutation, relabel};
use crate::topology::{Layout, RowOrder, Topology, index};

/// New numbers for the nodes that own lists, and for those in them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renumbered<'a> {
    pub(crate) rows: &'a Permutation,
    pub(crate) columns: &'a Permutation,
}

impl Topology {
    /// The same edges owned by their other end. Each keeps its id, and the lists come out in ascending order.
    pub fn transposed(&self, progress: &dyn Progress) -> Result<Self> {
        self.check()?;
        let edges = self.turned(self.neighbours(), None, EdgeIds::Kept);
        Ok(edges.sort(self.layout().other(), progress)?.with_order(RowOrder::Neighbour))
    }

    /// As [`Topology::transposed`], the lists alone, with both ends renumbered on the way. Who stands first in a list is
    /// who had the lower number before.
    pub(crate) fn transposed_lists(&self, ends: Renumbered<'_>, progress: &dyn Progress) -> Result<Self> {
        self.check()?;
        let keys = ends.columns.relabelled(self.neighbours());
        let bare = self.bare();
        let edges = bare.turned(&keys, Some(ends.rows.new_of_old()), EdgeIds::Dropped);
        // The new keys are given as well.
        let input_bytes = edges.input_bytes + (keys.len() * keys.id_bytes()) as u64;
        Edges { input_bytes, ..edges }.sort(self.layout().other(), progress)
    }

    /// What transposing will take.
    #[must_use]
    pub fn transpose_plan(&self) -> BuildPlan {
        self.turned(self.neighbours(), None, EdgeIds::Kept).plan()
    }

    /// The edges one after the other. Arrays other than the rows' are shared, not copied.
    #[must_use]
    pub fn to_coo(&self) -> Coo {
        let rows = self.row_of_every_edge();
        let (sources, targets, source_count, target_count) = match self.layout() {
            Layout::Csr => (rows, self.neighbours().clone(), self.rows(), self.columns()),
            Layout::Csc => (self.neighbours().clone(), rows, self.columns(), self.rows()),
        };
        Coo {
            sources,
            targets,
            source_count,
            target_count,
            edge_ids: self.edge_ids().cloned(),
            weights: self.weights().cloned(),
            times: self.times().cloned(),
        }
    }

    fn row_of_every_edge(&self) -> Ids {
        fn all<T: Id + Default>(offsets: &[u64], edges: u64) -> Vec<T> {
            let mut rows = vec![T::default(); index(edges)];
            parallel::for_parts(&mut rows, PIECE, &|start, rows| fill_rows(offsets, start, rows));
            rows
        }
        if self.rows() <= 1 << 32 {
            all::<u32>(self.offsets(), self.edges()).into()
        } else {
            all::<u64>(self.offsets(), self.edges()).into()
        }
    }

    /// The edges with their `keys`, one an edge, as owners. Rows go by their numbers, or by the names they are given.
    fn turned<'a>(&'a self, keys: &'a Ids, names: Option<&'a Ids>, edge_ids: EdgeIds) -> Edges<'a> {
        let offsets = self.offsets().as_slice();
        let neighbours = if self.rows() <= 1 << 32 {
            Lane::Four(Box::new(move |start, out| fill_names(offsets, names, start, out)))
        } else {
            Lane::Eight(Box::new(move |start, out| fill_names(offsets, names, start, out)))
        };
        let (rows, columns, carried) = (self.columns(), self.rows(), Carried::by(self, edge_ids));
        Edges { keys, rows, columns, neighbours, carried, input_bytes: self.bytes() }
    }
}

fn fill_names<T: Id>(offsets: &[u64], names: Option<&Ids>, start: usize, out: &mut [T]) {
    fill_rows(offsets, start, out);
    if let Some(names) = names {
        relabel(out, names);
    }
}

/// The rows that the edges from a position on belong to.
fn fill_rows<T: Id>(offsets: &[u64], start: usize, out: &mut [T]) {
    let mut row = offsets.partition_point(|offset| *offset <= start as u64).saturating_sub(1);
    let mut at = 0;
    while let Some(end) = offsets.get(row + 1).filter(|_| at < out.len()) {
        // Offsets that nobody has checked may fall; nothing is written outside for it.
        let end = index(*end).saturating_sub(start).clamp(at, out.len());
        out[at..end].fill(T::narrow(row as u64));
        (at, row) = (end, row + 1);
    }
}
