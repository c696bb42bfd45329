//! What can be typed. Meaning is given to it in `commands`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use headwater::graph::generate::Like;
use headwater::graph::ingest::text::ColumnName;
use headwater::graph::ingest::{Format, NodeCount, TypedFile};
use headwater::tensor::gather::Variant;

/// Train graph neural networks on graphs that do not fit in GPU memory.
#[derive(Debug, Parser)]
#[command(
    name = "headwater",
    version,
    after_help = "Examples:
  headwater info                     what this machine offers, and what is missing
  headwater ingest edges.csv -o d    a dataset out of an edge list, arrays or an OGB folder
  headwater inspect data/products    what a dataset holds, and whether its files are sound
  headwater generate rmat -o rmat20  make a graph to try things on
  headwater bench gather             gather scattered rows out of host memory, every way there is"
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
A folder appears at its place when it is whole; an ingest that was stopped leaves nothing.")]
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

Writes indptr, indices, feat, label, train_idx, val_idx and test_idx; with several types, one folder
for each relation and each node type. Ids are 64-bit signed integers.")]
    Export(ExportArgs),
    /// Make a graph with features, labels and splits, and write it as a dataset.
    #[command(after_help = "Examples:
  headwater generate rmat --nodes-log2 20 --edges-per-node 16 --features 128 --classes 32 -o rmat20
  headwater generate planted --nodes 100000 --classes 16 -o communities
  headwater generate --like papers100m --scale 0.01 -o papers1m")]
    Generate(GenerateArgs),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
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

/// What `ingest` takes.
#[derive(Debug, Group)]
pub struct IngestArgs {
    /// A file or a folder; none with --edges.
    #[arg(required_unless_present = "edges")]
    pub source: Option<PathBuf>,
    /// The folder to make. It must not be there or be empty.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// What the source is. Default: found out.
    #[arg(long, value_parser = format())]
    pub format: Option<Format>,
    /// What the dataset is called. Default: the folder's name.
    #[arg(long)]
    pub name: Option<String>,
    /// How neighbour lists are stored: by target (csc) or by source (csr).
    #[arg(long, value_enum, default_value = "csc")]
    pub layout: IngestLayout,
    /// Also let edges go the other way; between different types as a relation rev_NAME.
    #[arg(long)]
    pub reverse: bool,
    /// Number of nodes, COUNT or TYPE=COUNT; may be given several times. Ids are then kept as they are.
    #[arg(long, value_name = "COUNT")]
    pub nodes: Vec<NodeCount>,
    /// What becomes of sparse features.
    #[arg(long, value_enum, default_value = "dense")]
    pub sparse_features: SparseAs,
    /// An edge list of one relation; may be given several times.
    #[arg(long, value_name = "SOURCE:RELATION:TARGET=FILE", help_heading = "Edge lists")]
    pub edges: Vec<TypedFile>,
    /// What ids are.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Edge lists")]
    pub ids: IngestIds,
    /// One character, or tab, comma, spaces. Default: found out.
    #[arg(long, value_name = "CHARACTER", help_heading = "Edge lists")]
    pub delimiter: Option<String>,
    /// The first line names the columns. Default: found out.
    #[arg(long, conflicts_with = "no_header", help_heading = "Edge lists")]
    pub header: bool,
    /// The first line is an edge.
    #[arg(long, help_heading = "Edge lists")]
    pub no_header: bool,
    /// Column where edges begin, by name or by number from 0.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub source_column: Option<ColumnName>,
    /// Column where edges end.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub target_column: Option<ColumnName>,
    /// Column of weights.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub weight_column: Option<ColumnName>,
    /// Column of times, whole numbers.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub time_column: Option<ColumnName>,
    /// Column of relations.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub relation_column: Option<ColumnName>,
    /// Column of the types of nodes where edges begin.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub source_type_column: Option<ColumnName>,
    /// Column of the types of nodes where edges end.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub target_type_column: Option<ColumnName>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// How neighbour lists are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IngestLayout {
    /// A list has the sources of a target.
    Csc,
    /// A list has the targets of a source.
    Csr,
}

/// What ids in text are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IngestIds {
    /// Whole numbers if the first lines have nothing else, otherwise any text.
    Auto,
    /// Whole numbers that are kept.
    Dense,
    /// Whole numbers that are numbered anew unless they are dense.
    Integer,
    /// Any text.
    String,
}

/// What becomes of sparse features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SparseAs {
    /// Rows of 32-bit floats.
    Dense,
    /// Rows of 16-bit floats.
    Half,
    /// They are left out.
    Skip,
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

/// What `export` takes.
#[derive(Debug, Group)]
pub struct ExportArgs {
    /// The dataset's folder.
    pub dataset: PathBuf,
    /// The folder to make. It must not be there or be empty.
    #[arg(long, value_name = "FOLDER")]
    pub npy: PathBuf,
}

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
  headwater bench reorder --like papers100m --both-ways --json     3.2 billion edges; needs 80 GiB")]
    Reorder(ReorderArgs),
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
    /// MiB gathered a step of the `table` and `sms` suites.
    #[arg(long, default_value_t = 512)]
    pub gathered_mib: u64,
    /// CPU threads for `cpu` and `hybrid`. Default: all cores but two.
    #[arg(long)]
    pub cpu_threads: Option<usize>,
    /// SMs the gather may use. Default: all.
    #[arg(long)]
    pub sms: Option<u32>,
    /// Also run `sorted` with these BLOCKSxTHREADSxDEPTHxLANESxCLAIMS, as `16x512x2x32x1`; may be given several times.
    #[arg(long, hide = true)]
    pub tune: Vec<String>,
    /// GPU to use.
    #[arg(long, default_value_t = 0)]
    pub gpu: usize,
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
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "15,10,5")]
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
    /// GPU to use.
    #[arg(long, default_value_t = 0)]
    pub gpu: usize,
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

/// Takes the library's names of formats.
fn format() -> impl TypedValueParser<Value = Format> {
    let by_name = |name: String| name.parse::<Format>();
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(by_name)
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
    /// The shape.
    #[arg(long, default_value = "products")]
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
