//! The pass on the CPU: a sum a node, over lists by source.
//!
//! An edge costs its id, and one scattered read of 4 bytes that mostly hits the cache. Work is cut by edges and not by
//! rows, because the first rows are those of hubs.

use headwater_memory::add_gathered;
use headwater_tensor::parallel;

use crate::column::{Id, Ids};
use crate::order::row_groups;
use crate::pieces::cut;
use crate::topology::{Topology, index};

/// Adds to every row's sum what the nodes in its list contribute.
pub(super) fn add(lists: &Topology, contributions: &[f32], sums: &mut [u64]) {
    let offsets = lists.offsets().as_slice();
    let groups = row_groups(offsets);
    let sums = cut(sums, groups.iter().map(ExactSizeIterator::len));
    parallel::for_each(sums.into_iter().zip(&groups), |_, (sums, rows)| {
        let offsets = &offsets[rows.start..=rows.end];
        match lists.neighbours() {
            Ids::U32(ids) if add_gathered(contributions, ids, offsets, sums) => {}
            Ids::U32(ids) => add_each(contributions, ids, offsets, sums),
            Ids::U64(ids) => add_each(contributions, ids, offsets, sums),
        }
    });
}

/// What [`add_gathered`] does where it can, for ids of either width.
pub(super) fn add_each<I: Id>(contributions: &[f32], ids: &[I], offsets: &[u64], sums: &mut [u64]) {
    for (sum, bounds) in sums.iter_mut().zip(offsets.windows(2)) {
        let list = ids.get(index(bounds[0])..index(bounds[1])).unwrap_or_default();
        *sum += list.iter().map(|id| whole(contributions, *id)).sum::<u64>();
    }
}

/// What one node contributes; nothing for an id that no node has.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to below 2^63")]
fn whole<I: Id>(contributions: &[f32], id: I) -> u64 {
    contributions.get(index(id.wide())).map_or(0, |contribution| *contribution as i64 as u64)
}
