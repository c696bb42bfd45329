//! Immutable arrays that may lie anywhere in host memory: a vector, a mapped file, memory shared by others.
//!
//! Graphs are read far more often than they are made, and they are large. A column is a shared handle to bytes that
//! somebody owns, seen as elements; clones cost a counter, and a GPU can read the bytes where they are.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use headwater_memory::{Buffer, Foreign, Host};
use headwater_tensor::parallel;

use crate::error::{Error, Result};

/// Elements of one type in memory that something else may own. Clones share it.
#[derive(Debug, Clone)]
pub struct Column<T> {
    bytes: Foreign,
    of: PhantomData<T>,
}

impl<T: Pod + Send + Sync> Column<T> {
    /// Sees bytes as elements. Fails when the address is not aligned for them or the length is no multiple of theirs.
    pub fn over(bytes: Foreign, name: &'static str) -> Result<Self> {
        match bytemuck::try_cast_slice::<u8, T>(bytes.as_slice()) {
            Ok(_) => Ok(Self { bytes, of: PhantomData }),
            Err(why) => {
                let (length, size) = (bytes.as_slice().len(), size_of::<T>());
                Err(Error::Bytes { name, bytes: length, element_bytes: size, why: why.to_string() })
            }
        }
    }

    /// The elements.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // Checked when the column was made; the bytes have not moved since.
        bytemuck::cast_slice(self.bytes.as_slice())
    }

    /// A copy in ordinary memory of large pages. Scattered reads miss the translation caches far less there than in a
    /// mapped file, whose pages are small.
    pub fn in_memory(&self) -> Result<Self> {
        let mut copy = Buffer::<T, Host>::new(self.len())?;
        let (from, to) = (self.as_slice(), copy.as_mut_slice());
        parallel::for_parts(to, COPIED_TOGETHER, &|start, to| to.copy_from_slice(&from[start..start + to.len()]));
        Ok(Self { bytes: Foreign::new(Arc::new(LargePages(copy))), of: PhantomData })
    }

    /// The bytes with their owner, for registering them with a GPU.
    #[must_use]
    pub fn foreign(&self) -> &Foreign {
        &self.bytes
    }
}

impl<T: Pod + Send + Sync> Deref for Column<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Pod + Send + Sync> From<Vec<T>> for Column<T> {
    fn from(elements: Vec<T>) -> Self {
        Self { bytes: Foreign::new(Arc::new(Elements(elements))), of: PhantomData }
    }
}

/// Elements a thread copies at a time.
const COPIED_TOGETHER: usize = 1 << 20;

/// A buffer that lends its bytes.
struct LargePages<T: Pod>(Buffer<T, Host>);

impl<T: Pod> AsRef<[u8]> for LargePages<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self.0.as_slice())
    }
}

/// A vector that lends its bytes.
struct Elements<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Node or edge ids, as wide as they need to be.
#[derive(Debug, Clone)]
pub enum Ids {
    /// Every id is below 2^32.
    U32(Column<u32>),
    /// Some may not be.
    U64(Column<u64>),
}

impl Ids {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U32(ids) => ids.len(),
            Self::U64(ids) => ids.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id at a position. Panics past the end, as a slice does.
    #[must_use]
    pub fn at(&self, position: usize) -> u64 {
        match self {
            Self::U32(ids) => u64::from(ids[position]),
            Self::U64(ids) => ids[position],
        }
    }

    /// Bytes of one id.
    #[must_use]
    pub fn id_bytes(&self) -> usize {
        match self {
            Self::U32(_) => 4,
            Self::U64(_) => 8,
        }
    }

    /// As [`Column::in_memory`].
    pub fn in_memory(&self) -> Result<Self> {
        Ok(match self {
            Self::U32(ids) => Self::U32(ids.in_memory()?),
            Self::U64(ids) => Self::U64(ids.in_memory()?),
        })
    }

    /// The bytes with their owner.
    #[must_use]
    pub(crate) fn into_foreign(self) -> Foreign {
        match self {
            Self::U32(ids) => ids.bytes,
            Self::U64(ids) => ids.bytes,
        }
    }

    /// All of them, widened.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(|position| self.at(position))
    }
}

impl From<Vec<u32>> for Ids {
    fn from(ids: Vec<u32>) -> Self {
        Self::U32(ids.into())
    }
}

impl From<Vec<u64>> for Ids {
    fn from(ids: Vec<u64>) -> Self {
        Self::U64(ids.into())
    }
}

/// An id as kernels and samplers use it.
pub trait Id: Pod + Send + Sync + Ord + std::fmt::Debug + std::hash::Hash {
    /// Widened.
    fn wide(self) -> u64;
    /// Narrowed. The caller knows that it fits.
    fn narrow(wide: u64) -> Self;
}

impl Id for u32 {
    fn wide(self) -> u64 {
        u64::from(self)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the caller knows that it fits")]
    fn narrow(wide: u64) -> Self {
        wide as Self
    }
}

impl Id for u64 {
    fn wide(self) -> u64 {
        self
    }

    fn narrow(wide: u64) -> Self {
        wide
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_shares_its_vector_and_refuses_bytes_that_do_not_fit() {
        let vector = vec![1u32, 2, 3];
        let address = vector.as_ptr();
        let column = Column::from(vector);
        assert_eq!((column.clone().as_slice().as_ptr(), &column[..]), (address, &[1, 2, 3][..]));
        let copy = column.in_memory().unwrap();
        assert!(copy[..] == column[..] && copy.as_ptr() != address);
        assert!(Column::from(Vec::<u64>::new()).in_memory().unwrap().is_empty());
        let odd = Foreign::new(Arc::new(vec![0u8; 6]));
        assert!(matches!(Column::<u32>::over(odd, "indices"), Err(Error::Bytes { name: "indices", bytes: 6, .. })));
    }

    #[test]
    fn ids_widen() {
        assert_eq!(Ids::from(vec![7u32, 8]).iter().collect::<Vec<_>>(), [7, 8]);
        assert_eq!(Ids::from(vec![u64::MAX]).at(0), u64::MAX);
    }
}
