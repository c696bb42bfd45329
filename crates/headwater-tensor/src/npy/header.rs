//! The parser of `.npy` headers: a Python dictionary with three known keys, read without Python.
//!
//! A cursor over bytes and one function for each thing that may stand there. Anything else is an error with its place.

use super::{NpyError, NpyType};
use crate::dtype::DType;
use crate::layout::{Layout, MAX_DIMS, Shape};

/// The longest header that is read. NumPy's own is under 200 bytes for the types here.
pub const MAX_HEADER_BYTES: usize = 1 << 16;

/// What a `.npy` file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// The element type.
    pub kind: NpyType,
    /// The shape.
    pub shape: Shape,
    /// The order of the data.
    pub order: Order,
    /// Where the data begins in the file.
    pub data_offset: usize,
}

/// Which axis is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last axis is packed: row-major.
    C,
    /// The first axis is packed: column-major.
    Fortran,
}

impl NpyHeader {
    /// How the data is laid out, counted from `data_offset` in elements.
    pub fn layout(&self) -> crate::Result<Layout> {
        let mut reversed = self.shape.to_vec();
        if self.order == Order::C {
            return Layout::contiguous(&reversed);
        }
        reversed.reverse();
        let axes: Vec<usize> = (0..reversed.len()).rev().collect();
        Layout::contiguous(&reversed)?.permute(&axes)
    }

    /// Bytes of the data.
    pub fn data_bytes(&self) -> Result<u64, NpyError> {
        let too_large = || NpyError::Shape { dims: self.shape.to_vec() };
        let count = self.shape.count().map_err(|_| too_large())?;
        let bytes = count.checked_mul(self.kind.size_bytes()).ok_or_else(too_large)?;
        u64::try_from(bytes).map_err(|_| too_large())
    }

    /// Fails when a file of this many bytes is shorter or longer than header and data.
    pub fn check_length(&self, actual_bytes: u64) -> Result<(), NpyError> {
        let too_large = || NpyError::Shape { dims: self.shape.to_vec() };
        let expected_bytes = self.data_bytes()?.checked_add(self.data_offset as u64).ok_or_else(too_large)?;
        if expected_bytes == actual_bytes { Ok(()) } else { Err(NpyError::FileLength { expected_bytes, actual_bytes }) }
    }
}

/// Reads the header at the start of these bytes; more may follow.
pub fn parse_header(bytes: &[u8]) -> Result<NpyHeader, NpyError> {
    let length = length(bytes)?;
    let text = bytes
        .get(length.preamble..length.data_offset)
        .ok_or(NpyError::HeaderCut { expected: length.data_offset, found: bytes.len() })?;
    let mut cursor = Cursor { text, at: 0 };
    let entries = cursor.dictionary()?;
    let shape = entries.shape.ok_or(NpyError::MissingKey { key: "shape" })?;
    let header = NpyHeader {
        kind: entries.kind.ok_or(NpyError::MissingKey { key: "descr" })?,
        order: entries.order.ok_or(NpyError::MissingKey { key: "fortran_order" })?,
        shape,
        data_offset: length.data_offset,
    };
    header.data_bytes()?;
    Ok(header)
}

/// Where the header's text begins and where the data does.
pub(super) struct HeaderLength {
    preamble: usize,
    pub(super) data_offset: usize,
}

/// Reads magic, version and length.
pub(super) fn length(bytes: &[u8]) -> Result<HeaderLength, NpyError> {
    let cut = |expected| NpyError::HeaderCut { expected, found: bytes.len() };
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(NpyError::NotNpy);
    }
    let &[major, minor] = bytes.get(6..8).and_then(|v| v.first_chunk()).ok_or(cut(10))?;
    let (preamble, claimed) = match (major, minor) {
        (1, 0) => {
            let raw = bytes.get(8..10).and_then(|v| v.first_chunk()).ok_or(cut(10))?;
            (10, usize::from(u16::from_le_bytes(*raw)))
        }
        (2 | 3, 0) => {
            let raw = bytes.get(8..12).and_then(|v| v.first_chunk()).ok_or(cut(12))?;
            (12, usize::try_from(u32::from_le_bytes(*raw)).unwrap_or(usize::MAX))
        }
        _ => return Err(NpyError::Version { major, minor }),
    };
    if claimed > MAX_HEADER_BYTES {
        return Err(NpyError::HeaderTooLong { bytes: claimed });
    }
    Ok(HeaderLength { preamble, data_offset: preamble + claimed })
}

