//! Rows that lie here and there in a large table are asked for before they are read.

use headwater_memory::prefetch_element;

/// Bytes of a table from which on rows are asked for: of smaller ones, most of what is read lies in a cache that is near enough.
const LARGE_BYTES: usize = 8 << 20;
/// Bytes that are asked for ahead: enough to keep memory busy, few enough not to push each other out.
const AHEAD_BYTES: usize = 4 << 10;
/// Numbers of a cache line.
const LINE: usize = 16;

/// A table whose rows are asked for ahead.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    table: &'a [f32],
    len: usize,
    /// How many rows ahead; 0 where the table is small.
    pub rows: usize,
}

impl<'a> Ahead<'a> {
    /// Rows of `len` elements.
    pub fn new(table: &'a [f32], len: usize) -> Self {
        let rows = if size_of_val(table) < LARGE_BYTES { 0 } else { AHEAD_BYTES.div_ceil(4 * len.max(1)).clamp(2, 32) };
        Self { table, len, rows }
    }

    /// Asks for the row that is read some rows after `at`, where there is one among `count`.
    #[inline(always)]
    pub fn ask(&self, at: usize, count: usize, row: impl Fn(usize) -> usize) {
        let next = at + self.rows;
        if self.rows > 0 && next < count {
            let first = row(next) * self.len;
            (first..first + self.len).step_by(LINE).for_each(|at| prefetch_element(self.table, at));
        }
    }
}
