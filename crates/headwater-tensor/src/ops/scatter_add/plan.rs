//! Which source rows go to which target row: ids checked, grouped and put in order, before anything is added.
//!
//! The plan lists only rows that are named, so its size is that of the ids and not that of the target: a batch that
//! touches a thousand rows of a table of a hundred million costs a thousand.

use rayon::prelude::*;

use crate::error::Result;
use crate::ids::IdSlice;

/// The grouping of ids by the row they name. All three lists go to the GPU as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScatterPlan {
    rows: Vec<u64>,
    offsets: Vec<u64>,
    order: Vec<u64>,
    target_rows: usize,
}

impl ScatterPlan {
    /// Checks the ids against a target with `target_rows` rows and groups them.
    pub fn new(ids: IdSlice<'_>, target_rows: usize) -> Result<ScatterPlan> {
        let ids = ids.checked(target_rows)?;
        // Counting is the faster way unless most of the counts would be zero.
        let order = if target_rows / 4 <= ids.len() { by_counting(&ids, target_rows) } else { by_sorting(&ids) };
        Ok(ScatterPlan::from_order(&ids, order, target_rows))
    }

    /// The rows that are named, ascending.
    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// Where each row's part of `order` begins, and the end of the last: one entry more than `rows`.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The positions in the list of ids, grouped by row and ascending within each.
    pub fn order(&self) -> &[u64] {
        &self.order
    }

    /// Rows of the target the plan was made for.
    pub fn target_rows(&self) -> usize {
        self.target_rows
    }

    fn from_order(ids: &[usize], order: Vec<usize>, target_rows: usize) -> ScatterPlan {
        let (mut rows, mut offsets) = (vec![], vec![]);
        for (at, &position) in order.iter().enumerate() {
            let row = ids[position] as u64;
            if rows.last() != Some(&row) {
                rows.push(row);
                offsets.push(at as u64);
            }
        }
        offsets.push(order.len() as u64);
        ScatterPlan { rows, offsets, order: order.into_iter().map(|position| position as u64).collect(), target_rows }
    }
}

pub(super) fn by_counting(ids: &[usize], target_rows: usize) -> Vec<usize> {
    let mut next = vec![0usize; target_rows];
    ids.iter().for_each(|&id| next[id] += 1);
    let mut total = 0;
    for slot in &mut next {
        total += std::mem::replace(slot, total);
    }
    let mut order = vec![0; ids.len()];
    for (position, &id) in ids.iter().enumerate() {
        order[next[id]] = position;
        next[id] += 1;
    }
    order
}

pub(super) fn by_sorting(ids: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.par_sort_unstable_by_key(|&position| (ids[position], position));
    order
}
