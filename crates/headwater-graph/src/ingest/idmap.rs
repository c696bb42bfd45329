//! Ids of any kind to dense numbers.
//!
//! The table holds numbers only; keys lie in one array beside it. Blocks are looked up in parallel and what is new is
//! added afterwards, so the slow part grows with the nodes and not with the edges. At the end numbers are given anew in
//! the order of the keys: they then depend neither on the order of lines nor on the hash, which is seeded at random so
//! that no file can be made to collide.

use std::hash::BuildHasher;
use std::path::Path;

use hashbrown::{DefaultHashBuilder, HashTable};
use headwater_tensor::parallel;
use rayon::prelude::*;

use super::fault::Fault;
use super::text::Words;
use crate::error::Result;

/// A number that no id gets.
const NONE: u32 = u32::MAX;

/// An id as it stands in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    /// A whole number.
    Integer(u64),
    /// Any text.
    Word(&'a [u8]),
}

/// Ids with their numbers, in the order they were first met.
#[derive(Debug, Default)]
pub struct IdMap {
    table: HashTable<u32>,
    integers: Vec<u64>,
    words: Words,
    hash: DefaultHashBuilder,
}

impl IdMap {
    /// How many ids there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.integers.len() + self.words.len()
    }

    /// The number of an id that was met.
    #[must_use]
    pub fn find(&self, key: Key<'_>) -> Option<u32> {
        self.table.find(self.hash_of(key), |number| self.key(*number) == key).copied()
    }

    /// The number of an id, which may be new. All ids of a map are of one kind.
    pub fn insert(&mut self, key: Key<'_>) -> Result<u32> {
        if let Some(number) = self.find(key) {
            return Ok(number);
        }
        let number = u32::try_from(self.len()).ok().filter(|number| *number != NONE);
        let too_many = || Fault::TooMany { what: "ids that are no dense numbers", limit: NONE.into() };
        let number = number.ok_or_else(|| too_many().of(Path::new("ids")))?;
        match key {
            Key::Integer(integer) => self.integers.push(integer),
            Key::Word(word) => self.words.push(word),
        }
        let (hash, integers, words) = (&self.hash, &self.integers, &self.words);
        let rehash = |number: &u32| hash_key(hash, key_at(integers, words, *number));
        self.table.insert_unique(hash_key(hash, key), number, rehash);
        Ok(number)
    }

    /// The ids in ascending order, and the new number of each old one.
    #[must_use]
    pub fn into_sorted_integers(self) -> (Vec<i64>, Vec<u32>) {
        let order = order(self.integers.len(), &|one, other| self.integers[one].cmp(&self.integers[other]));
        let sorted = parallel::map(&order, |at| i64::try_from(self.integers[*at as usize]).unwrap_or(i64::MAX));
        (sorted, ranks(&order))
    }

    /// The ids in the order of their bytes, and the new number of each old one.
    #[must_use]
    pub fn into_sorted_words(self) -> (Words, Vec<u32>) {
        let order = order(self.words.len(), &|one, other| self.words.at(one).cmp(self.words.at(other)));
        let mut sorted = Words::default();
        order.iter().for_each(|at| sorted.push(self.words.at(*at as usize)));
        (sorted, ranks(&order))
    }

    fn hash_of(&self, key: Key<'_>) -> u64 {
        hash_key(&self.hash, key)
    }

    fn key(&self, number: u32) -> Key<'_> {
        key_at(&self.integers, &self.words, number)
    }
}

/// Numbers of many words, block by block. `map_of` says which map the word at a position of a block belongs to.
pub fn resolve(
    maps: &mut [IdMap],
    blocks: &[&Words],
    map_of: impl Fn(usize, usize) -> usize + Sync,
) -> Result<Vec<Vec<u32>>> {
    let shared = &*maps;
    let look_up = |block: usize| -> Vec<u32> {
        let words = blocks[block];
        let number = |at| shared[map_of(block, at)].find(Key::Word(words.at(at))).unwrap_or(NONE);
        (0..words.len()).map(number).collect()
    };
    let mut numbers: Vec<Vec<u32>> = parallel::collect(blocks.len(), look_up);
    for (block, (found, words)) in numbers.iter_mut().zip(blocks).enumerate() {
        for (at, number) in found.iter_mut().enumerate().filter(|(_, number)| **number == NONE) {
            *number = maps[map_of(block, at)].insert(Key::Word(words.at(at)))?;
        }
    }
    Ok(numbers)
}

fn hash_key(hash: &DefaultHashBuilder, key: Key<'_>) -> u64 {
    match key {
        Key::Integer(integer) => hash.hash_one(integer),
        Key::Word(word) => hash.hash_one(word),
    }
}

fn key_at<'a>(integers: &[u64], words: &'a Words, number: u32) -> Key<'a> {
    match integers.get(number as usize) {
        Some(integer) => Key::Integer(*integer),
        None => Key::Word(words.at(number as usize)),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a map has fewer than 2^32 ids")]
fn order(length: usize, compare: &(dyn Fn(usize, usize) -> std::cmp::Ordering + Sync)) -> Vec<u32> {
    let mut order: Vec<u32> = (0..length as u32).collect();
    order.par_sort_unstable_by(|one, other| compare(*one as usize, *other as usize));
    order
}

#[expect(clippy::cast_possible_truncation, reason = "a map has fewer than 2^32 ids")]
fn ranks(order: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; order.len()];
    for (rank, at) in order.iter().enumerate() {
        ranks[*at as usize] = rank as u32;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_numbered_in_the_order_of_their_bytes() {
        let mut words = Words::default();
        for word in ["pear", "", "apple", "pear", "ä"] {
            words.push(word.as_bytes());
        }
        let mut maps = [IdMap::default(), IdMap::default()];
        let numbers = resolve(&mut maps, &[&words, &words], |block, _| block).unwrap();
        assert_eq!(numbers, [[0, 1, 2, 0, 3], [0, 1, 2, 0, 3]]);
        let [map, _] = maps;
        let (sorted, ranks) = map.into_sorted_words();
        assert_eq!((0..4).map(|at| sorted.at(at)).collect::<Vec<_>>(), [&b""[..], b"apple", b"pear", "ä".as_bytes()]);
        assert_eq!(ranks, [2, 0, 1, 3]);
    }

    #[test]
    fn many_integers_keep_their_numbers() {
        let mut map = IdMap::default();
        for integer in (0..10_000u64).rev() {
            map.insert(Key::Integer(integer * 7)).unwrap();
        }
        assert_eq!((map.len(), map.find(Key::Integer(0)), map.find(Key::Integer(1))), (10_000, Some(9999), None));
        let (sorted, ranks) = map.into_sorted_integers();
        assert_eq!((sorted[1], ranks[0], ranks[9999]), (7, 9999, 0));
    }
}
