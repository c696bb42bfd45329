//! Which temporary buffers share memory: two whose lives do not meet.
//!
//! How large a buffer is, is known when a program runs; that two of one domain and shape are as large as each other is known
//! before. So memory goes to a buffer of the same kind first, and to any other only then.

use crate::intra::{Program, Role};

/// The memory of each temporary buffer, by number; `None` for what the caller has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// One a buffer.
    pub of: Vec<Option<usize>>,
    /// How many there are.
    pub count: usize,
    /// The kernel after which each buffer is not read any more.
    pub last_read: Vec<usize>,
}

/// Gives temporary buffers their memory.
#[must_use]
pub fn share(program: &Program) -> Slots {
    let last_read = last_reads(program);
    let mut found = Slots { of: vec![None; program.buffers.len()], count: 0, last_read };
    // Free memory, with the buffer it was last used for.
    let mut free: Vec<(usize, usize)> = Vec::new();
    for (at, kernel) in program.kernels.iter().enumerate() {
        for id in kernel.writes().into_iter().filter(|id| program[*id].role == Role::Temporary) {
            let kind = |buffer: usize| (program.buffers[buffer].domain, program.buffers[buffer].shape.len());
            let same = free.iter().position(|(_, last)| kind(*last) == kind(id.at()));
            let slot = same.or((!free.is_empty()).then_some(0)).map(|place| free.remove(place).0);
            found.of[id.at()] = Some(slot.unwrap_or_else(|| {
                found.count += 1;
                found.count - 1
            }));
        }
        for (buffer, slot) in found.of.iter().enumerate() {
            if let (Some(slot), true) = (slot, found.last_read[buffer] == at) {
                free.push((*slot, buffer));
            }
        }
    }
    found
}

/// The last kernel that reads, or else writes, each buffer.
#[must_use]
pub fn last_reads(program: &Program) -> Vec<usize> {
    let mut last = vec![usize::MAX; program.buffers.len()];
    for (at, kernel) in program.kernels.iter().enumerate() {
        kernel.writes().into_iter().chain(kernel.reads()).for_each(|id| last[id.at()] = at);
    }
    last
}
