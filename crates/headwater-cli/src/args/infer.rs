//! What `infer` takes.

use std::path::PathBuf;

use clap::{Args as Group, ValueEnum};

/// What `infer` takes.
#[derive(Debug, Group)]
pub struct InferArgs {
    /// The folder of a run.
    pub run: PathBuf,
    /// Only these nodes, in this order: a .npy file of integers, or a text with an id a line. Default: all nodes
    /// of the type that has labels.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// Where predictions go. Default: predictions.npy in the run's folder.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Another dataset with the same types and widths. Default: the one the run was trained on.
    #[arg(long, value_name = "DIR")]
    pub dataset: Option<PathBuf>,
    /// Read every file of the dataset first and compare its checksum.
    #[arg(long)]
    pub verify: bool,
    /// Which checkpoint.
    #[arg(long, value_enum, default_value_t = CheckpointChoice::Best)]
    pub checkpoint: CheckpointChoice,
    /// Write the class of each node, as int64: what is written by default. A network that answers several questions
    /// gives 1 or 0 for each, one that was trained on numbers gives numbers.
    #[arg(long, conflicts_with_all = ["logits", "probabilities"])]
    pub classes: bool,
    /// Write what the last layer gives, as float32.
    #[arg(long, conflicts_with = "probabilities")]
    pub logits: bool,
    /// Write probabilities, as float32.
    #[arg(long)]
    pub probabilities: bool,
    /// Threads; 0 takes all cores, and 16 for each core are the most.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// A line a step on standard error, also where nobody looks.
    #[arg(long)]
    pub progress: bool,
}

/// Which checkpoint of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointChoice {
    /// The best for the validation nodes; the last where nothing was measured there.
    Best,
    /// The last.
    Last,
}