#[derive(Default)]
struct Entries {
    kind: Option<NpyType>,
    order: Option<Order>,
    shape: Option<Shape>,
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn dictionary(&mut self) -> Result<Entries, NpyError> {
        let mut entries = Entries::default();
        self.expect(b'{', "{")?;
        while !self.take(b'}') {
            let key_at = self.at;
            let key = self.string()?;
            self.expect(b':', ":")?;
            let fresh = match key {
                b"descr" => entries.kind.replace(self.kind()?).is_none(),
                b"fortran_order" => entries.order.replace(self.order()?).is_none(),
                b"shape" => entries.shape.replace(self.shape()?).is_none(),
                _ => false,
            };
            if !fresh {
                return Err(NpyError::Syntax { at: key_at, expected: "each of descr, fortran_order and shape once" });
            }
            if !self.take(b',') {
                self.expect(b'}', ", or }")?;
                break;
            }
        }
        self.skip_space();
        if self.at == self.text.len() { Ok(entries) } else { Err(self.wrong("nothing but spaces after }")) }
    }

    fn kind(&mut self) -> Result<NpyType, NpyError> {
        self.skip_space();
        if self.peek() == Some(b'[') {
            return Err(NpyError::UnknownType { descr: "a structured type".to_owned() });
        }
        element_type(self.string()?)
    }

    fn order(&mut self) -> Result<Order, NpyError> {
        self.skip_space();
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (word, order) in [(b"True".as_slice(), Order::Fortran), (b"False".as_slice(), Order::C)] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(order);
            }
        }
        Err(self.wrong("True or False"))
    }

    fn shape(&mut self) -> Result<Shape, NpyError> {
        let mut dims = Vec::new();
        self.expect(b'(', "(")?;
        while !self.take(b')') {
            if dims.len() == MAX_DIMS {
                return Err(NpyError::Shape { dims });
            }
            dims.push(self.number()?);
            if !self.take(b',') {
                // One number in parentheses is not a tuple.
                if dims.len() == 1 {
                    return Err(self.wrong(","));
                }
                self.expect(b')', ", or )")?;
                break;
            }
        }
        Shape::new(&dims).map_err(|_| NpyError::Shape { dims })
    }

    fn number(&mut self) -> Result<usize, NpyError> {
        self.skip_space();
        let start = self.at;
        let mut value = 0usize;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value
                .checked_mul(10)
                .and_then(|v| v.checked_add(usize::from(digit - b'0')))
                .ok_or(NpyError::Syntax { at: start, expected: "a number this machine can address" })?;
            self.at += 1;
        }
        if self.at == start {
            return Err(self.wrong("a number"));
        }
        // Python 2 wrote long integers with an L.
        if self.peek() == Some(b'L') {
            self.at += 1;
        }
        Ok(value)
    }

    fn string(&mut self) -> Result<&'a [u8], NpyError> {
        self.skip_space();
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.wrong("a quoted string")),
        };
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let length = rest.iter().position(|&b| b == quote).ok_or_else(|| self.wrong("a closing quote"))?;
        self.at += length + 2;
        Ok(&rest[..length])
    }

    fn expect(&mut self, byte: u8, name: &'static str) -> Result<(), NpyError> {
        if self.take(byte) { Ok(()) } else { Err(self.wrong(name)) }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn wrong(&self, expected: &'static str) -> NpyError {
        NpyError::Syntax { at: self.at, expected }
    }
}

fn element_type(descr: &[u8]) -> Result<NpyType, NpyError> {
    // Only the start is kept for the message: the text is somebody else's.
    let shown = || String::from_utf8_lossy(&descr[..descr.len().min(24)]).into_owned();
    let kind = match descr {
        b"<i2" => NpyType::I16,
        b"<u2" => NpyType::U16,
        b"<u4" => NpyType::U32,
        b"<u8" => NpyType::U64,
        b"|V2" => NpyType::Tensor(DType::BF16),
        b"<i1" => NpyType::Tensor(DType::I8),
        b"<u1" => NpyType::Tensor(DType::U8),
        b"<b1" | b"?" => NpyType::Tensor(DType::Bool),
        [b'O', ..] | [_, b'O', ..] => return Err(NpyError::Objects { descr: shown() }),
        [b'>', ..] => return Err(NpyError::BigEndian { descr: shown() }),
        _ => DType::ALL
            .into_iter()
            .find(|dtype| dtype.numpy_descr().as_bytes() == descr)
            .map(NpyType::Tensor)
            .ok_or_else(|| NpyError::UnknownType { descr: shown() })?,
    };
    Ok(kind)
}
