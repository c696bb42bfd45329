//! What can be typed. Meaning is given to it in `commands`.

mod bench;
mod bench_layer;
mod bench_tier;
mod bench_train;
mod compile;
mod generate;
mod infer;
mod ingest;
mod offload;
mod tier;
mod train;

use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand, ValueEnum};

pub use self::bench::{
    BenchCommand, GatherArgs, GraphStorage, ReorderArgs, RowVisits, SampleArgs, SampleDevice, ScoreArgs, Suite,
};
pub use self::bench_layer::{BenchLayerArgs, LayerDevice, LayerDirection, LayerSuite, LayerVariant};
pub use self::bench_tier::{BenchTierArgs, Caches, ColdOrder, ScoreSet, stored_name};
pub use self::bench_train::{BenchTrainArgs, TrainOrder, TrainSuite};
pub use self::compile::{CompileArgs, Level, Target};
pub use self::generate::{GenerateArgs, GenerateKind, LikeArgs, MadeArgs, PlantedArgs, RmatArgs};
pub use self::infer::{CheckpointChoice, InferArgs};
pub use self::ingest::{IngestArgs, IngestIds, IngestLayout, LabelsAre, SparseAs};
pub use self::offload::{OffloadCommand, OffloadPlanArgs};
pub use self::tier::{RoomArgs, ScoreChoice, TierArgs};
pub use self::train::TrainArgs;

/// Train graph neural networks on graphs that do not fit in GPU memory.
#[derive(Debug, Parser)]
#[command(
    name = "headwater",
    version,
    after_help = "Examples:
  headwater train                    a network on a made-up graph, from end to end
  headwater infer runs/mine          what a trained network says of nodes
  headwater info                     what this machine offers, and what is missing
  headwater ingest edges.csv -o d    a dataset out of an edge list, arrays or an OGB folder
  headwater inspect data/products    what a dataset holds, and whether its files are sound
  headwater generate rmat -o rmat20  make a graph to try things on
  headwater reorder data/p -o hot    nodes that are read most first
  headwater tier data/p              which rows should lie in which memory
  headwater compile rgat             what a layer becomes, and what its kernels will cost
  headwater offload plan             what a model saves for its backward pass, and what of that should leave the GPU
  headwater bench gather             gather scattered rows out of host memory, every way there is

Exit codes: 0 when it is done, 1 when it failed, 2 when it was not understood. A run that a signal stopped ends with 128 and
the signal's number, after a checkpoint."
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show GPUs, libraries, memory and measured bandwidths.
    #[command(after_help = "Examples:
  headwater info
  headwater info --bandwidth
  headwater info --json | jq .gpus[0].facts.name")]
    Info(InfoArgs),
    /// Make a dataset out of an edge list, arrays or an OGB folder.
    #[command(after_help = "Examples:
  headwater ingest edges.csv -o data/mine                        ids are mapped when they are not dense
  headwater ingest edges.tsv.gz -o data/mine --ids dense --nodes 1000000
  headwater ingest trips.csv -o data/trips --source-column from --target-column to --time-column when
  headwater ingest triples.tsv -o data/kg --relation-column 1
  headwater ingest -o data/mag --edges author:writes:paper=w.csv --edges paper:cites:paper=c.csv
  headwater ingest graph.npz -o data/mine                        edge_index, x, y, train_idx, ...
  headwater ingest products -o data/products --reverse           a folder of OGB, raw files and splits
  headwater ingest mag240m_kddcup2021 -o data/mag240m --nodes author=122383112

Ids that are not dense are numbered in ascending order, and what they were is kept with the dataset.
A folder appears at its place when it is whole; an ingest that was stopped by Ctrl-C or SIGTERM leaves nothing.
One that was killed leaves a hidden folder .NAME.partial, which the next one to the same place removes.")]
    Ingest(Box<IngestArgs>),
    /// Show what a dataset is and check its files.
    #[command(after_help = "Examples:
  headwater inspect data/products
  headwater inspect data/products --no-verify --plot degrees.svg
  headwater inspect data/products --json | jq .relations[0].degrees")]
    Inspect(InspectArgs),
    /// Write a dataset's arrays for other programs.
    #[command(after_help = "Examples:
  headwater export data/products --npy arrays/products

The dataset's checksums are compared first. Writes indptr, indices, feat, label, train_idx, val_idx and test_idx; with several types, one folder
for each relation and each node type. Ids are 64-bit signed integers.")]
    Export(ExportArgs),
    /// Renumber a dataset's nodes, with everything that belongs to them.
    #[command(after_help = "Examples:
  headwater reorder data/products -o data/products-hot --by weighted-pagerank
  headwater reorder data/products -o data/mine --order new_order.npy

Nodes that are read most come first: their features then lie together. What each node's number was is
kept with the new dataset. The old one's checksums are compared first, it is not touched, and the new one appears when it
is whole.")]
    Reorder(ReorderDatasetArgs),
    /// Say which rows of features should lie in which memory, and put them in that order.
    #[command(after_help = "Examples:
  headwater tier data/products                                   the best score, and the plan for this machine
  headwater tier data/products -o data/products-hot              also writes the nodes in that order
  headwater tier data/products --gpu-share 0.1 --measure         predicted and counted traffic, every score
  headwater tier data/products --score weighted-pagerank --fanout 15,10,5 --batch 512
  headwater tier data/products --measure --depths 2,3,4,5 --plot curves.svg
  headwater tier data/graph --row-bytes 512 --json | jq .plan.seconds_per_epoch

