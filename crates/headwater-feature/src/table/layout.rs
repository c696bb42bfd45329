//! Where a row lies, from its number alone.

use headwater_tensor::gather::GatherError;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::plan::TierPlan;

/// Members of a group at most: the GPUs that one switch connects.
pub(crate) const MOST_MEMBERS: usize = 8;

/// Where the rows of a table lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Rows of the table.
    pub rows: u64,
    /// Rows before this one are in every GPU.
    pub replicated_end: u64,
    /// Rows from there to this one are with the members in turn.
    pub interleaved_end: u64,
    /// Members of the group.
    pub members: u64,
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
}

impl Layout {
    /// Checks that the boundaries rise and that the group is one.
    pub fn new(rows: u64, replicated_end: u64, interleaved_end: u64, members: u64) -> Result<Self> {
        let out_of_range = |name, value: u64, expected| Error::Parameter { name, value: value as f64, expected };
        if !(1..=MOST_MEMBERS as u64).contains(&members) {
            return Err(out_of_range("members", members, "from 1 to 8"));
        }
        if replicated_end > interleaved_end {
            return Err(out_of_range("replicated_end", replicated_end, "at most interleaved_end"));
        }
        if interleaved_end > rows {
            return Err(out_of_range("interleaved_end", interleaved_end, "at most the rows"));
        }
        Ok(Self { rows, replicated_end, interleaved_end, members })
    }

    /// As a plan has it; what the plan leaves on disk is not part of it.
    pub fn of_plan(plan: &TierPlan, members: u64) -> Result<Self> {
        Self::new(plan.host_end, plan.replicated_end, plan.interleaved_end, members)
    }

    /// The place of a row.
    pub fn spot(&self, row: u64) -> Result<Spot, GatherError> {
        if row >= self.rows {
            return Err(GatherError::IdOutOfRange { position: 0, id: row.into(), rows: self.rows });
        }
        Ok(if row < self.replicated_end {
            Spot::Replicated(row)
        } else if row < self.interleaved_end {
            let inside = row - self.replicated_end;
            Spot::Member(inside % self.members, inside / self.members)
        } else {
            Spot::Host(row - self.interleaved_end)
        })
    }

    /// Rows that each member has room for.
    #[must_use]
    pub fn share_rows(&self) -> u64 {
        (self.interleaved_end - self.replicated_end).div_ceil(self.members)
    }

    /// The row at a place of a member's share; nothing behind the last.
    #[must_use]
    pub fn row_of_member(&self, member: u64, at: u64) -> Option<u64> {
        let row = self.replicated_end + at * self.members + member;
        (row < self.interleaved_end).then_some(row)
    }

    /// Rows in host memory.
    #[must_use]
    pub fn host_rows(&self) -> u64 {
        self.rows - self.interleaved_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_spot() {
        for (rows, replicated, interleaved, members) in
            [(20, 5, 12, 3), (20, 0, 20, 1), (20, 20, 20, 8), (7, 0, 0, 2), (0, 0, 0, 1), (9, 2, 3, 4)]
        {
            let layout = Layout::new(rows, replicated, interleaved, members).unwrap();
            let mut host = 0;
            for row in 0..rows {
                match layout.spot(row).unwrap() {
                    Spot::Replicated(at) => assert_eq!(at, row),
                    Spot::Member(member, at) => {
                        assert!(at < layout.share_rows());
                        assert_eq!(layout.row_of_member(member, at), Some(row));
                    }
                    Spot::Host(at) => {
                        assert_eq!(at, host);
                        host += 1;
                    }
                }
            }
            assert_eq!(host, layout.host_rows());
            assert!(layout.spot(rows).is_err());
        }
    }

    #[test]
    fn boundaries_that_fall_are_refused() {
        for (replicated, interleaved, members) in [(6, 5, 1), (0, 11, 1), (0, 5, 0), (0, 5, 9)] {
            assert!(Layout::new(10, replicated, interleaved, members).is_err());
        }
    }
}
