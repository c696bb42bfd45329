//! `headwater tier`: which nodes are read most, how many of their rows fit in which memory, and what that saves.
//!
//! Batches are drawn three times, each time with other draws: to score nodes by counting, to forecast what an order serves
//! and so to choose one, and, when asked, to see whether that was right.

mod contest;
mod depth;
mod machine;
mod tables;
mod view;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use headwater::cuda::{Gpu, Stream};
use headwater::feature::{PageSums, Room, SharedPlan};
use headwater::graph::dataset::reorder;
use headwater::graph::sample::SampleOptions;
use headwater::graph::score::{Outgoing, Purpose, Score, Training, Workload};
use headwater::graph::{Dataset, PlacedGraph, Progress, Storage, Wish};
use serde::Serialize;

use self::contest::{Contest, Entry, Winner};
use self::depth::{Depth, Sweep};
use self::machine::Machine;
use self::tables::{Point, Seen, Table};
use crate::args::{ScoreChoice, TierArgs};
use crate::progress::Bar;
use crate::{picture, report};

/// Deeper batches read everything.
const MOST_HOPS: usize = 16;

/// All that is known in the end.
#[derive(Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    about: About,
    tables: Vec<Table>,
    machine: Machine,
    room: Room,
    /// The graph's lists turned round, which ranks and chances need.
    transpose_s: f64,
    /// The score that the plan is for.
    score: Score,
    scores: Vec<Entry>,
    /// The order of the measured batches' own counts, which no score can beat.
    #[serde(skip_serializing_if = "Option::is_none")]
    oracle: Option<Vec<Point>>,
    plan: SharedPlan,
    /// Bytes from a row to the next that serve each table best.
    stride_bytes: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prediction: Option<Prediction>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    depths: Vec<Depth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<Written>,
}

/// The run that is planned for, and how it is studied.
#[derive(Debug, Serialize)]
struct About {
    dataset: String,
    nodes: u64,
    edges: u64,
    fanout: Vec<i64>,
    batch: usize,
    batches_per_epoch: u64,
    /// Drawn for each of forecasting and measuring, and for counting.
    batches: u64,
    presample: u64,
    /// Whether the score was chosen among all.
    is_chosen: bool,
}

/// Traffic as it was told and as it was counted, in bytes an epoch of each tier.
#[derive(Debug, Serialize)]
struct Prediction {
    predicted_bytes: [f64; 4],
    counted_bytes: [f64; 4],
    /// Of what crosses the link to host memory; of all bytes when nothing does.
    off_by_percent: f64,
}

/// The dataset in its new order.
#[derive(Debug, Serialize)]
struct Written {
    directory: String,
    seconds: f64,
}

/// Scores, plans, measures and writes.
pub fn run(args: &TierArgs) -> anyhow::Result<()> {
    check(args)?;
    let dataset = Dataset::open(&args.dataset).with_context(|| format!("opening {}", args.dataset.display()))?;
    if args.verify || args.output.is_some() {
        dataset.verify(&Bar::new()).with_context(|| format!("verifying {}", args.dataset.display()))?;
        report::note("every file of the dataset is as it was written");
    }
    let tables = Table::all(&dataset, args.room.row_bytes)?;
    let run = workload(&dataset, args).with_context(|| format!("planning for {}", args.dataset.display()))?;
    let bar = Bar::new();
    let about = About::new(args, &dataset, &run);
    let (mut summary, winner) = study(args, about, run, tables, &bar)?;
    let write = |folder: &PathBuf| write(&dataset, args, &summary.about, &winner, folder, &bar);
    summary.written = args.output.as_ref().map(write).transpose()?;
    drop(bar);
    if let Some(path) = &args.plot {
        picture::draw(path, &view::charts(&summary))?;
    }
    if args.json { report::json(&summary) } else { view::show(&summary) }
}

/// What would be found wrong only after a long while.
fn check(args: &TierArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.plot {
        picture::format_of(path)?;
    }
    if let Some(folder) = &args.output {
        let is_vacant = std::fs::read_dir(folder).map_or(!folder.exists(), |mut entries| entries.next().is_none());
        ensure!(is_vacant, "{}: there is something already; name a new folder", folder.display());
    }
    ensure!(args.batches != Some(0) && args.presample != Some(0), "--batches and --presample are at least 1");
    ensure!(args.room.gpus > 0, "--gpus is at least 1");
    let odd = args.depths.iter().find(|hops| !(1..=MOST_HOPS).contains(*hops));
    ensure!(odd.is_none(), "--depths are from 1 to {MOST_HOPS}; one is {}", odd.unwrap_or(&0));
    Ok(())
}

fn workload(dataset: &Dataset, args: &TierArgs) -> anyhow::Result<Workload> {
    let train = super::reorder::train(dataset)?;
    let options = SampleOptions::fanouts(&args.fanout)?;
    Ok(Workload::new(dataset.graph()?, Training { train, batch: args.batch, options, seed: args.seed })?)
}

