//! NumPy's `.npy` files: opening, checking and writing them.
//!
//! Written by hand because the readers on offer either allocate what the header asks for or read through a typed
//! iterator, while the callers here want a file and an offset to map or to read from directly. The header is untrusted
//! text: its length is bounded, every number is checked, and nothing is allocated from it but the shape. Pickled objects
//! are refused. `header.rs` is the parser.
//!
//! NumPy has no bfloat16. Saving an `ml_dtypes.bfloat16` array writes `<V2`, so that is what is written here, and both
//! `<V2` and `|V2` are read as bfloat16.

mod header;
mod tensor;

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

pub use header::{MAX_HEADER_BYTES, NpyHeader, Order, parse_header};

use crate::dtype::DType;
use crate::error::Error;
use crate::layout::Shape;

/// An open `.npy` file whose length agrees with its header.
#[derive(Debug)]
pub struct NpyFile {
    /// The file, positioned anywhere.
    pub file: File,
    /// What it holds and where the data begins.
    pub header: NpyHeader,
}

impl NpyFile {
    /// Opens a file, reads its header and checks that the data is all there and nothing else is.
    pub fn open(path: &Path) -> Result<NpyFile, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let npy = |source| Error::NpyFile { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let actual_bytes = file.metadata().map_err(io)?.len();
        let start = read_start(&mut file).map_err(io)?;
        let header = parse_header(&start).map_err(npy)?;
        header.check_length(actual_bytes).map_err(npy)?;
        Ok(NpyFile { file, header })
    }
}

/// The bytes that precede the data of an array in row-major order. Their number is a multiple of 64, so mapped data is
/// aligned for every element type.
pub fn header_bytes(kind: NpyType, shape: &[usize]) -> Vec<u8> {
    header_bytes_aligned(kind, shape, 64)
}

/// As [`header_bytes`], but a multiple of another power of two, such as a page, so that the data can be read past the
/// page cache, and a header of another shape fits into the same room.
pub fn header_bytes_aligned(kind: NpyType, shape: &[usize], alignment_bytes: usize) -> Vec<u8> {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let text =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}", kind.descr(), dims.join(", "));
    // Version 1.0 has a 16-bit length; only a rank no array here has would need the 32 bits of version 2.0.
    let padded = |preamble: usize| (preamble + text.len() + 1).next_multiple_of(alignment_bytes) - preamble;
    let mut bytes = b"\x93NUMPY".to_vec();
    match u16::try_from(padded(10)) {
        Ok(length) => {
            bytes.extend([1, 0]);
            bytes.extend(length.to_le_bytes());
        }
        Err(_) => {
            bytes.extend([2, 0]);
            bytes.extend(u32::try_from(padded(12)).unwrap_or(u32::MAX).to_le_bytes());
        }
    }
    let total = bytes.len() + padded(bytes.len());
    bytes.extend(text.as_bytes());
    bytes.resize(total - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// Writes a whole array in row-major order.
pub fn write_array(mut to: impl Write, kind: NpyType, shape: &[usize], data: &[u8]) -> Result<(), Error> {
    let bytes = Shape::new(shape)?.count()?.checked_mul(kind.size_bytes());
    let expected = bytes.ok_or_else(|| Error::TooLarge { dims: shape.to_vec() })?;
    if expected != data.len() {
        return Err(Error::Length { what: "bytes", expected, found: data.len() });
    }
    to.write_all(&header_bytes(kind, shape)).and_then(|()| to.write_all(data)).map_err(|source| Error::Write { source })
}

/// An element type a `.npy` file may have: the tensors' types, and the index types that graphs are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NpyType {
    /// A type that tensors have.
    Tensor(DType),
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
}

impl NpyType {
    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            NpyType::Tensor(dtype) => dtype.size_bytes(),
            NpyType::I16 | NpyType::U16 => 2,
            NpyType::U32 => 4,
            NpyType::U64 => 8,
        }
    }

    /// NumPy's name in the header.
    pub const fn descr(self) -> &'static str {
        match self {
            NpyType::Tensor(dtype) => dtype.numpy_descr(),
            NpyType::I16 => "<i2",
            NpyType::U16 => "<u2",
            NpyType::U32 => "<u4",
            NpyType::U64 => "<u8",
        }
    }

    /// NumPy's name in a program: `float32`, `uint64`.
    pub const fn name(self) -> &'static str {
        match self {
            NpyType::Tensor(dtype) => dtype.name(),
            NpyType::I16 => "int16",
            NpyType::U16 => "uint16",
            NpyType::U32 => "uint32",
            NpyType::U64 => "uint64",
        }
    }

    /// The tensor type, or an error for the types that only indices have.
    pub fn dtype(self) -> Result<DType, NpyError> {
        match self {
            NpyType::Tensor(dtype) => Ok(dtype),
            other => Err(NpyError::NotATensorType { descr: other.descr() }),
        }
    }
}

