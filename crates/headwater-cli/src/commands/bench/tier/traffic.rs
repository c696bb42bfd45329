//! Which rows batches read, and what that means for a table: all from numbers.

use headwater::feature::{Budget, Curve, Demand, Links, Room, TierPlan};
use headwater::graph::Ids;
use headwater::graph::generate::Bijection;
use headwater::graph::random::Key;
use rayon::prelude::*;

use super::figures::Traffic;
use crate::args::ColdOrder;

/// Rates say how long an epoch takes, and only bytes are asked for here.
const ANY_LINKS: Links = Links { device_gb_per_s: 1.0, peer_gb_per_s: 1.0, host_gb_per_s: 1.0, disk_gb_per_s: 1.0 };

/// Rows of each batch.
pub type Lists = Vec<Vec<u64>>;

/// Reads as other batches have them.
pub struct Forecast {
    /// In the order of the rows.
    pub curve: Curve,
    pub reads_per_batch: f64,
}

impl Forecast {
    /// The plan with so many percent of the rows in one GPU and the rest in host memory. An epoch of it is one batch.
    pub fn plan(&self, share_percent: f64, row_bytes: u64) -> anyhow::Result<TierPlan> {
        let table_bytes = self.curve.rows().saturating_mul(row_bytes);
        let budget = Budget::Share(share_percent / 100.0);
        let device_bytes = budget.bytes("GPU memory", u64::MAX, 0, table_bytes)?;
        let demand = Demand { curve: &self.curve, row_bytes, reads_per_epoch: self.reads_per_batch };
        let room = Room { device_bytes, members: 1, host_bytes: table_bytes, has_disk: false };
        Ok(TierPlan::new(&demand, &room, &ANY_LINKS)?)
    }
}

/// The row of every node of every batch.
pub fn rows_of(nodes: Lists, row_of_node: &Ids) -> Lists {
    let row = |node: u64| row_of_node.at(usize::try_from(node).unwrap_or(usize::MAX));
    nodes.into_par_iter().map(|batch| batch.into_iter().map(row).collect()).collect()
}

/// The same batches in a table whose rows from `gpu_rows` on lie otherwise.
pub fn reordered(lists: &Lists, order: ColdOrder, gpu_rows: u64, rows: u64, seed: u64) -> Lists {
    if order == ColdOrder::Hotness {
        return lists.clone();
    }
    let shuffle = Bijection::new(Key::new(seed), rows - gpu_rows);
    let moved = |row: u64| if row < gpu_rows { row } else { gpu_rows + shuffle.forward(row - gpu_rows) };
    lists.par_iter().map(|list| list.iter().map(|&row| moved(row)).collect()).collect()
}

/// The rows of every batch that `keep` wants.
pub fn only(lists: &Lists, keep: impl Fn(u64) -> bool + Sync) -> Lists {
    lists.par_iter().map(|list| list.iter().copied().filter(|&row| keep(row)).collect()).collect()
}

/// What the batches take from where.
pub fn counted(lists: &Lists, gpu_rows: u64) -> Traffic {
    let all: u64 = lists.iter().map(|list| list.len() as u64).sum();
    let hot: u64 = lists.par_iter().map(|list| list.iter().filter(|&&row| row < gpu_rows).count() as u64).sum();
    Traffic { gpu_rows: hot, host_rows: all - hot, gathers: lists.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_rows_move_and_hot_rows_stay() {
        let lists: Lists = vec![(0..100).collect(), vec![99, 3, 3]];
        let moved = reordered(&lists, ColdOrder::Random, 10, 100, 7);
        assert_eq!(moved[0][..10], lists[0][..10]);
        assert_ne!(moved[0][10..], lists[0][10..]);
        let mut sorted = moved[0].clone();
        sorted.sort_unstable();
        assert_eq!(sorted, lists[0]);
        assert_eq!(moved[1][1..], [3, 3]);
        let traffic = counted(&moved, 10);
        assert_eq!((traffic.gpu_rows, traffic.host_rows, traffic.gathers), (12, 91, 2));
        assert_eq!(only(&lists, |row| row >= 98), [vec![98, 99], vec![99]]);
    }

    #[test]
    fn plans_hold_their_share_and_tell_the_rest() {
        let forecast = Forecast { curve: Curve::of([60u64, 30, 10, 0].into_iter()), reads_per_batch: 50.0 };
        for (share, rows, bytes) in [(0.0, 0, 400.0), (25.0, 1, 160.0), (50.0, 2, 40.0), (100.0, 4, 0.0)] {
            let plan = forecast.plan(share, 8).unwrap();
            assert_eq!((plan.replicated_end, plan.host_end), (rows, 4), "{share}");
            assert!((plan.host_link_bytes() - bytes).abs() < 1e-9, "{share}: {}", plan.host_link_bytes());
        }
        assert!(forecast.plan(101.0, 8).is_err());
    }
}
