//! From the numbers people use to rows.

use headwater_cuda::{Gpu, Span, Stream};
use headwater_memory::upload;
use headwater_tensor::gather::IdType;
use headwater_tensor::parallel::{self, PIECE};

use super::cuda::lookup;
use super::layout::index;
use crate::error::{Error, Result};

/// The row of every id, in 32 bits or 64. The largest number says that an id has no row; whoever asks for it gets an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum IdMap {
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl IdMap {
    /// As narrow as `rows` rows allow.
    #[must_use]
    pub fn of(row_of_id: &[u64], rows: u64) -> Self {
        if rows >= u64::from(u32::MAX) {
            return Self::U64(row_of_id.to_vec());
        }
        // What does not fit is no row either.
        Self::U32(parallel::map(row_of_id, |row| u32::try_from(*row).unwrap_or(u32::MAX)))
    }

    /// Ids that it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U32(rows) => rows.len(),
            Self::U64(rows) => rows.len(),
        }
    }

    /// Whether it knows none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row of an id.
    #[must_use]
    pub fn row(&self, id: u64) -> Option<u64> {
        match self {
            Self::U32(rows) => rows.get(index(id)).filter(|row| **row != u32::MAX).map(|row| u64::from(*row)),
            Self::U64(rows) => rows.get(index(id)).filter(|row| **row != u64::MAX).copied(),
        }
    }

    /// The rows of ids. An id without one is an error that names it.
    pub fn rows(&self, ids: &[u64]) -> Result<Vec<u64>> {
        let known = self.len() as u64;
        let rows = parallel::map(ids, |id| self.row(*id).unwrap_or(u64::MAX));
        match parallel::position(&rows, |row| *row == u64::MAX) {
            Some(at) => Err(Error::NoRow { id: ids[at], known }),
            None => Ok(rows),
        }
    }

    /// This map and then `next`, which leads to a table of `rows` rows.
    pub(super) fn then(&self, next: &Self, rows: u64) -> Self {
        let row = |id: usize| self.row(id as u64).and_then(|row| next.row(row)).unwrap_or(u64::MAX);
        let all: Vec<u64> = parallel::tabulate(self.len(), row);
        Self::of(&all, rows)
    }

    /// Refuses rows that a table of `rows` rows does not have.
    pub(crate) fn check(&self, rows: u64) -> Result<()> {
        let is_bad = |id: &usize| self.row(*id as u64).is_some_and(|row| row >= rows);
        match parallel::first(self.len(), PIECE, &|mut ids| ids.find(is_bad)) {
            Some(id) => Err(Error::MapRow { id: id as u64, row: self.row(id as u64).unwrap_or(u64::MAX), rows }),
            None => Ok(()),
        }
    }

    fn row_type(&self) -> IdType {
        match self {
            Self::U32(_) => IdType::U32,
            Self::U64(_) => IdType::U64,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::U32(rows) => bytemuck::cast_slice(rows),
            Self::U64(rows) => bytemuck::cast_slice(rows),
        }
    }
}

/// A map in the memory of a GPU.
#[derive(Debug)]
pub(super) struct DeviceMap {
    pub span: Span,
    pub row_type: IdType,
}

impl DeviceMap {
    pub fn new(gpu: &Gpu, map: &IdMap) -> Result<Self> {
        Ok(Self { span: upload(gpu, map.bytes())?, row_type: map.row_type() })
    }

    /// Queues `rows[i] = row of ids[i]`.
    pub fn look_up(&self, stream: &Stream, ids: (&Span, IdType), rows: &Span) -> Result<()> {
        lookup(stream, ids, (&self.span, self.row_type), rows)
    }
}
