//! `headwater bench tier`: rows of batches gathered with more and more of them in GPU memory, the data-tiering paper's
//! figure 10, beside the ways to do without tiers and the bounds that hold in the same run.
//!
//! The features are mapped and stay what they are. A table in the order of heat is had by numbering nodes by their place
//! in that order: rows are then read as they would be in a file in that order, and only their bytes are other nodes'.

mod batches;
mod disk;
mod figures;
mod gpu;
mod host;
mod probe;
mod scores;
mod source;
mod stage;
mod table;
mod timing;
mod traffic;
mod view;

use anyhow::{Context, ensure};
use headwater::cuda::Gpu;
use headwater::feature::{Curve, Stored};
use headwater::graph::Dataset;
use headwater::graph::reorder::Permutation;
use headwater::graph::sample::SampleOptions;
use headwater::graph::score::{Purpose, Score, Training, Workload, in_order};
use serde::Serialize;

use self::batches::{Draw, Drawn};
use self::disk::Disk;
use self::figures::{Claims, Gathers};
use self::gpu::GpuBench;
use self::host::HostBench;
use self::scores::{Compare, Comparison};
use self::source::Features;
use self::traffic::{Forecast, Lists, rows_of};
use crate::args::BenchTierArgs;
use crate::commands::reorder::train;
use crate::progress::Bar;
use crate::{picture, report};

/// All that is known in the end.
#[derive(Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    about: About,
    claims: Claims,
    #[serde(flatten)]
    gathers: Gathers,
    /// Hit rates of scores on the batches that were gathered.
    hit_rates: Comparison,
    disk: Option<Disk>,
}

/// What is measured.
#[derive(Debug, Serialize)]
struct About {
    dataset: String,
    /// The GPU's name; absent when there is none.
    gpu: Option<String>,
    nodes: u64,
    edges: u64,
    rows: u64,
    row_bytes: u64,
    file_type: Stored,
    /// What gives rows their order.
    score: Score,
    /// What a table in that order is here.
    table: &'static str,
    fanout: Vec<i64>,
    batch: usize,
    batches: usize,
    rows_per_batch: f64,
    drawn_by: String,
    rounds: usize,
    cpu_threads: usize,
}

/// How a file in its own order measures a table in another.
const TABLE: &str = "row k is row k of the file; a node's row is its place in the order of the score";

/// Measures and prints.
pub fn run(args: &BenchTierArgs) -> anyhow::Result<()> {
    check(args)?;
    let dataset = Dataset::open(&args.dataset).with_context(|| format!("opening {}", args.dataset.display()))?;
    let in_dataset = || format!("measuring with {}", args.dataset.display());
    let features = Features::of(&dataset).with_context(in_dataset)?;
    let (run, seed_type) = workload(&dataset, args).with_context(in_dataset)?;
    let gpu = Gpu::open(args.gpu);
    if let Err(why) = &gpu {
        report::note(format!("timing the CPU gather and the disk alone: {why}"));
    }
    let summary = measure(args, &dataset, &features, run, seed_type, gpu.ok().as_ref())?;
    if let Some(path) = &args.plot {
        picture::draw(path, &[view::chart(&summary)])?;
    }
    if args.json { report::json(&summary) } else { view::show(&summary) }
}

/// What would be found wrong only after a long while.
fn check(args: &BenchTierArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.plot {
        picture::format_of(path)?;
    }
    let odd = args.shares.iter().find(|share| !(0.0..=100.0).contains(*share));
    ensure!(odd.is_none(), "--shares are percents from 0 to 100; one is {}", odd.unwrap_or(&0.0));
    ensure!(args.batches > 0 && args.presample != Some(0), "--batches and --presample are at least 1");
    ensure!(args.rounds > 0 && args.disk_batches > 0, "--rounds and --disk-batches are at least 1");
    ensure!((0.0..=1.0).contains(&args.disk_cache), "--disk-cache is {}; expected from 0 to 1", args.disk_cache);
    Ok(())
}

