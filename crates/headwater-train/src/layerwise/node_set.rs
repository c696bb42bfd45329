//! Sets of nodes of all types, a bit a node.
//!
//! Threads add to a set at the same time: which nodes are in it does not depend on who came first. A set that is finished
//! knows how many of its nodes come before one, which is how nodes of a block get their numbers without a table of all nodes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Nodes of each type.
#[derive(Debug)]
pub(super) struct NodeSet {
    words: Vec<Vec<AtomicU64>>,
}

/// A set that does not grow any more.
#[derive(Debug)]
pub(super) struct Ranked {
    words: Vec<Vec<u64>>,
    /// Nodes before each word.
    before: Vec<Vec<u32>>,
}

impl NodeSet {
    /// None, of so many nodes a type.
    pub fn empty(counts: &[u64]) -> Self {
        let words = |count: &u64| (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words: counts.iter().map(words).collect() }
    }

    /// All of so many nodes a type.
    pub fn full(counts: &[u64]) -> Self {
        let word = |count: u64, at: u64| u64::MAX >> (64 - (count - 64 * at).min(64));
        let words = |count: &u64| (0..count.div_ceil(64)).map(|at| AtomicU64::new(word(*count, at))).collect();
        Self { words: counts.iter().map(words).collect() }
    }

    /// These nodes of each type.
    pub fn of(counts: &[u64], nodes: &[Vec<u64>]) -> Self {
        let set = Self::empty(counts);
        for (of_type, nodes) in nodes.iter().enumerate() {
            nodes.iter().for_each(|node| _ = set.insert(of_type, *node));
        }
        set
    }

    /// Adds a node. Whether it was not there.
    pub fn insert(&self, of_type: usize, node: u64) -> bool {
        let (word, bit) = (&self.words[of_type][place(node)], 1 << (node % 64));
        // Most nodes are seen many times, and a look costs less than a change.
        word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.words.iter().flatten().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }

    /// Nodes of a type, ascending.
    pub fn ids(&self, of_type: usize) -> impl Iterator<Item = u64> + '_ {
        let words = self.words[of_type].iter().map(|word| word.load(Relaxed));
        words.enumerate().flat_map(|(at, word)| bits(word).map(move |bit| 64 * at as u64 + bit))
    }

    /// All nodes, type after type.
    pub fn all(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (0..self.words.len()).flat_map(|of_type| self.ids(of_type).map(move |node| (of_type, node)))
    }

    /// The same nodes without these.
    pub fn without(self, other: &Ranked) -> Self {
        for (own, other) in self.words.iter().flatten().zip(other.words.iter().flatten()) {
            own.fetch_and(!other, Relaxed);
        }
        self
    }

    /// A copy that grows by itself.
    pub fn copied(&self) -> Self {
        let copy = |words: &Vec<AtomicU64>| words.iter().map(|word| AtomicU64::new(word.load(Relaxed))).collect();
        Self { words: self.words.iter().map(copy).collect() }
    }

    /// As it is now.
    pub fn ranked(self) -> Ranked {
        let words: Vec<Vec<u64>> =
            self.words.into_iter().map(|words| words.into_iter().map(AtomicU64::into_inner).collect()).collect();
        let before = |words: &Vec<u64>| {
            let sums = words.iter().scan(0, |sum, word| Some(std::mem::replace(sum, *sum + word.count_ones())));
            sums.collect()
        };
        Ranked { before: words.iter().map(before).collect(), words }
    }
}

impl Ranked {
    /// How many nodes of its type come before a node, when it is there.
    pub fn rank(&self, of_type: usize, node: u64) -> Option<u32> {
        let (word, bit) = (self.words[of_type][place(node)], 1u64 << (node % 64));
        let before = || self.before[of_type][place(node)] + (word & (bit - 1)).count_ones();
        (word & bit != 0).then(before)
    }
}

/// The word of a node.
fn place(node: u64) -> usize {
    usize::try_from(node / 64).unwrap_or(usize::MAX)
}

/// The bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = u64::from(word.trailing_zeros());
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_listed_and_ranked() {
        let counts = [130, 0, 64];
        let nodes = [vec![129, 0, 63, 64], vec![], vec![63, 5]];
        let set = NodeSet::of(&counts, &nodes);
        assert!(!set.insert(0, 63) && set.insert(0, 1));
        assert_eq!(set.all().collect::<Vec<_>>(), [(0, 0), (0, 1), (0, 63), (0, 64), (0, 129), (2, 5), (2, 63)]);
        let rest = set.copied().without(&NodeSet::of(&counts, &nodes).ranked());
        assert_eq!(rest.all().collect::<Vec<_>>(), [(0, 1)]);
        assert_eq!([65, 0, 64, 1].map(|count| NodeSet::full(&[count]).ids(0).count()), [65, 0, 64, 1]);
        let ranked = set.ranked();
        let ranks = [(0, 0), (0, 1), (0, 2), (0, 129), (2, 63)].map(|(of_type, node)| ranked.rank(of_type, node));
        assert_eq!(ranks, [Some(0), Some(1), None, Some(4), Some(1)]);
    }
}
