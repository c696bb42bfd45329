//! Arrays by name, from an `.npz` archive, a folder of `.npy` files, or one `.npy` file, read as streams.
//!
//! Whatever a header claims, memory grows only with the bytes that really come. A 57 GB member of an archive passes
//! through a buffer of a megabyte.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use half::{bf16, f16};
use headwater_tensor::DType;
use headwater_tensor::npy::{MAX_HEADER_BYTES, NpyError, NpyHeader, NpyType, Order, parse_header};

use super::edges::GrowingIds;
use super::fault::{Fault, Place};
use super::labels::Numbers;
use super::regular::open_regular;
use super::zip::{Entry, Member, entries};
use crate::error::{Error, Result};
use crate::progress::{Progress, Silent};

/// Bytes converted at a time.
const PIECE_BYTES: usize = 1 << 20;
const MAGIC: &[u8] = b"\x93NUMPY";
const MAGIC_BYTES: usize = 12;

/// A set of named arrays.
#[derive(Debug)]
pub struct Arrays {
    path: PathBuf,
    from: From,
}

#[derive(Debug)]
enum From {
    Archive { file: Arc<File>, entries: Vec<Entry> },
    Files(Vec<(String, PathBuf)>),
}

impl Arrays {
    /// Opens an archive, a folder or a single file. The single array is called `edge_index`.
    pub fn open(path: &Path) -> Result<Self> {
        let from = if path.is_dir() {
            From::Files(files_of(path)?)
        } else {
            let mut file = open_regular(path)?;
            let bytes = file.metadata().map_err(|error| Fault::Io(error).of(path))?.len();
            if is_array(path, &mut file).map_err(|error| Fault::Io(error).of(path))? {
                let from = From::Files(vec![("edge_index".to_owned(), path.to_owned())]);
                return Ok(Self { path: path.to_owned(), from });
            }
            let entries = entries(&file, bytes).map_err(|fault| Fault::Zip(fault).of(path))?;
            From::Archive { file: Arc::new(file), entries }
        };
        Ok(Self { path: path.to_owned(), from })
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all arrays.
    pub fn names(&self) -> Vec<&str> {
        match &self.from {
            From::Archive { entries, .. } => {
                entries.iter().map(|entry| entry.name.strip_suffix(".npy").unwrap_or(&entry.name)).collect()
            }
            From::Files(files) => files.iter().map(|(name, _)| name.as_str()).collect(),
        }
    }

    /// Whether there is such an array.
    pub fn has(&self, name: &str) -> bool {
        self.names().contains(&name)
    }

    /// The first of these names that there is.
    pub fn first_of<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// Starts to read an array.
    pub fn array(&self, name: &str) -> Result<Array<'_>> {
        let missing = || Fault::Missing { what: format!("array {name:?}"), there: self.names().join(", ") };
        let (path, body, total_bytes): (PathBuf, Box<dyn Read + Send>, u64) = match &self.from {
            From::Archive { file, entries } => {
                let is_it = |entry: &&Entry| entry.name.strip_suffix(".npy").unwrap_or(&entry.name) == name;
                let entry = entries.iter().find(is_it).ok_or_else(|| missing().of(&self.path))?;
                (self.path.clone(), Box::new(Member::new(file.clone(), entry)), entry.bytes)
            }
            From::Files(files) => {
                let (_, path) = files.iter().find(|(of, _)| of == name).ok_or_else(|| missing().of(&self.path))?;
                let file = open_regular(path)?;
                let bytes = file.metadata().map_err(|error| Fault::Io(error).of(path))?.len();
                (path.clone(), Box::new(file), bytes)
            }
        };
        Array::start(path, name.to_owned(), body, total_bytes)
    }
}

/// One array whose header has been read and agrees with its length.
pub struct Array<'a> {
    path: PathBuf,
    name: String,
    header: NpyHeader,
    body: Box<dyn Read + Send + 'a>,
    left_bytes: u64,
}

