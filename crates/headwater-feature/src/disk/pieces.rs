//! Which bytes of which units are a row. Pure.
//!
//! A row may lie over several units and a unit may hold many rows. Rows are cut at the borders of units, and each piece
//! owns the part of the output it fills: so pieces can be sorted by unit, and filled in any order and on any thread.

use std::ops::RangeInclusive;

use rayon::prelude::*;

use crate::error::{Error, Result};

/// Where rows lie in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowLayout {
    pub(super) data_offset: u64,
    pub(super) row_bytes: usize,
    pub(super) rows: u64,
    pub(super) unit_bytes: usize,
}

/// Some bytes of a unit, and where they go.
#[derive(Debug)]
struct Piece<'o> {
    unit: u64,
    start: usize,
    out: &'o mut [u8],
}

/// The pieces of a batch of rows, sorted by unit.
#[derive(Debug)]
pub(super) struct Pieces<'o>(Vec<Piece<'o>>);

/// A unit, and all that is wanted of it; nothing, for a unit that is only to be brought.
#[derive(Debug)]
pub(super) struct Wanted<'p, 'o> {
    pub(super) unit: u64,
    pieces: &'p mut [Piece<'o>],
}

impl RowLayout {
    /// One past the last byte of the last row; none where no file is so long.
    pub(super) fn end(&self) -> Option<u64> {
        self.rows.checked_mul(self.row_bytes as u64)?.checked_add(self.data_offset)
    }

    /// Units that rows lie in.
    pub(super) fn units(&self) -> u64 {
        if self.rows == 0 { 0 } else { self.units_of(self.rows - 1).end() - self.units_of(0).start() + 1 }
    }

    /// Refuses rows that are not there, and outputs that are not as long as the rows.
    pub(super) fn check(&self, rows: &[u64], out_bytes: usize) -> Result<()> {
        if let Some(&row) = rows.iter().find(|&&row| row >= self.rows) {
            return Err(Error::Row { row, rows: self.rows });
        }
        if rows.len().checked_mul(self.row_bytes) != Some(out_bytes) {
            return Err(Error::OutputBytes { rows: rows.len(), row_bytes: self.row_bytes, bytes: out_bytes });
        }
        Ok(())
    }

    /// The pieces of checked rows.
    pub(super) fn cut<'o>(&self, rows: &[u64], out: &'o mut [u8]) -> Pieces<'o> {
        let rows = rows.par_iter().zip(out.par_chunks_exact_mut(self.row_bytes));
        let mut pieces: Vec<Piece<'o>> = rows.flat_map_iter(|(&row, out)| self.cut_row(row, out)).collect();
        pieces.par_sort_unstable_by_key(|piece| piece.unit);
        Pieces(pieces)
    }

    /// The units of those rows that are there, in rising order, each once.
    pub(super) fn distinct_units(&self, rows: &[u64]) -> Vec<u64> {
        let there = rows.par_iter().filter(|&&row| row < self.rows);
        let mut units: Vec<u64> = there.flat_map_iter(|&row| self.units_of(row)).collect();
        units.par_sort_unstable();
        units.dedup();
        units
    }

    fn units_of(&self, row: u64) -> RangeInclusive<u64> {
        let first = self.data_offset + row * self.row_bytes as u64;
        let unit_bytes = self.unit_bytes as u64;
        first / unit_bytes..=(first + self.row_bytes as u64 - 1) / unit_bytes
    }

    fn cut_row<'o>(&self, row: u64, out: &'o mut [u8]) -> impl Iterator<Item = Piece<'o>> {
        let unit_bytes = self.unit_bytes;
        let first = self.data_offset + row * self.row_bytes as u64;
        #[expect(clippy::cast_possible_truncation, reason = "less than a unit")]
        let mut start = (first % unit_bytes as u64) as usize;
        let mut rest = out;
        self.units_of(row).map(move |unit| {
            let whole = std::mem::take(&mut rest);
            let (out, after) = whole.split_at_mut(whole.len().min(unit_bytes - start));
            rest = after;
            Piece { unit, start: std::mem::take(&mut start), out }
        })
    }
}

impl<'o> Pieces<'o> {
    /// The units they are of, in rising order, each once.
    pub(super) fn by_unit(&mut self) -> Vec<Wanted<'_, 'o>> {
        let groups = self.0.chunk_by_mut(|one, next| one.unit == next.unit);
        groups.map(|pieces| Wanted { unit: pieces[0].unit, pieces }).collect()
    }
}

impl Wanted<'_, '_> {
    /// A unit of which nothing is wanted now.
    pub(super) fn later(unit: u64) -> Self {
        Self { unit, pieces: &mut [] }
    }

    /// Copies what is wanted out of the unit's bytes.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        for piece in self.pieces.iter_mut() {
            piece.out.copy_from_slice(&bytes[piece.start..piece.start + piece.out.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_width_are_cut_at_the_borders_of_units() {
        for (data_offset, row_bytes, unit_bytes) in
            [(0, 1, 8), (0, 8, 8), (3, 8, 8), (128, 5, 16), (7, 100, 16), (4096, 512, 4096), (64, 4100, 4096)]
        {
            let layout = RowLayout { data_offset, row_bytes, rows: 40, unit_bytes };
            let end = usize::try_from(layout.end().unwrap()).unwrap().next_multiple_of(unit_bytes);
            let file: Vec<u8> = (0..end).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
            let rows = [39, 0, 3, 3, 17, 38, 1];
            let mut out = vec![0; rows.len() * row_bytes];
            layout.check(&rows, out.len()).unwrap();
            let mut pieces = layout.cut(&rows, &mut out);
            let wanted = pieces.by_unit();
            let units: Vec<u64> = wanted.iter().map(|wanted| wanted.unit).collect();
            assert_eq!(units, layout.distinct_units(&rows));
            for mut wanted in wanted {
                let at = usize::try_from(wanted.unit).unwrap() * unit_bytes;
                wanted.fill(&file[at..at + unit_bytes]);
            }
            for (row, out) in rows.iter().zip(out.chunks(row_bytes)) {
                let at = usize::try_from(data_offset + row * row_bytes as u64).unwrap();
                assert_eq!(out, &file[at..at + row_bytes], "row {row} of {row_bytes} bytes");
            }
        }
    }

    #[test]
    fn rows_that_are_not_there_are_named() {
        let layout = RowLayout { data_offset: 0, row_bytes: 4, rows: 10, unit_bytes: 8 };
        assert_eq!(layout.units(), 5);
        assert!(matches!(layout.check(&[9, 10], 8), Err(Error::Row { row: 10, rows: 10 })));
        assert!(matches!(layout.check(&[9], 8), Err(Error::OutputBytes { rows: 1, row_bytes: 4, bytes: 8 })));
        assert_eq!(layout.distinct_units(&[10, u64::MAX, 9]), [4]);
        assert_eq!(RowLayout { rows: u64::MAX, ..layout }.end(), None);
        assert_eq!(RowLayout { rows: 0, ..layout }.units(), 0);
    }
}
