//! What can be measured, and how.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args as Group, Subcommand, ValueEnum};
use headwater::graph::generate::Like;
use headwater::tensor::gather::Variant;

use super::bench_layer::BenchLayerArgs;
use super::bench_tier::BenchTierArgs;
use super::bench_train::BenchTrainArgs;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Rows gathered out of host memory: every variant against a plain copy of the same bytes.
    #[command(after_help = "Examples:
  headwater bench gather                                    a table that suits this machine
  headwater bench gather --table-gib 16 --table-gib 64      the large-table sweep
  headwater bench gather --suite micro --suite alignment    the papers' microbenchmarks
  headwater bench gather --suite sms                        bandwidth against a share of the GPU
  headwater bench gather --table-gib 64 --width 128 --cpu-threads 14
  headwater bench gather --json > rows.jsonl
  headwater bench gather --from rows.jsonl --plot gather.svg")]
    Gather(Box<GatherArgs>),
    /// Neighbourhoods drawn out of a dataset's graph.
    #[command(after_help = "Examples:
  headwater bench sample DATASET --fanout 12,12,12
  headwater bench sample DATASET --fanout 15,10,5 --features     rows fetched as well
  headwater bench sample DATASET --fanout 10,10 --device cuda --graph cuda
  headwater bench sample DATASET --fanout 10,10 --json | jq .seeds_per_s")]
    Sample(SampleArgs),
    /// A graph of a published shape renumbered by degree.
    #[command(after_help = "Examples:
  headwater bench reorder --like products
  headwater bench reorder DATASET                                  a graph that is there already
  headwater bench reorder --like papers100m --both-ways --json     3.2 billion edges; needs 80 GiB")]
    Reorder(ReorderArgs),
    /// Rows of batches gathered with more and more of them in GPU memory.
    #[command(after_help = "Examples:
  headwater bench tier data/papers100m                             every hot share, and the ways to do without
  headwater bench tier data/papers100m --scores all                hit rates of every score beside the best there is
  headwater bench tier data/products --shares 0,10,100 --stored f32 --batches 16 --plot shares.svg
  headwater bench tier data/products --disk-cache 0.1 --disk-file /nvme/features.npy
  headwater bench tier data/products --json | jq .claims

The features are not copied or rewritten: row k of the table is row k of the file, and a node's row is its place
in the order of the score. What is measured is so a table in that order, with rows of other nodes in it. With the
order `random` the rows in host memory are shuffled, and those in GPU memory are the same. Drawing batches is not
timed. Traffic is forecast from batches that are not gathered. Without a GPU the CPU gather and the disk alone are
timed; traffic is counted all the same.")]
    Tier(Box<BenchTierArgs>),
    /// Training on a GPU, features brought in every way there is: the papers' end-to-end comparisons.
    #[command(after_help = "Examples:
  headwater bench train --like products --model sage               every way to bring features
  headwater bench train --like papers100m --hot-share 0.1          111 million nodes; needs 80 GiB of host memory
  headwater bench train --suite hot --like papers100m --plot hot.svg
  headwater bench train --suite width --like products              rows of 128 to 4096 elements
  headwater bench train --suite sms --like products                shares of the GPU for the gather
  headwater bench train --like products --export batches           the same batches for another program
  headwater bench train --like reddit --json | jq .batch_ms

