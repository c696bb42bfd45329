//! Features, of nodes or of edges, from an array or a table into the dataset, a piece at a time.
//!
//! Features of edges are kept in the order of edge ids, which is the order they are read in: sorting edges into lists
//! leaves them where they are. When each edge of a relation within one type also goes the other way, the reverses have
//! the next ids, and the rows are written once more for them; a reversed relation beside its own shares them.

use std::path::Path;

use half::{bf16, f16};
use headwater_tensor::DType;
use headwater_tensor::npy::{NpyElement, NpyType};

use super::arrays::{Array, Arrays, Number, elements};
use super::collected::{Edges, Sink, begin};
use super::fault::Fault;
use super::options::Reverse;
use super::text::read_matrix;
use crate::error::Result;

/// Writes features of nodes. Halves and single precision are kept, doubles are rounded to single precision, and integers
/// and truth values become floats: tables of features that are trained on hold nothing else.
pub fn of_nodes(name: &str, array: Array<'_>, sink: &Sink<'_>) -> Result<()> {
    let array = array.expect_rows_packed()?;
    if array.shape().iter().skip(1).any(|length| *length == 0) {
        let found = array.shape().to_vec();
        return Err(array.wrong(Fault::Shape { found, expected: "a row of one or more features a node" }));
    }
    let (kind, path, place) = (array.kind(), array.path().to_owned(), array.placer());
    let mut odd = NotFinite::default();
    if matches!(kind, NpyType::Tensor(DType::F16 | DType::BF16 | DType::F32)) {
        sink.progress.begin("features", array.count().saturating_mul(kind.size_bytes() as u64));
        return match kind {
            NpyType::Tensor(DType::F16) => kept::<f16>(name, array, &mut odd, sink),
            NpyType::Tensor(DType::BF16) => kept::<bf16>(name, array, &mut odd, sink),
            _ => kept::<f32>(name, array, &mut odd, sink),
        }
        .map(|()| odd.tell(&path));
    }
    sink.progress.begin("features", array.count().saturating_mul(kind.size_bytes() as u64));
    let mut to = sink.writer.append::<f32>(name, &row_shape(&array))?;
    let mut rounded = Vec::new();
    let mut done = 0;
    array.for_each_number(sink.progress, |piece| {
        let narrow = |(at, number): (u64, &Number)| {
            number.narrow().ok_or_else(|| {
                let expected = "a number that single precision holds; scale the features, or save them as float32";
                place(Fault::Value { value: number.to_string(), expected: expected.into() }, at)
            })
        };
        rounded.clear();
        rounded.extend((done..).zip(piece).map(narrow).collect::<Result<Vec<f32>>>()?);
        odd.look(&rounded);
        done += piece.len() as u64;
        to.push(&rounded)
    })?;
    odd.tell(&path);
    to.close().map(|_| ())
}

/// Features that are no numbers, which training refuses when it reads them.
#[derive(Debug, Default)]
pub(super) struct NotFinite {
    seen: u64,
    count: u64,
    first: Option<u64>,
}

impl NotFinite {
    pub(super) fn look<T: Copy + Into<f32>>(&mut self, elements: &[T]) {
        for (at, _) in elements.iter().enumerate().filter(|(_, element)| !Into::<f32>::into(**element).is_finite()) {
            self.count += 1;
            self.first.get_or_insert(self.seen + at as u64);
        }
        self.seen += elements.len() as u64;
    }

    pub(super) fn tell(&self, path: &Path) {
        if let Some(first) = self.first {
            log::warn!(
                "{}: {} features are infinite or NaN, element {first} first; training refuses rows with them",
                path.display(),
                self.count
            );
        }
    }
}

/// Elements as they are.
fn kept<T: NpyElement + Into<f32>>(name: &str, array: Array<'_>, odd: &mut NotFinite, sink: &Sink<'_>) -> Result<()> {
    let mut to = sink.writer.append::<T>(name, &row_shape(&array))?;
    array.for_each_piece(sink.progress, |piece| {
        let elements = elements::<T>(piece);
        odd.look(&elements);
        to.push(&elements)
    })?;
    to.close().map(|_| ())
}

