//! Which machine a run is on, decided before anything is placed.

use headwater_cuda::Gpu;

use crate::error::{Error, Result};
use crate::run_config::{DeviceName, Features, RunConfig};

/// What was chosen, and why.
#[derive(Debug)]
pub struct Choice {
    /// The run with its machine named.
    pub config: RunConfig,
    /// The GPU, where it is one.
    pub gpu: Option<Gpu>,
    /// Why a GPU that could have been had is not used, or none could be had.
    pub why: Option<String>,
}

/// Chooses. A GPU that was asked for by name and cannot be had is an error; where the choice is free the run steps down to the
/// CPU.
pub fn choose(config: RunConfig) -> Result<Choice> {
    let ordinal = match config.device {
        DeviceName::Cpu => return Ok(Choice { config, gpu: None, why: None }),
        DeviceName::Auto if reads_files(&config) => {
            let why = format!("features are read from {}", config.features.name());
            return Ok(on_cpu(config, why));
        }
        DeviceName::Auto => 0,
        DeviceName::Cuda(ordinal) => ordinal,
    };
    match Gpu::open(ordinal) {
        Ok(gpu) => {
            let config = RunConfig { device: DeviceName::Cuda(ordinal), ..config };
            Ok(Choice { config, gpu: Some(gpu), why: None })
        }
        Err(why) if config.device == DeviceName::Auto && !config.features.needs_gpu() => {
            Ok(on_cpu(config, why.to_string()))
        }
        Err(why) => Err(Error::Cuda(why)),
    }
}

/// What a run on the CPU is told.
fn on_cpu(config: RunConfig, why: String) -> Choice {
    Choice { config: RunConfig { device: DeviceName::Cpu, ..config }, gpu: None, why: Some(why) }
}

/// A file that is read batch by batch is read by the CPU.
fn reads_files(config: &RunConfig) -> bool {
    matches!(config.features, Features::Disk)
}
