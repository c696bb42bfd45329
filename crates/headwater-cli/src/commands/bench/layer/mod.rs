//! `headwater bench layer`: layers on whole graphs, their kernels, and how near they come to what memory's speed allows.

mod case;
mod class;
mod cpu;
mod figures;
mod gpu;
mod numbers;
mod page;
mod peers;
mod record;
mod runner;
mod shape;
mod stack;
mod suite;
mod table;
mod view;

use std::path::Path;

use anyhow::{Context, bail, ensure};
use headwater::compile::Optimisations;
use headwater::compile::cuda::LEAST_CAPABILITY;
use headwater::cuda::{Bandwidths, Gpu};
use headwater::train::run_config::PrecisionName;

use self::case::Case;
use self::figures::Machine;
use self::record::{Found, Log, Outcome, Setting};
use self::runner::Runner;
use self::view::View;
use super::score::host_copy_gb_per_s;
use crate::args::{BenchLayerArgs, LayerDevice, LayerSuite};
use crate::given::Given;
use crate::{picture, report};

/// Bytes that a copy in host memory is timed with.
const COPY_BYTES: usize = 64 << 20;
/// Elements of the widest row.
const MOST_WIDTH: usize = 4096;
/// Layers of the longest stack.
const MOST_LAYERS: usize = 64;

/// Measures and prints.
pub fn run(args: &BenchLayerArgs, given: &Given) -> anyhow::Result<()> {
    if let Some(path) = &args.plot {
        picture::format_of(path)?;
    }
    check(args, given)?;
    let peers = args.peers.as_deref().map_or_else(|| Ok(Vec::new()), peers::read)?;
    if let Some(path) = &args.from {
        let also = ["suite", "variant", "from", "peers", "json", "plot"];
        given.only(&also, "--from shows what an earlier run measured")?;
        return show(path, args, View::new(args, peers));
    }
    let gpu = gpu(args, given)?;
    let on = Runner::optimisations(gpu.as_ref());
    let cases = match args.suite {
        Some(suite) => suite::cases(suite, on, precisions(args, gpu.as_ref())[0], args.variant),
        None => cases(args, precisions(args, gpu.as_ref()))?,
    };
    let mut log = args.out.as_deref().map(Log::open).transpose()?;
    let (scale, even, seed, rounds) = (args.scale, args.even, args.seed, args.rounds);
    let (tune, machine) = (args.tune.to_string(), machine(gpu.as_ref())?);
    let setting = Setting { scale, even, seed, rounds, tune, machine };
    let mut runner = Runner::new(args, gpu.as_ref(), &setting);
    let mut view = View::new(args, peers);
    for (at, case) in cases.iter().enumerate() {
        if let Some(outcome) = log.as_ref().and_then(|log| log.find(case, &setting)) {
            outcome.figures().into_iter().for_each(|figures| runner.recall(case, figures));
            view.add(outcome.clone())?;
            continue;
        }
        if args.suite.is_some() {
            report::note(format!("{} of {}: {}", at + 1, cases.len(), case.words()));
        }
        let found = match runner.measure(case) {
            Ok(figures) => Found::Measured(Box::new(figures)),
            // One that cannot be done does not take the others with it.
            Err(why) => Found::Failed { failed: format!("{why:#}") },
        };
        let outcome = Outcome { case: case.clone(), setting: setting.clone(), found };
        log.iter_mut().try_for_each(|log| log.add(&outcome))?;
        let is_failed = outcome.failure().is_some();
        view.add(outcome)?;
        if is_failed {
            runner.check().with_context(|| format!("the GPU does no more work after {}", case.words()))?;
        }
    }
    view.finish()
}

/// Shows what a file has: of a suite, the cases of it that were measured as the first one there.
fn show(path: &Path, args: &BenchLayerArgs, mut view: View<'_>) -> anyhow::Result<()> {
    let all = record::read(path)?;
    let first = all.first().with_context(|| format!("--from {} has no lines", path.display()))?;
    let Some(suite) = args.suite else {
        all.into_iter().try_for_each(|outcome| view.add(outcome))?;
        return view.finish();
    };
    let on = optimisations_of(first);
    let cases = suite::cases(suite, on, first.case.precision, args.variant);
    let of = |case: &Case| all.iter().rev().find(|own| own.case == *case && own.setting.is_like(&first.setting));
    let found: Vec<&Outcome> = cases.iter().filter_map(of).collect();
    if found.len() < cases.len() {
        report::note(format!("{} of {} cases are in {}", found.len(), cases.len(), path.display()));
    }
    found.into_iter().try_for_each(|outcome| view.add(outcome.clone()))?;
    view.finish()
}

/// All optimisations of the device that ran a case.
fn optimisations_of(outcome: &Outcome) -> Optimisations {
    if outcome.setting.machine.device == "cuda" { Optimisations::GPU } else { Optimisations::CPU }
}

/// How exact products are. CPU threads have single precision.
fn precisions<'a>(args: &'a BenchLayerArgs, gpu: Option<&Gpu>) -> &'a [PrecisionName] {
    if gpu.is_some() { &args.precision } else { &[PrecisionName::F32] }
}

