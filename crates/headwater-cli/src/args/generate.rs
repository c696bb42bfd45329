//! What `generate` takes.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args as Group, Subcommand};
use headwater::graph::generate::Like;

/// What `generate` takes.
#[derive(Debug, Group)]
pub struct GenerateArgs {
    /// What to make.
    #[command(subcommand)]
    pub kind: GenerateKind,
}

/// What can be made.
#[derive(Debug, Subcommand)]
pub enum GenerateKind {
    /// A power-law graph as Graph500 draws it.
    #[command(after_help = "Examples:
  headwater generate rmat -o rmat20
  headwater generate rmat --nodes-log2 24 --edges-per-node 16 --features 128 --classes 32 -o rmat24
  headwater generate rmat --simple --by-rank --seed 7 --json -o rmat20-simple")]
    Rmat(RmatArgs),
    /// Communities with features and labels that a graph network can learn.
    #[command(after_help = "Examples:
  headwater generate planted -o communities
  headwater generate planted --nodes 1000000 --classes 32 --homophily 0.5 -o harder")]
    Planted(PlantedArgs),
    /// The shape of a published dataset: its counts, types, relations, widths and splits.
    #[command(
        long_flag = "like",
        after_help = "Examples:
  headwater generate --like products -o products
  headwater generate --like papers100m --scale 0.01 -o papers1m
  headwater generate like aifb -o aifb"
    )]
    Like(LikeArgs),
}

/// What `generate rmat` takes.
#[derive(Debug, Group)]
pub struct RmatArgs {
    /// Nodes are 2 to this power.
    #[arg(long, default_value_t = 20)]
    pub nodes_log2: u32,
    /// Edges drawn, a node.
    #[arg(long, default_value_t = 16)]
    pub edges_per_node: u64,
    /// 32-bit float features a node; 0 for none.
    #[arg(long, default_value_t = 0)]
    pub features: u64,
    /// Classes; 0 for no labels.
    #[arg(long, default_value_t = 0)]
    pub classes: u64,
    /// Let every pair of nodes be equally likely instead of crowding edges around hubs.
    #[arg(long)]
    pub even: bool,
    /// Leave out self-loops and repeated edges.
    #[arg(long)]
    pub simple: bool,
    /// Number nodes by rank, hubs first, instead of at random.
    #[arg(long)]
    pub by_rank: bool,
    /// What every kind takes.
    #[command(flatten)]
    pub made: MadeArgs,
}

/// What `generate planted` takes.
#[derive(Debug, Group)]
pub struct PlantedArgs {
    /// Nodes.
    #[arg(long, default_value_t = 10_000)]
    pub nodes: u64,
    /// Edges that end at a node, on average; every edge is there in both directions.
    #[arg(long, default_value_t = 10)]
    pub edges_per_node: u64,
    /// Communities, which are the classes.
    #[arg(long, default_value_t = 8)]
    pub classes: u64,
    /// 32-bit float features a node.
    #[arg(long, default_value_t = 64)]
    pub features: u64,
    /// The part of the edges drawn within a community.
    #[arg(long, default_value_t = 0.7)]
    pub homophily: f64,
    /// Half the distance of two communities' features, in standard deviations of the noise.
    #[arg(long, default_value_t = 1.0)]
    pub separation: f32,
    /// What every kind takes.
    #[command(flatten)]
    pub made: MadeArgs,
}

/// What `generate like` takes.
#[derive(Debug, Group)]
pub struct LikeArgs {
    /// Which dataset.
    #[arg(value_parser = PossibleValuesParser::new(Like::NAMES))]
    pub name: String,
    /// Nodes, edges and splits are multiplied by this.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// What every kind takes.
    #[command(flatten)]
    pub made: MadeArgs,
}

/// What every kind of graph takes.
#[derive(Debug, Clone, Group)]
pub struct MadeArgs {
    /// The folder to write, which must not be there yet.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// The same seed makes the same graph, for any number of threads.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only say what would be made and what it would take.
    #[arg(long)]
    pub plan: bool,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}
