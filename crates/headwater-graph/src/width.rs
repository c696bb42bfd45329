//! How wide an id is, as a value: kernels are compiled for either.

use headwater_cuda::Span;

use crate::column::Ids;
use crate::error::{Error, Result};

/// The width of ids, keys and offsets in GPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum IdWidth {
    U32,
    U64,
}

impl IdWidth {
    /// Both.
    pub const ALL: [Self; 2] = [Self::U32, Self::U64];

    /// The width of ids in host memory.
    #[must_use]
    pub fn of(ids: &Ids) -> Self {
        match ids {
            Ids::U32(_) => Self::U32,
            Ids::U64(_) => Self::U64,
        }
    }

    /// Bytes of one.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }

    /// Its name in kernel text.
    pub(crate) fn in_kernels(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// How many elements of this width a span holds. Kernels that take the width from a define rely on the alignment.
    pub(crate) fn elements(self, name: &'static str, span: &Span) -> Result<u64> {
        let (bytes, element_bytes) = (span.bytes(), self.bytes());
        if bytes.is_multiple_of(element_bytes) && span.pointer().is_multiple_of(element_bytes as u64) {
            return Ok((bytes / element_bytes) as u64);
        }
        let why = format!("address {:#x} or length is no multiple of the element", span.pointer());
        Err(Error::Bytes { name, bytes, element_bytes, why })
    }
}
