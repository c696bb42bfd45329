//! One array of a dataset, in the file it lies in, or in memory that somebody holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_memory::{Foreign, map_file, map_file_for_writers};
use headwater_tensor::npy::{NpyElement, NpyFile, NpyType, Order};
use headwater_tensor::{Affinity, DType, Tensor};

use super::manifest::FileEntry;
use super::refused;
use crate::column::{Column, Ids};
use crate::error::{Error, Result};

/// A mapped array, or one in memory. Clones share it. While it is mapped, its file must not be cut short by anybody: touching what
/// is lost would end the process.
#[derive(Debug, Clone)]
pub struct Array {
    path: PathBuf,
    kind: NpyType,
    shape: Vec<usize>,
    data: Foreign,
    /// Where the data begins in the file; nothing where it lies in memory alone.
    offset: Option<u64>,
}

impl Array {
    /// Maps a file after comparing it with what the manifest says.
    pub(super) fn open(path: &Path, entry: &FileEntry) -> Result<Self> {
        let differs =
            |what, found: String, expected: String| Error::ArrayFile { path: path.to_owned(), what, found, expected };
        let bytes = regular_bytes(path)?;
        if bytes != entry.bytes {
            return Err(differs("its length in bytes", bytes.to_string(), entry.bytes.to_string()));
        }
        let NpyFile { file, header } = NpyFile::open(path)?;
        if header.kind.name() != entry.dtype {
            return Err(differs("the element type", header.kind.name().into(), entry.dtype.clone()));
        }
        if !header.shape.iter().map(|dim| *dim as u64).eq(entry.shape.iter().copied()) {
            return Err(differs("the shape", format!("{:?}", &header.shape[..]), format!("{:?}", entry.shape)));
        }
        if header.order != Order::C && header.shape.len() > 1 {
            return Err(differs("the order", "column-major".into(), "row-major".into()));
        }
        Self::mapped(path, &NpyFile { file, header }, entry.bytes)
    }

    /// Maps a `.npy` file that no manifest names.
    pub fn map(path: &Path) -> Result<Self> {
        let bytes = regular_bytes(path)?;
        let NpyFile { file, header } = NpyFile::open(path)?;
        if header.order != Order::C && header.shape.len() > 1 {
            let (found, expected) = ("column-major".to_owned(), "row-major".to_owned());
            return Err(Error::ArrayFile { path: path.to_owned(), what: "the order", found, expected });
        }
        Self::mapped(path, &NpyFile { file, header }, bytes)
    }

    fn mapped(path: &Path, NpyFile { file, header }: &NpyFile, bytes: u64) -> Result<Self> {
        let offset = header.data_offset as u64;
        let data = map_file(file, offset..bytes)?;
        let (path, shape) = (path.to_owned(), header.shape.to_vec());
        Ok(Self { path, kind: header.kind, shape, data, offset: Some(offset) })
    }

    /// Elements in rows that somebody holds, read where they lie. `name` is what errors call them.
    pub fn held(name: &str, kind: NpyType, shape: &[usize], data: Foreign) -> Result<Self> {
        let found = data.as_slice().len();
        let bytes = shape.iter().try_fold(kind.size_bytes(), |bytes, length| bytes.checked_mul(*length));
        if bytes != Some(found) {
            let (path, found, expected) = (name.into(), found.to_string(), format!("{shape:?} of {}", kind.name()));
            return Err(Error::ArrayFile { path, what: "its length in bytes", found, expected });
        }
        Ok(Self { path: name.into(), kind, shape: shape.to_vec(), data, offset: None })
    }

    /// Whether it lies in memory alone, and its path is only a name.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.offset.is_none()
    }

    /// The same elements for a library that may write to them. What it writes to a file's elements it alone sees; what it
    /// writes to those in memory is written there.
    pub fn for_writers(&self) -> Result<Foreign> {
        let Some(offset) = self.offset else { return Ok(self.data.clone()) };
        let file = std::fs::File::open(&self.path).map_err(refused("read", &self.path))?;
        Ok(map_file_for_writers(&file, offset..offset + self.data.as_slice().len() as u64)?)
    }

    /// The file it lies in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The element type.
    #[must_use]
    pub fn kind(&self) -> NpyType {
        self.kind
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The mapped data.
    #[must_use]
    pub fn data(&self) -> &Foreign {
        &self.data
    }

    /// The elements in their order, when they are of this type.
    pub fn column<T: NpyElement>(&self) -> Result<Column<T>> {
        if self.kind != T::KIND {
            return Err(self.not(T::KIND.name()));
        }
        Column::over(self.data.clone(), "a mapped array")
    }

    /// The elements as ids. Signed ones are copied; none of them may be negative.
    pub fn ids(&self) -> Result<Ids> {
        match self.kind {
            NpyType::U32 => Ok(Ids::U32(self.column()?)),
            NpyType::U64 => Ok(Ids::U64(self.column()?)),
            NpyType::Tensor(DType::I32) => {
                self.signed(|id: &i32| u32::try_from(*id).ok()).map(|ids| Ids::U32(ids.into()))
            }
            NpyType::Tensor(DType::I64) => {
                self.signed(|id: &i64| u64::try_from(*id).ok()).map(|ids| Ids::U64(ids.into()))
            }
            _ => Err(self.not("uint32, uint64, int32 or int64")),
        }
    }

    /// One integer.
    pub(super) fn integer_at(&self, at: usize) -> Result<i128> {
        Ok(match self.kind {
            NpyType::U32 => self.column::<u32>()?[at].into(),
            NpyType::U64 => self.column::<u64>()?[at].into(),
            NpyType::Tensor(DType::I32) => self.column::<i32>()?[at].into(),
            NpyType::Tensor(DType::I64) => self.column::<i64>()?[at].into(),
            _ => return Err(self.not("an integer type")),
        })
    }

    /// A unified tensor over the mapped data.
    pub fn tensor(&self, affinity: Affinity) -> Result<Tensor> {
        let dtype = self.kind.dtype().map_err(|_| self.not("a type that tensors have"))?;
        Ok(Tensor::lay_over_bytes(Arc::new(self.data.clone()), dtype, &self.shape, affinity)?)
    }

    fn signed<T: NpyElement + std::fmt::Debug, U>(&self, widen: impl Fn(&T) -> Option<U>) -> Result<Vec<U>> {
        let column = self.column::<T>()?;
        let negative = |id: &T| Error::ArrayFile {
            path: self.path.clone(),
            what: "an id",
            found: format!("{id:?}"),
            expected: "none below 0".into(),
        };
        column.iter().map(|id| widen(id).ok_or_else(|| negative(id))).collect()
    }

    fn not(&self, expected: &str) -> Error {
        let found = self.kind.name().to_owned();
        Error::ArrayFile { path: self.path.clone(), what: "the element type", found, expected: expected.to_owned() }
    }
}

/// The length of a regular file. Opening a pipe would wait for somebody to write to it.
fn regular_bytes(path: &Path) -> Result<u64> {
    let found = std::fs::metadata(path).map_err(refused("read", path))?;
    if found.is_file() {
        return Ok(found.len());
    }
    let (found, expected) = ("something else".to_owned(), "a regular file".to_owned());
    Err(Error::ArrayFile { path: path.to_owned(), what: "the file", found, expected })
}
