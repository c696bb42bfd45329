//! Checksums of files, computed in pieces by many threads: BLAKE3, the same value that `b3sum` prints.
//!
//! BLAKE3 is a tree over the file. A block whose length is a power of two is a whole subtree, so blocks are hashed in any
//! order, by whoever has their bytes in cache anyway, and joined at the end. The value does not depend on the block size.

use std::fmt;
use std::str::FromStr;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use serde::{Deserialize, Serialize};

/// The checksum of a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum(blake3::Hash);

/// What one block contributes to the file's checksum.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockSum {
    /// As a subtree of a larger file.
    inner: ChainingValue,
    /// As a file of its own. Only that of the first block is ever asked for.
    alone: blake3::Hash,
}

/// The block that begins at `offset_bytes` of the file, a multiple of its length, which is a power of two from 1 KiB on;
/// only the last block may be shorter. `parts` together are its bytes.
pub(super) fn block_sum(offset_bytes: u64, parts: &[&[u8]]) -> BlockSum {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(offset_bytes);
    for part in parts {
        hasher.update(part);
    }
    let alone = if offset_bytes == 0 { hasher.finalize() } else { blake3::Hash::from_bytes([0; 32]) };
    BlockSum { inner: hasher.finalize_non_root(), alone }
}

/// Joins the blocks of a file, in their order.
pub(super) fn join(blocks: &[BlockSum]) -> Checksum {
    match blocks {
        [] => Checksum(blake3::hash(&[])),
        [only] => Checksum(only.alone),
        _ => {
            let (left, right) = blocks.split_at(left_blocks(blocks.len()));
            Checksum(merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash))
        }
    }
}

fn subtree(blocks: &[BlockSum]) -> ChainingValue {
    match blocks {
        [only] => only.inner,
        _ => {
            let (left, right) = blocks.split_at(left_blocks(blocks.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// The largest power of two below `blocks`, which is at least two: the tree is complete on its left side.
fn left_blocks(blocks: usize) -> usize {
    blocks.next_power_of_two() / 2
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_hex().fmt(f)
    }
}

impl FromStr for Checksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hash = blake3::Hash::from_hex(text).map_err(|_| format!("{text:?} is no checksum of 64 hex digits"))?;
        Ok(Self(hash))
    }
}

impl TryFrom<String> for Checksum {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0u64..70_000).map(|i| u8::try_from(i * i % 251).unwrap()).collect();
        for length in [0, 1, 1023, 1024, 1025, 2048, 4096, 5000, 8192, 12_288, 12_289, 70_000] {
            for block_bytes in [1024, 4096, 1 << 20] {
                let sums: Vec<BlockSum> = bytes[..length]
                    .chunks(block_bytes)
                    .enumerate()
                    .map(|(at, block)| block_sum((at * block_bytes) as u64, &[&block[..1], &block[1..]]))
                    .collect();
                assert_eq!(join(&sums).0, blake3::hash(&bytes[..length]), "{length} bytes in blocks of {block_bytes}");
            }
        }
    }

    #[test]
    fn text_reads_back() {
        let sum = join(&[]);
        assert_eq!(sum.to_string().parse(), Ok(sum));
        assert_eq!(&sum.to_string()[..8], "af1349b9");
        assert!("af13".parse::<Checksum>().is_err() && "é".repeat(32).parse::<Checksum>().is_err());
    }
}