/// The run, with seeds of the first type that has training nodes, and which that is.
fn workload(dataset: &Dataset, args: &BenchTierArgs) -> anyhow::Result<(Workload, usize)> {
    let mut train = train(dataset)?;
    let seed_type = train.iter().position(|nodes| !nodes.is_empty()).unwrap_or(0);
    train.iter_mut().enumerate().filter(|(at, _)| *at != seed_type).for_each(|(_, nodes)| nodes.clear());
    let options = SampleOptions::fanouts(&args.fanout)?;
    let training = Training { train, batch: args.batch, options, seed: args.seed };
    Ok((Workload::new(dataset.graph()?, training)?, seed_type))
}

fn measure(
    args: &BenchTierArgs,
    dataset: &Dataset,
    features: &Features,
    run: Workload,
    seed_type: usize,
    gpu: Option<&Gpu>,
) -> anyhow::Result<Summary> {
    let bar = Bar::new();
    let table_type = features.node_type;
    let draw = Draw { run: &run, seed_type, table_type, batches: args.batches, seed: args.seed };
    let Drawn { nodes, by } = draw.draw(gpu, &bar)?;
    let read: usize = nodes.iter().map(Vec::len).sum();
    ensure!(read > 0, "the batches reach no node of the type that has features");
    let about = About::new(args, dataset, features, gpu, by, read);
    let counts = counts(&nodes, features.source.rows);
    let (hit_rates, order) = Compare { run: &run, table_type, counts: &counts }.all(args, &bar)?;
    drop(counts);
    let forecast = forecast(&run, &order, table_type, args.batches, &bar)?;
    // What follows needs the memory more than the graph does.
    drop(run);
    let lists = rows_of(nodes, order.new_of_old());
    drop(order);
    let gathers = match gpu {
        Some(gpu) => GpuBench { args, gpu, features, lists: &lists, forecast: &forecast, bar: &bar }.run(),
        None => HostBench { args, features, lists: &lists, forecast: &forecast }.run(),
    };
    let mut gathers = gathers?;
    gathers.compare(about.file_type);
    let has_disk = args.disk_cache > 0.0;
    let disk = has_disk.then(|| disk::measure(args, features.array.path(), &lists, &bar)).transpose()?;
    Ok(Summary { claims: gathers.claims(about.file_type), about, gathers, hit_rates, disk })
}

/// How often each node is read.
fn counts(batches: &Lists, nodes: u64) -> Vec<u64> {
    let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mut counts = vec![0; index(nodes)];
    batches.iter().flatten().for_each(|&node| counts[index(node)] += 1);
    counts
}

/// What batches that are not gathered say about those that are.
fn forecast(
    run: &Workload,
    order: &Permutation,
    table_type: usize,
    batches: u64,
    bar: &Bar,
) -> anyhow::Result<Forecast> {
    let reads = run.reads(Purpose::Forecast, batches, bar)?;
    let counts = &reads.counts[table_type];
    let reads_per_batch = counts.iter().sum::<u64>() as f64 / reads.batches.max(1) as f64;
    Ok(Forecast { curve: Curve::of(in_order(order, counts)), reads_per_batch })
}

impl About {
    fn new(
        args: &BenchTierArgs,
        dataset: &Dataset,
        features: &Features,
        gpu: Option<&Gpu>,
        drawn_by: String,
        read: usize,
    ) -> Self {
        let types = dataset.schema().node_types();
        Self {
            dataset: dataset.manifest().name.clone(),
            gpu: gpu.map(|gpu| gpu.facts().name.clone()),
            nodes: types.iter().map(|node_type| node_type.count).sum(),
            edges: dataset.manifest().relations.iter().map(|relation| relation.edges).sum(),
            rows: features.source.rows,
            row_bytes: features.source.row_bytes(),
            file_type: features.source.format.stored,
            score: args.score,
            table: TABLE,
            fanout: args.fanout.clone(),
            batch: args.batch,
            batches: usize::try_from(args.batches).unwrap_or(usize::MAX),
            rows_per_batch: read as f64 / args.batches as f64,
            drawn_by,
            rounds: args.rounds,
            cpu_threads: args.cpu_threads.unwrap_or_else(rayon::current_num_threads),
        }
    }
}
