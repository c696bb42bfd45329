//! Tables of several node types in the same memories.
//!
//! A byte of fast memory saves as many bytes of traffic as its row is read, however wide the row is. So rows of all tables
//! compete by how often they are read and by nothing else: the hottest pieces of all tables go to the fastest memory until
//! it is full, the next ones to the next. Links add up what all tables ask of them.

use serde::Serialize;

use crate::error::Result;
use crate::plan::{Demand, Forecast, Links, Room, Tier, TierPlan};

/// Pieces that a table is cut into.
const PIECES: u64 = 1024;

/// Where the rows of every table lie, and what that will cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SharedPlan {
    /// One a table.
    pub tables: Vec<TierPlan>,
    /// All tables together, one a tier.
    pub forecast: [Forecast; 4],
    /// As long as the busiest link takes.
    pub seconds_per_epoch: f64,
}

impl SharedPlan {
    /// The room is divided between the tables, then each is planned in its part.
    pub fn new(demands: &[Demand<'_>], room: &Room, links: &Links) -> Result<Self> {
        let planned =
            demands.iter().zip(divide(demands, room)).map(|(demand, room)| TierPlan::new(demand, &room, links));
        let tables = planned.collect::<Result<Vec<_>>>()?;
        let forecast = std::array::from_fn(|at| add_up(demands, &tables, at));
        let busiest = forecast.iter().map(|tier| tier.seconds_per_epoch).fold(0.0, f64::max);
        Ok(Self { tables, forecast, seconds_per_epoch: busiest })
    }

    /// Bytes an epoch that each tier gives when rows are read as `demands` say, which need not be those of the plan.
    #[must_use]
    pub fn bytes_per_epoch(&self, demands: &[Demand<'_>]) -> [f64; 4] {
        let of = |(plan, demand): (&TierPlan, &Demand<'_>)| plan.bytes_per_epoch(demand);
        let add = |sum: [f64; 4], bytes: [f64; 4]| std::array::from_fn(|at| sum[at] + bytes[at]);
        self.tables.iter().zip(demands).map(of).fold([0.0; 4], add)
    }
}

/// The share of all reads that go to the hottest rows that `bytes` hold, whatever tables they are of.
#[must_use]
pub fn hit_rate(demands: &[Demand<'_>], bytes: u64) -> f64 {
    let mut placed = vec![0; demands.len()];
    take(demands, &mut placed, bytes);
    let reads: f64 = demands.iter().map(|demand| demand.reads_per_epoch).sum();
    let hits = demands.iter().zip(placed).map(|(demand, rows)| demand.curve.share(rows) * demand.reads_per_epoch);
    if reads > 0.0 { hits.sum::<f64>() / reads } else { 0.0 }
}

/// One table's part of a tier, added up over the tables.
fn add_up(demands: &[Demand<'_>], tables: &[TierPlan], at: usize) -> Forecast {
    let tier = [Tier::Replicated, Tier::Interleaved, Tier::Host, Tier::Disk][at];
    let parts = || tables.iter().map(|plan| &plan.forecast[at]);
    let reads: f64 = demands.iter().map(|demand| demand.reads_per_epoch).sum();
    let hits: f64 = parts().zip(demands).map(|(part, demand)| part.hit_rate * demand.reads_per_epoch).sum();
    Forecast {
        tier,
        rows: parts().map(|part| part.rows).sum(),
        hit_rate: if reads > 0.0 { hits / reads } else { 0.0 },
        bytes_per_epoch: parts().map(|part| part.bytes_per_epoch).sum(),
        seconds_per_epoch: parts().map(|part| part.seconds_per_epoch).sum(),
    }
}

/// The room of every table.
fn divide(demands: &[Demand<'_>], room: &Room) -> Vec<Room> {
    if demands.len() == 1 {
        return vec![*room];
    }
    let members = room.members.max(1);
    let mut placed = vec![0; demands.len()];
    let device = take(demands, &mut placed, room.device_bytes.saturating_mul(members));
    let host = take(demands, &mut placed, room.host_bytes);
    let parts = device.into_iter().zip(host);
    parts.map(|(device, host_bytes)| Room { device_bytes: device / members, host_bytes, ..*room }).collect()
}

/// The bytes of each table among the hottest rows, after those already placed, that `bytes` hold. They count as placed.
fn take(demands: &[Demand<'_>], placed: &mut [u64], mut bytes: u64) -> Vec<u64> {
    let tables = demands.iter().zip(placed.iter()).enumerate();
    let mut pieces: Vec<Piece> = tables.flat_map(|(table, (demand, &from))| pieces(table, demand, from)).collect();
    pieces.sort_by(|a, b| b.reads_per_row.total_cmp(&a.reads_per_row));
    let mut taken = vec![0; demands.len()];
    for piece in pieces {
        let row_bytes = demands[piece.table].row_bytes.max(1);
        let rows = piece.rows.min(bytes / row_bytes);
        bytes -= rows * row_bytes;
        placed[piece.table] += rows;
        taken[piece.table] += rows * row_bytes;
    }
    taken
}

/// Rows that follow each other.
struct Piece {
    table: usize,
    rows: u64,
    reads_per_row: f64,
}

fn pieces<'a>(table: usize, demand: &'a Demand<'_>, from: u64) -> impl Iterator<Item = Piece> + 'a {
    let left = demand.curve.rows().saturating_sub(from);
    // The product may be wider than a row number; the quotient is one.
    let end = move |piece: u64| from + left / PIECES * piece + left % PIECES * piece / PIECES;
    (0..PIECES).filter_map(move |piece| {
        let (first, last) = (end(piece), end(piece + 1));
        let share = demand.curve.share(last) - demand.curve.share(first);
        let rows = last - first;
        (rows > 0).then(|| Piece { table, rows, reads_per_row: share * demand.reads_per_epoch / rows as f64 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Curve;
    use crate::error::Error;

    const LINKS: Links =
        Links { device_gb_per_s: 1600.0, peer_gb_per_s: 150.0, host_gb_per_s: 50.0, disk_gb_per_s: 3.0 };

    fn curve(rows: u64, hottest: u64) -> Curve {
        Curve::of((0..rows).map(|at| hottest / (at + 1)).collect::<Vec<_>>().into_iter())
    }

    fn room(device_bytes: u64, host_bytes: u64, has_disk: bool) -> Room {
        Room { device_bytes, members: 1, host_bytes, has_disk }
    }

    #[test]
    fn one_table_is_planned_as_if_alone() {
        let curve = curve(5000, 1 << 20);
        let demand = Demand { curve: &curve, row_bytes: 256, reads_per_epoch: 1e8 };
        let room = Room { device_bytes: 100_000, members: 4, host_bytes: 1 << 30, has_disk: false };
        let shared = SharedPlan::new(&[demand], &room, &LINKS).unwrap();
        let alone = TierPlan::new(&demand, &room, &LINKS).unwrap();
        assert_eq!(shared.forecast, alone.forecast);
        assert_eq!(shared.tables, [alone]);
    }

    #[test]
    fn the_hottest_rows_of_all_tables_come_first() {
        let (hot, cold) = (curve(1000, 1 << 30), curve(4000, 1 << 30));
        let demands = [
            Demand { curve: &hot, row_bytes: 512, reads_per_epoch: 1e9 },
            Demand { curve: &cold, row_bytes: 64, reads_per_epoch: 1e3 },
        ];
        // Every row of the first table is read more often than any of the second.
        let plan = SharedPlan::new(&demands, &room(900 * 512, 1 << 30, false), &LINKS).unwrap();
        assert_eq!((plan.tables[0].replicated_end, plan.tables[1].replicated_end), (900, 0));
        let plan = SharedPlan::new(&demands, &room(1000 * 512 + 640, 1 << 30, false), &LINKS).unwrap();
        assert_eq!((plan.tables[0].replicated_end, plan.tables[1].replicated_end), (1000, 10));
        assert_eq!(plan.forecast.iter().map(|tier| tier.rows).sum::<u64>(), 5000);
        assert!((plan.forecast.iter().map(|tier| tier.hit_rate).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn dividing_by_hotness_beats_dividing_by_size() {
        let (one, other) = (curve(3000, 1 << 24), curve(3000, 1 << 24));
        let demands = [
            Demand { curve: &one, row_bytes: 512, reads_per_epoch: 9e8 },
            Demand { curve: &other, row_bytes: 512, reads_per_epoch: 1e8 },
        ];
        let plan = SharedPlan::new(&demands, &room(512 * 512, 1 << 30, false), &LINKS).unwrap();
        let halves = 0.9 * one.share(256) + 0.1 * other.share(256);
        assert!(plan.forecast[0].hit_rate > halves, "{} {halves}", plan.forecast[0].hit_rate);
    }

    #[test]
    fn hit_rates_grow_with_the_bytes_and_end_at_one() {
        let (one, other) = (curve(700, 1 << 20), curve(1300, 1 << 20));
        let demands = [
            Demand { curve: &one, row_bytes: 100, reads_per_epoch: 1e6 },
            Demand { curve: &other, row_bytes: 28, reads_per_epoch: 3e6 },
        ];
        let all = 700 * 100 + 1300 * 28;
        let rates: Vec<f64> = (0..=20).map(|part| hit_rate(&demands, all * part / 20)).collect();
        assert!(rates.is_sorted() && rates[0] == 0.0, "{rates:?}");
        assert!((rates[20] - 1.0).abs() < 1e-12, "{rates:?}");
        assert_eq!(hit_rate(&demands[..1], 350 * 100), one.share(350));
    }

    #[test]
    fn nothing_is_placed_twice_and_too_little_room_is_an_error() {
        let (one, other) = (curve(700, 1 << 20), curve(1300, 1 << 20));
        let demands = [
            Demand { curve: &one, row_bytes: 100, reads_per_epoch: 1e6 },
            Demand { curve: &other, row_bytes: 28, reads_per_epoch: 1e6 },
        ];
        for (device, host) in [(0, 0), (1234, 567), (50_000, 20_000), (1 << 40, 0), (0, 1 << 40)] {
            let plan = SharedPlan::new(&demands, &room(device, host, true), &LINKS).unwrap();
            let bytes = |tier: usize| {
                let of = |(plan, demand): (&TierPlan, &Demand<'_>)| plan.forecast[tier].rows * demand.row_bytes;
                plan.tables.iter().zip(&demands).map(of).sum::<u64>()
            };
            assert!(bytes(0) <= device && bytes(2) <= host);
            assert_eq!(plan.forecast.iter().map(|tier| tier.rows).sum::<u64>(), 2000);
        }
        let Err(Error::NoRoom { .. }) = SharedPlan::new(&demands, &room(1234, 567, false), &LINKS) else {
            panic!("it has no room")
        };
    }

    #[test]
    fn what_is_counted_is_what_was_planned_when_reads_are_the_same() {
        let (one, other) = (curve(700, 1 << 20), curve(1300, 1 << 20));
        let demands = [
            Demand { curve: &one, row_bytes: 100, reads_per_epoch: 1e6 },
            Demand { curve: &other, row_bytes: 28, reads_per_epoch: 3e6 },
        ];
        let plan = SharedPlan::new(&demands, &room(10_000, 20_000, true), &LINKS).unwrap();
        assert_eq!(plan.bytes_per_epoch(&demands), plan.forecast.map(|tier| tier.bytes_per_epoch));
    }
}
