//! `headwater generate`: from flags to a recipe, the plan shown, the dataset written.

use std::time::Instant;

use anyhow::{Context, bail};
use headwater::graph::generate::{GeneratePlan, Like, Names, Planted, Recipe, Rmat, Skew};
use headwater::graph::order::LeaveOut;
use headwater::memory::host_bytes_available;
use serde::Serialize;

use crate::args::{GenerateKind, LikeArgs, MadeArgs, PlantedArgs, RmatArgs};
use crate::progress::Bar;
use crate::report;

/// What was made.
#[derive(Serialize)]
struct Summary {
    name: String,
    origin: String,
    seed: u64,
    directory: String,
    #[serde(flatten)]
    plan: GeneratePlan,
    /// Absent when only the plan was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// The most memory the process had.
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    threads: usize,
}

/// Makes what was asked for.
pub fn run(kind: &GenerateKind) -> anyhow::Result<()> {
    let (recipe, made) = match kind {
        GenerateKind::Rmat(args) => (rmat(args).recipe()?, &args.made),
        GenerateKind::Planted(args) => (planted(args).recipe()?, &args.made),
        GenerateKind::Like(args) => (like(args).recipe()?, &args.made),
    };
    let plan = recipe.plan();
    if !made.json {
        show_plan(&recipe, &plan);
    }
    let begun = Instant::now();
    if !made.plan {
        check_memory(&plan)?;
        recipe.write(&made.output, &Bar::new()).with_context(|| format!("making {}", made.output.display()))?;
    }
    let seconds = (!made.plan).then(|| begun.elapsed().as_secs_f64());
    summarise(recipe, plan, made, seconds)
}

fn summarise(recipe: Recipe, plan: GeneratePlan, made: &MadeArgs, seconds: Option<f64>) -> anyhow::Result<()> {
    let directory = made.output.display().to_string();
    let resident_bytes = seconds.and_then(|_| most_resident_bytes());
    if made.json {
        let (name, origin, threads) = (recipe.name, recipe.origin, rayon::current_num_threads());
        return report::json(&Summary {
            name,
            origin,
            seed: made.seed,
            directory,
            plan,
            seconds,
            resident_bytes,
            threads,
        });
    }
    if let Some(seconds) = seconds {
        let memory = resident_bytes.map_or(String::new(), |bytes| format!(", at most {} of memory", in_words(bytes)));
        report::line(format!("made     {directory} in {seconds:.1} s{memory}"));
    }
    Ok(())
}

fn show_plan(recipe: &Recipe, plan: &GeneratePlan) {
    let types = (recipe.schema.node_types().len(), recipe.schema.relations().len());
    report::line(format!("graph    {}, seed {}", recipe.origin, recipe.seed));
    report::line(format!(
        "         {} nodes of {} types, {} edges of {} relations",
        plan.nodes, types.0, plan.edges, types.1
    ));
    report::line(format!("disk     {}", in_words(plan.disk_bytes)));
    report::line(format!("memory   at most {}", in_words(plan.peak_bytes)));
}

fn check_memory(plan: &GeneratePlan) -> anyhow::Result<()> {
    let available = host_bytes_available() as u64;
    if plan.peak_bytes > available {
        bail!(
            "this takes {} of memory and {} are available: choose fewer nodes or edges, or a smaller --scale",
            in_words(plan.peak_bytes),
            in_words(available)
        );
    }
    Ok(())
}

fn rmat(args: &RmatArgs) -> Rmat {
    Rmat {
        nodes_log2: args.nodes_log2,
        edges_per_node: args.edges_per_node,
        features: args.features,
        classes: args.classes,
        skew: if args.even { Skew::EVEN } else { Skew::GRAPH500 },
        names: if args.by_rank { Names::ByRank } else { Names::Shuffled },
        leave_out: LeaveOut { self_loops: args.simple, repeats: args.simple },
        seed: args.made.seed,
    }
}

fn planted(args: &PlantedArgs) -> Planted {
    Planted {
        nodes: args.nodes,
        edges_per_node: args.edges_per_node,
        classes: args.classes,
        features: args.features,
        homophily: args.homophily,
        separation: args.separation,
        seed: args.made.seed,
        ..Default::default()
    }
}

fn like(args: &LikeArgs) -> Like {
    Like { name: args.name.clone(), scale: args.scale, seed: args.made.seed }
}

/// What the kernel says was the most.
fn most_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

fn in_words(bytes: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let mib = bytes as f64 / MIB;
    if mib < 1024.0 { format!("{mib:.1} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}
