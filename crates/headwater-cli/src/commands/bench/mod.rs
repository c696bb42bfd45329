//! `headwater bench`: every figure with what it is compared to, from the same run.

mod gather_cpu;
mod gather_gpu;
mod gather_steps;
mod gather_view;
mod layer;
mod reorder;
mod sample;
mod score;
mod tier;
mod train;
mod usage;

use anyhow::Context;
use headwater::cuda::Gpu;

use crate::args::{
    BenchLayerArgs, BenchTierArgs, BenchTrainArgs, GatherArgs, ReorderArgs, SampleArgs, ScoreArgs, Suite,
};
use crate::given::Given;
use crate::{picture, report};

/// `headwater bench gather`.
pub fn gather(args: &GatherArgs, given: &Given) -> anyhow::Result<()> {
    if let Some(path) = &args.plot {
        picture::format_of(path)?;
    }
    if let Some(path) = &args.from {
        given.only(&["from", "json", "plot"], "--from shows what an earlier run measured")?;
        let mut view = gather_view::View::new(args);
        view.stored(path)?;
        return view.finish().context("showing the result");
    }
    if !args.suite.iter().any(|suite| matches!(suite, Suite::Table | Suite::Sms)) {
        given.refuse(&["table_gib", "gathered_mib"], "it belongs to --suite table and --suite sms")?;
    }
    let gpu = Gpu::open(args.on.gpu);
    if let Err(why) = &gpu {
        gather_steps::check_without_gpu(args).with_context(|| why.to_string())?;
        given.refuse(&["gpu", "sms", "tune"], &format!("without a GPU the cpu variant alone runs: {why}"))?;
    }
    let steps = gather_steps::steps(args, gpu.as_ref().ok())?;
    let mut view = gather_view::View::new(args);
    match gpu {
        Ok(gpu) => gather_gpu::run(args, &gpu, &steps, &mut view)?,
        Err(why) => {
            report::note(format!("running the cpu variant alone: {why}"));
            gather_cpu::run(args, &steps, &mut view)?;
        }
    }
    view.finish().context("showing the result")
}

/// `headwater bench sample`.
pub fn sample(args: &SampleArgs, given: &Given) -> anyhow::Result<()> {
    sample::run(args, given)
}

/// `headwater bench reorder`.
pub fn reorder(args: &ReorderArgs) -> anyhow::Result<()> {
    reorder::run(args)
}

/// `headwater bench tier`.
pub fn tier(args: &BenchTierArgs, given: &Given) -> anyhow::Result<()> {
    tier::run(args, given)
}

/// `headwater bench train`.
pub fn train(args: &BenchTrainArgs, given: &Given) -> anyhow::Result<()> {
    train::run(args, given)
}

/// `headwater bench score`.
pub fn score(args: &ScoreArgs, given: &Given) -> anyhow::Result<()> {
    score::run(args, given)
}

/// Times compiled layers on full graphs (`headwater bench layer`).
pub fn layer(args: &BenchLayerArgs, given: &Given) -> anyhow::Result<()> {
    layer::run(args, given)
}
