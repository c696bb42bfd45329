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

use std::time::Instant;

use anyhow::{Context, ensure};
use headwater::cuda::Gpu;
use headwater::feature::{Curve, RowFile, Stored};
use headwater::graph::Dataset;
use headwater::graph::reorder::Permutation;
use headwater::graph::sample::SampleOptions;
use headwater::graph::score::{Outgoing, Purpose, Score, Training, Workload, in_order};
use serde::Serialize;

use self::batches::{Draw, Drawn};
use self::disk::{Disk, DiskBench};
use self::figures::{Claims, Gathers, Skipped};
use self::gpu::GpuBench;
use self::host::HostBench;
use self::scores::{Compare, Comparison};
use self::source::Features;
use self::traffic::{Forecast, Lists, rows_of};
use crate::args::{BenchTierArgs, Caches, ColdOrder, ScoreSet};
use crate::commands::reorder::train;
use crate::commands::tier::on_best_device;
use crate::given::Given;
use crate::progress::Bar;
use crate::{picture, report};

/// All that is known in the end.
#[derive(Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    about: About,
    /// The graph made ready for scores: turned round, or placed where a GPU reads it.
    prepare_s: f64,
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
    #[serde(serialize_with = "figures::by_name")]
    file_type: Stored,
    /// What gives rows their order.
    score: Score,
    /// What a table in that order is here.
    table: &'static str,
    fanout: Vec<i64>,
    batch: usize,
    batches: u64,
    rows_per_batch: f64,
    drawn_by: String,
    rounds: usize,
    caches: Caches,
    cpu_threads: usize,
}

/// How a file in its own order measures a table in another.
const TABLE: &str = "row k is row k of the file; a node's row is its place in the order of the score";

/// Measures and prints.
pub fn run(args: &BenchTierArgs, given: &Given) -> anyhow::Result<()> {
    check(args, given)?;
    let dataset = Dataset::open(&args.dataset).with_context(|| format!("opening {}", args.dataset.display()))?;
    let in_dataset = || format!("measuring with {}", args.dataset.display());
    let features = Features::of(&dataset).with_context(in_dataset)?;
    let (run, seed_type) = workload(&dataset, args).with_context(in_dataset)?;
    let disk = disk::open(args, &features)?;
    let gpu = Gpu::open(args.on.gpu);
    if let Err(why) = &gpu {
        let others: &[&str] =
            if args.order == [ColdOrder::Hotness] { &["gpu", "caches"] } else { &["gpu", "order", "caches"] };
        given.refuse(others, &format!("without a GPU the CPU gather alone is timed: {why}"))?;
        report::note(format!("timing the CPU gather and the disk alone: {why}"));
    }
    let bar = Bar::new();
    let setup = Setup { args, dataset: &dataset, features: &features, gpu: gpu.ok(), bar: &bar };
    let begun = Instant::now();
    let (run, outgoing) = on_best_device(run, setup.gpu.as_ref(), &bar)?;
    let prepare_s = begun.elapsed().as_secs_f64();
    let prepared = setup.prepare(&run, &outgoing, seed_type)?;
    // What follows needs the memory more than the graph does.
    drop((run, outgoing));
    let summary = Summary { prepare_s, ..setup.measure(prepared, disk)? };
    drop(bar);
    if let Some(path) = &args.plot {
        picture::draw(path, &[view::chart(&summary)])?;
    }
    if args.json { report::json(&summary) } else { view::show(&summary) }
}

