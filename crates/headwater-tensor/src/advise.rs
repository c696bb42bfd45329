//! Hints to the driver about memory it moves by itself.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::tensor::Tensor;

/// What the driver is told about the use of managed memory, as in the CUDA API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemAdvice {
    /// It is read much more than written, so copies may be kept.
    SetReadMostly,
    /// Takes that back.
    UnsetReadMostly,
    /// It should stay on the device.
    SetPreferredLocation,
    /// Takes that back.
    UnsetPreferredLocation,
    /// The device will read it and should have it mapped.
    SetAccessedBy,
    /// Takes that back.
    UnsetAccessedBy,
}

impl MemAdvice {
    /// Every advice.
    pub const ALL: [MemAdvice; 6] = [
        MemAdvice::SetReadMostly,
        MemAdvice::UnsetReadMostly,
        MemAdvice::SetPreferredLocation,
        MemAdvice::UnsetPreferredLocation,
        MemAdvice::SetAccessedBy,
        MemAdvice::UnsetAccessedBy,
    ];

    /// The driver's number for it.
    pub const fn code(self) -> i32 {
        match self {
            MemAdvice::SetReadMostly => 1,
            MemAdvice::UnsetReadMostly => 2,
            MemAdvice::SetPreferredLocation => 3,
            MemAdvice::UnsetPreferredLocation => 4,
            MemAdvice::SetAccessedBy => 5,
            MemAdvice::UnsetAccessedBy => 6,
        }
    }
}

impl Tensor {
    /// Tells the driver how the whole storage of this unified tensor will be used on `device`. Only managed memory takes
    /// advice; [`Tensor::to_managed`] makes it.
    pub fn mem_advise(&self, advice: MemAdvice, device: Device) -> Result<()> {
        if !self.is_unified() {
            return Err(Error::NotUnified { op: "mem_advise", device: self.device() });
        }
        advise(self.storage(), advice, device)
    }
}

pub(crate) fn advise(storage: &Storage, advice: MemAdvice, device: Device) -> Result<()> {
    let Storage::Managed(buffer) = storage else { return Err(Error::NotManaged) };
    let number = match device {
        Device::Cpu => Some(-1),
        Device::Cuda(ordinal) => i32::try_from(ordinal).ok(),
        Device::Unified { .. } => None,
    };
    let number = number.ok_or(Error::AdviceDevice { device })?;
    Ok(buffer.whole().allocation().advise(advice.code(), number)?)
}
