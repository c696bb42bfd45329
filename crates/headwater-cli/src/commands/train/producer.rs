//! The process beside a trainer that makes its batches: this program again, with a verb that nobody types.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use headwater::graph::Dataset;
use headwater::train::gpu::beside::{mps, serve_stdin};
use headwater::train::run_config::{DeviceName, ProducerName, RunConfig};
use headwater::train::task;

use crate::commands::set_threads;

/// Tells a producer where the dataset is: one that was made up is in no description.
const DATASET: &str = "HEADWATER_PRODUCER_DATASET";

/// What starts a producer.
pub fn command(dataset: &Path) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "headwater".into());
    let mut command = Command::new(program);
    command.arg("produce").env(DATASET, dataset);
    command
}

/// Makes batches until the trainer ends.
pub fn produce() -> anyhow::Result<()> {
    let dataset = std::env::var_os(DATASET).context("a producer is started by a trainer, not by hand")?;
    serve_stdin(&|config| {
        // Threads that are there already do as well.
        let _ = set_threads(config.threads);
        task::open(config, &Dataset::open(Path::new(&dataset))?)
    })?;
    Ok(())
}

/// Leaves a producer its part of the SMs. The driver reads the part of a process when it starts, so this program begins again
/// with its own; whoever has set it knows better.
pub fn take_share(config: &RunConfig) -> anyhow::Result<()> {
    let is_alone = config.producer == ProducerName::Thread || config.device == DeviceName::Cpu || config.full_graph;
    if is_alone || std::env::var_os(mps::PERCENT).is_some() || mps::look().is_err() {
        return Ok(());
    }
    let rest = 100 - config.producer_percent.min(99);
    let program = std::env::current_exe().context("finding this program")?;
    let why = Command::new(program).args(std::env::args_os().skip(1)).env(mps::PERCENT, rest.to_string()).exec();
    // Nothing was changed: the run has all SMs.
    log::warn!("the trainer is not held to {rest}% of the SMs: {why}");
    Ok(())
}