Graphs are made in memory with features, labels and splits of the shape's sizes. Batches are trained on one after the
other as `headwater train` does; the times of stages are by the GPU's clock and overlap.")]
    Train(Box<BenchTrainArgs>),
    /// Scores of a dataset's nodes: time a pass over the edges, and its part of memory's speed.
    #[command(after_help = "Examples:
  headwater bench score DATASET
  headwater bench score DATASET --json | jq '.scores[] | {score, ms_per_pass, of_copy}'
  headwater bench score DATASET --device cuda --graph zero-copy")]
    Score(ScoreArgs),
    /// Layers on whole graphs of published shapes: how long, how many bytes, and how near to what memory's speed allows.
    #[command(after_help = "Examples:
  headwater bench layer --like fb15k --model rgcn,rgat,hgt --direction both
  headwater bench layer --suite systems --out hector.jsonl                eight shapes, three models; goes on where it was stopped
  headwater bench layer --suite systems --from hector.jsonl --peers peers.jsonl       beside other systems, without measuring
  headwater bench layer --suite optimisations --even --rounds 10 --plot worth.svg     what each optimisation is worth
  headwater bench layer --suite breakdown --out hector.jsonl --plot classes.svg       time by class of kernel, as stacked bars
  headwater bench layer --suite memory --scale 0.01 --device cpu
  headwater bench layer --like hub --model gat --heads 1,4,8 --width 32,64,128 --plot hub.svg
  headwater bench layer --like arxiv --model gcn --layers 3 --device cpu
  headwater bench layer --like am --model hgt --variant hector --without compact,merge --json | jq .total_ms

Graphs are made in memory, and rows and weights are random numbers; layers of a stack are alike, and nothing stands between
them. A GPU's time is that of all launches, recorded once and replayed; times of kernels are from other runs, launch by launch.
Bytes and operations are counted as `headwater compile` counts them. Two floors are shown with the part of each that was
reached. `compulsory`: every layer's rows, weights, outputs and edges once at the speed of a copy; training also has gradients
and edges once more. `one gather`: a row and an index for every edge and layer, in training twice. What stays in caches from one
run to the next, as all of a small graph does, may be faster than a floor.

A suite is a fixed list of cases with a line for each and tables in Markdown at the end; --json has no tables. A case that fails, for
want of memory say, is a line with the reason, and the suite goes on. Suites share cases, so one --out file for all of them saves
time: a line stands for its case with the same --scale, --even, --seed, --rounds and device, and is removed to run it again.")]
    Layer(Box<BenchLayerArgs>),
}

/// The GPU of a benchmark.
#[derive(Debug, Clone, Group)]
pub struct GpuArgs {
    /// GPU to use.
    #[arg(long, default_value_t = 0)]
    pub gpu: usize,
}

/// What `bench gather` takes.
#[derive(Debug, Clone, Group)]
pub struct GatherArgs {
    /// What to run; may be given several times.
    #[arg(long, value_enum, default_value = "table")]
    pub suite: Vec<Suite>,
    /// Table sizes of the `table` and `sms` suites in GiB; may be given several times. Default: 16, or what fits.
    #[arg(long)]
    pub table_gib: Vec<f64>,
    /// Row widths in bytes; may be given several times. Default: the suite's own.
    #[arg(long)]
    pub width: Vec<u64>,
    /// Variants to run; may be given several times. Default: all.
    #[arg(long, value_parser = variant())]
    pub variant: Vec<Variant>,
    /// MiB gathered a step of the `table` and `sms` suites. Default: 512, and 64 without a GPU.
    #[arg(long)]
    pub gathered_mib: Option<u64>,
    /// CPU threads for `cpu` and `hybrid`. Default: all cores but two.
    #[arg(long)]
    pub cpu_threads: Option<usize>,
    /// SMs the gather may use. Default: all.
    #[arg(long)]
    pub sms: Option<u32>,
    /// Also run `sorted` with these BLOCKSxTHREADSxDEPTHxLANESxCLAIMS, as `16x512x2x32x1`; may be given several times.
    #[arg(long, hide = true)]
    pub tune: Vec<String>,
    #[command(flatten)]
    pub on: GpuArgs,
    /// Shortest time to measure each figure over, in milliseconds.
    #[arg(long, default_value_t = 150)]
    pub least_ms: u64,
    /// Seed of the random ids.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One JSON object a row on standard output instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Show or draw what an earlier run printed with --json instead of measuring.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Also draw the result; the ending chooses SVG or PNG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// The parts of `bench gather`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// 8K to 256K rows of 256 B to 16 KB from a table of 4M rows.
    Micro,
    /// Widths 2048 to 2076 B in steps of 4, from a table of 4M rows.
    Alignment,
    /// A large table, widths from 128 B to 16 KB.
    Table,
    /// Share of the GPU against bandwidth.
    Sms,
}