/// The run and its graph's lists for scores: on the GPU where there is one that the graph has a place for, else turned round
/// in host memory.
pub fn on_best_device(run: Workload, gpu: Option<&Gpu>, bar: &Bar) -> anyhow::Result<(Workload, Outgoing)> {
    let placed = gpu.map(|gpu| PlacedGraph::new(run.graph(), Wish::Auto, Some(gpu))).transpose()?;
    match (placed.filter(|placed| placed.storage() != Storage::Cpu), gpu) {
        (Some(placed), Some(gpu)) => {
            let stream = Stream::new(gpu)?;
            let outgoing = Outgoing::of_placed(&placed, &stream)?;
            Ok((run.on_gpu(&placed, &stream)?, outgoing))
        }
        _ => {
            let outgoing = Outgoing::of_sampling(run.graph(), bar)?;
            Ok((run, outgoing))
        }
    }
}

fn study(
    args: &TierArgs,
    about: About,
    run: Workload,
    tables: Vec<Table>,
    bar: &Bar,
) -> anyhow::Result<(Summary, Winner)> {
    let machine = Machine::here()?;
    // A budget that cannot be is refused before anything is drawn.
    machine.room(&args.room, &tables, 0.0)?;
    let begun = Instant::now();
    let (run, outgoing) = on_best_device(run, Gpu::open(0).ok().as_ref(), bar)?;
    let run = &run;
    let transpose_s = begun.elapsed().as_secs_f64();
    let About { batches, presample, .. } = about;
    let seen = |purpose| Ok::<_, anyhow::Error>(Seen::new(&tables, run.reads(purpose, batches, bar)?, run));
    let forecast = seen(Purpose::Forecast)?;
    let measured = args.measure.then(|| seen(Purpose::Measurement)).transpose()?;
    let room = machine.room(&args.room, &tables, forecast.batch_bytes())?;
    let (outgoing, measured) = (&outgoing, measured.as_ref());
    let contest = Contest { run, outgoing, presample, forecast: &forecast, measured, room, links: machine.links };
    let (scores, winner) = contest.hold(&shown(args), &candidates(args), bar)?;
    let winner = winner.context("no score was asked for")?;
    let summary = Summary {
        about,
        depths: Sweep { run, outgoing, tables: &tables, batches }.over(&args.depths, bar)?,
        machine,
        room,
        transpose_s,
        score: winner.score,
        scores,
        oracle: measured.map(Seen::best).transpose()?,
        plan: winner.plan.clone(),
        stride_bytes: winner.stride_bytes.clone(),
        prediction: winner.counted_bytes.map(|counted| Prediction::new(&winner.plan, counted)),
        written: None,
        tables,
    };
    Ok((summary, winner))
}

/// The scores that the plan may be for.
fn candidates(args: &TierArgs) -> Vec<Score> {
    match args.score {
        ScoreChoice::Auto => Score::ALL.to_vec(),
        ScoreChoice::One(score) => vec![score],
    }
}

/// The scores that are worked out.
fn shown(args: &TierArgs) -> Vec<Score> {
    if args.measure { Score::ALL.to_vec() } else { candidates(args) }
}

fn write(
    dataset: &Dataset,
    args: &TierArgs,
    about: &About,
    winner: &Winner,
    folder: &Path,
    bar: &Bar,
) -> anyhow::Result<Written> {
    let begun = Instant::now();
    let About { fanout, batch, .. } = about;
    let how = format!("hottest first by {}, fan-outs {fanout:?}, batches of {batch}", winner.score.name());
    reorder(dataset, &winner.order, folder, &how, bar).with_context(|| format!("making {}", folder.display()))?;
    if args.page_sums {
        bar.begin("checksums of pages", 0);
        let written = Dataset::open(folder)?;
        let types = 0..written.schema().node_types().len();
        for path in types.filter_map(|at| written.features(at)).map(|array| array.path()) {
            PageSums::of_file(path)?.save(path)?;
        }
    }
    Ok(Written { directory: folder.display().to_string(), seconds: begun.elapsed().as_secs_f64() })
}

impl About {
    fn new(args: &TierArgs, dataset: &Dataset, run: &Workload) -> Self {
        let batches = args.batches.unwrap_or_else(|| run.usual_batches());
        Self {
            dataset: dataset.manifest().name.clone(),
            nodes: run.graph().nodes(),
            edges: run.graph().edges(),
            fanout: args.fanout.clone(),
            batch: args.batch,
            batches_per_epoch: run.batches_per_epoch(),
            batches,
            presample: args.presample.unwrap_or(batches),
            is_chosen: args.score == ScoreChoice::Auto,
        }
    }
}

impl Prediction {
    fn new(plan: &SharedPlan, counted_bytes: [f64; 4]) -> Self {
        let predicted_bytes = plan.forecast.map(|tier| tier.bytes_per_epoch);
        let over_link = |bytes: [f64; 4]| bytes[2] + bytes[3];
        let all = |bytes: [f64; 4]| bytes.iter().sum::<f64>();
        let of: fn([f64; 4]) -> f64 = if over_link(counted_bytes) > 0.0 { over_link } else { all };
        let off_by_percent = 100.0 * (of(predicted_bytes) / of(counted_bytes).max(1.0) - 1.0);
        Self { predicted_bytes, counted_bytes, off_by_percent }
    }
}