/// Writes the rows of these arrays, which are all of one type and shape, one after the other. They are kept as they are,
/// but doubles become single precision, which is what feature tables hold.
pub fn copy(name: &str, arrays: Vec<Array<'_>>, sink: &Sink<'_>) -> Result<()> {
    let arrays = arrays.into_iter().map(Array::expect_rows_packed).collect::<Result<Vec<_>>>()?;
    let Some(first) = arrays.first() else { return Ok(()) };
    let kind = first.kind();
    let bytes = arrays.iter().map(|array| array.count().saturating_mul(kind.size_bytes() as u64)).sum();
    sink.progress.begin("features", bytes);
    match kind {
        NpyType::Tensor(DType::F64) => {
            let mut to = sink.writer.append::<f32>(name, &row_shape(first))?;
            for array in arrays {
                array.for_each_floats(sink.progress, |piece| to.push(piece))?;
            }
            to.close().map(|_| ())
        }
        NpyType::Tensor(DType::F32) => copy_as::<f32>(name, arrays, sink),
        NpyType::Tensor(DType::F16) => copy_as::<f16>(name, arrays, sink),
        NpyType::Tensor(DType::BF16) => copy_as::<bf16>(name, arrays, sink),
        NpyType::Tensor(DType::I64) => copy_as::<i64>(name, arrays, sink),
        NpyType::Tensor(DType::I32) => copy_as::<i32>(name, arrays, sink),
        NpyType::Tensor(DType::I8) => copy_as::<i8>(name, arrays, sink),
        NpyType::Tensor(DType::U8 | DType::Bool) => copy_as::<u8>(name, arrays, sink),
        NpyType::I16 => copy_as::<i16>(name, arrays, sink),
        NpyType::U16 => copy_as::<u16>(name, arrays, sink),
        NpyType::U32 => copy_as::<u32>(name, arrays, sink),
        NpyType::U64 => copy_as::<u64>(name, arrays, sink),
    }
}

/// Writes a table of text so many times. Returns its rows; a table without any writes nothing.
pub fn read(name: &str, path: &Path, times: usize, sink: &Sink<'_>) -> Result<u64> {
    let mut to = None;
    let mut rows = 0;
    let mut odd = NotFinite::default();
    for _ in 0..times {
        begin(sink.progress, "features", path);
        (_, rows) = read_matrix::<f32>(path, sink.progress, |columns, values| {
            if to.is_none() {
                to = Some(sink.writer.append::<f32>(name, &[columns as u64])?);
            }
            odd.look(values);
            to.as_mut().map_or(Ok(()), |to| to.push(values))
        })?;
    }
    odd.tell(path);
    to.map_or(Ok(rows), |to| to.close().map(|_| rows))
}

impl Edges {
    /// Takes features of the edges out of an array. `relation` is what the relation is called among all others.
    pub fn features(&mut self, relation: &str, arrays: &Arrays, array: &str, sink: &Sink<'_>) -> Result<()> {
        let of_edges = |_| arrays.array(array)?.expect_rows(self.edges.len(), "edges");
        let name = format!("{relation}.features");
        copy(&name, (0..self.copies(sink)).map(of_edges).collect::<Result<_>>()?, sink)?;
        self.features = Some(name);
        Ok(())
    }

    /// As [`Edges::features`], out of a table of text.
    pub fn features_of_text(&mut self, relation: &str, path: &Path, sink: &Sink<'_>) -> Result<()> {
        let name = format!("{relation}.features");
        let (found, expected) = (read(&name, path, self.copies(sink), sink)?, self.edges.len());
        if found != expected {
            return Err(Fault::Length { found, expected, of: "edges".into() }.of(path));
        }
        self.features = (found > 0).then_some(name);
        Ok(())
    }

    /// How often the rows are written: once more when the reverses are edges of the same relation.
    fn copies(&self, sink: &Sink<'_>) -> usize {
        if self.source == self.target && sink.reverse == Reverse::Add { 2 } else { 1 }
    }
}

fn row_shape(array: &Array<'_>) -> Vec<u64> {
    array.shape().iter().skip(1).map(|dim| *dim as u64).collect()
}

fn copy_as<T: NpyElement>(name: &str, arrays: Vec<Array<'_>>, sink: &Sink<'_>) -> Result<()> {
    let row_shape = arrays.first().map(row_shape).unwrap_or_default();
    let mut to = sink.writer.append::<T>(name, &row_shape)?;
    for array in arrays {
        array.for_each_piece(sink.progress, |piece| to.push(&elements::<T>(piece)))?;
    }
    to.close().map(|_| ())
}
