//! `headwater bench train`: the papers' end-to-end comparisons in one run. Graphs of published shapes are made in memory, and
//! batches are trained on with features brought in every way there is.

mod export;
mod measure;
mod view;

use std::sync::Arc;

use anyhow::{Context, ensure};
use headwater::cuda::Gpu;
use headwater::graph::generate::{Like, Recipe};
use headwater::graph::reorder::Permutation;
use headwater::graph::{Graph, PlacedGraph, Storage, Wish};
use headwater::train::placement::{Reading, reads};
use headwater::train::run_config::{DeviceName, Features, Model, RunConfig, RunFile};
use headwater::train::task::{Task, trainable_shapes};

use self::measure::Measure;
use self::view::View;
use crate::args::{BenchTrainArgs, TrainOrder, TrainSuite};
use crate::given::Given;
use crate::progress::Bar;
use crate::{picture, report};

/// One measurement to make.
#[derive(Debug, Clone)]
struct Plan {
    suite: TrainSuite,
    shape: String,
    width: Option<u64>,
    model: String,
    features: Features,
    hot_share: f64,
    gather_sms: u32,
}

/// Measures and prints.
pub fn run(args: &BenchTrainArgs, given: &Given) -> anyhow::Result<()> {
    if let Some(path) = &args.plot {
        picture::format_of(path)?;
    }
    ensure!(args.batches != Some(0), "--batches is at least 1");
    let has_shares = args.suite.contains(&TrainSuite::Sms) && args.sms.iter().all(|sms| *sms > 0);
    ensure!(!args.green || has_shares, "--green sets the SMs of --suite sms aside, which are at least 1");
    check_suites(args, given)?;
    let gpu = Gpu::open(args.on.gpu);
    if let Err(why) = &gpu {
        check_without_gpu(args, given, &format!("the CPU alone is measured: {why}"))?;
        report::note(format!("the CPU alone is measured: {why}"));
    }
    let gpu = gpu.ok();
    let plans = plans(args, gpu.is_some());
    check_plans(args, &plans)?;
    let mut view = View::new(args, gpu.as_ref());
    let mut made: Option<(String, Option<u64>, Arc<Task>)> = None;
    for plan in plans {
        let is_there = made.as_ref().is_some_and(|(shape, width, _)| *shape == plan.shape && *width == plan.width);
        if !is_there {
            // The one before goes first: both may not fit.
            drop(made.take());
            let task = Arc::new(make(args, &plan, gpu.as_ref())?);
            if let Some(folder) = &args.export {
                let folder = folder.join(&plan.shape);
                export::write(args, &task, &folder)?;
                if args.export_graph {
                    export::write_graph(&task, &folder)?;
                }
            }
            made = Some((plan.shape.clone(), plan.width, task));
        }
        let Some((_, _, task)) = &made else { continue };
        match (Measure { args, gpu: gpu.as_ref(), task, plan: &plan }).run() {
            Ok(measured) => view.add(measured)?,
            // One that cannot be done does not take the others with it.
            Err(why) => view.skip(&plan, &why),
        }
    }
    view.finish()
}

/// Refuses what belongs to suites and models that are not asked for.
fn check_suites(args: &BenchTrainArgs, given: &Given) -> anyhow::Result<()> {
    for (suite, options) in
        [(TrainSuite::Hot, &["shares"][..]), (TrainSuite::Width, &["widths"]), (TrainSuite::Sms, &["sms", "green"])]
    {
        if !args.suite.contains(&suite) {
            given.refuse(options, "it belongs to a --suite that is not asked for")?;
        }
    }
    if !args.model.iter().any(|model| model == "gat") {
        given.refuse(&["heads"], "no --model has attention heads")?;
    }
    Ok(())
}

