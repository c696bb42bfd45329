//! Rows moved between tiers while a run goes on.
//!
//! What an epoch read is the best forecast of what the next one will. The source has every row, so moving is filling GPU
//! memory anew, hottest rows first, and a new map from ids to rows. Rows in host memory stay where they are; from the first
//! move on all of the source is registered, because any row may be cold.

use std::sync::atomic::Ordering;

use headwater_cuda::Stream;
use headwater_memory::{Buffer, Device};
use headwater_tensor::parallel::{self, PIECE};
use rayon::prelude::*;
use serde::Serialize;

use super::layout::{Layout, index};
use super::map::IdMap;
use super::parts::{HostHome, Parts, Placing};
use super::source::Source;
use super::tiered::TieredTable;
use crate::error::{Error, Result};

/// What a move did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Rows that tiers hold copies of.
    pub copied_rows: u64,
    /// Those among them that had no copy before.
    pub new_rows: u64,
}

impl TieredTable {
    /// Counts from here on how often every row is read: four bytes of GPU memory a row, and an atomic a read.
    pub fn observe(&mut self, stream: &Stream) -> Result<()> {
        let reads = Buffer::<u32, Device>::shareable(&self.gpu, index(self.layout.rows))?;
        stream.fill(reads.whole(), 0)?;
        self.reads = Some(reads.whole().clone());
        Ok(())
    }

    /// How often every row of the source was read since [`TieredTable::observe`]. Waits for the stream.
    pub fn observed(&self, stream: &Stream) -> Result<Vec<u64>> {
        let why = "does not count the reads of its rows; observe it first";
        let reads = self.reads.as_ref().ok_or(Error::Table { why })?;
        let mut counts = vec![0u32; reads.bytes() / 4];
        stream.download(reads, bytemuck::cast_slice_mut(&mut counts))?;
        let mut observed = vec![0u64; index(self.source_rows())];
        for (row, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            if let Some(sum) = observed.get_mut(index(self.source_row(row as u64))) {
                *sum += u64::from(count);
            }
        }
        Ok(observed)
    }

    /// Moves the rows that were read most to the fastest memories. `reads` has one number a row of the source. Waits for
    /// all gathers of this table. Counting begins anew where reads are counted. Gathers that a graph captured before must be
    /// captured again: they have the old places.
    pub fn retier(&mut self, stream: &Stream, reads: &[u64]) -> Result<Moved> {
        let source = self.movable()?.clone();
        let (found, expected) = (reads.len() as u64, self.source_rows());
        if found != expected {
            return Err(Error::Bytes { name: "reads, in rows,", found, expected });
        }
        let copied = if source.disk().is_some() { self.layout.host_end } else { self.layout.interleaved_end };
        let before = self.copied_rows(copied);
        let moved = hottest(reads, copied);
        let is_new = |row: &&u64| before.binary_search(row).is_err();
        let new_rows = parallel::sum(moved.len(), PIECE, &|range| moved[range].iter().filter(is_new).count() as u64);
        // What is still queued may report a bad id, which is no reason to give the table up.
        self.wait_until_unused()?;
        self.fill_anew(&source, &moved)?;
        let mut row_of_source: Vec<u64> = (copied..copied + expected).collect();
        moved.iter().enumerate().for_each(|(at, row)| row_of_source[index(*row)] = at as u64);
        self.moved_to = Some(IdMap::of(&row_of_source, self.layout.rows));
        self.moved = Some(moved);
        self.lookup = self.make_lookup()?;
        if self.reads.is_some() {
            self.observe(stream)?;
        }
        self.is_torn = false;
        Ok(Moved { copied_rows: copied, new_rows })
    }

    fn movable(&self) -> Result<&Source> {
        if self.parts.shared.is_some() || self.is_sent.load(Ordering::Relaxed) {
            return Err(Error::Table { why: "is shared with other processes, which would read rows that move" });
        }
        if self.layout.stretches.is_some() {
            return Err(Error::Table { why: "was made of parts with places of their own; its rows do not move" });
        }
        let why = "was placed by another process; only that one can move its rows";
        self.source.as_ref().ok_or(Error::Table { why })
    }

    /// Source rows that have copies now, in rising order.
    fn copied_rows(&self, copied: u64) -> Vec<u64> {
        let mut rows: Vec<u64> = (0..copied).map(|row| self.source_row(row)).collect();
        rows.par_sort_unstable();
        rows
    }

    fn wait_until_unused(&self) -> Result<()> {
        let Parts { replicated, members, host, .. } = &self.parts;
        let mut parts = members.iter().chain([replicated, host]);
        Ok(parts.try_for_each(|part| part.allocation().wait_until_unused())?)
    }

    fn fill_anew(&mut self, source: &Source, moved: &[u64]) -> Result<()> {
        let (copied, all) = (moved.len() as u64, self.source_rows());
        let rows = copied + all;
        let host_end = if source.disk().is_some() { copied } else { rows };
        let layout = Layout { rows, host_end, ..self.layout };
        let (format, host) = (self.format, HostHome::InPlace);
        let (gpu, group) = (self.gpu.clone(), self.group.clone());
        let placing = Placing { gpu: &gpu, group: &group, source, format, layout, host, moved: Some(moved) };
        // From the second move on rows that lie in host memory stay as they are.
        let moves_host = source.disk().is_some() || self.moved.is_none();
        if moves_host {
            placing.check_host_room(self.parts.host.bytes() as u64)?;
        }
        self.is_torn = true;
        if moves_host {
            placing.replace_host(&mut self.parts)?;
        }
        placing.refill(&mut self.parts)?;
        self.layout = layout;
        Ok(())
    }
}

/// The rows that are read most, in the order of reads; among equals the lower number.
fn hottest(reads: &[u64], count: u64) -> Vec<u64> {
    let heat = |row: &u64| (std::cmp::Reverse(reads[index(*row)]), *row);
    let mut rows: Vec<u64> = (0..reads.len() as u64).collect();
    let count = index(count).min(rows.len());
    if count < rows.len() {
        rows.select_nth_unstable_by_key(count, heat);
    }
    rows.truncate(count);
    rows.par_sort_unstable_by_key(heat);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_come_first_and_equals_by_number() {
        assert_eq!(hottest(&[3, 9, 0, 9, 3, 1], 4), [1, 3, 0, 4]);
        assert_eq!(hottest(&[3, 9, 0], 9), [1, 0, 2]);
        assert!(hottest(&[], 0).is_empty());
    }
}
