//! How many rows in which memory, decided from numbers.
//!
//! Rows lie in the order of how often they are read, so a plan is three boundaries. What a GPU may spend on rows is divided
//! between rows that every member of its group holds and rows that each member holds a share of: the first are read at the
//! speed of the own memory, the second make room for more. Every division is tried on a grid, and the one whose epoch is
//! shortest is taken. Links work at the same time, so an epoch takes as long as the busiest of them.

use serde::Serialize;

use crate::curve::Curve;
use crate::error::{Error, Result};

/// Divisions that are tried.
const GRID: u64 = 64;

/// A memory that rows lie in, fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// In every GPU.
    Replicated,
    /// Over the GPUs of a group, row by row.
    Interleaved,
    /// In pinned host memory.
    Host,
    /// In a file.
    Disk,
}

/// Which rows are read how often.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// Reads of rows in the order they will lie.
    pub curve: &'a Curve,
    /// Bytes of a row as it is stored.
    pub row_bytes: u64,
    /// Rows read in an epoch by one GPU.
    pub reads_per_epoch: f64,
}

/// What a user grants.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Budget {
    /// All but what training and the system need.
    #[default]
    Auto,
    /// So many bytes.
    Bytes(u64),
    /// So much of the table, from 0 to 1.
    Share(f64),
}

/// How much there is for rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Room {
    /// In each GPU.
    pub device_bytes: u64,
    /// GPUs of the group.
    pub members: u64,
    /// In host memory.
    pub host_bytes: u64,
    /// Whether rows may stay on disk.
    pub has_disk: bool,
}

/// What each way to a row carries, in GB/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Links {
    /// A GPU's own memory.
    pub device_gb_per_s: f64,
    /// Another member's.
    pub peer_gb_per_s: f64,
    /// Host memory.
    pub host_gb_per_s: f64,
    /// The disk.
    pub disk_gb_per_s: f64,
}

impl Links {
    /// As machines with fast ones have them, for plans where nothing was measured.
    pub const TYPICAL: Self =
        Self { device_gb_per_s: 1600.0, peer_gb_per_s: 150.0, host_gb_per_s: 50.0, disk_gb_per_s: 3.0 };
}

/// What is expected of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Forecast {
    /// Which one.
    pub tier: Tier,
    /// Its rows.
    pub rows: u64,
    /// Share of all reads that it serves.
    pub hit_rate: f64,
    /// Bytes an epoch that come from it to one GPU.
    pub bytes_per_epoch: f64,
    /// Seconds an epoch in which its link is busy.
    pub seconds_per_epoch: f64,
}

/// Where rows lie, and what that will cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierPlan {
    /// Rows before this one are in every GPU.
    pub replicated_end: u64,
    /// Rows from there to this one are spread over the group.
    pub interleaved_end: u64,
    /// Rows from there to this one are in host memory; the rest is on disk.
    pub host_end: u64,
    /// One a tier, also for empty ones.
    pub forecast: [Forecast; 4],
    /// As long as the busiest link takes.
    pub seconds_per_epoch: f64,
}

impl TierPlan {
    /// The shortest epoch there is room for.
    pub fn new(demand: &Demand<'_>, room: &Room, links: &Links) -> Result<Self> {
        let cases = (0..=GRID).map(|part| Boundaries::of(demand, room, part));
        let plans = cases.map(|boundaries| boundaries.forecast(demand, room, links));
        let best = plans.min_by(|a, b| a.seconds_per_epoch.total_cmp(&b.seconds_per_epoch));
        let Some(best) = best else { return Err(Error::Parameter { name: "grid", value: 0.0, expected: "above 0" }) };
        let rows = demand.curve.rows();
        if best.host_end < rows && !room.has_disk {
            return Err(Error::NoRoom {
                rows: rows - best.host_end,
                row_bytes: demand.row_bytes,
                device_bytes: room.device_bytes.saturating_mul(room.members),
                host_bytes: room.host_bytes,
            });
        }
        Ok(best)
    }

    /// Bytes an epoch that each tier gives when rows are read as `demand` says, which need not be that of the plan.
    #[must_use]
    pub fn bytes_per_epoch(&self, demand: &Demand<'_>) -> [f64; 4] {
        let ends = [0, self.replicated_end, self.interleaved_end, self.host_end, demand.curve.rows()];
        let bytes = demand.reads_per_epoch * demand.row_bytes as f64;
        std::array::from_fn(|at| (demand.curve.share(ends[at + 1]) - demand.curve.share(ends[at])) * bytes)
    }