impl From<DType> for NpyType {
    fn from(dtype: DType) -> NpyType {
        NpyType::Tensor(dtype)
    }
}

/// A Rust type that `.npy` files hold.
pub trait NpyElement: bytemuck::Pod + Send + Sync {
    /// Its name at run time.
    const KIND: NpyType;
}

macro_rules! npy_elements {
    ($($type:ty => $kind:expr),*) => {
        $(impl NpyElement for $type { const KIND: NpyType = $kind; })*
    };
}
npy_elements!(
    f32 => NpyType::Tensor(DType::F32), f64 => NpyType::Tensor(DType::F64),
    half::f16 => NpyType::Tensor(DType::F16), half::bf16 => NpyType::Tensor(DType::BF16),
    i8 => NpyType::Tensor(DType::I8), u8 => NpyType::Tensor(DType::U8), i16 => NpyType::I16, u16 => NpyType::U16,
    i32 => NpyType::Tensor(DType::I32), u32 => NpyType::U32, i64 => NpyType::Tensor(DType::I64), u64 => NpyType::U64
);

/// What is wrong with a `.npy` header or with the length of its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The first six bytes are not NumPy's.
    #[error("not a .npy file: it does not begin with \\x93NUMPY")]
    NotNpy,
    /// A version this reader does not know.
    #[error(".npy version {major}.{minor} is not one of 1.0, 2.0 and 3.0")]
    Version {
        /// First version byte.
        major: u8,
        /// Second version byte.
        minor: u8,
    },
    /// A header longer than any honest one.
    #[error("the header claims {bytes} bytes; the limit is {MAX_HEADER_BYTES}")]
    HeaderTooLong {
        /// Bytes claimed.
        bytes: usize,
    },
    /// The file ends inside the header.
    #[error("the header needs {expected} bytes and the file has {found}")]
    HeaderCut {
        /// Bytes needed up to the data.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// The header is not the dictionary it should be.
    #[error("header byte {at}: expected {expected}")]
    Syntax {
        /// Where in the header's text.
        at: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// One of the three keys is missing.
    #[error("the header has no {key:?}")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// Pickled Python objects, which only Python can read and nobody should.
    #[error("the file holds pickled Python objects (descr {descr:?}), which are never read; save a numeric array")]
    Objects {
        /// The type in the header.
        descr: String,
    },
    /// Data in the other byte order.
    #[error("big-endian data (descr {descr:?}) is not read; save it as little-endian")]
    BigEndian {
        /// The type in the header.
        descr: String,
    },
    /// A type there is no use for here.
    #[error("element type {descr:?} is not supported")]
    UnknownType {
        /// The type in the header.
        descr: String,
    },
    /// An index type where a tensor was wanted.
    #[error("element type {descr:?} is for indices; tensors do not have it")]
    NotATensorType {
        /// The type in the header.
        descr: &'static str,
    },
    /// A shape that cannot be an array's.
    #[error("shape {dims:?} has too many dimensions or elements")]
    Shape {
        /// The dimensions read so far.
        dims: Vec<usize>,
    },
    /// A file that is shorter or longer than its header says.
    #[error("the file should have {expected_bytes} bytes and has {actual_bytes}")]
    FileLength {
        /// Header and data.
        expected_bytes: u64,
        /// What there is.
        actual_bytes: u64,
    },
}

/// The header, or as much as a file of this kind may have: never more than the bound.
fn read_start(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take(12).read_to_end(&mut start)?;
    let wanted = header::length(&start).map_or(0, |length| length.data_offset.saturating_sub(start.len()));
    if wanted <= MAX_HEADER_BYTES {
        file.take(wanted as u64).read_to_end(&mut start)?;
    }
    Ok(start)
}

#[cfg(test)]
mod tests;
