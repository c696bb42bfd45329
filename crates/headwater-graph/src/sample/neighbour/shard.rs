//! The nodes a sample has, divided by a hash of their keys so that several threads can number them.
//!
//! A shard meets its keys in the order of the sample, because each part of a hop hands over its own in order and parts
//! follow each other. So a shard knows which keys are new, and gives each a place, which is final. Which number a new
//! node has depends on the other shards; it is written down beside its place once all are through.

use crate::column::Id;
use crate::sample::index::{Entry, Index};

/// Shards a thread: enough that a thread which is held up leaves its share to others.
const SHARDS_PER_THREAD: usize = 4;
/// What fits in the byte that remembers an edge's shard.
const MOST_SHARDS: usize = 256;
/// Keys whose table slots are asked for ahead of their turn.
const AHEAD: usize = 16;

/// All nodes of one type.
#[derive(Debug)]
pub(super) struct Shards<E> {
    /// A power of two of them.
    pub(super) shards: Vec<Shard<E>>,
}

/// Some nodes of one type.
#[derive(Debug)]
pub(super) struct Shard<E> {
    places: Index<E>,
    /// The number of the node at each place; the last ones may not have theirs yet.
    pub(super) numbers: Vec<u32>,
    /// The keys of the nodes without numbers.
    pub(super) fresh: Vec<u64>,
}

/// Where a shard has a node, and whether it saw it for the first time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(pub(super) u64);

impl Place {
    fn new(index: u32, is_new: bool) -> Self {
        Self(u64::from(index) << 1 | u64::from(is_new))
    }

    pub(super) fn index(self) -> usize {
        crate::topology::index(self.0 >> 1)
    }

    pub(super) fn is_new(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Which shard a key is in. The table inside one uses the upper bits of the same product.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "there are no more shards than a byte can tell")]
pub(super) fn shard_of(key: u64, shards: usize) -> u8 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (shards as u64 - 1)) as u8
}

impl<E: Entry> Shards<E> {
    /// Forgets every node.
    pub(super) fn clear(&mut self, threads: usize) {
        let shards = threads.saturating_mul(SHARDS_PER_THREAD).min(MOST_SHARDS).next_power_of_two();
        self.shards.resize_with(shards, Shard::default);
        self.shards.iter_mut().for_each(Shard::clear);
    }

    /// Takes a seed in. One that is known keeps its number.
    pub(super) fn plant(&mut self, key: u64, number: u32) {
        let shards = self.shards.len();
        let shard = &mut self.shards[usize::from(shard_of(key, shards))];
        if shard.places.number(key, Id::narrow(shard.numbers.len() as u64)).1 {
            shard.numbers.push(number);
        }
    }
}

impl<E: Entry> Shard<E> {
    fn clear(&mut self) {
        self.places.clear();
        self.numbers.clear();
        self.fresh.clear();
    }

    /// Replaces every key by its [`Place`], and returns how many are new.
    pub(super) fn place(&mut self, keys: &mut [u64]) -> usize {
        let before = self.fresh.len();
        for at in 0..keys.len() {
            if let Some(&ahead) = keys.get(at + AHEAD) {
                self.places.prefetch(ahead);
            }
            let next = Id::narrow((self.numbers.len() + self.fresh.len()) as u64);
            let (place, is_new) = self.places.number(keys[at], next);
            if is_new {
                self.fresh.push(keys[at]);
            }
            keys[at] = Place::new(place, is_new).0;
        }
        self.fresh.len() - before
    }
}

impl<E: Entry> Default for Shards<E> {
    fn default() -> Self {
        Self { shards: Vec::new() }
    }
}

impl<E: Entry> Default for Shard<E> {
    fn default() -> Self {
        Self { places: Index::new(), numbers: Vec::new(), fresh: Vec::new() }
    }
}
