//! The machine that a run is on: the one that was asked for, or the best that can do it.

use std::path::Path;
use std::process::Command;

use headwater::cuda::Gpu;
use headwater::train::Error;
use headwater::train::gpu::beside::Beside;
use headwater::train::gpu::choose::{Choice, choose};
use headwater::train::run_config::{DeviceName, RunConfig};
use headwater::train::task::Task;
use headwater::train::trainer::Trainer;

use crate::report;

/// What was chosen.
pub struct Machine {
    /// The run, with its machine named.
    pub config: RunConfig,
    gpu: Option<Gpu>,
    /// Whether it may step down to the CPU.
    is_free: bool,
}

impl Machine {
    /// Chooses for a run.
    pub fn choose(config: &RunConfig) -> anyhow::Result<Self> {
        let is_free = config.device == DeviceName::Auto;
        let Choice { config, gpu, why } = choose(config.clone())?;
        if let (Some(why), true) = (why, is_free) {
            report::note(format!("on the CPU: {}", why.lines().next().unwrap_or_default()));
        }
        Ok(Self { config, gpu, is_free })
    }

    /// Opens a run there. One that its GPU cannot do goes to the CPU, where nobody insisted; `again` opens the task anew.
    /// `command` starts a producer of its batches.
    pub fn open(
        &self,
        task: Task,
        folder: &Path,
        again: &dyn Fn() -> anyhow::Result<Task>,
        command: &dyn Fn() -> Command,
    ) -> anyhow::Result<Trainer> {
        let Some(gpu) = &self.gpu else { return Ok(Trainer::open(self.config.clone(), task, folder)?) };
        match Trainer::open_beside(gpu, &Beside::new(command), self.config.clone(), task, folder) {
            Ok(trainer) => {
                if let Some(mode) = trainer.feature_mode() {
                    let beside = if trainer.has_producer() { ", batches from a process of their own" } else { "" };
                    report::note(format!("{}: features {mode}{beside}", gpu.facts().name));
                }
                Ok(trainer)
            }
            Err(why) if self.is_free && steps_down(&why) => {
                report::note(format!("on the CPU instead of {}: {why}", gpu.facts().name));
                Ok(Trainer::open(RunConfig { device: DeviceName::Cpu, ..self.config.clone() }, again()?, folder)?)
            }
            Err(why) => Err(why.into()),
        }
    }
}

/// Whether the CPU can do what the GPU could not.
fn steps_down(why: &Error) -> bool {
    matches!(why, Error::NotOnGpu { .. } | Error::Cuda(_)) || why.is_out_of_memory() || why.is_unpinned()
}