    /// Bytes an epoch over the way to host memory, disk reads included: they go through it.
    #[must_use]
    pub fn host_link_bytes(&self) -> f64 {
        self.forecast[2].bytes_per_epoch + self.forecast[3].bytes_per_epoch
    }
}

/// Ends of the first three tiers.
struct Boundaries {
    replicated: u64,
    interleaved: u64,
    host: u64,
}

impl Boundaries {
    /// With `part` of `GRID` parts of a GPU's room for rows that all have.
    fn of(demand: &Demand<'_>, room: &Room, part: u64) -> Self {
        let rows = demand.curve.rows();
        let row_bytes = demand.row_bytes.max(1);
        let each = room.device_bytes / row_bytes;
        // A group of one has nobody to share with.
        let replicated = if room.members <= 1 { each } else { each / GRID * part + each % GRID * part / GRID };
        let shared = (each - replicated).saturating_mul(room.members);
        let replicated = replicated.min(rows);
        let interleaved = replicated.saturating_add(shared).min(rows);
        let host = interleaved.saturating_add(room.host_bytes / row_bytes).min(rows);
        Self { replicated, interleaved, host }
    }

    fn forecast(&self, demand: &Demand<'_>, room: &Room, links: &Links) -> TierPlan {
        let ends = [0, self.replicated, self.interleaved, self.host, demand.curve.rows()];
        let tiers = [Tier::Replicated, Tier::Interleaved, Tier::Host, Tier::Disk];
        let members = room.members.max(1) as f64;
        // Of a group's rows a member has its own share at home.
        let peer_s = |bytes: f64| {
            let own = bytes / members;
            seconds(own, links.device_gb_per_s).max(seconds(bytes - own, links.peer_gb_per_s))
        };
        let forecast = std::array::from_fn(|at| {
            let hit_rate = demand.curve.share(ends[at + 1]) - demand.curve.share(ends[at]);
            let bytes = hit_rate * (demand.reads_per_epoch * demand.row_bytes as f64);
            let seconds_per_epoch = match tiers[at] {
                Tier::Replicated => seconds(bytes, links.device_gb_per_s),
                Tier::Interleaved => peer_s(bytes),
                Tier::Host => seconds(bytes, links.host_gb_per_s),
                Tier::Disk => seconds(bytes, links.disk_gb_per_s),
            };
            Forecast {
                tier: tiers[at],
                rows: ends[at + 1] - ends[at],
                hit_rate,
                bytes_per_epoch: bytes,
                seconds_per_epoch,
            }
        });
        let busiest = forecast.iter().map(|tier: &Forecast| tier.seconds_per_epoch).fold(0.0, f64::max);
        TierPlan {
            replicated_end: self.replicated,
            interleaved_end: self.interleaved,
            host_end: self.host,
            forecast,
            seconds_per_epoch: busiest,
        }
    }
}

impl Budget {
    /// In bytes, of `bytes` of some memory of which `reserved_bytes` are for others, for a table of `table_bytes`.
    pub fn bytes(self, memory: &'static str, bytes: u64, reserved_bytes: u64, table_bytes: u64) -> Result<u64> {
        let asked_bytes = match self {
            Self::Auto => return Ok(bytes.saturating_sub(reserved_bytes)),
            Self::Bytes(asked) => asked,
            Self::Share(share) if (0.0..=1.0).contains(&share) => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the table")]
                let asked = (share * table_bytes as f64).ceil() as u64;
                asked
            }
            Self::Share(share) => {
                return Err(Error::Parameter { name: "share of the table", value: share, expected: "from 0 to 1" });
            }
        };
        if asked_bytes > bytes { Err(Error::Budget { memory, asked_bytes, bytes }) } else { Ok(asked_bytes) }
    }
}

/// What training needs of a GPU beside rows: several batches on their way, what layers keep of them, and the program.
#[must_use]
pub fn working_set_bytes(batch_bytes: f64) -> u64 {
    const BATCHES: f64 = 8.0;
    const PROGRAM_BYTES: u64 = 1 << 30;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size; the cast saturates")]
    let batches_bytes = (BATCHES * batch_bytes) as u64;
    PROGRAM_BYTES.saturating_add(batches_bytes)
}

