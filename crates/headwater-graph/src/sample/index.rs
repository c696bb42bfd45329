//! Which nodes a sample has already, and under which number.
//!
//! An open-addressed table of packed entries that grows with the sample, not with the graph: a batch touches a few hundred
//! thousand nodes of a billion, and a table of that size stays in the caches.

use headwater_memory::prefetch_element;

/// A key and the number it stands for, in one word.
pub trait Entry: Copy + PartialEq + Send + Sync {
    /// No entry.
    const EMPTY: Self;
    /// The largest key that can be packed.
    const MOST: u64;
    /// Packs.
    fn new(key: u64, number: u32) -> Self;
    /// The key.
    fn key(self) -> u64;
    /// The number.
    fn number(self) -> u32;
}

impl Entry for u64 {
    const EMPTY: Self = Self::MAX;
    const MOST: u64 = (1 << 32) - 2;

    fn new(key: u64, number: u32) -> Self {
        key << 32 | Self::from(number)
    }

    fn key(self) -> u64 {
        self >> 32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the number")]
    fn number(self) -> u32 {
        self as u32
    }
}

impl Entry for u128 {
    const EMPTY: Self = Self::MAX;
    const MOST: u64 = u64::MAX - 1;

    fn new(key: u64, number: u32) -> Self {
        Self::from(key) << 64 | Self::from(number)
    }

    fn key(self) -> u64 {
        (self >> 64) as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the number")]
    fn number(self) -> u32 {
        self as u32
    }
}

/// A map from keys to consecutive numbers.
#[derive(Debug)]
pub struct Index<E> {
    slots: Vec<E>,
    used: usize,
    /// Hashes are 64 bits; this many of the lower ones are dropped.
    shift: u32,
}

const LEAST_SLOTS: usize = 1 << 10;

impl<E: Entry> Index<E> {
    /// Empty, with room for a small batch.
    #[must_use]
    pub fn new() -> Self {
        Self { slots: vec![E::EMPTY; LEAST_SLOTS], used: 0, shift: u64::BITS - LEAST_SLOTS.trailing_zeros() }
    }

    /// Forgets every key. A table that is far larger than its last use shrinks, so that clearing costs what the batch did.
    pub fn clear(&mut self) {
        let fitting = (self.used * 4).next_power_of_two().max(LEAST_SLOTS);
        if fitting < self.slots.len() {
            self.resize(fitting);
        } else {
            self.slots.fill(E::EMPTY);
        }
        self.used = 0;
    }

    /// The number of a key: the one it has, or `next`, which it then has. True when it is new.
    #[inline]
    pub fn number(&mut self, key: u64, next: u32) -> (u32, bool) {
        let mask = self.slots.len() - 1;
        let mut slot = self.slot(key);
        loop {
            let entry = self.slots[slot];
            if entry == E::EMPTY {
                break;
            }
            if entry.key() == key {
                return (entry.number(), false);
            }
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = E::new(key, next);
        self.used += 1;
        if self.used * 2 > self.slots.len() {
            self.grow();
        }
        (next, true)
    }

    /// The number of a key that has one.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = self.slot(key);
        while self.slots[slot] != E::EMPTY {
            if self.slots[slot].key() == key {
                return Some(self.slots[slot].number());
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// Asks for the memory that `number` will look at.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        prefetch_element(&self.slots, self.slot(key));
    }

    #[inline]
    fn slot(&self, key: u64) -> usize {
        crate::topology::index(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift)
    }

    #[cold]
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.resize(old.len() * 2);
        let mask = self.slots.len() - 1;
        for entry in old.into_iter().filter(|entry| *entry != E::EMPTY) {
            let mut slot = self.slot(entry.key());
            while self.slots[slot] != E::EMPTY {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = entry;
        }
    }

    fn resize(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, E::EMPTY);
        self.shift = u64::BITS - slots.trailing_zeros();
    }
}

impl<E: Entry> Default for Index<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    fn numbers_by_first_sight<E: Entry>(keys: impl Iterator<Item = u64> + Clone) {
        let mut index = Index::<E>::new();
        let mut known = std::collections::HashMap::new();
        for _ in 0..3 {
            index.clear();
            known.clear();
            for key in keys.clone() {
                let next = u32::try_from(known.len()).unwrap();
                let expected = *known.entry(key).or_insert(next);
                assert_eq!(index.number(key, next), (expected, expected == next));
                assert_eq!(index.get(key), Some(expected));
            }
            assert_eq!(index.get(E::MOST), None);
        }
    }

    #[test]
    fn keys_keep_their_numbers() {
        numbers_by_first_sight::<u64>((0..20_000).map(|i| mix(i) % 9000));
        numbers_by_first_sight::<u64>((0..3000).map(|i| i * 4096 % (1 << 31)));
        numbers_by_first_sight::<u128>((0..20_000).map(|i| mix(i % 7000) & !(1 << 63)));
        numbers_by_first_sight::<u64>(std::iter::repeat_n(5, 10));
    }

    #[test]
    fn clearing_shrinks_after_a_large_batch() {
        let mut index = Index::<u64>::new();
        for key in 0..100_000 {
            index.number(key, 0);
        }
        index.clear();
        let large = index.slots.len();
        index.number(1, 0);
        index.clear();
        assert!(index.slots.len() < large && index.get(1).is_none());
    }
}