/// Refuses what no measurement could be made with, before a graph is made.
fn check_plans(args: &BenchTrainArgs, plans: &[Plan]) -> anyhow::Result<()> {
    let BenchTrainArgs { hidden, heads, .. } = *args;
    ensure!(hidden > 0, "--hidden is 0; expected at least 1");
    ensure!(heads > 0, "--heads is 0; expected at least 1");
    let divides = !plans.iter().any(Plan::has_heads) || hidden.is_multiple_of(heads);
    ensure!(divides, "--heads is {heads}; expected a divisor of --hidden, which is {hidden}: each has its part of it");
    for plan in plans {
        plan.config(args)?;
        plan.recipe(args)?;
    }
    Ok(())
}

/// Refuses what only a GPU can do.
fn check_without_gpu(args: &BenchTrainArgs, given: &Given, why: &str) -> anyhow::Result<()> {
    let others = ["hot_share", "gather_window", "precision", "sampler", "kernels", "trace", "warm", "gpu"];
    given.refuse(&others, why)?;
    let suite = args.suite.iter().find(|suite| **suite != TrainSuite::Modes);
    ensure!(suite.is_none(), "--suite has more than modes, and {why}");
    let features = args.features.iter().find(|features| **features != Features::Memory);
    ensure!(features.is_none(), "--features has {}, and {why}", features.map_or("", |features| features.name()));
    Ok(())
}

/// Everything that was asked for and can be had; shapes and widths one after the other, so that each graph is made once.
fn plans(args: &BenchTrainArgs, has_gpu: bool) -> Vec<Plan> {
    let mut plans = Vec::new();
    if !has_gpu {
        let each = args.like.iter().flat_map(|shape| args.model.iter().map(move |model| (shape, model)));
        return each.map(|(shape, model)| Plan::on_cpu(args, shape, model)).collect();
    }
    for shape in &args.like {
        for suite in &args.suite {
            let widths: Vec<Option<u64>> = match suite {
                TrainSuite::Width => args.widths.iter().copied().map(Some).collect(),
                _ => vec![args.width],
            };
            for width in widths {
                for model in &args.model {
                    let plan = |features, hot_share, gather_sms| Plan {
                        suite: *suite,
                        shape: shape.clone(),
                        width,
                        model: model.clone(),
                        features,
                        hot_share,
                        gather_sms,
                    };
                    match suite {
                        TrainSuite::Modes => {
                            plans.extend(modes(args).into_iter().map(|mode| plan(mode, args.hot_share, 0)))
                        }
                        TrainSuite::Width => {
                            plans.extend([Features::Dma, Features::ZeroCopy].map(|mode| plan(mode, args.hot_share, 0)));
                        }
                        TrainSuite::Hot => {
                            plans.extend(args.shares.iter().map(|share| plan(Features::Tiered, *share, 0)))
                        }
                        TrainSuite::Sms => {
                            let modes =
                                if args.features.is_empty() { vec![Features::ZeroCopy] } else { args.features.clone() };
                            for mode in modes {
                                plans.extend(args.sms.iter().map(|sms| plan(mode, args.hot_share, *sms)));
                            }
                        }
                    }
                }
            }
        }
    }
    plans
}

fn modes(args: &BenchTrainArgs) -> Vec<Features> {
    if args.features.is_empty() {
        vec![Features::AllGpu, Features::Tiered, Features::ZeroCopy, Features::Naive, Features::Dma]
    } else {
        args.features.clone()
    }
}

/// A graph of a shape with features and labels, in memory.
fn make(args: &BenchTrainArgs, plan: &Plan, gpu: Option<&Gpu>) -> anyhow::Result<Task> {
    let recipe = plan.recipe(args)?;
    let order = |graph: &Graph, train: &[u64]| {
        if args.order == TrainOrder::AsMade {
            return Ok(None);
        }
        let placed = gpu.map(|gpu| PlacedGraph::new(graph, Wish::Auto, Some(gpu))).transpose()?;
        let placed = placed.filter(|placed| placed.storage() != Storage::Cpu);
        let reading = Reading { train, batch: args.batch, fanout: &args.fanout };
        Ok(Some(Permutation::by_degree(&reads(graph, placed.as_ref(), &reading)?)?))
    };
    Task::made(&recipe, &order, &Bar::new()).with_context(|| format!("making a graph like {}", plan.shape))
}