/// Takes the library's names, so that a new variant needs nothing here.
fn variant() -> impl TypedValueParser<Value = Variant> {
    let by_name = |name: String| Variant::ALL.into_iter().find(|variant| variant.name() == name).ok_or(name);
    PossibleValuesParser::new(Variant::ALL.map(Variant::name)).try_map(by_name)
}

/// What `bench sample` takes.
#[derive(Debug, Group)]
pub struct SampleArgs {
    /// A dataset folder.
    pub dataset: PathBuf,
    /// Neighbours a hop, seeds first; -1 for all.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, allow_hyphen_values = true, default_value = "15,10,5")]
    pub fanout: Vec<i64>,
    /// Seeds a batch.
    #[arg(long, default_value_t = 1024)]
    pub batch: usize,
    /// Batches to measure over.
    #[arg(long, default_value_t = 96)]
    pub batches: usize,
    /// Who draws.
    #[arg(long, value_enum, default_value_t = SampleDevice::Cpu)]
    pub device: SampleDevice,
    /// Where the graph lies. Default: `cpu` for CPU threads, `zero-copy` for a GPU.
    #[arg(long, value_enum)]
    pub graph: Option<GraphStorage>,
    #[command(flatten)]
    pub on: GpuArgs,
    /// In which order a GPU reads the rows of a hop. Samples do not depend on it.
    #[arg(long, value_enum, default_value_t = RowVisits::Auto)]
    pub order: RowVisits,
    /// Threads of the CPU sampler. Default: all cores.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Also fetch the rows of features of every node.
    #[arg(long)]
    pub features: bool,
    /// Also return the ids of edges.
    #[arg(long)]
    pub edge_ids: bool,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Who draws neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SampleDevice {
    /// CPU threads.
    Cpu,
    /// A GPU.
    Cuda,
}

/// In which order rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowVisits {
    /// By address where that is likely to pay.
    Auto,
    /// As they were found.
    AsFound,
    /// By address.
    ByAddress,
}

/// Where a graph lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphStorage {
    /// In host memory.
    Cpu,
    /// In pinned host memory that the GPU reads.
    ZeroCopy,
    /// In GPU memory.
    Cuda,
}

/// What `bench reorder` takes.
#[derive(Debug, Group)]
pub struct ReorderArgs {
    /// A dataset folder of one relation, instead of a shape.
    #[arg(conflicts_with_all = ["like", "scale", "both_ways", "seed"])]
    pub dataset: Option<PathBuf>,
    /// The shape.
    #[arg(long, value_parser = PossibleValuesParser::new(Like::NAMES), default_value = "products")]
    pub like: String,
    /// Its size, as a share of the published one.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Let every edge go both ways, which doubles them.
    #[arg(long)]
    pub both_ways: bool,
    /// Seed of the graph.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What `bench score` takes.
#[derive(Debug, Group)]
pub struct ScoreArgs {
    /// A dataset folder.
    pub dataset: PathBuf,
    /// Who scores.
    #[arg(long, value_enum, default_value_t = SampleDevice::Cpu)]
    pub device: SampleDevice,
    /// Where the graph lies. Default: `cpu` for CPU threads, `cuda` for a GPU.
    #[arg(long, value_enum)]
    pub graph: Option<GraphStorage>,
    #[command(flatten)]
    pub on: GpuArgs,
    /// CPU threads. Default: all cores.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Neighbours a hop, seeds first; -1 for all.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, allow_hyphen_values = true, default_value = "12,12,12")]
    pub fanout: Vec<i64>,
    /// Seeds a batch.
    #[arg(long, default_value_t = 1024)]
    pub batch: usize,
    /// Times each score is worked out; the median is shown.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}
