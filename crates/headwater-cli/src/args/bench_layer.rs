//! What `bench layer` takes.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args as Group, ValueEnum};
use headwater::graph::generate::Like;
use headwater::train::run_config::PrecisionName;

use super::compile::switches;
use super::train::word;

/// What `bench layer` takes.
#[derive(Debug, Group)]
pub struct BenchLayerArgs {
    /// Shapes whose graphs are made in memory: published ones, and `hub`, whose degrees follow a power law from 100,000 edges down.
    #[arg(long, value_parser = shapes(), value_delimiter = ',', action = ArgAction::Set, default_value = "aifb")]
    pub like: Vec<String>,
    /// A part of such a graph: 0.1 has a tenth of the nodes and edges.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Models. gcn, sage, gat and gin are for graphs of one relation.
    #[arg(long, value_parser = PossibleValuesParser::new(BenchLayerArgs::MODELS), value_delimiter = ',', action = ArgAction::Set, default_value = "rgcn")]
    pub model: Vec<String>,
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
    /// Times that each case is measured; the median is shown.
    #[arg(long, default_value_t = 20)]
    pub rounds: usize,
    /// Runs layers on a GPU, on CPU threads, or on a GPU where there is one.
    #[arg(long, value_enum, default_value_t = LayerDevice::Auto)]
    pub device: LayerDevice,
    /// GPU to use.
    #[arg(long, default_value_t = 0)]
    pub gpu: usize,
    /// Let every pair of nodes be equally likely instead of crowding edges around hubs.
    #[arg(long)]
    pub even: bool,
    /// Seed of graphs, rows and weights.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One JSON object a case instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Also draw the time of every case as a bar; the ending chooses SVG or PNG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

impl BenchLayerArgs {
    /// The shape that is no published one.
    pub const HUB: &'static str = "hub";
    /// Layers that come with the compiler and read neighbours.
    pub const MODELS: [&'static str; 7] = ["rgcn", "rgat", "hgt", "gcn", "sage", "gat", "gin"];
}

fn shapes() -> PossibleValuesParser {
    PossibleValuesParser::new(Like::NAMES.into_iter().chain([BenchLayerArgs::HUB]))
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
