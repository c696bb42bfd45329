//! The memories of a machine, and how much of each is left.

use std::fmt;

use headwater_cuda::{Gpu, HostMemory};

use crate::error::Result;

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// A GPU's own memory.
    Device,
    /// Host memory the GPU reads and the CPU caches.
    Pinned,
    /// Host memory the GPU reads and the CPU only writes.
    WriteCombined,
    /// Memory the driver moves by itself; small, for advice only.
    Managed,
    /// Ordinary host memory.
    Host,
    /// A file.
    File,
}

impl Tier {
    /// Whether a kernel can read it in place.
    #[must_use]
    pub fn is_gpu_visible(self) -> bool {
        !matches!(self, Self::Host | Self::File)
    }

    /// Whether the CPU can read it at full speed.
    #[must_use]
    pub fn is_host_readable(self) -> bool {
        matches!(self, Self::Pinned | Self::Managed | Self::Host)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::Pinned => "pinned",
            Self::WriteCombined => "write-combined",
            Self::Managed => "managed",
            Self::Host => "host",
            Self::File => "file",
        })
    }
}

/// Bytes left in the memories a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Host memory that can be had without swapping.
    pub host_bytes: usize,
    /// Host memory a process may lock, `None` when there is no limit.
    pub lockable_bytes: Option<usize>,
    /// Free memory of the GPU asked about, zero without one.
    pub device_bytes: usize,
}

impl Capacity {
    /// Looks at the machine now.
    pub fn now(gpu: Option<&Gpu>) -> Result<Self> {
        let device_bytes = gpu.map(Gpu::memory).transpose()?.map_or(0, |memory| memory.free_bytes);
        Ok(Self { host_bytes: host_bytes_available(), lockable_bytes: lockable_bytes(), device_bytes })
    }
}

/// What this process can still allocate without swapping and without being killed for it.
#[must_use]
pub fn host_bytes_available() -> usize {
    HostMemory::now().free_bytes
}

/// The limit on locked memory, `None` when there is none.
#[must_use]
pub fn lockable_bytes() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    limit.current.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_gpu_still_has_host_memory() {
        let capacity = Capacity::now(None).unwrap();
        assert!(capacity.host_bytes > 0);
        assert_eq!(capacity.device_bytes, 0);
    }
}
