//! Which machine a run is on, decided before anything is placed.

use headwater_compile::cuda::LEAST_CAPABILITY;
use headwater_cuda::{Facts, Gpu};

use crate::error::{Error, Result};
use crate::run_config::{DeviceName, Features, RunConfig, RunFile};

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

/// Chooses for a run of which `given` was said. A GPU that was asked for by name and cannot be had is an error; where the choice
/// is free the run steps down to the CPU. What was said and the machine takes in vain is refused.
pub fn choose(config: RunConfig, given: &RunFile) -> Result<Choice> {
    let chosen = place(config)?;
    chosen.config.check_given(given)?;
    Ok(chosen)
}

fn place(config: RunConfig) -> Result<Choice> {
    let ordinal = match config.device {
        DeviceName::Cpu => return Ok(Choice { config, gpu: None, why: None }),
        DeviceName::Auto if reads_files(&config) => {
            let why = format!("features are read from {}", config.features.name());
            return on_cpu(config, why);
        }
        DeviceName::Auto => 0,
        DeviceName::Cuda(ordinal) => ordinal,
    };
    match capable(ordinal) {
        Ok(gpu) => {
            let config = RunConfig { device: DeviceName::Cuda(ordinal), ..config };
            Ok(Choice { config, gpu: Some(gpu), why: None })
        }
        Err(why) if config.device == DeviceName::Auto => on_cpu(config, why),
        Err(why) => Err(Error::Setting {
            field: "device",
            value: config.device.to_string(),
            expected: format!("auto or cpu, because this GPU cannot be had: {why}"),
        }),
    }
}

/// A GPU that runs the kernels, or why there is none.
fn capable(ordinal: usize) -> std::result::Result<Gpu, String> {
    let gpu = Gpu::open(ordinal).map_err(|why| why.to_string())?;
    let Facts { name, compute_capability, .. } = gpu.facts();
    match too_old(*compute_capability) {
        Some(why) => Err(format!("{name} {why}")),
        None => Ok(gpu),
    }
}

fn too_old((major, minor): (u32, u32)) -> Option<String> {
    let (least, and) = LEAST_CAPABILITY;
    ((major, minor) < LEAST_CAPABILITY)
        .then(|| format!("has compute capability {major}.{minor}; training needs {least}.{and} or newer"))
}

/// Whether a run that was free to choose goes to the CPU after its GPU refused it. One that asks for what only a GPU does
/// stays.
#[must_use]
pub fn steps_down(config: &RunConfig, why: &Error) -> bool {
    let can_be_had =
        matches!(why, Error::NotOnGpu { .. } | Error::Cuda(_)) || why.is_out_of_memory() || why.is_unpinned();
    can_be_had && config.check_without_gpu("").is_ok()
}

/// What a run on the CPU is told. Whoever asked for what a GPU does is told what can be had without one.
fn on_cpu(config: RunConfig, why: String) -> Result<Choice> {
    config.check_without_gpu(&format!("no GPU can be had: {why}"))?;
    Ok(Choice { config: RunConfig { device: DeviceName::Cpu, ..config }, gpu: None, why: Some(why) })
}

/// Rows that are read where the dataset has them are read by the CPU.
fn reads_files(config: &RunConfig) -> bool {
    matches!(config.features, Features::Disk | Features::Memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_config::{PrecisionName, SamplerName};

    fn chosen(device: DeviceName, features: Features) -> Result<Choice> {
        let flags = RunFile { device: Some(device), features: Some(features), ..RunFile::default() };
        choose(RunConfig::resolve(flags.clone(), RunFile::default())?, &flags)
    }

    #[test]
    fn devices_have_names() {
        for (name, device) in [("auto", DeviceName::Auto), ("cpu", DeviceName::Cpu), ("cuda:3", DeviceName::Cuda(3))] {
            assert_eq!((name.parse(), device.to_string().as_str()), (Ok(device), name));
        }
        assert_eq!("gpu".parse(), Ok(DeviceName::Cuda(0)));
        assert_eq!(
            "tpu".parse::<DeviceName>().unwrap_err(),
            "\"tpu\" is no device; expected auto, cpu, cuda or cuda:N"
        );
    }

    #[test]
    fn a_run_is_on_the_cpu_where_it_is_told_to_be_or_must_be() {
        let told = chosen(DeviceName::Cpu, Features::Auto).unwrap();
        assert!(told.gpu.is_none() && told.why.is_none());
        let reads_files = chosen(DeviceName::Auto, Features::Disk).unwrap();
        assert_eq!(
            (reads_files.config.device, reads_files.why.unwrap()),
            (DeviceName::Cpu, "features are read from disk".into())
        );
        let mapped = chosen(DeviceName::Auto, Features::Memory).unwrap();
        assert_eq!(mapped.config.device, DeviceName::Cpu, "memory is where the dataset is mapped");
        let file = RunFile { features: Some(Features::Disk), sampler: Some(SamplerName::Gpu), ..RunFile::default() };
        let torn =
            choose(RunConfig::resolve(file.clone(), RunFile::default()).unwrap(), &file).unwrap_err().to_string();
        assert_eq!(
            torn,
            "sampler is gpu; expected auto or cpu, because no GPU can be had: features are read from disk"
        );
        let none = chosen(DeviceName::Cuda(4096), Features::Auto).unwrap_err().to_string();
        assert!(
            none.starts_with("device is cuda:4096; expected auto or cpu, because this GPU cannot be had: "),
            "{none}"
        );
    }

    #[test]
    fn a_gpu_is_as_old_as_its_capability() {
        assert_eq!((too_old((8, 0)), too_old((9, 0)), too_old((12, 0))), (None, None, None));
        assert_eq!(too_old((7, 5)).unwrap(), "has compute capability 7.5; training needs 8.0 or newer");
    }

    #[test]
    fn without_a_gpu_the_choice_steps_down_or_says_why() {
        if Gpu::open(0).is_ok() {
            return;
        }
        let exact = RunFile { precision: Some(PrecisionName::Bf16), ..RunFile::default() };
        let in_vain = choose(RunConfig::resolve(exact.clone(), RunFile::default()).unwrap(), &exact).unwrap_err();
        assert!(in_vain.to_string().starts_with("precision is bf16; expected tf32x3 where device is cpu"), "{in_vain}");
        let free = chosen(DeviceName::Auto, Features::Auto).unwrap();
        assert!(free.gpu.is_none() && !free.why.unwrap().is_empty());
        let bound = chosen(DeviceName::Auto, Features::ZeroCopy).unwrap_err().to_string();
        assert!(
            bound.starts_with("features is zero-copy; expected auto, memory, disk or tiered, because no GPU"),
            "{bound}"
        );
    }
}
