//! What `bench layer` takes.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args as Group, ValueEnum};
use headwater::compile::cuda::Tuning;
use headwater::graph::generate::Like;
use headwater::train::run_config::PrecisionName;

use super::bench::GpuArgs;
use super::compile::switches;
use super::train::word;

/// What `bench layer` takes.
#[derive(Debug, Group)]
pub struct BenchLayerArgs {
    /// A fixed list of cases of Hector's evaluation, with a table of all of them at the end. HGT is Hector's unless --variant says otherwise.
    #[arg(long, value_enum, conflicts_with_all = BenchLayerArgs::FIXED)]
    pub suite: Option<LayerSuite>,
    /// Shapes whose graphs are made in memory: published ones, and `hub`, whose degrees follow a power law from 100,000 edges down.
    #[arg(long, value_parser = shapes(), value_delimiter = ',', action = ArgAction::Set, default_value = "aifb")]
    pub like: Vec<String>,
    /// A part of such a graph: 0.1 has a tenth of the nodes and edges.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Models. gcn, sage, gat and gin are for graphs of one relation.
    #[arg(long, value_parser = PossibleValuesParser::new(BenchLayerArgs::MODELS), value_delimiter = ',', action = ArgAction::Set, default_value = "rgcn")]
    pub model: Vec<String>,
    /// The text of hgt: PyG's, or Hector's, which has no biases, GELU and residual. Default: pyg, and hector in suites.
    #[arg(long, value_enum)]
    pub variant: Option<LayerVariant>,
    /// From rows to outputs alone, or with gradients of rows and weights.
    #[arg(long, value_enum, default_value_t = LayerDirection::Training)]
    pub direction: LayerDirection,
    /// How exact products are on a GPU: f32, tf32, tf32x3 or bf16.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, value_parser = word::<PrecisionName>, default_value = "tf32x3")]
    pub precision: Vec<PrecisionName>,
    /// Attention heads of gat, rgat and hgt; each has its part of the width.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, default_value = "1")]
    pub heads: Vec<usize>,
    /// Elements of rows that layers read and write.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, default_value = "64")]
    pub width: Vec<usize>,
    /// Layers that are run one after the other.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, default_value = "1")]
    pub layers: Vec<usize>,
    /// Optimisations to leave out.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, value_name = "NAMES", value_parser = switches())]
    pub without: Vec<String>,
    /// How a GPU runs kernels: `fixed` and `model` ask a model, with constants of an H200 or of this GPU, `measure` times a short list, or
    /// parts of schedules such as lanes=8,ahead=4,chunks=528.
    #[arg(long, value_name = "HOW", default_value = "fixed")]
    pub tune: Tuning,
    /// Times that each case is measured; the median is shown.
    #[arg(long, default_value_t = 20)]
    pub rounds: usize,
    /// Runs layers on a GPU, on CPU threads, or on a GPU where there is one.
    #[arg(long, value_enum, default_value_t = LayerDevice::Auto)]
    pub device: LayerDevice,
    #[command(flatten)]
    pub on: GpuArgs,
    /// Let every pair of nodes be equally likely instead of crowding edges around hubs.
    #[arg(long)]
    pub even: bool,
    /// Seed of graphs, rows and weights.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Add a line of JSON a case to a file. Cases that are there are not run again, whether they were measured or failed.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show or draw the lines of such a file, or of --json, instead of measuring.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Times of other systems to put beside ours in `--suite systems`: the file of `bench/peers/relational.py --json`, or lines of JSON with
    /// shape, model, what, who and ms. Times on graphs of other sizes than ours are left out.
    #[arg(long, value_name = "FILE")]
    pub peers: Option<PathBuf>,
    /// One JSON object a case instead of text and tables.
    #[arg(long)]
    pub json: bool,
    /// Also draw the time of every case, or what the suite shows, as bars; the ending chooses SVG or PNG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

impl BenchLayerArgs {
    /// The shape that is no published one.
    pub const HUB: &'static str = "hub";
    /// Layers that come with the compiler and read neighbours.
    pub const MODELS: [&'static str; 7] = ["rgcn", "rgat", "hgt", "gcn", "sage", "gat", "gin"];
    /// Options whose values a suite has, so that they cannot be given beside one.
    pub const FIXED: [&'static str; 7] = ["like", "model", "direction", "heads", "width", "layers", "without"];
}

fn shapes() -> PossibleValuesParser {
    PossibleValuesParser::new(Like::NAMES.into_iter().chain([BenchLayerArgs::HUB]))
}

/// Lists of cases. What each has is in `commands/bench/layer/suite.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayerSuite {
    /// Times of eight shapes and three models, inference and training.
    Systems,
    /// No optimisation, compaction, reordering, both, all, and all but one, with the speed-up over none.
    Optimisations,
    /// Peak memory of training as a multiple of the smallest possible, with and without compaction.
    Memory,
    /// Time by class of kernel: walks over edges, products, outer products, sums, weights. On a GPU.
    Breakdown,
    /// Widths 32, 64 and 128, and 1, 4 and 8 heads at 64.
    Width,
    /// Every kernel with its rates and the part of the speed of a copy that it reaches. On a GPU.
    Kernels,
}

/// Which text of HGT is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayerVariant {
    /// PyG's HGTConv.
    Pyg,
    /// What Hector's evaluation measures.
    Hector,
}

/// What is run of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayerDirection {
    /// Forward, without what a backward pass would read.
    Inference,
    /// A forward and a backward pass, with gradients of rows and weights.
    Training,
    /// Each of them.
    Both,
}

/// The device whose kernels are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayerDevice {
    /// A GPU where there is one that can, else the CPU.
    Auto,
    /// CPU threads.
    Cpu,
    /// A GPU.
    Cuda,
}
