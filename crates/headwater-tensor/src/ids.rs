//! Row numbers in the types that people store them in.

use crate::error::{Error, Result};

/// The type of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum IdType {
    U32,
    U64,
    I32,
    I64,
}

impl IdType {
    /// Bytes of one id.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        match self {
            Self::U32 | Self::I32 => 4,
            Self::U64 | Self::I64 => 8,
        }
    }

    /// Its name in kernel text.
    pub fn in_kernels(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }
}

/// Ids where the CPU can read them.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub enum IdSlice<'a> {
    U32(&'a [u32]),
    U64(&'a [u64]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

impl IdSlice<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U32(ids) => ids.len(),
            Self::U64(ids) => ids.len(),
            Self::I32(ids) => ids.len(),
            Self::I64(ids) => ids.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The i-th id as a row number; negative ids become larger than any table.
    pub(crate) fn row(&self, i: usize) -> Option<u64> {
        match self {
            Self::U32(ids) => ids.get(i).map(|id| u64::from(*id)),
            Self::U64(ids) => ids.get(i).copied(),
            Self::I32(ids) => ids.get(i).map(|id| i64::from(*id).cast_unsigned()),
            Self::I64(ids) => ids.get(i).map(|id| id.cast_unsigned()),
        }
    }

    /// The ids as row numbers of a target with `rows` rows, or the first that is not one.
    pub fn checked(&self, rows: usize) -> Result<Vec<usize>> {
        let row = |i| self.row(i).and_then(|row| usize::try_from(row).ok()).filter(|row| *row < rows);
        let bad = |i| Error::BadId { position: i, id: self.as_written(i), rows };
        (0..self.len()).map(|i| row(i).ok_or_else(|| bad(i))).collect()
    }

    /// The i-th id as the user wrote it.
    pub(crate) fn as_written(&self, i: usize) -> i128 {
        match self {
            Self::U32(ids) => ids.get(i).map_or(-1, |id| i128::from(*id)),
            Self::U64(ids) => ids.get(i).map_or(-1, |id| i128::from(*id)),
            Self::I32(ids) => ids.get(i).map_or(-1, |id| i128::from(*id)),
            Self::I64(ids) => ids.get(i).map_or(-1, |id| i128::from(*id)),
        }
    }
}

impl<'a> IdSlice<'a> {
    /// Up to `count` ids from `from` on.
    pub(crate) fn part(&self, from: usize, count: usize) -> Self {
        fn cut<T>(ids: &[T], from: usize, count: usize) -> &[T] {
            let from = from.min(ids.len());
            &ids[from..ids.len().min(from.saturating_add(count))]
        }
        match *self {
            Self::U32(ids) => Self::U32(cut::<u32>(ids, from, count)),
            Self::U64(ids) => Self::U64(cut::<u64>(ids, from, count)),
            Self::I32(ids) => Self::I32(cut::<i32>(ids, from, count)),
            Self::I64(ids) => Self::I64(cut::<i64>(ids, from, count)),
        }
    }
}
