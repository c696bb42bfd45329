//! Where a graph's arrays shall lie, decided from numbers.
//!
//! The three storage modes are GraphLearn-for-PyTorch's. A graph that the GPU samples is best in the GPU's memory, next
//! best in pinned host memory that the GPU reads over the bus; the CPU samples one that is in neither.

use std::fmt;

use headwater_memory::Capacity;

/// Where a graph lies and who samples it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Ordinary host memory, sampled by the CPU.
    Cpu,
    /// Pinned host memory, sampled by the GPU.
    ZeroCopy,
    /// GPU memory, sampled by the GPU.
    Cuda,
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::ZeroCopy => "zero-copy",
            Self::Cuda => "cuda",
        })
    }
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wish {
    /// The fastest storage that has room.
    #[default]
    Auto,
    /// This one. `Cuda` is an error where it has no room; `ZeroCopy` steps down, and says so.
    In(Storage),
}

/// Part of the GPU's free memory that is left for batches and whatever else runs there: a quarter.
const SPARE_PART: usize = 4;

/// The storages to try, best first; the last one holds any graph or is what was insisted on.
#[must_use]
pub fn attempts(wish: Wish, graph_bytes: u64, capacity: &Capacity) -> Vec<Storage> {
    let room_bytes = capacity.device_bytes - capacity.device_bytes / SPARE_PART;
    let fits = (graph_bytes <= room_bytes as u64).then_some(Storage::Cuda);
    match wish {
        Wish::In(Storage::Cpu) => vec![Storage::Cpu],
        Wish::In(Storage::Cuda) => vec![Storage::Cuda],
        Wish::In(Storage::ZeroCopy) => {
            [Some(Storage::ZeroCopy), fits, Some(Storage::Cpu)].into_iter().flatten().collect()
        }
        Wish::Auto => [fits, Some(Storage::ZeroCopy), Some(Storage::Cpu)].into_iter().flatten().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_storage_comes_first_and_a_wish_is_kept() {
        use Storage::{Cpu, Cuda, ZeroCopy};
        let capacity = Capacity { host_bytes: 1000, lockable_bytes: None, device_bytes: 400 };
        let cases = [
            (Wish::Auto, 300, vec![Cuda, ZeroCopy, Cpu]),
            (Wish::Auto, 301, vec![ZeroCopy, Cpu]),
            (Wish::In(ZeroCopy), 300, vec![ZeroCopy, Cuda, Cpu]),
            (Wish::In(ZeroCopy), u64::MAX, vec![ZeroCopy, Cpu]),
            (Wish::In(Cuda), u64::MAX, vec![Cuda]),
            (Wish::In(Cpu), 0, vec![Cpu]),
        ];
        for (wish, bytes, want) in cases {
            assert_eq!(attempts(wish, bytes, &capacity), want, "{wish:?}, {bytes} bytes");
        }
    }
}
