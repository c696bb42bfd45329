//! The edges of one relation while they are read: two columns of ids, as narrow as they can be, and what belongs to them.

use headwater_tensor::parallel::{self, PIECE};

use crate::build::Coo;
use crate::column::{Id, Ids};
use crate::topology::index;

/// Ids that arrive one after the other. They take four bytes each until one of them needs eight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrowingIds {
    /// All so far are below 2^32.
    U32(Vec<u32>),
    /// Some are not.
    U64(Vec<u64>),
}

impl Default for GrowingIds {
    fn default() -> Self {
        Self::U32(Vec::new())
    }
}

impl GrowingIds {
    /// One more.
    pub fn push(&mut self, id: u64) {
        match self {
            Self::U32(ids) => match u32::try_from(id) {
                Ok(id) => ids.push(id),
                Err(_) => {
                    self.widen();
                    self.push(id);
                }
            },
            Self::U64(ids) => ids.push(id),
        }
    }

    /// Many more.
    pub fn extend(&mut self, more: &[u64]) {
        let fit = more.iter().all(|id| u32::try_from(*id).is_ok());
        match self {
            Self::U32(ids) if fit => ids.extend(more.iter().map(|id| u32::narrow(*id))),
            Self::U32(_) => {
                self.widen();
                self.extend(more);
            }
            Self::U64(ids) => ids.extend(more),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(ids) => ids.len(),
            Self::U64(ids) => ids.len(),
        }
    }

    /// The largest.
    pub fn max(&self) -> Option<u64> {
        match self {
            Self::U32(ids) => max(ids),
            Self::U64(ids) => max(ids),
        }
    }

    /// Where the first id is that is not below a limit.
    pub fn first_from(&self, limit: u64) -> Option<(usize, u64)> {
        match self {
            Self::U32(ids) => parallel::position(ids, |id| u64::from(*id) >= limit).map(|at| (at, u64::from(ids[at]))),
            Self::U64(ids) => parallel::position(ids, |id| *id >= limit).map(|at| (at, ids[at])),
        }
    }

    /// Gives every id its new number. Each must be a position in `renumbered`.
    pub fn renumber(&mut self, renumbered: &[u32]) {
        match self {
            Self::U32(ids) => renumber(ids, renumbered),
            Self::U64(ids) => renumber(ids, renumbered),
        }
    }

    /// These, and then those of `other`.
    pub fn append(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::U32(ids), Self::U32(more)) => ids.extend_from_slice(more),
            (Self::U64(ids), Self::U64(more)) => ids.extend_from_slice(more),
            (Self::U64(ids), Self::U32(more)) => ids.extend(more.iter().map(|id| u64::from(*id))),
            (Self::U32(_), Self::U64(more)) => self.extend(more),
        }
    }

    fn widen(&mut self) {
        if let Self::U32(ids) = self {
            *self = Self::U64(ids.iter().map(|id| u64::from(*id)).collect());
        }
    }
}

fn max<T: Id>(ids: &[T]) -> Option<u64> {
    let blocks: Vec<&[T]> = ids.chunks(PIECE).collect();
    let largest = parallel::collect(blocks.len(), |at| blocks[at].iter().max().map(|id| id.wide()));
    largest.into_iter().flatten().max()
}

fn renumber<T: Id>(ids: &mut [T], renumbered: &[u32]) {
    parallel::for_parts(ids, PIECE, &|_, ids| {
        ids.iter_mut().for_each(|id| *id = T::narrow(renumbered[index(id.wide())].into()));
    });
}

impl From<GrowingIds> for Ids {
    fn from(ids: GrowingIds) -> Self {
        match ids {
            GrowingIds::U32(ids) => ids.into(),
            GrowingIds::U64(ids) => ids.into(),
        }
    }
}

/// The edges of one relation, in the order they were read.
#[derive(Debug, Clone, Default)]
pub struct EdgeList {
    /// Where they begin.
    pub sources: GrowingIds,
    /// Where they end.
    pub targets: GrowingIds,
    /// Their weights, when they have any.
    pub weights: Option<Vec<f32>>,
    /// Their times, when they have any.
    pub times: Option<Vec<i64>>,
}

impl EdgeList {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Bytes they take.
    pub fn bytes(&self) -> u64 {
        let ids = |ids: &GrowingIds| match ids {
            GrowingIds::U32(ids) => ids.len() as u64 * 4,
            GrowingIds::U64(ids) => ids.len() as u64 * 8,
        };
        let weights = self.weights.as_ref().map_or(0, |weights| weights.len() as u64 * 4);
        let times = self.times.as_ref().map_or(0, |times| times.len() as u64 * 8);
        ids(&self.sources) + ids(&self.targets) + weights + times
    }

    /// Adds the reverse of every edge after all of them, with the same weight and time.
    pub fn add_reverses(&mut self) {
        let sources = self.sources.clone();
        self.sources.append(&self.targets);
        self.targets.append(&sources);
        if let Some(weights) = &mut self.weights {
            weights.extend_from_within(..);
        }
        if let Some(times) = &mut self.times {
            times.extend_from_within(..);
        }
    }

    /// The same edges the other way round.
    pub fn reversed(&self) -> Self {
        Self {
            sources: self.targets.clone(),
            targets: self.sources.clone(),
            weights: self.weights.clone(),
            times: self.times.clone(),
        }
    }
}

impl From<&Coo> for EdgeList {
    fn from(coo: &Coo) -> Self {
        let ids = |ids: &Ids| match ids {
            Ids::U32(ids) => GrowingIds::U32(ids.to_vec()),
            Ids::U64(ids) => GrowingIds::U64(ids.to_vec()),
        };
        Self {
            sources: ids(&coo.sources),
            targets: ids(&coo.targets),
            weights: coo.weights.as_ref().map(|weights| weights.to_vec()),
            times: coo.times.as_ref().map(|times| times.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_widen_when_one_does_not_fit() {
        let mut ids = GrowingIds::default();
        ids.extend(&[1, 2]);
        ids.push(3);
        assert_eq!(ids, GrowingIds::U32(vec![1, 2, 3]));
        let narrow = ids.clone();
        ids.extend(&[1 << 32, 4]);
        assert_eq!((ids.len(), ids.max(), ids.first_from(3)), (5, Some(1 << 32), Some((2, 3))));
        ids.append(&narrow);
        assert_eq!(ids, GrowingIds::U64(vec![1, 2, 3, 1 << 32, 4, 1, 2, 3]));
        let mut other = narrow;
        other.renumber(&[9, 8, 7, 6]);
        assert_eq!(other, GrowingIds::U32(vec![8, 7, 6]));
    }

    #[test]
    fn reverses_come_after() {
        let mut edges = EdgeList { times: Some(vec![5, 6]), ..EdgeList::default() };
        edges.sources.extend(&[0, 1]);
        edges.targets.extend(&[2, 3]);
        assert_eq!(edges.reversed().sources, edges.targets);
        edges.add_reverses();
        assert_eq!(
            (edges.sources, edges.targets),
            (GrowingIds::U32(vec![0, 1, 2, 3]), GrowingIds::U32(vec![2, 3, 0, 1]))
        );
        assert_eq!(edges.times, Some(vec![5, 6, 5, 6]));
    }
}
