//! The machine that a run is on: the one that was asked for, or the best that can do it.

use std::process::Command;

use anyhow::{bail, ensure};
use headwater::cuda::Gpu;
use headwater::train::RunFolder;
use headwater::train::gpu::beside::Beside;
use headwater::train::gpu::choose::{Choice, choose, steps_down};
use headwater::train::run_config::{DeviceName, RunConfig, RunFile};
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
    /// What was asked for, to be refused where the machine takes it in vain.
    given: RunFile,
}

impl Machine {
    /// Chooses for a run of which this was said.
    pub fn choose(config: &RunConfig, given: RunFile) -> anyhow::Result<Self> {
        let is_free = config.device == DeviceName::Auto;
        let Choice { config, gpu, why } = choose(config.clone(), &given)?;
        if let (Some(why), true) = (why, is_free) {
            report::note(format!("on the CPU: {}", why.lines().next().unwrap_or_default()));
        }
        Ok(Self { config, gpu, is_free, given })
    }

    /// Refuses a timeline of what runs on no GPU.
    pub fn check_trace(&self, task: &Task) -> anyhow::Result<()> {
        ensure!(self.gpu.is_some(), "--trace shows when the stages of batches ran on a GPU; this run is on the CPU");
        match self.config.batches_by_cpu(task.has_types()) {
            Some(why) => bail!("--trace shows when the stages of batches ran on a GPU; {why}"),
            None => Ok(()),
        }
    }

    /// Opens a run there. One that its GPU cannot do goes to the CPU, where nobody insisted; `again` opens the task anew.
    /// `command` starts a producer of its batches.
    pub fn open(
        &self,
        config: &RunConfig,
        task: Task,
        folder: RunFolder,
        again: &dyn Fn() -> anyhow::Result<Task>,
        command: &dyn Fn() -> Command,
    ) -> anyhow::Result<Trainer> {
        let Some(gpu) = &self.gpu else { return Ok(Trainer::open(config.clone(), task, folder)?) };
        let by_cpu = config.batches_by_cpu(task.has_types()).filter(|_| !config.full_graph);
        let path = folder.path().to_owned();
        match Trainer::open_beside(gpu, &Beside::new(command), config.clone(), task, folder) {
            Ok(trainer) => {
                if let Some(mode) = trainer.feature_mode() {
                    let beside = if trainer.has_producer() { ", batches from a process of their own" } else { "" };
                    report::note(format!("{}: features {mode}{beside}", gpu.facts().name));
                }
                if let Some(why) = by_cpu {
                    report::note(format!("{}: {why}", gpu.facts().name));
                }
                Ok(trainer)
            }
            Err(why) if self.is_free && steps_down(config, &why) => {
                report::note(format!("on the CPU instead of {}: {why}", gpu.facts().name));
                let config = RunConfig { device: DeviceName::Cpu, ..config.clone() };
                config.check_given(&self.given)?;
                Ok(Trainer::open(config, again()?, &path)?)
            }
            Err(why) => Err(why.into()),
        }
    }
}
