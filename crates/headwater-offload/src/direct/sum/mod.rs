//! Checksums of memory that the host does not reach.

#[cfg(test)]
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub(crate) use cuda::DeviceSum;
pub use cuda::kernel_builds;

/// The checksum of a sum.
#[expect(clippy::cast_possible_truncation, reason = "both halves count")]
fn folded(sum: u64) -> u32 {
    (sum ^ (sum >> 32)) as u32
}
