//! Turns many small row reads into few large aligned ones. Pure.
//!
//! Rows may come in any order, repeat and overlap. They are sorted, and neighbours whose gap is small share a
//! window: reading a few unwanted bytes costs less than another request. Windows never overlap, so no byte is read
//! twice. Two rows that share a block at the border of a full window therefore meet across two windows; such
//! windows follow each other without a gap, which is why a row is always one contiguous piece once the windows lie
//! back to back in memory.

use super::align::{Window, aligned_window, check_alignment};
use super::error::Error;

/// What to read, and where each row will be found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadPlan {
    /// Aligned reads in rising order, none overlapping another.
    pub windows: Vec<PlannedWindow>,
    /// One entry a row, in the order the rows were given.
    pub rows: Vec<RowPlace>,
}

/// One read of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedWindow {
    /// Bytes of the file to read.
    pub window: Window,
    /// Where the window begins when all windows are laid back to back.
    pub arena_start: u64,
}

/// Where a row is found once the windows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    /// The window the row begins in.
    pub window: usize,
    /// Where in that window.
    pub start: u64,
    /// Bytes of the row. It goes on at the start of the next window when this one ends first.
    pub len: u64,
    /// Where the row begins, in one piece, when all windows are laid back to back.
    pub arena_start: u64,
}

/// A part of a row inside one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The window.
    pub window: usize,
    /// Where in the window.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

/// How eagerly rows are merged.
#[derive(Debug, Clone, Copy)]
pub struct MergeOptions {
    /// Windows begin and end on multiples of this, a power of two.
    pub alignment: u64,
    /// Rows whose aligned ranges are at most this far apart share a window.
    pub max_gap_bytes: u64,
    /// No window is longer; at least `alignment`.
    pub max_window_bytes: u64,
}

/// Plans the reads of `rows`.
pub fn plan_reads(rows: &[Window], options: &MergeOptions) -> Result<ReadPlan, Error> {
    check_alignment(options.alignment)?;
    if options.max_window_bytes < options.alignment {
        let value = options.max_window_bytes;
        return Err(Error::Config { field: "max_window_bytes", value, must_be: "at least the alignment" });
    }
    let mut ranges = Vec::with_capacity(rows.len());
    for row in rows.iter().filter(|row| row.len > 0) {
        ranges.push(aligned_window(row.offset, row.len, options.alignment)?.window);
    }
    ranges.sort_unstable_by_key(|range| (range.offset, range.len));
    let windows = lay_out(merge_sorted(&ranges, options));
    let rows = rows.iter().map(|row| place(row, &windows)).collect();
    Ok(ReadPlan { windows, rows })
}

impl ReadPlan {
    /// Bytes all windows take, back to back.
    pub fn arena_bytes(&self) -> u64 {
        self.windows.last().map_or(0, |last| last.arena_start + last.window.len)
    }

    /// The parts of row `row`, in order; nearly always one.
    pub fn pieces(&self, row: usize) -> impl Iterator<Item = Piece> + '_ {
        let place = self.rows.get(row).copied();
        let (mut window, mut start, mut left) = place.map_or((0, 0, 0), |p| (p.window, p.start, p.len));
        std::iter::from_fn(move || {
            let available = self.windows.get(window).filter(|_| left > 0)?.window.len - start;
            let piece = Piece { window, start, len: left.min(available) };
            left -= piece.len;
            window += 1;
            start = 0;
            Some(piece)
        })
    }
}

/// Joins aligned ranges, sorted by offset, into windows that do not overlap.
fn merge_sorted(ranges: &[Window], options: &MergeOptions) -> Vec<Window> {
    let max = options.max_window_bytes & !(options.alignment - 1);
    let mut windows: Vec<Window> = Vec::new();
    for range in ranges {
        let mut start = range.offset;
        if let Some(last) = windows.last_mut() {
            // Inside what an earlier, longer range brought, perhaps in a window before the last.
            if range.end() <= last.end() {
                continue;
            }
            let near = range.offset <= last.end().saturating_add(options.max_gap_bytes);
            if near && range.end() - last.offset <= max {
                last.len = range.end() - last.offset;
                continue;
            }
            start = start.max(last.end());
        }
        while start < range.end() {
            let len = max.min(range.end() - start);
            windows.push(Window { offset: start, len });
            start += len;
        }
    }
    windows
}

fn lay_out(windows: Vec<Window>) -> Vec<PlannedWindow> {
    let mut arena_start = 0;
    let place = |window: Window| {
        let planned = PlannedWindow { window, arena_start };
        arena_start += window.len;
        planned
    };
    windows.into_iter().map(place).collect()
}

fn place(row: &Window, windows: &[PlannedWindow]) -> RowPlace {
    let after = windows.partition_point(|planned| planned.window.offset <= row.offset);
    // An empty row has no window of its own and needs none.
    let (true, Some(index)) = (row.len > 0, after.checked_sub(1)) else {
        return RowPlace { window: 0, start: 0, len: 0, arena_start: 0 };
    };
    let start = row.offset - windows[index].window.offset;
    RowPlace { window: index, start, len: row.len, arena_start: windows[index].arena_start + start }
}