impl<'a> Array<'a> {
    fn start(path: PathBuf, name: String, mut body: Box<dyn Read + Send + 'a>, total_bytes: u64) -> Result<Self> {
        let wrong = |fault: Fault| fault.at(&path, Place::Array(name.clone()));
        let start = read_start(&mut body).map_err(|error| wrong(error.into()))?;
        let header = parse_header(&start).map_err(|error| wrong(error.into()))?;
        header.check_length(total_bytes).map_err(|error| wrong(error.into()))?;
        let left_bytes = header.data_bytes().map_err(|error| wrong(error.into()))?;
        Ok(Self { path, name, header, body, left_bytes })
    }

    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// The type of its elements.
    pub fn kind(&self) -> NpyType {
        self.header.kind
    }

    /// How many elements it has.
    pub fn count(&self) -> u64 {
        self.left_bytes / self.header.kind.size_bytes() as u64
    }

    /// Length of the first axis; 1 for a single number.
    pub fn rows(&self) -> u64 {
        self.shape().first().map_or(1, |rows| *rows as u64)
    }

    /// Whether consecutive elements are those of the first axis, as in `[2, E]` arrays stored by columns.
    pub fn by_columns(&self) -> bool {
        self.header.order == Order::Fortran && self.shape().len() > 1
    }

    /// The file it is in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error about this array.
    pub fn wrong(&self, fault: Fault) -> Error {
        fault.at(&self.path, Place::Array(self.name.clone()))
    }

    /// Makes errors about elements of this array, also when it is gone.
    pub fn placer(&self) -> impl Fn(Fault, u64) -> Error + use<> {
        let (path, name) = (self.path.clone(), self.name.clone());
        move |fault, at| fault.at(&path, Place::Element(name.clone(), at))
    }

    /// Fails unless the first axis has this length.
    pub fn expect_rows(self, expected: u64, of: &str) -> Result<Self> {
        let found = self.rows();
        if found == expected { Ok(self) } else { Err(self.wrong(Fault::Length { found, expected, of: of.to_owned() })) }
    }

    /// Fails unless it is a list of this length; single columns are lists.
    pub fn expect_list(self, expected: u64, of: &str) -> Result<Self> {
        if self.shape().iter().skip(1).any(|length| *length != 1) {
            let found = self.shape().to_vec();
            return Err(self.wrong(Fault::Shape { found, expected: "a list" }));
        }
        self.expect_rows(expected, of)
    }

    /// Fails when the elements do not lie row after row.
    pub fn expect_rows_packed(self) -> Result<Self> {
        if self.by_columns() {
            let why = "lies column after column; save it with np.ascontiguousarray".to_owned();
            return Err(self.wrong(Fault::Refused(why)));
        }
        Ok(self)
    }

    /// Takes the raw bytes in pieces of whole rows.
    pub fn for_each_piece(mut self, progress: &dyn Progress, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let row_bytes = self.row_bytes();
        let piece_bytes = row_bytes.saturating_mul((PIECE_BYTES / row_bytes.max(1)).max(1));
        while self.left_bytes > 0 {
            let piece = self.piece(piece_bytes)?;
            take(&piece)?;
            progress.advance(piece.len() as u64);
        }
        Ok(())
    }

    /// Takes numbers of any kind in pieces, as exact as they are.
    pub fn for_each_number(self, progress: &dyn Progress, mut take: impl FnMut(&[Number]) -> Result<()>) -> Result<()> {
        let (kind, place) = (self.header.kind, self.placer());
        let (mut found, mut done) = (Vec::new(), 0);
        self.for_each_piece(progress, |piece| {
            found.clear();
            match kind {
                NpyType::Tensor(DType::F16 | DType::BF16 | DType::F32) => {
                    let mut narrow = Vec::new();
                    floats(kind, piece, &mut narrow);
                    found.extend(narrow.into_iter().map(|value| Number::Real(value.into())));
                }
                NpyType::Tensor(DType::F64) => found.extend(elements::<f64>(piece).iter().copied().map(Number::Real)),
                _ => {
                    let wide = integers(kind, piece).map_err(|at| place(too_wide(), done + at))?;
                    found.extend(wide.into_iter().map(Number::Whole));
                }
            }
            done += found.len() as u64;
            take(&found)
        })
    }

