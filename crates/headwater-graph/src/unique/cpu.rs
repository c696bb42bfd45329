//! The numbering as a loop: what the GPU must agree with.

use std::collections::HashMap;

use crate::column::Id;

/// The nodes of a batch so far.
#[derive(Debug, Clone)]
pub struct Unique<K> {
    numbers: HashMap<K, u32>,
    nodes: Vec<K>,
}

impl<K> Default for Unique<K> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), nodes: Vec::new() }
    }
}

impl<K: Id> Unique<K> {
    /// The local id of each key; new keys get the next ones.
    pub fn append(&mut self, keys: &[K]) -> Vec<u32> {
        let Self { numbers, nodes } = self;
        let number = |key: &K| {
            *numbers.entry(*key).or_insert_with(|| {
                nodes.push(*key);
                u32::narrow(nodes.len() as u64 - 1)
            })
        };
        keys.iter().map(number).collect()
    }

    /// All keys by local id.
    #[must_use]
    pub fn nodes(&self) -> &[K] {
        &self.nodes
    }
}