/// What would be found wrong only after a long while.
fn check(args: &BenchTierArgs, given: &Given) -> anyhow::Result<()> {
    let is_presampled = |set: &ScoreSet| matches!(set, ScoreSet::All | ScoreSet::One(Score::Presampled));
    if args.score != Score::Presampled && !args.scores.iter().any(is_presampled) {
        given.refuse(&["presample"], "neither --score nor --scores asks for presampled")?;
    }
    if let Some(path) = &args.plot {
        picture::format_of(path)?;
    }
    let odd = args.shares.iter().find(|share| !(0.0..=100.0).contains(*share));
    ensure!(odd.is_none(), "--shares are percents from 0 to 100; one is {}", odd.unwrap_or(&0.0));
    let is_none = args.batches == 0 || args.presample == Some(0) || args.counted == Some(0);
    ensure!(!is_none, "--batches, --presample and --counted are at least 1");
    ensure!(args.rounds > 0 && args.disk_batches != Some(0), "--rounds and --disk-batches are at least 1");
    ensure!((0.0..=1.0).contains(&args.disk_cache), "--disk-cache is {}; expected from 0 to 1", args.disk_cache);
    if args.disk_cache == 0.0 {
        given.refuse(&["disk_file", "disk_batches"], "--disk-cache 0 leaves the disk out")?;
    }
    let (read, drawn) = (args.disk_batches.unwrap_or(0), args.batches);
    ensure!(read as u64 <= drawn, "--disk-batches is {read}; expected at most --batches, which is {drawn}");
    ensure!(args.batch > 0, "--batch is 0; expected at least 1");
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

/// What everything is measured with.
struct Setup<'a> {
    args: &'a BenchTierArgs,
    dataset: &'a Dataset,
    features: &'a Features,
    gpu: Option<Gpu>,
    bar: &'a Bar,
}

/// What the graph is needed for.
struct Prepared {
    about: About,
    hit_rates: Comparison,
    /// The rows of every batch.
    lists: Lists,
    forecast: Forecast,
}

impl Setup<'_> {
    /// Draws batches, gives rows their order, and forecasts.
    fn prepare(&self, run: &Workload, outgoing: &Outgoing, seed_type: usize) -> anyhow::Result<Prepared> {
        let Self { args, bar, .. } = self;
        let table_type = self.features.node_type;
        let draw = Draw { run, seed_type, table_type, batches: args.batches, seed: args.seed };
        let Drawn { nodes, by } = draw.draw(self.gpu.as_ref(), bar)?;
        let read: usize = nodes.iter().map(Vec::len).sum();
        ensure!(read > 0, "the batches reach no node of the type that has features");
        let (hit_rates, order) = Compare { run, outgoing, table_type }.all(args, bar)?;
        let forecast = forecast(run, &order, table_type, args.batches, bar)?;
        let lists = rows_of(nodes, order.new_of_old());
        Ok(Prepared { about: self.about(by, read), hit_rates, lists, forecast })
    }

    fn measure(&self, prepared: Prepared, disk: Option<RowFile>) -> anyhow::Result<Summary> {
        let Self { args, features, bar, .. } = self;
        let Prepared { about, hit_rates, lists, forecast } = prepared;
        let (lists, forecast) = (&lists, &forecast);
        let gathers = match &self.gpu {
            Some(gpu) => GpuBench { args, gpu, features, lists, forecast, bar }.run(),
            None => HostBench { args, features, lists, forecast }.run(),
        };
        let mut gathers = gathers?;
        gathers.compare(about.file_type);
        let disk = disk.map(|file| DiskBench::new(args, file, lists)?.run(args, bar)).transpose();
        // What was measured before is not lost with a disk that fails.
        let disk = disk.unwrap_or_else(|why| {
            gathers.skipped.push(Skipped { what: "disk".to_owned(), why: format!("{why:#}") });
            None
        });
        Ok(Summary { prepare_s: 0.0, claims: gathers.claims(about.file_type), about, gathers, hit_rates, disk })
    }

    fn about(&self, drawn_by: String, read: usize) -> About {
        let Self { args, dataset, features, .. } = self;
        let types = dataset.schema().node_types();
        About {
            dataset: dataset.manifest().name.clone(),
            gpu: self.gpu.as_ref().map(|gpu| gpu.facts().name.clone()),
            nodes: types.iter().map(|node_type| node_type.count).sum(),
            edges: dataset.manifest().relations.iter().map(|relation| relation.edges).sum(),
            rows: features.source.rows,
            row_bytes: features.source.row_bytes(),
            file_type: features.source.format.stored,
            score: args.score,
            table: TABLE,
            fanout: args.fanout.clone(),
            batch: args.batch,
            batches: args.batches,
            rows_per_batch: read as f64 / args.batches as f64,
            drawn_by,
            rounds: args.rounds,
            caches: args.caches,
            cpu_threads: args.cpu_threads.unwrap_or_else(rayon::current_num_threads),
        }
    }
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
