//! Whole-number ids made dense: the ids that occur, in ascending order, become 0, 1, 2 and so on.
//!
//! Ids that are dense already stay as they are, and the list of originals can be searched by halving. Ids below 2^32 are
//! marked in a bitmap and renumbered by counting marks, which needs no table of pairs; larger ones go through a table.

use std::sync::atomic::{AtomicU64, Ordering};

use headwater_tensor::parallel::{self, PIECE};

use super::edges::GrowingIds;
use super::idmap::{IdMap, Key};
use crate::error::Result;
use crate::topology::index;

/// Renumbers all ids of one node type, wherever they occur. Returns the originals, or how many there are when nothing had
/// to change.
pub fn compact(columns: &mut [&mut GrowingIds]) -> Result<Compacted> {
    let Some(max) = columns.iter().filter_map(|ids| ids.max()).max() else { return Ok(Compacted::AsTheyWere(0)) };
    if columns.iter().any(|ids| matches!(ids, GrowingIds::U64(_))) {
        return compact_wide(columns);
    }
    let marks = Marks::of(columns, max);
    if marks.count() == max + 1 {
        return Ok(Compacted::AsTheyWere(max + 1));
    }
    let ranks = marks.ranks();
    for ids in columns.iter_mut() {
        if let GrowingIds::U32(ids) = &mut **ids {
            parallel::for_parts(ids, PIECE, &|_, ids| ids.iter_mut().for_each(|id| *id = ranks.rank(*id)));
        }
    }
    Ok(Compacted::Originals(ranks.originals()))
}

/// What became of the ids of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compacted {
    /// They were 0 to this already.
    AsTheyWere(u64),
    /// The original of each, ascending.
    Originals(Vec<i64>),
}

/// Which ids occur.
struct Marks(Vec<AtomicU64>);

impl Marks {
    fn of(columns: &[&mut GrowingIds], max: u64) -> Self {
        let words = index(max / 64) + 1;
        let marks: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        for ids in columns {
            if let GrowingIds::U32(ids) = &**ids {
                let mark = |id: &u32| {
                    let (word, bit) = (&marks[*id as usize / 64], 1 << (id % 64));
                    // Most ids occur often; reading first keeps the line shared between cores.
                    if word.load(Ordering::Relaxed) & bit == 0 {
                        word.fetch_or(bit, Ordering::Relaxed);
                    }
                };
                parallel::for_ranges(ids.len(), PIECE, &|range| ids[range].iter().for_each(mark));
            }
        }
        Self(marks)
    }

    fn count(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        parallel::sum(self.0.len(), PIECE, &|range| self.0[range].iter().map(ones).sum())
    }

    fn ranks(self) -> Ranks {
        let marks: Vec<u64> = self.0.into_iter().map(AtomicU64::into_inner).collect();
        let mut sum = 0;
        let before = marks.iter().map(|word| {
            let before = sum;
            sum += word.count_ones();
            before
        });
        Ranks { before: before.collect(), marks }
    }
}

/// Marks with the number of marks before each word.
struct Ranks {
    marks: Vec<u64>,
    before: Vec<u32>,
}

impl Ranks {
    fn rank(&self, id: u32) -> u32 {
        let below = self.marks[id as usize / 64] & ((1 << (id % 64)) - 1);
        self.before[id as usize / 64] + below.count_ones()
    }

    fn originals(&self) -> Vec<i64> {
        let of_word = |(at, word): (i64, &u64)| {
            let word = *word;
            (0..64i64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        };
        (0..).zip(&self.marks).flat_map(of_word).collect()
    }
}

fn compact_wide(columns: &mut [&mut GrowingIds]) -> Result<Compacted> {
    let mut map = IdMap::default();
    for ids in columns.iter_mut() {
        let number = |id| map.insert(Key::Integer(id));
        let renumbered: Vec<u32> = match &**ids {
            GrowingIds::U32(ids) => ids.iter().map(|id| u64::from(*id)).map(number).collect::<Result<_>>()?,
            GrowingIds::U64(ids) => ids.iter().copied().map(number).collect::<Result<_>>()?,
        };
        **ids = GrowingIds::U32(renumbered);
    }
    let (originals, ranks) = map.into_sorted_integers();
    columns.iter_mut().for_each(|ids| ids.renumber(&ranks));
    Ok(Compacted::Originals(originals))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(values: &[u64]) -> GrowingIds {
        let mut ids = GrowingIds::default();
        ids.extend(values);
        ids
    }

    #[test]
    fn dense_ids_stay() {
        let (mut one, mut other) = (ids(&[2, 0]), ids(&[1, 1]));
        assert_eq!(compact(&mut [&mut one, &mut other]).unwrap(), Compacted::AsTheyWere(3));
        assert_eq!((one, other), (ids(&[2, 0]), ids(&[1, 1])));
        assert_eq!(compact(&mut [&mut ids(&[])]).unwrap(), Compacted::AsTheyWere(0));
    }

    proptest! {
        #[test]
        fn numbers_lead_back_to_originals(
            narrow in prop::collection::vec(0u64..1000, 1..200),
            wide in prop::collection::vec(any::<u64>().prop_map(|id| id >> 1), 0..3),
        ) {
            let all: Vec<u64> = narrow.iter().chain(&wide).copied().collect();
            let (mut one, mut other) = (ids(&narrow), ids(&all));
            match compact(&mut [&mut one, &mut other]).unwrap() {
                Compacted::AsTheyWere(_) => prop_assert_eq!((one, other), (ids(&narrow), ids(&all))),
                Compacted::Originals(originals) => {
                    prop_assert!(originals.is_sorted());
                    let GrowingIds::U32(numbers) = other else { panic!("few ids are narrow") };
                    let back: Vec<u64> =
                        numbers.iter().map(|number| u64::try_from(originals[*number as usize]).unwrap()).collect();
                    prop_assert_eq!(back, all);
                    let mut seen: Vec<u32> = numbers;
                    seen.sort_unstable();
                    seen.dedup();
                    prop_assert_eq!(seen.len(), originals.len());
                }
            }
        }
    }
}
