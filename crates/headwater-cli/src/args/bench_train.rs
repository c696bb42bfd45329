//! What `bench train` takes.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args as Group, ValueEnum, value_parser};
use headwater::graph::generate::Like;
use headwater::train::run_config::{Features, PrecisionName, SamplerName};

use super::bench::GpuArgs;
use super::train::word;

/// Elements of the widest row.
const MOST_WIDTH: u64 = 1 << 20;

/// What `bench train` takes.
#[derive(Debug, Group)]
pub struct BenchTrainArgs {
    /// What to measure; may be given several times.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "modes")]
    pub suite: Vec<TrainSuite>,
    /// Published shapes whose graphs are made in memory.
    #[arg(long, value_parser = PossibleValuesParser::new(Like::NAMES), value_delimiter = ',', action = ArgAction::Set, default_value = "products")]
    pub like: Vec<String>,
    /// A part of such a graph: 0.1 has a tenth of the nodes and edges.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// The order of nodes, and so of their rows.
    #[arg(long, value_enum, default_value = "heat")]
    pub order: TrainOrder,
    /// Models.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, default_value = "sage,gat")]
    pub model: Vec<String>,
    /// Ways to bring features: memory (training on the CPU), dma, naive, zero-copy, tiered, all-gpu. Default: all of a GPU, or
    /// the CPU's where there is none.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, value_parser = word::<Features>)]
    pub features: Vec<Features>,
    /// Share of rows that tiered tables hold in GPU memory.
    #[arg(long, default_value_t = 0.1)]
    pub hot_share: f64,
    /// Shares of the `hot` suite.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, default_value = "0,0.05,0.1,0.25,0.5,1")]
    pub shares: Vec<f64>,
    /// Elements of a row of features. Default: the shape's own.
    #[arg(long, value_parser = value_parser!(u64).range(1..=MOST_WIDTH))]
    pub width: Option<u64>,
    /// Widths of the `width` suite.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, default_value = "128,256,512,1024,2048,4096", value_parser = value_parser!(u64).range(1..=MOST_WIDTH))]
    pub widths: Vec<u64>,
    /// SMs of the `sms` suite.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, default_value = "2,4,8,16,32,66,132")]
    pub sms: Vec<u32>,
    /// The driver sets the SMs of the `sms` suite aside for the gather, as a green context.
    #[arg(long)]
    pub green: bool,
    /// Translations of host addresses that a gather has under way; 0 is found in the first batches.
    #[arg(long, default_value_t = 0)]
    pub gather_window: u64,
    /// Neighbours a hop, seeds first; -1 for all.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, allow_hyphen_values = true, default_value = "12,12,12")]
    pub fanout: Vec<i64>,
    /// Seeds a batch.
    #[arg(long, default_value_t = 1024)]
    pub batch: usize,
    /// Width of hidden layers.
    #[arg(long, default_value_t = 256)]
    pub hidden: usize,
    /// Attention heads of GAT; each has its part of the hidden width.
    #[arg(long, default_value_t = 4)]
    pub heads: usize,
    /// Batches that are measured. Default: 64, and 4 where a CPU trains, which takes hundreds of times as long.
    #[arg(long)]
    pub batches: Option<u64>,
    /// Batches before them. What a gather has under way is found in these. Default: 144, and 1 where a CPU trains.
    #[arg(long)]
    pub warm: Option<u64>,
    /// How exact products are: f32, tf32, tf32x3 or bf16.
    #[arg(long, value_parser = word::<PrecisionName>, default_value = "tf32x3")]
    pub precision: PrecisionName,
    /// Who draws neighbours: auto, cpu or gpu.
    #[arg(long, value_parser = word::<SamplerName>, default_value = "auto")]
    pub sampler: SamplerName,
    /// Write when the stages of the last measurement ran, for chrome://tracing or Perfetto.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Show the kernels of a step, with their times.
    #[arg(long)]
    pub kernels: bool,
    /// Write so many of the batches as arrays, for other programs to train on.
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// How many that are. Default: 8, or all where an epoch has fewer.
    #[arg(long, requires = "export")]
    pub exported: Option<u64>,
    /// Write the graph there too: offsets, neighbours, training nodes.
    #[arg(long, requires = "export")]
    pub export_graph: bool,
    #[command(flatten)]
    pub on: GpuArgs,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A line of JSON a measurement, and the ratios as the last.
    #[arg(long)]
    pub json: bool,
    /// Draw what was measured, as SVG or PNG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// What is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrainSuite {
    /// Every way to bring features.
    Modes,
    /// Widths of features, zero-copy and by the CPU: figure 12 of the communication paper.
    Width,
    /// Shares of features in GPU memory: figures 10 and 11 of the data-tiering paper.
    Hot,
    /// SMs that gather: figure 10 of the communication paper.
    Sms,
}

/// The order of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrainOrder {
    /// The most read first, as `headwater reorder` puts them.
    Heat,
    /// As they were made. Tables hold copies of the most read rows, and find them by a map.
    AsMade,
}
