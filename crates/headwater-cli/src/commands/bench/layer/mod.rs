//! `headwater bench layer`: layers on whole graphs, their kernels, and how near they come to what memory's speed allows.

mod case;
mod cpu;
mod figures;
mod gpu;
mod numbers;
mod shape;
mod stack;
mod view;

use anyhow::{Context, bail, ensure};
use headwater::compile::Optimisations;
use headwater::compile::cuda::LEAST_CAPABILITY;
use headwater::cuda::{Bandwidths, Gpu};
use headwater::train::run_config::PrecisionName;

use self::case::Case;
use self::figures::{Figures, Machine};
use self::shape::Shape;
use self::stack::Stack;
use self::view::View;
use super::score::host_copy_gb_per_s;
use crate::args::{BenchLayerArgs, LayerDevice};
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
    let gpu = gpu(args, given)?;
    let precisions = if gpu.is_some() { &args.precision[..] } else { &[PrecisionName::F32] };
    let cases = cases(args, precisions)?;
    let machine = machine(gpu.as_ref())?;
    let mut view = View::new(args);
    let mut made: Option<Shape> = None;
    for case in &cases {
        if made.as_ref().is_none_or(|shape| shape.like != case.like) {
            // The one before goes first: both may not fit.
            drop(made.take());
            made = Some(Shape::new(args, &case.like)?);
        }
        let Some(shape) = &mut made else { continue };
        match measure(args, case, shape, &machine, gpu.as_ref()) {
            Ok(found) => view.add(&found)?,
            // One that cannot be done does not take the others with it.
            Err(why) => view.skip(case, &why),
        }
    }
    view.finish()
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
    let has_heads = Case::all(args, &[PrecisionName::F32]).iter().any(Case::has_heads);
    if !has_heads {
        given.refuse(&["heads"], "no --model has attention heads")?;
    }
    Ok(())
}

/// The GPU that layers run on, or none where the CPU runs them.
fn gpu(args: &BenchLayerArgs, given: &Given) -> anyhow::Result<Option<Gpu>> {
    const ON_CPU: [&str; 2] = ["gpu", "precision"];
    if args.device == LayerDevice::Cpu {
        given.refuse(&ON_CPU, "CPU threads run layers in single precision; --device cuda has a GPU do it")?;
        return Ok(None);
    }
    match opened(args.gpu) {
        Ok(gpu) => Ok(Some(gpu)),
        Err(why) if args.device == LayerDevice::Cuda => Err(why.context("--device is cuda")),
        Err(why) => {
            let why = format!("CPU threads run layers, in single precision: {why:#}");
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

/// All cases that can be measured. Those that cannot are said.
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
            device: "cuda",
            gpu_name: Some(gpu.facts().name.clone()),
            threads: None,
            copy_gb_per_s: Bandwidths::of(gpu)?.device_gb_per_s,
        },
        None => Machine {
            device: "cpu",
            gpu_name: None,
            threads: Some(rayon::current_num_threads()),
            copy_gb_per_s: host_copy_gb_per_s(COPY_BYTES),
        },
    })
}

fn measure(
    args: &BenchLayerArgs,
    case: &Case,
    shape: &mut Shape,
    machine: &Machine,
    gpu: Option<&Gpu>,
) -> anyhow::Result<Figures> {
    let layer = case.layer()?;
    let graph = shape.seen(layer.self_loops)?;
    let all = if gpu.is_some() { Optimisations::GPU } else { Optimisations::CPU };
    let stack = Stack::of(case, &layer.program, graph, all.without(&args.without)?)?;
    let found = match gpu {
        Some(gpu) => {
            let on = gpu::On { gpu, precision: case.precision.into(), rounds: args.rounds, seed: args.seed };
            gpu::measure(&stack, graph, &on)?
        }
        None => cpu::measure(&stack, graph, args.rounds, args.seed)?,
    };
    Ok(Figures::new(case, machine, &stack, graph, found))
}
