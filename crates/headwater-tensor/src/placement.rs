//! Who computes an operator, and where its result goes: the placement table as one pure function.
//!
//! Without unified operands the rules are torch's. With them, the rows are chosen by the operands that are not unified
//! and the columns by the affinity of those that are; see the table of PyTorch-Direct, section 4.3. Two points the table
//! leaves open are settled here. "Prefers the GPU" is said of unified operands with `Gpu` affinity, and a CUDA operand
//! counts too: the host cannot read it, so the GPU is the only side that sees every operand. And where no operand names
//! a GPU, the caller's current one is meant.

use crate::device::{Affinity, Device};

/// Places an operator, with GPU 0 as the current one.
pub fn place(operands: &[Operand]) -> Result<Placement, PlacementError> {
    place_on(operands, 0)
}

/// Places an operator; `current_gpu` is used when no operand lies on a particular GPU.
pub fn place_on(operands: &[Operand], current_gpu: usize) -> Result<Placement, PlacementError> {
    if operands.is_empty() {
        return Err(PlacementError::NoOperands);
    }
    let gpu = the_one_gpu(operands)?;
    if operands.iter().any(|operand| matches!(operand, Operand::Unified(_))) {
        Ok(place_unified(operands, gpu, current_gpu))
    } else {
        place_plain(operands, gpu)
    }
}

/// What placement needs to know about an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A tensor in ordinary host memory with at least one dimension.
    Cpu,
    /// A zero-dimensional tensor in ordinary host memory; it travels as a number.
    CpuScalar,
    /// A tensor in the memory of this GPU.
    Cuda(usize),
    /// A unified tensor of any rank.
    Unified(Affinity),
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Who computes.
    pub compute: Compute,
    /// Where the result is made.
    pub output: Device,
}

/// Who computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compute {
    /// The host.
    Cpu,
    /// The GPU with this ordinal.
    Cuda(usize),
}

/// Operands that cannot be computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// An operator without operands has no place.
    #[error("an operator without tensor operands has no device; name one")]
    NoOperands,
    /// Two GPUs, neither of which sees the other's operand.
    #[error(
        "operand {first} lies on cuda:{first_gpu} and operand {second} on cuda:{second_gpu}; move one of them to the \
         other's device"
    )]
    TwoGpus {
        /// Position of the first CUDA operand.
        first: usize,
        /// Its GPU.
        first_gpu: usize,
        /// Position of the operand on another GPU.
        second: usize,
        /// Its GPU.
        second_gpu: usize,
    },
    /// Host and GPU memory without a unified operand to join them.
    #[error("operand {cpu} lies on the cpu and another on cuda:{gpu}; move one of them, or make one unified")]
    CpuWithCuda {
        /// Position of the first CPU operand that is not a scalar.
        cpu: usize,
        /// The GPU of the others.
        gpu: usize,
    },
}

fn the_one_gpu(operands: &[Operand]) -> Result<Option<usize>, PlacementError> {
    let mut found: Option<(usize, usize)> = None;
    for (position, operand) in operands.iter().enumerate() {
        let Operand::Cuda(gpu) = *operand else { continue };
        match found {
            None => found = Some((position, gpu)),
            Some((first, first_gpu)) if first_gpu != gpu => {
                return Err(PlacementError::TwoGpus { first, first_gpu, second: position, second_gpu: gpu });
            }
            Some(_) => {}
        }
    }
    Ok(found.map(|(_, gpu)| gpu))
}

fn place_plain(operands: &[Operand], gpu: Option<usize>) -> Result<Placement, PlacementError> {
    let Some(gpu) = gpu else {
        return Ok(Placement { compute: Compute::Cpu, output: Device::Cpu });
    };
    match operands.iter().position(|operand| *operand == Operand::Cpu) {
        Some(cpu) => Err(PlacementError::CpuWithCuda { cpu, gpu }),
        None => Ok(Placement { compute: Compute::Cuda(gpu), output: Device::Cuda(gpu) }),
    }
}

fn place_unified(operands: &[Operand], gpu: Option<usize>, current_gpu: usize) -> Placement {
    let has = |operand: Operand| operands.contains(&operand);
    let some_host = has(Operand::Unified(Affinity::Host));
    let prefers_gpu = gpu.is_some() || has(Operand::Unified(Affinity::Gpu));
    let ordinal = gpu.unwrap_or(current_gpu);
    let affinity = match (has(Operand::Cpu), gpu.is_some(), some_host) {
        (true, _, _) | (false, false, true) => Some(Affinity::Host),
        (false, true, true) => Some(Affinity::Gpu),
        (false, _, false) => None,
    };
    Placement {
        compute: if prefers_gpu { Compute::Cuda(ordinal) } else { Compute::Cpu },
        output: affinity.map_or(Device::Cuda(ordinal), |affinity| Device::Unified { affinity }),
    }
}

#[cfg(test)]
mod tests;