fn seconds(bytes: f64, gb_per_s: f64) -> f64 {
    if bytes <= 0.0 { 0.0 } else { bytes / (gb_per_s * 1e9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: Links =
        Links { device_gb_per_s: 1600.0, peer_gb_per_s: 150.0, host_gb_per_s: 50.0, disk_gb_per_s: 3.0 };

    /// A thousand rows; each next one is read a little less.
    fn curve() -> Curve {
        Curve::of((0..1000u64).map(|at| 1_000_000 / (at + 1)).collect::<Vec<_>>().into_iter())
    }

    fn plan(room: Room) -> Result<TierPlan> {
        let curve = curve();
        TierPlan::new(&Demand { curve: &curve, row_bytes: 512, reads_per_epoch: 1e9 }, &room, &LINKS)
    }

    fn ends(plan: &TierPlan) -> [u64; 3] {
        [plan.replicated_end, plan.interleaved_end, plan.host_end]
    }

    #[test]
    fn every_tier_may_be_empty_or_have_all() {
        let room = |device: u64, members: u64, host: u64, has_disk: bool| Room {
            device_bytes: device * 512,
            members,
            host_bytes: host * 512,
            has_disk,
        };
        for (room, want) in [
            (room(0, 1, 1000, false), [0, 0, 1000]),
            (room(1000, 1, 0, false), [1000, 1000, 1000]),
            (room(100, 1, 5000, false), [100, 100, 1000]),
            (room(100, 1, 200, true), [100, 100, 300]),
            (room(0, 0, 0, true), [0, 0, 0]),
            (room(1 << 50, 8, 1 << 50, true), [1000, 1000, 1000]),
        ] {
            let found = plan(room).unwrap();
            assert_eq!(ends(&found), want, "{room:?}");
            assert!((found.forecast.iter().map(|tier| tier.hit_rate).sum::<f64>() - 1.0).abs() < 1e-9);
            assert_eq!(found.forecast.iter().map(|tier| tier.rows).sum::<u64>(), 1000);
        }
        let Err(Error::NoRoom { rows: 700, .. }) = plan(room(100, 1, 200, false)) else { panic!("it has no room") };
    }

    #[test]
    fn a_group_shares_where_the_host_link_binds_and_replicates_where_the_peers_do() {
        let room = Room { device_bytes: 100 * 512, members: 4, host_bytes: 1 << 30, has_disk: false };
        let found = plan(room).unwrap();
        // Sharing makes room for up to 400 rows. Some of the hottest are worth having at home.
        assert!(found.interleaved_end > 100 && found.interleaved_end <= 400, "{found:?}");
        let alone = plan(Room { members: 1, ..room }).unwrap();
        assert!(found.seconds_per_epoch < alone.seconds_per_epoch);
        assert!(found.host_link_bytes() < alone.host_link_bytes());
    }

    #[test]
    fn a_forecast_is_bytes_over_links() {
        let room = Room { device_bytes: 100 * 512, members: 1, host_bytes: 1 << 30, has_disk: false };
        let found = plan(room).unwrap();
        let hot = curve().share(100);
        let host = found.forecast[2];
        assert!((host.bytes_per_epoch - (1.0 - hot) * 1e9 * 512.0).abs() < 1.0);
        assert!((host.seconds_per_epoch - host.bytes_per_epoch / 50e9).abs() < 1e-9);
        assert_eq!(found.seconds_per_epoch, host.seconds_per_epoch);
    }

    #[test]
    fn budgets_are_taken_from_what_there_is() {
        let of = |budget: Budget| budget.bytes("GPU memory", 1000, 300, 2000);
        assert_eq!(of(Budget::Auto).unwrap(), 700);
        assert_eq!(of(Budget::Bytes(1000)).unwrap(), 1000);
        assert_eq!(of(Budget::Share(0.25)).unwrap(), 500);
        assert!(matches!(of(Budget::Share(0.75)), Err(Error::Budget { asked_bytes: 1500, bytes: 1000, .. })));
        assert!(matches!(of(Budget::Bytes(1001)), Err(Error::Budget { .. })));
        assert!(matches!(of(Budget::Share(1.5)), Err(Error::Parameter { .. })));
        assert_eq!(working_set_bytes(1e6), (1 << 30) + 8_000_000);
        assert_eq!(working_set_bytes(f64::INFINITY), u64::MAX);
    }
}
