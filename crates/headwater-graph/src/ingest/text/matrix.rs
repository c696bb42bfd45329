//! Tables of numbers as text: features, labels, splits, counts.

use std::path::Path;

use super::Delimiter;
use super::blocks::Blocks;
use super::dialect::unclosed;
use super::fields::{content, float, integer, lines, meant, split};
use crate::error::Result;
use crate::ingest::fault::{Fault, Place, shown};
use crate::ingest::labels::Numbers;
use crate::progress::Progress;

/// What a table may hold.
pub trait Number: Copy + Send {
    /// What to say when a field is none.
    const EXPECTED: &'static str;

    /// Reads a field.
    fn parse(field: &[u8]) -> Option<Self>;
}

impl Number for f32 {
    const EXPECTED: &'static str = "a number";

    fn parse(field: &[u8]) -> Option<Self> {
        float(field)
    }
}

/// Whole numbers; an empty field and NaN, which stand for a missing class, are -1.
impl Number for i64 {
    const EXPECTED: &'static str = "a whole number";

    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers that fit are cast")]
    fn parse(field: &[u8]) -> Option<Self> {
        integer(field).or_else(|| match std::str::from_utf8(field).ok()? {
            "" | "nan" | "NaN" => Some(-1),
            text => text.parse::<f64>().ok().filter(|v| v.fract() == 0.0 && v.abs() < 9e15).map(|v| v as Self),
        })
    }
}

/// Numbers of any kind; an empty field, which stands for a missing label, is NaN.
impl Number for f64 {
    const EXPECTED: &'static str = "a number";

    fn parse(field: &[u8]) -> Option<Self> {
        match std::str::from_utf8(field).ok()? {
            "" => Some(Self::NAN),
            text => text.parse().ok(),
        }
    }
}

/// Rows of a table, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix<T> {
    /// Numbers of a row.
    pub columns: usize,
    /// All of them.
    pub values: Vec<T>,
}

/// Reads a table without header and takes it in pieces of whole rows, with the width of a row. Returns width and rows.
pub fn read_matrix<T: Number>(
    path: &Path,
    progress: &dyn Progress,
    mut take: impl FnMut(usize, &[T]) -> Result<()>,
) -> Result<(usize, u64)> {
    let (mut width, mut rows) = (None, 0);
    Blocks::open(path)?.for_each(progress, parse_block::<T>, |blocks| {
        for block in blocks.into_iter().filter(|block| !block.parsed.values.is_empty()) {
            let (found, expected) = (block.parsed.columns, *width.get_or_insert(block.parsed.columns));
            if found != expected {
                return Err(Fault::Ragged { found, expected }.at(path, Place::Line(block.first_line)));
            }
            rows += (block.parsed.values.len() / expected) as u64;
            take(expected, &block.parsed.values)?;
        }
        Ok(())
    })?;
    Ok((width.unwrap_or(0), rows))
}

/// Rows of whole numbers, all of them.
pub fn integer_rows(path: &Path, progress: &dyn Progress) -> Result<Matrix<i64>> {
    let mut values = Vec::new();
    let (columns, _) = read_matrix(path, progress, |_, piece| {
        values.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(Matrix { columns, values })
}

/// Labels, and how many a node has: integers where all of them are whole.
pub fn label_rows(path: &Path, progress: &dyn Progress) -> Result<(usize, Numbers)> {
    let mut values: Vec<f64> = Vec::new();
    let (columns, _) = read_matrix(path, progress, |_, piece| {
        values.extend_from_slice(piece);
        Ok(())
    })?;
    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers that fit are cast")]
    let whole = |value: &f64| (value.fract() == 0.0 && value.abs() < 9e15).then_some(*value as i64);
    let numbers = values.iter().map(whole).collect::<Option<Vec<i64>>>().map_or(Numbers::Real(values), Numbers::Whole);
    Ok((columns, numbers))
}

/// A single column of whole numbers.
pub fn integer_column(path: &Path, progress: &dyn Progress) -> Result<Vec<i64>> {
    let matrix = integer_rows(path, progress)?;
    if matrix.columns > 1 {
        return Err(Fault::Ragged { found: matrix.columns, expected: 1 }.at(path, Place::Line(1)));
    }
    Ok(matrix.values)
}

/// The fields of every line of a small file.
pub fn small_table(path: &Path) -> Result<Vec<Vec<String>>> {
    let mut blocks = Blocks::open(path)?;
    let mut rows = Vec::new();
    while let Some(block) = blocks.next_block()? {
        for line in lines(&block.bytes).filter_map(|(_, line)| meant(line)) {
            let mut fields = Vec::new();
            split(line, Delimiter::Byte(b','), &mut fields).ok_or_else(|| unclosed(line).of(path))?;
            rows.push(fields.iter().map(|field| String::from_utf8_lossy(&content(field)).into_owned()).collect());
        }
    }
    Ok(rows)
}

fn parse_block<T: Number>(block: &[u8]) -> Result<Matrix<T>, (u64, Fault)> {
    let mut matrix = Matrix { columns: 0, values: Vec::new() };
    let mut fields = Vec::new();
    for (at, line) in lines(block) {
        let Some(line) = meant(line) else { continue };
        split(line, Delimiter::Byte(b','), &mut fields).ok_or_else(|| (at, unclosed(line)))?;
        if matrix.columns == 0 {
            matrix.columns = fields.len();
        }
        if fields.len() != matrix.columns {
            return Err((at, Fault::Ragged { found: fields.len(), expected: matrix.columns }));
        }
        for (column, field) in fields.iter().enumerate() {
            let field = content(field);
            let wrong = || Fault::Field { column: column.to_string(), value: shown(&field), expected: T::EXPECTED };
            matrix.values.push(T::parse(&field).ok_or_else(|| (at, wrong()))?);
        }
    }
    Ok(matrix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn tables_are_read_and_faults_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            integer_rows(&path, &Silent)
        };
        assert_eq!(read("1,2\n3.0,nan\n").unwrap(), Matrix { columns: 2, values: vec![1, 2, 3, -1] });
        assert!(read("1,2\n3\n").unwrap_err().to_string().ends_with("line 2: 1 fields, but the lines before have 2"));
        assert!(read("1,2\n3,x\n").unwrap_err().to_string().ends_with("column 1: \"x\" is not a whole number"));
        assert!(read("0.5\n").is_err());
        assert!(integer_column(&path, &Silent).is_err());
        std::fs::write(&path, "1\n2.0\n").unwrap();
        assert_eq!(label_rows(&path, &Silent).unwrap(), (1, Numbers::Whole(vec![1, 2])));
        std::fs::write(&path, "1,0.5\n2,0\n").unwrap();
        assert_eq!(label_rows(&path, &Silent).unwrap(), (2, Numbers::Real(vec![1.0, 0.5, 2.0, 0.0])));
    }
}