    /// Takes single-precision numbers in pieces. Wider ones are rounded.
    pub fn for_each_floats(self, progress: &dyn Progress, mut take: impl FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let kind = self.header.kind;
        let mut numbers = Vec::new();
        self.for_each_piece(progress, |piece| {
            numbers.clear();
            floats(kind, piece, &mut numbers);
            take(&numbers)
        })
    }

    /// Takes integers in pieces, with the position of each piece's first. Negative numbers come as they are.
    pub fn for_each_integer(mut self, mut take: impl FnMut(u64, &[i64]) -> Result<()>) -> Result<()> {
        self.expect_integers()?;
        let mut done = 0;
        while self.left_bytes > 0 {
            let piece = self.piece(PIECE_BYTES)?;
            let wide = integers(self.header.kind, &piece)
                .map_err(|at| too_wide().at(&self.path, Place::Element(self.name.clone(), done + at)))?;
            take(done, &wide)?;
            done += wide.len() as u64;
        }
        Ok(())
    }

    /// All of it as 64-bit integers.
    pub fn integers(self) -> Result<Vec<i64>> {
        let mut all = Vec::new();
        self.for_each_integer(|_, piece| {
            all.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(all)
    }

    /// All of it as ids, which are not negative.
    pub fn ids(self) -> Result<GrowingIds> {
        let place = self.placer();
        let mut all = GrowingIds::default();
        let mut ids = Vec::new();
        self.for_each_integer(|start, piece| {
            checked_ids(piece, &mut ids).map_err(|(at, value)| place(negative(value), start + at as u64))?;
            all.extend(&ids);
            Ok(())
        })?;
        Ok(all)
    }

    /// All of it as single precision. Integers and wider floats are rounded.
    pub fn floats(mut self) -> Result<Vec<f32>> {
        let mut all = Vec::new();
        while self.left_bytes > 0 {
            let piece = self.piece(PIECE_BYTES)?;
            floats(self.header.kind, &piece, &mut all);
        }
        Ok(all)
    }

    /// All of it, floats as floats.
    pub fn numbers(self) -> Result<Numbers> {
        if self.expect_integers().is_ok() {
            return self.integers().map(Numbers::Whole);
        }
        let mut all = Vec::new();
        self.for_each_number(&Silent, |piece| {
            all.extend(piece.iter().map(|number| number.wide()));
            Ok(())
        })?;
        Ok(Numbers::Real(all))
    }

    /// Fails unless the elements are integers or truth values.
    pub fn expect_integers(&self) -> Result<()> {
        match self.header.kind {
            NpyType::Tensor(DType::F16 | DType::BF16 | DType::F32 | DType::F64) => {
                Err(self.wrong(Fault::DType { found: self.header.kind.descr(), expected: "integers" }))
            }
            _ => Ok(()),
        }
    }

    fn row_bytes(&self) -> usize {
        let elements: usize = self.shape().iter().skip(1).product();
        elements.saturating_mul(self.header.kind.size_bytes()).max(1)
    }

    /// The next bytes, at most `most_bytes`, which is whole elements.
    fn piece(&mut self, most_bytes: usize) -> Result<Vec<u8>> {
        let bytes = most_bytes.min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        let mut piece = Vec::new();
        let read = (&mut self.body).take(bytes as u64).read_to_end(&mut piece);
        match read {
            Ok(got) if got == bytes => {
                self.left_bytes -= bytes as u64;
                Ok(piece)
            }
            Ok(_) => Err(self.wrong(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())),
            Err(error) => Err(self.wrong(error.into())),
        }
    }
}

/// An element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer or a truth value.
    Whole(i64),
    /// A float.
    Real(f64),
}

impl Number {
    /// In single precision: integers where they are exact, floats where they do not become infinite.
    #[expect(clippy::cast_possible_truncation, reason = "what does not fit is none")]
    pub fn narrow(self) -> Option<f32> {
        match self {
            Self::Whole(value) => Some(value as f32).filter(|narrow| *narrow as i64 == value),
            Self::Real(value) => Some(value as f32).filter(|narrow| narrow.is_finite() || !value.is_finite()),
        }
    }

    fn wide(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
        }
    }
}

fn too_wide() -> Fault {
    Fault::Value { value: "a 64-bit number".into(), expected: "a number below 2^63".into() }
}

