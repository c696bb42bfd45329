//! What `tier` takes.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args as Group};
use headwater::graph::score::Score;

/// What `tier` takes.
#[derive(Debug, Group)]
pub struct TierArgs {
    /// The dataset's folder.
    pub dataset: PathBuf,
    /// What tells which nodes are read most; `auto` takes the one that serves most of a few batches it has not seen.
    #[arg(long, value_parser = score(), default_value = "auto")]
    pub score: ScoreChoice,
    /// Neighbours a hop, seeds first; -1 for all.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, allow_hyphen_values = true, default_value = "12,12,12")]
    pub fanout: Vec<i64>,
    /// Seeds a batch.
    #[arg(long, default_value_t = 1024)]
    pub batch: usize,
    /// Batches that are drawn for each of forecasting and measuring. Default: an epoch, from 16 to 64.
    #[arg(long)]
    pub batches: Option<u64>,
    /// Batches that the score `presampled` is made from. Default: as many.
    #[arg(long, value_name = "BATCHES")]
    pub presample: Option<u64>,
    /// Also write the dataset with the nodes that are read most first. The folder must not be there or be empty.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Read every file first and compare its checksum; done anyway where a dataset is written.
    #[arg(long)]
    pub verify: bool,
    /// Also write a checksum for every page of the features, for tables that check what they read from disk.
    #[arg(long, requires = "output")]
    pub page_sums: bool,
    /// What can be spent, and how rows are stored.
    #[command(flatten)]
    pub room: RoomArgs,
    /// Draw other batches and compare: every score with the order of the batches' own counts, and the plan with what is read.
    #[arg(long)]
    pub measure: bool,
    /// Also show how reads spread with the number of hops, each with fan-out 10 over at most 16 batches: `2,3,4,5`.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, value_name = "HOPS")]
    pub depths: Vec<usize>,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Also draw the curves; the ending chooses SVG or PNG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What rows may take.
#[derive(Debug, Group)]
pub struct RoomArgs {
    /// Bytes of each GPU for rows. Default: what is free, less what training needs.
    #[arg(long, conflicts_with = "gpu_share")]
    pub gpu_bytes: Option<u64>,
    /// The same as a share of all rows, from 0 to 1.
    #[arg(long)]
    pub gpu_share: Option<f64>,
    /// GPUs that read each other's memory and share the rows.
    #[arg(long, default_value_t = 1)]
    pub gpus: u64,
    /// Bytes of host memory for rows. Default: nine tenths of what is available.
    #[arg(long, conflicts_with = "host_share")]
    pub host_bytes: Option<u64>,
    /// The same as a share of all rows, from 0 to 1.
    #[arg(long)]
    pub host_share: Option<f64>,
    /// Fail when rows are left over instead of leaving them on disk.
    #[arg(long)]
    pub no_disk: bool,
    /// Bytes of a row for node types that have no features, as those with learned ones.
    #[arg(long)]
    pub row_bytes: Option<u64>,
}

/// What `--score` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreChoice {
    /// The best one.
    Auto,
    /// That one.
    One(Score),
}

/// Takes the library's names, so that a new score needs nothing here.
fn score() -> impl TypedValueParser<Value = ScoreChoice> {
    let by_name = |name: String| match Score::ALL.into_iter().find(|score| score.name() == name) {
        Some(score) => ScoreChoice::One(score),
        None => ScoreChoice::Auto,
    };
    PossibleValuesParser::new(Score::ALL.map(Score::name).into_iter().chain(["auto"])).map(by_name)
}
