//! What `train` takes. Every field of a run file is a flag.

use std::path::PathBuf;

use clap::{ArgAction, Args as Group};
use headwater::graph::score::Score;
use headwater::train::run_config::{
    Activation, Course, DeviceName, Features, Model, Norm, OffloadTo, OptimiserName, PrecisionName, ProducerName,
    RunFile, SamplerName, Tune, Watch,
};
use headwater::train::{Loss, Metric};
use serde::de::DeserializeOwned;

use super::compile::switches;

/// What `train` takes.
#[derive(Debug, Group)]
pub struct TrainArgs {
    /// A dataset folder. Without one a graph of planted communities is made. With --resume: where the run's dataset is now.
    pub dataset: Option<PathBuf>,
    /// A TOML file that describes the run; flags go before what it says.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Go on with the run in this folder, from its newest checkpoint. How long it goes on, where it computes and what it
    /// keeps may change (epochs, patience, threads, device, sampler, producer, producer-percent, gather-sms, gather-green,
    /// gather-window, features, hot-share, scores, score-damping, score-iterations, score-batches, evaluate-every,
    /// checkpoint-every, keep, offload, offload-folder, offload-host-gb, offload-disk-gb, offload-gpu-gb, offload-slack), and is
    /// kept; what it learns may not.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["config", "out"])]
    pub resume: Option<PathBuf>,
    /// The run's folder. Default: a new one below runs/.
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// gcn, sage, gat, gin, rgcn, rgat, hgt, mlp, or a layer text.
    #[arg(long)]
    pub model: Option<Model>,
    /// Width of hidden layers; of one head, where there are heads.
    #[arg(long)]
    pub hidden: Option<usize>,
    /// Width that inputs of all node types are brought to where they differ; 0 takes the hidden width.
    #[arg(long)]
    pub input_width: Option<usize>,
    /// Width of the row that is learnt for each node without features; 0 takes the input width.
    #[arg(long)]
    pub embedding: Option<usize>,
    /// Number of layers.
    #[arg(long)]
    pub layers: Option<usize>,
    /// Attention heads of hidden layers.
    #[arg(long)]
    pub heads: Option<usize>,
    /// Attention heads of the last layer.
    #[arg(long)]
    pub output_heads: Option<usize>,
    /// Between layers: none, relu, leaky_relu, elu, gelu or tanh.
    #[arg(long, value_parser = word::<Activation>)]
    pub activation: Option<Activation>,
    /// Neighbours a hop, seeds first; -1 for all.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, allow_hyphen_values = true)]
    pub fanout: Option<Vec<i64>>,
    /// Seeds a batch.
    #[arg(long)]
    pub batch: Option<usize>,
    /// Every step sees the whole graph.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub full_graph: Option<bool>,
    /// Epochs.
    #[arg(long)]
    pub epochs: Option<u64>,
    /// sgd, adam or adamw.
    #[arg(long, value_parser = word::<OptimiserName>)]
    pub optimiser: Option<OptimiserName>,
    /// Learning rate.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Momentum of SGD.
    #[arg(long)]
    pub momentum: Option<f64>,
    /// SGD looks ahead.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub nesterov: Option<bool>,
    /// Weight decay.
    #[arg(long)]
    pub decay: Option<f64>,
    /// Only the first layer decays.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub decay_first_layer_only: Option<bool>,
    /// Every row of features is divided by the sum of its absolute values. Default: for gcn and gat, where no feature is
    /// negative; else not.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub normalise_features: Option<bool>,
    /// Every relation is also there the other way.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub inverse_relations: Option<bool>,
    /// Share of inputs that a layer does not see.
    #[arg(long)]
    pub dropout: Option<f64>,
    /// Share of attention that a layer does not see.
    #[arg(long)]
    pub attention_dropout: Option<f64>,
    /// Between layers: none, layer or batch.
    #[arg(long, value_parser = word::<Norm>)]
    pub norm: Option<Norm>,
    /// Layers add to what they were given.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub residual: Option<bool>,
    /// cross_entropy, nll, bce or mse. Default: what suits the labels.
    #[arg(long, value_parser = word::<Loss>)]
    pub loss: Option<Loss>,
    /// accuracy, f1_micro, f1_macro, roc_auc or r2. Default: what suits the labels.
    #[arg(long, value_parser = word::<Metric>)]
    pub metric: Option<Metric>,
    /// Of the learning rate: constant, step or cosine.
    #[arg(long, value_parser = word::<Course>)]
    pub schedule: Option<Course>,
    /// Epochs after which a step schedule multiplies.
    #[arg(long)]
    pub schedule_epochs: Option<u64>,
    /// What it multiplies by.
    #[arg(long)]
    pub schedule_gamma: Option<f64>,
    /// The rate at which a cosine schedule ends.
    #[arg(long)]
    pub schedule_floor: Option<f64>,
    /// Steps in which the rate grows to its full size.
    #[arg(long)]
    pub warmup_steps: Option<u64>,
    /// Largest norm of all gradients together; 0 does not clip.
    #[arg(long)]
    pub clip: Option<f64>,
    /// Epochs without anything better before the run stops; 0 never stops early. Needs validation nodes with labels.
    #[arg(long)]
    pub patience: Option<u64>,
    /// How much better is better.
    #[arg(long)]
    pub min_delta: Option<f64>,
    /// What should get better, and what makes an epoch the best, of the validation nodes: metric, loss or either.
    #[arg(long, value_parser = word::<Watch>)]
    pub watch: Option<Watch>,
    /// The seed of everything random.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Which machine computes: auto, cpu, cuda, or cuda:N. Auto takes a GPU where there is one that can.
    #[arg(long)]
    pub device: Option<DeviceName>,
    /// Who draws neighbours: auto, cpu or gpu.
    #[arg(long, value_parser = word::<SamplerName>)]
    pub sampler: Option<SamplerName>,
    /// How exact products are on a GPU: f32, tf32, tf32x3 (as exact as f32, on tensor cores) or bf16.
    #[arg(long, value_parser = word::<PrecisionName>)]
    pub precision: Option<PrecisionName>,
    /// Optimisations to leave out.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, value_name = "NAMES", value_parser = switches())]
    pub without: Vec<String>,
    /// How schedules of kernels are chosen on a GPU whose steps see the whole graph: fixed (the same on every machine), model
    /// (by what is measured of the GPU), measure (by times of the kernels on this graph, kept on disk), or parts of schedules,
    /// such as lanes=8,ahead=4. Schedules change the order of sums: runs that are to repeat to the bit are fixed.
    #[arg(long, value_name = "HOW", value_parser = word::<Tune>)]
    pub tune: Option<Tune>,
    /// Where batches are made for a GPU: thread, or process (one beside the trainer, where CUDA's Multi-Process Service runs).
    #[arg(long, value_parser = word::<ProducerName>)]
    pub producer: Option<ProducerName>,
    /// Percent of the SMs that a producer in a process of its own has; the trainer has the rest.
    #[arg(long)]
    pub producer_percent: Option<u32>,
    /// SMs that gather features on a GPU; 0 takes all.
    #[arg(long)]
    pub gather_sms: Option<u32>,
    /// The driver sets these SMs aside for the gather, as a green context. Without it the gather starts no more blocks than
    /// they hold.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub gather_green: Option<bool>,
    /// Translations of host addresses that a gather has under way: more make it faster and steps beside it slower. 0 is
    /// found in the first batches.
    #[arg(long)]
    pub gather_window: Option<u64>,
    /// Where features lie. On a CPU: auto, memory, disk (read through a cache) or tiered (the most read rows in memory). On a
    /// GPU: auto, dma (the CPU collects rows), naive, zero-copy (the GPU reads host memory), tiered (the most read rows in
    /// GPU memory) or all-gpu.
    #[arg(long, value_parser = word::<Features>)]
    pub features: Option<Features>,
    /// Share of rows that a tiered table holds in the faster memory.
    #[arg(long)]
    pub hot_share: Option<f64>,
    /// What says which rows are read most, for tiered tables: out-degree, in-degree, pagerank, weighted-pagerank, expected
    /// (chances worked out from the fan-outs, the default) or presampled (batches are drawn and counted).
    #[arg(long, value_parser = word::<Score>)]
    pub scores: Option<Score>,
    /// Share of a score that a PageRank hands on.
    #[arg(long)]
    pub score_damping: Option<f64>,
    /// Iterations of a PageRank; 0 is five with weight on training nodes, and else until nothing changes.
    #[arg(long)]
    pub score_iterations: Option<u32>,
    /// Batches that presampled draws; 0 is an epoch, but from 16 to 64.
    #[arg(long)]
    pub score_batches: Option<u64>,
    /// What may become of activations between forward and backward, on a GPU whose steps see the whole graph: host, disk,
    /// recompute, or auto (all; disk where there is a folder for it). What each layer does is planned from measured times.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, value_name = "TO", value_parser = word::<OffloadTo>)]
    pub offload: Vec<OffloadTo>,
    /// The folder of the file that activations leave for: on an NVMe disk, if there is one. Default: the run's folder.
    #[arg(long, value_name = "DIR")]
    pub offload_folder: Option<PathBuf>,
    /// The most pinned host memory for activations, in GB. Default: half of what is free.
    #[arg(long, value_name = "GB")]
    pub offload_host_gb: Option<f64>,
    /// The most bytes of activations on disk, in GB. Default: what a step can need.
    #[arg(long, value_name = "GB")]
    pub offload_disk_gb: Option<f64>,
    /// The most GPU memory for activations, in GB. Default: what is free.
    #[arg(long, value_name = "GB")]
    pub offload_gpu_gb: Option<f64>,
    /// By which share of its time a step may become longer where all activations would fit. Default: 0.02.
    #[arg(long, value_name = "SHARE")]
    pub offload_slack: Option<f64>,
    /// Threads; 0 takes all cores, and 16 for each core are the most.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Epochs between evaluations; 0 evaluates only after the last.
    #[arg(long)]
    pub evaluate_every: Option<u64>,
    /// Epochs between checkpoints; 0 saves only at the end. The best epoch since the last one is saved with each.
    #[arg(long)]
    pub checkpoint_every: Option<u64>,
    /// How many of the last checkpoints stay, besides the best.
    #[arg(long)]
    pub keep: Option<usize>,
    /// Write when the stages of every batch ran on a GPU, for chrome://tracing or Perfetto.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Read every file of the dataset first and compare its checksum.
    #[arg(long)]
    pub verify: bool,
    /// A line of JSON an epoch, and a summary as the last.
    #[arg(long)]
    pub json: bool,
}

