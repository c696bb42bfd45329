//! Where a row lies, from its number alone.

use headwater_tensor::gather::GatherError;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::TierPlan;

/// Members of a group at most: the GPUs that one switch connects.
pub(crate) const MOST_MEMBERS: usize = 8;

/// Where the rows of a table lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Rows of the table.
    pub rows: u64,
    /// Rows before this one are in every GPU.
    pub replicated_end: u64,
    /// Rows from there to this one are with the members of the group.
    pub interleaved_end: u64,
    /// Rows from there to this one are in host memory; the rest is on disk.
    pub host_end: u64,
    /// Members of the group.
    pub members: u64,
    /// Rows of each member when each has a stretch of them; else members have rows in turn.
    pub stretches: Option<[u64; MOST_MEMBERS]>,
}

/// The place of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// In every GPU, at this row of its own part.
    Replicated(u64),
    /// With a member, at this row of its share.
    Member(u64, u64),
    /// In host memory, at this row of the host's part.
    Host(u64),
    /// On disk, the so many-th of the rows there.
    Disk(u64),
}

impl Layout {
    /// Rows in GPU memory and in host memory. Checks that the boundaries rise and that the group is one.
    pub fn new(rows: u64, replicated_end: u64, interleaved_end: u64, members: u64) -> Result<Self> {
        Self { rows, replicated_end, interleaved_end, host_end: rows, members, stretches: None }.checked()
    }

    /// The same with all rows from `host_end` on left on disk.
    pub fn with_disk_from(self, host_end: u64) -> Result<Self> {
        Self { host_end, ..self }.checked()
    }

    /// One stretch of rows after the other, each with a member; what is left is in host memory.
    pub fn in_stretches(rows: u64, lengths: &[u64]) -> Result<Self> {
        let mut stretches = [0; MOST_MEMBERS];
        stretches.iter_mut().zip(lengths).for_each(|(stretch, length)| *stretch = *length);
        let interleaved_end = lengths.iter().fold(0u64, |sum, length| sum.saturating_add(*length));
        let (members, stretches) = (lengths.len().max(1) as u64, Some(stretches));
        Self { rows, replicated_end: 0, interleaved_end, host_end: rows, members, stretches }.checked()
    }

    /// As a plan has it.
    pub fn of_plan(plan: &TierPlan, members: u64) -> Result<Self> {
        let rows = plan.forecast.iter().map(|tier| tier.rows).sum();
        Self::new(rows, plan.replicated_end, plan.interleaved_end, members)?.with_disk_from(plan.host_end)
    }

    /// Refuses boundaries that fall, and groups that are none.
    pub(crate) fn checked(self) -> Result<Self> {
        let out_of_range = |name, value: u64, expected| Err(Error::Parameter { name, value: value as f64, expected });
        if !(1..=MOST_MEMBERS as u64).contains(&self.members) {
            return out_of_range("members", self.members, "from 1 to 8");
        }
        if self.replicated_end > self.interleaved_end {
            return out_of_range("replicated_end", self.replicated_end, "at most interleaved_end");
        }
        if self.interleaved_end > self.host_end {
            return out_of_range("interleaved_end", self.interleaved_end, "at most host_end");
        }
        if self.host_end > self.rows {
            return out_of_range("host_end", self.host_end, "at most the rows");
        }
        Ok(self)
    }

    /// The place of a row.
    pub fn spot(&self, row: u64) -> Result<Spot, GatherError> {
        if row >= self.rows {
            return Err(GatherError::IdOutOfRange { position: 0, id: row.into(), rows: self.rows });
        }
        Ok(if row < self.replicated_end {
            Spot::Replicated(row)
        } else if row < self.interleaved_end {
            self.member_of(row - self.replicated_end)
        } else if row < self.host_end {
            Spot::Host(row - self.interleaved_end)
        } else {
            Spot::Disk(row - self.host_end)
        })
    }

    fn member_of(&self, inside: u64) -> Spot {
        let Some(stretches) = self.stretches else {
            return Spot::Member(inside % self.members, inside / self.members);
        };
        let (mut member, mut at) = (0, inside);
        while member + 1 < self.members && at >= stretches[index(member)] {
            at -= stretches[index(member)];
            member += 1;
        }
        Spot::Member(member, at)
    }

    /// Rows that a member has room for.
    #[must_use]
    pub fn share_rows(&self, member: u64) -> u64 {
        match self.stretches {
            Some(stretches) => stretches.get(index(member)).copied().unwrap_or(0),
            None => (self.interleaved_end - self.replicated_end).div_ceil(self.members),
        }
    }

    /// The row at a place of a member's share; nothing behind the last.
    #[must_use]
    pub fn row_of_member(&self, member: u64, at: u64) -> Option<u64> {
        let row = match self.stretches {
            Some(stretches) => {
                let before: u64 = stretches.iter().take(index(member)).sum();
                self.replicated_end + before + at
            }
            None => self.replicated_end + at * self.members + member,
        };
        (row < self.interleaved_end && at < self.share_rows(member)).then_some(row)
    }

    /// Rows in host memory.
    #[must_use]
    pub fn host_rows(&self) -> u64 {
        self.host_end - self.interleaved_end
    }

    /// Rows on disk.
    #[must_use]
    pub fn disk_rows(&self) -> u64 {
        self.rows - self.host_end
    }
}

/// Numbers of things that are in memory fit an index.
pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(layout: &Layout) {
        let (mut host, mut disk) = (0, 0);
        for row in 0..layout.rows {
            match layout.spot(row).unwrap() {
                Spot::Replicated(at) => assert_eq!(at, row),
                Spot::Member(member, at) => {
                    assert!(at < layout.share_rows(member));
                    assert_eq!(layout.row_of_member(member, at), Some(row));
                }
                Spot::Host(at) => {
                    assert_eq!(at, host);
                    host += 1;
                }
                Spot::Disk(at) => {
                    assert_eq!(at, disk);
                    disk += 1;
                }
            }
        }
        assert_eq!((host, disk), (layout.host_rows(), layout.disk_rows()));
        assert!(layout.spot(layout.rows).is_err());
    }

    #[test]
    fn every_row_has_one_spot() {
        for (rows, replicated, interleaved, members) in
            [(20, 5, 12, 3), (20, 0, 20, 1), (20, 20, 20, 8), (7, 0, 0, 2), (0, 0, 0, 1), (9, 2, 3, 4)]
        {
            let layout = Layout::new(rows, replicated, interleaved, members).unwrap();
            check(&layout);
            check(&layout.with_disk_from((interleaved + rows) / 2).unwrap());
            check(&layout.with_disk_from(interleaved).unwrap());
        }
        for lengths in [&[3u64, 0, 5][..], &[8], &[1, 1, 1, 1, 1, 1, 1, 1], &[]] {
            check(&Layout::in_stretches(11, lengths).unwrap());
        }
    }

    #[test]
    fn boundaries_that_fall_are_refused() {
        for (replicated, interleaved, members) in [(6, 5, 1), (0, 11, 1), (0, 5, 0), (0, 5, 9)] {
            assert!(Layout::new(10, replicated, interleaved, members).is_err());
        }
        let layout = Layout::new(10, 2, 4, 1).unwrap();
        assert!(layout.with_disk_from(3).is_err() && layout.with_disk_from(11).is_err());
        assert!(Layout::in_stretches(10, &[6, 5]).is_err() && Layout::in_stretches(10, &[1; 9]).is_err());
    }
}
