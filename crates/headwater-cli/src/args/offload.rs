//! What `offload plan` takes.

use std::path::PathBuf;

use clap::{ArgAction, Args as Group, Subcommand};

/// What can be asked of activations that leave a GPU.
#[derive(Debug, Subcommand)]
pub enum OffloadCommand {
    /// Say what a transformer saves for its backward pass, how much of that should leave, and what it costs.
    #[command(after_help = "Examples:
  headwater offload plan                                         the first shape of SSDTrain's authors
  headwater offload plan --hidden 12288 --layers 3 --batch 32 --plot rok.svg
  headwater offload plan --hidden 2048 --layers 64 --sequence 65536 --batch 1 --checkpoint --host-gb 1 --disk-write 1.8 --disk-read 3.8
  headwater offload plan --gpu-gb 10 --json | jq .plan.forecast

Bytes and times follow from formulas, and a step is played through with them: nothing is run. Rates of the link are those that
`headwater info --bandwidth` measured where there is a GPU, and assumed otherwise. The picture has the peak of activations and the
operations a second of every batch of --batches: kept, offloaded and computed again.")]
    Plan(OffloadPlanArgs),
}

/// What `offload plan` takes.
#[derive(Debug, Group)]
pub struct OffloadPlanArgs {
    /// Width of a token.
    #[arg(long, default_value_t = 8192)]
    pub hidden: u64,
    /// Transformer layers, each attention and a perceptron.
    #[arg(long, default_value_t = 4)]
    pub layers: u64,
    /// Attention heads. Default: one for 128 of the width.
    #[arg(long)]
    pub heads: Option<u64>,
    /// Tokens of a sequence.
    #[arg(long, default_value_t = 1024)]
    pub sequence: u64,
    /// Sequences of a micro-batch.
    #[arg(long, default_value_t = 16)]
    pub batch: u64,
    /// Words that the last layer scores; 0 for none.
    #[arg(long, default_value_t = 32000)]
    pub vocabulary: u64,
    /// Tokens see those behind them as well, as in BERT.
    #[arg(long)]
    pub bidirectional: bool,
    /// Layers are computed again in the backward pass, and their inputs alone are saved.
    #[arg(long)]
    pub checkpoint: bool,
    /// Tera operations a second that the GPU reaches.
    #[arg(long, default_value_t = 400.0)]
    pub tflops: f64,
    /// GB/s of the link between GPU and host, each way.
    #[arg(long, value_name = "GB/S")]
    pub link: Option<f64>,
    /// GB of host memory for activations.
    #[arg(long, default_value_t = 64.0)]
    pub host_gb: f64,
    /// GB/s that are written to disks; 0 for no disk.
    #[arg(long, default_value_t = 0.0, value_name = "GB/S")]
    pub disk_write: f64,
    /// GB/s that are read from disks. Default: as many as are written.
    #[arg(long, value_name = "GB/S", requires = "disk_write")]
    pub disk_read: Option<f64>,
    /// GB of room on disks.
    #[arg(long, default_value_t = 1000.0)]
    pub disk_gb: f64,
    /// Petabytes that disks take before they are worn out, for how many years they last.
    #[arg(long, value_name = "PB")]
    pub endurance: Option<f64>,
    /// GB of activations that the GPU should hold at most, however long the step takes. Default: as few as take no time.
    #[arg(long)]
    pub gpu_gb: Option<f64>,
    /// How much longer the step may take, as a share.
    #[arg(long, default_value_t = 0.02)]
    pub slack: f64,
    /// Micro-batches of the curves.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, default_value = "1,2,4,8,16,32")]
    pub batches: Vec<u64>,
    /// Also draw the curves; the ending chooses SVG or PNG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}