impl TrainArgs {
    /// The flags as a run file.
    pub fn flags(&self) -> RunFile {
        RunFile {
            dataset: self.dataset.clone(),
            out: self.out.clone(),
            model: self.model.clone(),
            hidden: self.hidden,
            input_width: self.input_width,
            embedding: self.embedding,
            layers: self.layers,
            heads: self.heads,
            output_heads: self.output_heads,
            activation: self.activation,
            fanout: self.fanout.clone(),
            batch: self.batch,
            full_graph: self.full_graph,
            epochs: self.epochs,
            optimiser: self.optimiser,
            rate: self.rate,
            momentum: self.momentum,
            nesterov: self.nesterov,
            decay: self.decay,
            decay_first_layer_only: self.decay_first_layer_only,
            normalise_features: self.normalise_features,
            inverse_relations: self.inverse_relations,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            norm: self.norm,
            residual: self.residual,
            loss: self.loss,
            metric: self.metric,
            schedule: self.schedule,
            schedule_epochs: self.schedule_epochs,
            schedule_gamma: self.schedule_gamma,
            schedule_floor: self.schedule_floor,
            warmup_steps: self.warmup_steps,
            clip: self.clip,
            patience: self.patience,
            min_delta: self.min_delta,
            watch: self.watch,
            seed: self.seed,
            device: self.device,
            sampler: self.sampler,
            precision: self.precision,
            without: (!self.without.is_empty()).then(|| self.without.clone()),
            tune: self.tune,
            producer: self.producer,
            producer_percent: self.producer_percent,
            gather_sms: self.gather_sms,
            gather_green: self.gather_green,
            gather_window: self.gather_window,
            features: self.features,
            hot_share: self.hot_share,
            scores: self.scores,
            score_damping: self.score_damping,
            score_iterations: self.score_iterations,
            score_batches: self.score_batches,
            offload: (!self.offload.is_empty()).then(|| self.offload.clone()),
            offload_folder: self.offload_folder.clone(),
            offload_host_gb: self.offload_host_gb,
            offload_disk_gb: self.offload_disk_gb,
            offload_gpu_gb: self.offload_gpu_gb,
            offload_slack: self.offload_slack,
            threads: self.threads,
            evaluate_every: self.evaluate_every,
            checkpoint_every: self.checkpoint_every,
            keep: self.keep,
        }
    }
}

/// A word that a run file has too.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|error| error.to_string())
}