/// Whether a file is a single array, by its name or by its first bytes.
fn is_array(path: &Path, file: &mut File) -> std::io::Result<bool> {
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start == MAGIC || path.extension().is_some_and(|ending| ending == "npy"))
}

/// Where an element stands.
pub(super) fn element(name: &str, start: u64, at: usize) -> Place {
    Place::Element(name.to_owned(), start + at as u64)
}

/// What is wrong with a negative id.
pub(super) fn negative(id: i64) -> Fault {
    Fault::Value { value: id.to_string(), expected: "an id: a whole number from 0 on".into() }
}

/// Ids out of integers, or the first that is negative.
pub(super) fn checked_ids(integers: &[i64], ids: &mut Vec<u64>) -> Result<(), (usize, i64)> {
    ids.clear();
    for (at, integer) in integers.iter().enumerate() {
        ids.push(u64::try_from(*integer).map_err(|_| (at, *integer))?);
    }
    Ok(())
}

/// The `.npy` files of a folder by their stems.
fn files_of(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| Fault::Io(error).of(folder))? {
        let path = entry.map_err(|error| Fault::Io(error).of(folder))?.path();
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        if let Some(stem) = stem.filter(|_| path.extension().is_some_and(|ending| ending == "npy")) {
            files.push((stem, path));
        }
    }
    files.sort();
    Ok(files)
}

/// The header with what precedes it, never more than the bound.
fn read_start(body: &mut (impl Read + ?Sized)) -> std::io::Result<Vec<u8>> {
    let mut start = Vec::new();
    body.take(MAGIC_BYTES as u64).read_to_end(&mut start)?;
    // A header that is cut says how long it should be.
    if let Err(NpyError::HeaderCut { expected, .. }) = parse_header(&start)
        && expected <= MAX_HEADER_BYTES + MAGIC_BYTES
    {
        body.take((expected - start.len()) as u64).read_to_end(&mut start)?;
    }
    Ok(start)
}

/// Bytes as elements: in place where they are aligned, otherwise copied.
pub(super) fn elements<T: Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => Cow::Borrowed(elements),
        Err(_) => Cow::Owned(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()),
    }
}

/// Widened, or the position of the first that does not fit.
fn integers(kind: NpyType, bytes: &[u8]) -> Result<Vec<i64>, u64> {
    Ok(match kind {
        NpyType::Tensor(DType::I64) => elements::<i64>(bytes).into_owned(),
        NpyType::Tensor(DType::I32) => elements::<i32>(bytes).iter().map(|value| i64::from(*value)).collect(),
        NpyType::Tensor(DType::I8) => elements::<i8>(bytes).iter().map(|value| i64::from(*value)).collect(),
        NpyType::Tensor(_) => bytes.iter().map(|byte| i64::from(*byte)).collect(),
        NpyType::I16 => elements::<i16>(bytes).iter().map(|value| i64::from(*value)).collect(),
        NpyType::U16 => elements::<u16>(bytes).iter().map(|value| i64::from(*value)).collect(),
        NpyType::U32 => elements::<u32>(bytes).iter().map(|value| i64::from(*value)).collect(),
        NpyType::U64 => {
            let narrow = |(at, value): (u64, &u64)| i64::try_from(*value).map_err(|_| at);
            return (0..).zip(elements::<u64>(bytes).iter()).map(narrow).collect();
        }
    })
}

fn floats(kind: NpyType, bytes: &[u8], to: &mut Vec<f32>) {
    match kind {
        NpyType::Tensor(DType::F32) => to.extend_from_slice(&elements::<f32>(bytes)),
        NpyType::Tensor(DType::F16) => to.extend(elements::<f16>(bytes).iter().map(|value| f32::from(*value))),
        NpyType::Tensor(DType::BF16) => to.extend(elements::<bf16>(bytes).iter().map(|value| f32::from(*value))),
        NpyType::Tensor(DType::F64) => to.extend(elements::<f64>(bytes).iter().map(|value| rounded(*value))),
        NpyType::U64 => to.extend(elements::<u64>(bytes).iter().map(|value| *value as f32)),
        _ => to.extend(integers(kind, bytes).into_iter().flatten().map(|value| value as f32)),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "weights and features are kept in single precision")]
fn rounded(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests;
