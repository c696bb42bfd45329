//! `headwater tier`: which nodes are read most, how many of their rows fit in which memory, and what that saves.
//!
//! Batches are drawn three times, each time with other draws: to score nodes by counting, to forecast what an order serves
//! and so to choose one, and, when asked, to see whether that was right.

mod contest;
mod depth;
mod machine;
mod tables;
mod view;

use std::time::Instant;

use anyhow::{Context, ensure};
use headwater::feature::{Room, SharedPlan};
use headwater::graph::Dataset;
use headwater::graph::dataset::{Split, reorder};
use headwater::graph::sample::SampleOptions;
use headwater::graph::score::{Outgoing, Purpose, Score, Training, Workload, hottest_first};
use serde::Serialize;

use self::contest::{Contest, Entry, Winner};
use self::depth::{Depth, Sweep};
use self::machine::Machine;
use self::tables::{Point, Seen, Table};
use crate::args::{ScoreChoice, TierArgs};
use crate::progress::Bar;
use crate::{picture, report};

/// Batches that are drawn when nobody says how many.
const MOST_BATCHES: u64 = 64;
/// Deeper batches read everything.
const MOST_HOPS: usize = 16;

/// All that is known in the end.
#[derive(Debug, Serialize)]
struct Summary {
    dataset: String,
    nodes: u64,
    edges: u64,
    fanout: Vec<i64>,
    batch: usize,
    batches_per_epoch: u64,
    /// Drawn for each of forecasting and measuring, and for counting.
    batches: u64,
    presample: u64,
    tables: Vec<Table>,
    machine: Machine,
    room: Room,
    /// The graph's lists turned round, which ranks and chances need.
    transpose_s: f64,
    /// The score that the plan is for, and whether it was chosen among all.
    score: Score,
    is_chosen: bool,
    scores: Vec<Entry>,
    /// The order of the measured batches' own counts, which no score can beat.
    #[serde(skip_serializing_if = "Option::is_none")]
    oracle: Option<Vec<Point>>,
    plan: SharedPlan,
    #[serde(skip_serializing_if = "Option::is_none")]
    prediction: Option<Prediction>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    depths: Vec<Depth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<Written>,
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
    let tables = Table::all(&dataset, args.room.row_bytes)?;
    let run = workload(&dataset, args).with_context(|| format!("planning for {}", args.dataset.display()))?;
    let bar = Bar::new();
    let (summary, winner) = plan(args, &run, tables, &bar)?;
    let written = args.output.as_ref().map(|_| write(args, &dataset, &winner, &bar)).transpose()?;
    drop(bar);
    let summary = Summary { dataset: dataset.manifest().name.clone(), written, ..summary };
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
    let deepest = args.depths.iter().copied().max().unwrap_or(1);
    ensure!((1..=MOST_HOPS).contains(&deepest), "--depths are from 1 to {MOST_HOPS}; one is {deepest}");
    Ok(())
}

fn workload(dataset: &Dataset, args: &TierArgs) -> anyhow::Result<Workload> {
    let of = |at| Ok(dataset.split(at, Split::Train)?.map(|ids| ids.iter().collect()).unwrap_or_default());
    let train = (0..dataset.schema().node_types().len()).map(of).collect::<anyhow::Result<_>>()?;
    let options = SampleOptions::fanouts(&args.fanout)?;
    Ok(Workload::new(dataset.graph()?, Training { train, batch: args.batch, options, seed: args.seed })?)
}

fn plan(args: &TierArgs, run: &Workload, tables: Vec<Table>, bar: &Bar) -> anyhow::Result<(Summary, Winner)> {
    let machine = Machine::here()?;
    let begun = Instant::now();
    let outgoing = Outgoing::of(run.graph(), bar)?;
    let transpose_s = begun.elapsed().as_secs_f64();
    let batches = args.batches.unwrap_or(run.batches_per_epoch().min(MOST_BATCHES));
    let seen = |purpose| Ok::<_, anyhow::Error>(Seen::new(&tables, run.reads(purpose, batches, bar)?, run));
    let forecast = seen(Purpose::Forecast)?;
    let measured = args.measure.then(|| seen(Purpose::Measurement)).transpose()?;
    let table_bytes = tables.iter().map(Table::bytes).fold(0, u64::saturating_add);
    let room = machine.room(&args.room, table_bytes, forecast.batch_bytes())?;
    let presample = args.presample.unwrap_or(batches);
    let (outgoing, measured) = (&outgoing, measured.as_ref());
    let contest = Contest { run, outgoing, presample, forecast: &forecast, measured, room, links: machine.links };
    let (scores, winner) = contest.hold(&shown(args), &candidates(args), bar)?;
    let winner = winner.context("no score was asked for")?;
    let oracle = measured.map(|seen| Ok::<_, anyhow::Error>(seen.curves(&hottest_first(seen.counts())?).points()));
    let summary = Summary {
        dataset: String::new(),
        nodes: run.graph().nodes(),
        edges: run.graph().edges(),
        fanout: args.fanout.clone(),
        batch: args.batch,
        batches_per_epoch: run.batches_per_epoch(),
        batches,
        presample,
        depths: Sweep { run, outgoing, tables: &tables, batches }.over(&args.depths, bar)?,
        machine,
        room,
        transpose_s,
        score: winner.score,
        is_chosen: args.score == ScoreChoice::Auto,
        scores,
        oracle: oracle.transpose()?,
        plan: winner.plan.clone(),
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

fn write(args: &TierArgs, dataset: &Dataset, winner: &Winner, bar: &Bar) -> anyhow::Result<Written> {
    let output = args.output.as_ref().context("no folder was named")?;
    let begun = Instant::now();
    let how =
        format!("hottest first by {}, fan-outs {:?}, batches of {}", winner.score.name(), args.fanout, args.batch);
    reorder(dataset, &winner.order, output, &how, bar).with_context(|| format!("making {}", output.display()))?;
    Ok(Written { directory: output.display().to_string(), seconds: begun.elapsed().as_secs_f64() })
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