impl Plan {
    fn on_cpu(args: &BenchTrainArgs, shape: &str, model: &str) -> Self {
        let (shape, model) = (shape.to_owned(), model.to_owned());
        let (suite, features) = (TrainSuite::Modes, Features::Memory);
        Self { suite, shape, width: args.width, model, features, hot_share: 0.0, gather_sms: 0 }
    }

    fn has_heads(&self) -> bool {
        self.model == "gat"
    }

    /// The graph that it is measured on.
    fn recipe(&self, args: &BenchTrainArgs) -> anyhow::Result<Recipe> {
        let mut recipe: Recipe = Like { name: self.shape.clone(), scale: args.scale, seed: args.seed }.recipe()?;
        let others = || trainable_shapes(true).join(", ");
        ensure!(
            recipe.schema.is_homogeneous(),
            "{} has several node types or relations, and bench train is for one of each: {}",
            self.shape,
            others()
        );
        ensure!(recipe.nodes[0].labelled, "{} has no labels to train on; these shapes do: {}", self.shape, others());
        if let Some(width) = self.width {
            recipe.nodes[0].features = width;
        }
        Ok(recipe)
    }

    /// The run that is measured.
    fn config(&self, args: &BenchTrainArgs) -> anyhow::Result<RunConfig> {
        let heads = if self.has_heads() { args.heads } else { 1 };
        let on_cpu = matches!(self.features, Features::Memory);
        let described = RunFile {
            model: Some(self.model.parse::<Model>().map_err(anyhow::Error::msg)?),
            hidden: Some(args.hidden / heads),
            heads: Some(heads),
            layers: Some(args.fanout.len()),
            fanout: Some(args.fanout.clone()),
            batch: Some(args.batch),
            full_graph: Some(false),
            normalise_features: Some(false),
            dropout: Some(0.0),
            attention_dropout: Some(0.0),
            rate: Some(0.003),
            epochs: Some(1),
            checkpoint_every: Some(0),
            evaluate_every: Some(0),
            features: Some(self.features),
            hot_share: (self.features == Features::Tiered).then_some(self.hot_share),
            gather_sms: (!on_cpu).then_some(self.gather_sms),
            gather_green: (!on_cpu).then_some(args.green && self.gather_sms > 0),
            gather_window: (!on_cpu).then_some(args.gather_window),
            device: Some(if on_cpu { DeviceName::Cpu } else { DeviceName::Cuda(args.on.gpu) }),
            sampler: Some(if on_cpu { headwater::train::run_config::SamplerName::Cpu } else { args.sampler }),
            precision: (!on_cpu).then_some(args.precision),
            seed: Some(args.seed),
            ..RunFile::default()
        };
        // As a file: a fan-out says how many layers there are, even of a model that reads no neighbours.
        Ok(RunConfig::resolve(RunFile::default(), described)?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, BenchCommand, Command};

    fn args(words: &str) -> BenchTrainArgs {
        let words = ["headwater", "bench", "train"].into_iter().chain(words.split_whitespace());
        match Args::parse_from(words).command {
            Command::Bench(BenchCommand::Train(args)) => *args,
            _ => unreachable!("`bench train` was asked for"),
        }
    }

    #[test]
    fn suites_are_all_that_was_asked_for() {
        let counts = |words: &str| plans(&args(words), true).len();
        assert_eq!(counts(""), 2 * 5);
        assert_eq!(counts("--like products,reddit --model sage"), 2 * 5);
        assert_eq!(counts("--suite width --model sage"), 6 * 2);
        assert_eq!(counts("--suite hot,sms --model sage --shares 0,1 --sms 4"), 3);
        assert_eq!(plans(&args(""), false).len(), 2);
        for plan in plans(&args("--suite modes,hot,width,sms"), true) {
            plan.config(&args("")).unwrap();
        }
    }
}