/// Refuses numbers that no case could be made of.
fn check(args: &BenchLayerArgs, given: &Given) -> anyhow::Result<()> {
    ensure!(args.rounds > 0, "--rounds is 0; expected at least 1");
    let within = |name: &str, values: &[usize], most: usize| {
        let wrong = values.iter().find(|value| !(1..=most).contains(*value));
        wrong.map_or(Ok(()), |value| bail!("--{name} is {value}; expected 1 to {most}"))
    };
    within("width", &args.width, MOST_WIDTH)?;
    within("heads", &args.heads, MOST_WIDTH)?;
    within("layers", &args.layers, MOST_LAYERS)?;
    let cases = Case::all(args, &[PrecisionName::F32]);
    if !cases.iter().any(Case::has_heads) {
        given.refuse(&["heads"], "no --model has attention heads")?;
    }
    if args.suite.is_none() && !cases.iter().any(Case::has_variants) {
        given.refuse(&["variant"], "no --model has variants")?;
    }
    if args.suite != Some(LayerSuite::Systems) {
        given.refuse(&["peers"], "it belongs to --suite systems")?;
    }
    let count = args.precision.len();
    ensure!(args.suite.is_none() || count == 1, "--precision has {count} names; a suite is measured with one");
    Ok(())
}

/// The GPU that layers run on, or none where the CPU runs them.
fn gpu(args: &BenchLayerArgs, given: &Given) -> anyhow::Result<Option<Gpu>> {
    const ON_CPU: [&str; 2] = ["gpu", "precision"];
    const UNSCHEDULED: &str = "CPU threads run layers, whose kernels have no schedules";
    let by_launch = args.suite.filter(|suite| matches!(suite, LayerSuite::Breakdown | LayerSuite::Kernels));
    let check = |why: &str| match by_launch {
        Some(suite) => bail!("--suite {} has times of kernels, which a GPU has: {why}", view::name(suite)),
        None => Ok(()),
    };
    if args.device == LayerDevice::Cpu {
        check("CPU threads run several of them at a time")?;
        given.refuse(&ON_CPU, "CPU threads run layers in single precision; --device cuda has a GPU do it")?;
        given.refuse(&["tune"], &format!("{UNSCHEDULED}; --device cuda has a GPU do it"))?;
        return Ok(None);
    }
    match opened(args.on.gpu) {
        Ok(gpu) => Ok(Some(gpu)),
        Err(why) if args.device == LayerDevice::Cuda => Err(why.context("--device is cuda")),
        Err(why) => {
            given.refuse(&["tune"], &format!("{UNSCHEDULED}: {why:#}"))?;
            let why = format!("CPU threads run layers, in single precision: {why:#}");
            check(&why)?;
            given.refuse(&ON_CPU, &why)?;
            report::note(why);
            Ok(None)
        }
    }
}

/// A GPU that has what kernels need.
fn opened(ordinal: usize) -> anyhow::Result<Gpu> {
    let gpu = Gpu::open(ordinal)?;
    let (found, (major, minor)) = (gpu.facts().compute_capability, LEAST_CAPABILITY);
    ensure!(
        found >= LEAST_CAPABILITY,
        "GPU {ordinal} has compute capability {}.{}; kernels need {major}.{minor}",
        found.0,
        found.1
    );
    Ok(gpu)
}

/// All cases that can be measured where there is no suite. Those that cannot are said.
fn cases(args: &BenchLayerArgs, precisions: &[PrecisionName]) -> anyhow::Result<Vec<Case>> {
    let mut relations = Vec::new();
    for like in &args.like {
        relations.push((like, shape::relations(args, like).context("--like and --scale")?));
    }
    let count = |case: &Case| relations.iter().find(|(like, _)| **like == case.like).map_or(1, |(_, count)| *count);
    let (all, others): (Vec<Case>, Vec<Case>) =
        Case::all(args, precisions).into_iter().partition(|case| !case.is_plain() || count(case) == 1);
    let why = |case: &Case| {
        let (model, like, count) = (&case.model, &case.like, count(case));
        format!("--model {model} is for graphs of one relation, and --like {like} has {count}")
    };
    let mut said: Vec<String> = others.iter().map(why).collect();
    said.dedup();
    ensure!(!all.is_empty(), "{}", said.first().map_or("there is nothing to measure", String::as_str));
    said.iter().for_each(report::note);
    all.iter().try_for_each(|case| case.layer().map(drop))?;
    Ok(all)
}

fn machine(gpu: Option<&Gpu>) -> anyhow::Result<Machine> {
    Ok(match gpu {
        Some(gpu) => Machine {
            device: "cuda".to_owned(),
            gpu_name: Some(gpu.facts().name.clone()),
            threads: None,
            copy_gb_per_s: Bandwidths::of(gpu)?.device_gb_per_s,
        },
        None => Machine {
            device: "cpu".to_owned(),
            gpu_name: None,
            threads: Some(rayon::current_num_threads()),
            copy_gb_per_s: host_copy_gb_per_s(COPY_BYTES),
        },
    })
}