Batches that are measured are others than those that scores are made from. Tables of several node types
compete for the same memories: rows that are read most come first, whatever their type. Without a GPU the
plan is for an assumed one, and says so.")]
    Tier(Box<TierArgs>),
    /// Train a network and say how good it is.
    #[command(after_help = "Examples:
  headwater train                                                 a graph of planted communities, GraphSAGE
  headwater train data/cora --model gat --hidden 8 --heads 8 --seed 3 --full-graph
  headwater train data/products --fanout 15,10,5 --batch 1024 --epochs 10 -o runs/products
  headwater train data/reddit --full-graph --offload auto         activations that do not fit a GPU leave, or are recomputed
  headwater train --resume runs/products                          goes on where it was stopped

What is not said is what was published for the model. The run's folder has config.toml, metrics.jsonl, checkpoints,
curves.svg and summary.json; nobody else may train in it meanwhile. Runs repeat to the bit: no sum depends on who comes first.

Ctrl-C, SIGTERM and SIGHUP write a checkpoint; a second one does not wait for it. Exit codes: 0 when the run is done, 1 when it
failed or its results could not all be written, 2 when the words were not understood, 130, 143 and 129 when one of these signals
stopped it.")]
    Train(Box<TrainArgs>),
    /// Say what a trained network makes of nodes.
    #[command(after_help = "Examples:
  headwater infer runs/products                                  the class of every node
  headwater infer runs/products --nodes ids.txt -o classes.npy
  headwater infer runs/products --dataset data/newer --probabilities -o p.npy --json | jq .value

Layers are computed one after the other, a chunk of nodes at a time, and only for nodes that matter to
those that are asked for. The file appears when it is whole.")]
    Infer(InferArgs),
    /// Make a graph with features, labels and splits, and write it as a dataset.
    #[command(after_help = "Examples:
  headwater generate rmat --nodes-log2 20 --edges-per-node 16 --features 128 --classes 32 -o rmat20
  headwater generate planted --nodes 100000 --classes 16 -o communities
  headwater generate --like papers100m --scale 0.01 -o papers1m")]
    Generate(GenerateArgs),
    /// Show what a layer becomes: its programs, its kernels, and what they will move and compute.
    #[command(after_help = "Examples:
  headwater compile gat                                          every level, for a well-known graph
  headwater compile rgcn --graph data/am --level plan            what was chosen for this graph, and why
  headwater compile hgt --size d_in=64 --size heads=4 --option variant=hector --without compact,merge
  headwater compile mine.py --size d_in=100 --level kernels      a layer of one's own
  headwater compile rgat --json | jq '.savings[] | {switch, without}'

Nothing is run: bytes and operations follow from how many rows there are. Without --graph these are those of
FB15k-237 with inverse relations.")]
    Compile(CompileArgs),
    /// Plan what leaves a GPU between forward and backward.
    #[command(subcommand)]
    Offload(OffloadCommand),
    /// Make batches for a trainer, which starts this by itself and is the other end of the standard input.
    #[command(hide = true)]
    Produce,
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
}

impl Command {
    /// Whether a dataset or arrays are written, of which nothing is to be left when it is stopped.
    pub fn writes_dataset(&self) -> bool {
        match self {
            Self::Ingest(_) | Self::Export(_) | Self::Reorder(_) | Self::Generate(_) => true,
            Self::Tier(args) => args.output.is_some(),
            _ => false,
        }
    }
}

/// What `info` takes.
#[derive(Debug, Group)]
pub struct InfoArgs {
    /// Measure the links of every GPU (a second each; remembered).
    #[arg(long)]
    pub bandwidth: bool,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What `inspect` takes.
#[derive(Debug, Group)]
pub struct InspectArgs {
    /// The dataset's folder.
    pub dataset: PathBuf,
    /// Do not read every file to compare its checksum.
    #[arg(long)]
    pub no_verify: bool,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Also draw the degrees; the ending chooses SVG or PNG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// What `reorder` takes.
#[derive(Debug, Group)]
pub struct ReorderDatasetArgs {
    /// The dataset's folder.
    pub dataset: PathBuf,
    /// The folder to make. It must not be there or be empty.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// Which nodes come first.
    #[arg(long, value_enum, default_value_t = NodeOrder::WeightedPagerank, conflicts_with = "order")]
    pub by: NodeOrder,
    /// A `.npy` file with the old number of every node, in their new order. For datasets of one node type.
    #[arg(long, value_name = "FILE")]
    pub order: Option<PathBuf>,
    /// Seed of the random order. Default: 1.
    #[arg(long)]
    pub seed: Option<u64>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Which nodes come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeOrder {
    /// Those that many edges begin at.
    OutDegree,
    /// Those that many edges end at.
    InDegree,
    /// The highest reverse PageRank.
    Pagerank,
    /// The highest reverse PageRank with weight on training nodes.
    WeightedPagerank,
    /// None in particular.
    Random,
}

/// What `export` takes.
#[derive(Debug, Group)]
pub struct ExportArgs {
    /// The dataset's folder.
    pub dataset: PathBuf,
    /// The folder to make. It must not be there or be empty.
    #[arg(long, value_name = "FOLDER")]
    pub npy: PathBuf,
}
