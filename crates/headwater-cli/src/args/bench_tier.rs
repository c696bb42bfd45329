//! What `bench tier` takes.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args as Group, ValueEnum};
use headwater::feature::Stored;
use headwater::graph::score::Score;
use serde::Serialize;

use super::bench::GpuArgs;

/// What `bench tier` takes.
#[derive(Debug, Group)]
pub struct BenchTierArgs {
    /// A dataset folder with features and training nodes.
    pub dataset: PathBuf,
    /// What tells which nodes are read most, and so the order of rows.
    #[arg(long, value_parser = score(), default_value = "weighted-pagerank")]
    pub score: Score,
    /// Scores whose hit rates are shown beside it, or `all`.
    #[arg(long, value_parser = score_set(), value_delimiter = ',', action = ArgAction::Set)]
    pub scores: Vec<ScoreSet>,
    /// Neighbours a hop, seeds first; -1 for all.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, allow_hyphen_values = true, default_value = "12,12,12")]
    pub fanout: Vec<i64>,
    /// Seeds a batch.
    #[arg(long, default_value_t = 1024)]
    pub batch: usize,
    /// Batches to gather; as many others are drawn to forecast traffic from.
    #[arg(long, default_value_t = 32)]
    pub batches: u64,
    /// Batches that hit rates are counted over. Default: an epoch, up to 2048.
    #[arg(long, value_name = "BATCHES")]
    pub counted: Option<u64>,
    /// Batches that the score `presampled` is made from. Default: as many.
    #[arg(long, value_name = "BATCHES")]
    pub presample: Option<u64>,
    /// Percent of the rows in GPU memory.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, value_name = "PERCENT", default_value = "0,5,10,25,50,100")]
    pub shares: Vec<f64>,
    /// How the rows in host memory lie. The rows in GPU memory are the same.
    #[arg(long, value_enum, value_delimiter = ',', action = ArgAction::Set, default_value = "hotness,random")]
    pub order: Vec<ColdOrder>,
    /// What rows are stored as; types other than the file's are made from it in memory.
    #[arg(long, value_parser = stored(), value_delimiter = ',', action = ArgAction::Set, default_value = "f32,f16,int8")]
    pub stored: Vec<Stored>,
    /// Times that every batch is gathered; one more warms up.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// What a gather finds in the GPU's caches.
    #[arg(long, value_enum, default_value_t = Caches::Cold)]
    pub caches: Caches,
    /// Threads of the CPU gather. Default: all cores.
    #[arg(long)]
    pub cpu_threads: Option<usize>,
    #[command(flatten)]
    pub on: GpuArgs,
    /// Cache of the rows on disk as a share of all rows, from 0 to 1; 0 leaves the disk out.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub disk_cache: f64,
    /// The `.npy` file whose rows are read from disk. Default: the dataset's features.
    #[arg(long, value_name = "FILE")]
    pub disk_file: Option<PathBuf>,
    /// Batches that are read from disk; the first half of them warms the cache. Default: 16, or all of --batches.
    #[arg(long, value_name = "BATCHES")]
    pub disk_batches: Option<usize>,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Also draw time a batch against the hot share; the ending chooses SVG or PNG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// How rows in host memory lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ColdOrder {
    /// Those that are read most first.
    Hotness,
    /// Anyhow.
    Random,
}

/// What a gather finds in the GPU's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Caches {
    /// What other work left there, as between the steps of a training run.
    Cold,
    /// What the gather before it left there, page tables above all.
    Warm,
}

/// What `--scores` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreSet {
    /// Every score.
    All,
    /// That one.
    One(Score),
}

fn by_name(name: &str) -> Option<Score> {
    Score::ALL.into_iter().find(|score| score.name() == name)
}

/// Takes the library's names, so that a new score needs nothing here.
fn score() -> impl TypedValueParser<Value = Score> {
    PossibleValuesParser::new(Score::ALL.map(Score::name)).try_map(|name| by_name(&name).ok_or(name))
}

fn score_set() -> impl TypedValueParser<Value = ScoreSet> {
    let names = Score::ALL.map(Score::name).into_iter().chain(["all"]);
    PossibleValuesParser::new(names).map(|name| by_name(&name).map_or(ScoreSet::All, ScoreSet::One))
}

/// What a type is called here.
pub fn stored_name(stored: Stored) -> &'static str {
    match stored {
        Stored::F32 => "f32",
        Stored::F16 => "f16",
        Stored::Bf16 => "bf16",
        Stored::I8 => "int8",
        Stored::Raw => "bytes",
    }
}

fn stored() -> impl TypedValueParser<Value = Stored> {
    let find = |name: String| Stored::ALL.into_iter().find(|stored| stored_name(*stored) == name).ok_or(name);
    PossibleValuesParser::new(Stored::ALL.map(stored_name)).try_map(find)
}
