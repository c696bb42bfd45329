//! Lists turned round: from the other end's point of view, or back into an edge list.

use rayon::prelude::*;

use super::{BuildPlan, Coo, EdgeIds, Edges};
use crate::column::{Id, Ids};
use crate::error::Result;
use crate::lane::{Carried, Lane};
use crate::progress::Progress;
use crate::topology::{Layout, RowOrder, Topology, index};

impl Topology {
    /// The same edges owned by their other end. Each keeps its id, and the lists come out in ascending order.
    pub fn transposed(&self, progress: &dyn Progress) -> Result<Self> {
        let layout = match self.layout() {
            Layout::Csr => Layout::Csc,
            Layout::Csc => Layout::Csr,
        };
        self.check()?;
        Ok(self.turned().sort(layout, progress)?.with_order(RowOrder::Neighbour))
    }

    /// What transposing will take.
    #[must_use]
    pub fn transpose_plan(&self) -> BuildPlan {
        self.turned().plan()
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
            const PIECE: usize = 1 << 16;
            let mut rows = vec![T::default(); index(edges)];
            rows.par_chunks_mut(PIECE).enumerate().for_each(|(at, rows)| fill_rows(offsets, at * PIECE, rows));
            rows
        }
        if self.rows() <= 1 << 32 {
            all::<u32>(self.offsets(), self.edges()).into()
        } else {
            all::<u64>(self.offsets(), self.edges()).into()
        }
    }

    fn turned(&self) -> Edges<'_> {
        let offsets = self.offsets().as_slice();
        let neighbours = if self.rows() <= 1 << 32 {
            Lane::Four(Box::new(|start, out| fill_rows(offsets, start, out)))
        } else {
            Lane::Eight(Box::new(|start, out| fill_rows(offsets, start, out)))
        };
        Edges {
            keys: self.neighbours(),
            rows: self.columns(),
            columns: self.rows(),
            neighbours,
            carried: Carried::by(self, EdgeIds::Kept),
            input_bytes: self.bytes(),
        }
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
