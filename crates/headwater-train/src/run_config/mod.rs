//! One file describes a run, and so do flags.
//!
//! There is one list of fields. [`RunFile`] has any of them, as a file or the flags of a command give them; [`RunConfig`]
//! has all of them. What is not given comes from what was published for the model (`defaults.rs`), what flags say goes
//! before what the file says, and the result is checked field by field (`check.rs`). A run folder keeps the result, and
//! reading it back gives the same run; the list says which fields may be others when the run goes on (`resume.rs`).
//! `settings.rs` is what the fields mean to the parts of a run.

mod check;
mod choice;
mod defaults;
mod fields;
mod file;
mod in_vain;
mod model;
mod nearest;
mod resume;
mod settings;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use headwater_graph::score::Score;
use serde::{Deserialize, Serialize};

pub use choice::{
    Activation, Course, DeviceName, Features, Norm, OffloadTo, OptimiserName, PrecisionName, ProducerName, SamplerName,
    Tune, Watch,
};
pub use defaults::defaults;
pub use model::{Architecture, Model};

use crate::error::Result;
use crate::loss::Loss;
use crate::metric::Metric;

/// The name of a field that may change when a run goes on.
macro_rules! changeable {
    ($name:ident may_change) => {
        stringify!($name)
    };
}

/// Makes both structs out of one list: fields that every run has, and fields that a run may do without.
macro_rules! fields {
    (
        every { $($(#[$doc:meta])* $name:ident: $kind:ty $(=> $change:ident)?,)* }
        some { $($(#[$some_doc:meta])* $some_name:ident: $some_kind:ty $(=> $some_change:ident)?,)* }
    ) => {
        /// A run, described completely.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        pub struct RunConfig {
            $($(#[$some_doc])* pub $some_name: Option<$some_kind>,)*
            $($(#[$doc])* pub $name: $kind,)*
        }

        /// A run as far as somebody described it.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct RunFile {
            $($(#[$some_doc])* pub $some_name: Option<$some_kind>,)*
            $($(#[$doc])* pub $name: Option<$kind>,)*
        }

        impl RunFile {
            /// The names of all fields.
            pub const FIELDS: &[&str] = &[$(stringify!($some_name),)* $(stringify!($name),)*];

            /// The names of those that may change when a run goes on.
            pub const CHANGEABLE: &[&str] = &[$($(changeable!($name $change),)?)* $($(changeable!($some_name $some_change),)?)*];

            /// What this one says goes before what `under` says.
            #[must_use]
            pub fn over(self, under: Self) -> Self {
                Self {
                    $($some_name: self.$some_name.or(under.$some_name),)*
                    $($name: self.$name.or(under.$name),)*
                }
            }

            /// What this one says, and `under` for the rest.
            fn complete(self, under: RunConfig) -> RunConfig {
                RunConfig {
                    $($some_name: self.$some_name.or(under.$some_name),)*
                    $($name: self.$name.unwrap_or(under.$name),)*
                }
            }
        }
    };
}

// How long a run goes on, where it computes and what it keeps may change on the way; what it learns may not.
fields! {
    every {
        /// The model: a name, or the path of a text.
        model: Model,
        /// Width of hidden layers; of one head, where there are heads.
        hidden: usize,
        /// Width that inputs of all node types are brought to where they differ; 0 takes the hidden width.
        input_width: usize,
        /// Width of the row that is learnt for each node without features; 0 takes the input width.
        embedding: usize,
        /// Number of layers.
        layers: usize,
        /// Attention heads of hidden layers.
        heads: usize,
        /// Attention heads of the last layer.
        output_heads: usize,
        /// What stands between layers.
        activation: Activation,
        /// Neighbours a node at each hop from the seeds, -1 for all.
        fanout: Vec<i64>,
        /// Seeds a batch.
        batch: usize,
        /// Whether every step sees the whole graph.
        full_graph: bool,
        /// Epochs.
        epochs: u64 => may_change,
        /// How steps are taken.
        optimiser: OptimiserName,
        /// Learning rate.
        rate: f64,
        /// Momentum of SGD.
        momentum: f64,
        /// Whether SGD looks ahead.
        nesterov: bool,
        /// Weight decay.
        decay: f64,
        /// Whether only the first layer decays.
        decay_first_layer_only: bool,
        /// Whether every relation is also there the other way.
        inverse_relations: bool,
        /// Share of inputs that a layer does not see.
        dropout: f64,
        /// Share of attention that a layer does not see.
        attention_dropout: f64,
        /// What normalises between layers.
        norm: Norm,
        /// Whether layers add to what they were given.
        residual: bool,
        /// What becomes of the learning rate.
        schedule: Course,
        /// Epochs after which a `step` schedule multiplies.
        schedule_epochs: u64,
        /// What it multiplies by.
        schedule_gamma: f64,
        /// The rate at which a `cosine` schedule ends.
        schedule_floor: f64,
        /// Steps in which the rate grows to its full size.
        warmup_steps: u64,
        /// Largest norm of all gradients together; 0 does not clip.
        clip: f64,
        /// How much better is better.
        min_delta: f64,
        /// What should get better, and what makes an epoch the best.
        watch: Watch,
        /// The seed of everything random.
        seed: u64,
        /// Which machine computes.
        device: DeviceName => may_change,
        /// Who draws neighbours.
        sampler: SamplerName => may_change,
        /// How exact products are on a GPU.
        precision: PrecisionName,
        /// Where batches are made for a GPU.
        producer: ProducerName => may_change,
        /// Percent of the SMs that a producer in a process of its own has.
        producer_percent: u32 => may_change,
        /// SMs that gather features on a GPU; 0 takes all.
        gather_sms: u32 => may_change,
        /// Whether the driver sets these SMs aside for the gather, as a green context.
        gather_green: bool => may_change,
        /// Translations of host addresses that a gather has under way; 0 is found in the first batches.
        gather_window: u64 => may_change,
        /// Where features lie.
        features: Features => may_change,
        /// Share of rows in the fastest memory of a tiered table, the most read first.
        hot_share: f64 => may_change,
        /// What says which rows are read most, where some lie in faster memory than others.
        scores: Score => may_change,
        /// Share of a score that a PageRank hands on.
        score_damping: f64 => may_change,
        /// Iterations of a PageRank; 0 is as published: five with weight on training nodes, else until nothing changes.
        score_iterations: u32 => may_change,
        /// Batches that `presampled` draws; 0 is an epoch, but from 16 to 64.
        score_batches: u64 => may_change,
        /// Threads; 0 takes all cores.
        threads: usize => may_change,
        /// Epochs between evaluations; 0 evaluates only after the last.
        evaluate_every: u64 => may_change,
        /// Epochs between checkpoints; 0 saves only at the end. The best epoch since the last one is saved with each.
        checkpoint_every: u64 => may_change,
        /// How many of the last checkpoints stay, besides the best.
        keep: usize => may_change,
    }
    some {
        /// Folder of the dataset. Without one a graph is made up.
        dataset: PathBuf,
        /// Folder of the run. Without one a new one is made.
        out: PathBuf,
        /// What may become of activations between forward and backward, on a GPU whose steps see the whole graph. Without one all stay.
        offload: Vec<OffloadTo> => may_change,
        /// The folder of the file that activations leave for. Without one it is the run's folder.
        offload_folder: PathBuf => may_change,
        /// The most pinned host memory for activations, in GB. Without a word it is half of what is free.
        offload_host_gb: f64 => may_change,
        /// The most bytes of activations on disk, in GB. Without a word it is what a step can need.
        offload_disk_gb: f64 => may_change,
        /// The most GPU memory for activations, in GB. Without a word it is what is free.
        offload_gpu_gb: f64 => may_change,
        /// By which share of its time a step may become longer where all would fit. Without a word it is 0.02.
        offload_slack: f64 => may_change,
        /// What is minimised. Without one it follows from the labels.
        loss: Loss,
        /// What is measured. Without one it follows from the labels.
        metric: Metric,
        /// Whether every row of features is divided by the sum of its elements' absolute values. Without a word it follows
        /// from the features where the model was published with it: rows that have no negative element are divided.
        normalise_features: bool,
        /// Optimisations that layers are compiled without, by name.
        without: Vec<String>,
        /// How schedules of kernels are chosen, on a GPU whose steps see the whole graph. Without a word they are those of every machine.
        tune: Tune,
        /// Epochs without anything better before the run stops; 0 never stops early. Without a word it is what was published
        /// for the model, where there is a validation metric to watch.
        patience: u64 => may_change,
    }
}

impl RunConfig {
    /// What flags say, then what the file says, then what was published for the model. Fields that the run could not follow
    /// are refused.
    pub fn resolve(flags: RunFile, file: RunFile) -> Result<Self> {
        let asked = flags.clone();
        let config = Self::kept(flags.over(file))?;
        config.check_machine()?;
        config.check_given(&asked)?;
        Ok(config)
    }

    /// The run that a folder keeps. Its machine may be another one than this.
    pub fn kept(file: RunFile) -> Result<Self> {
        let model = file.model.clone().unwrap_or(Model::Named(Architecture::Sage));
        let under = defaults(&model, file.dataset.as_deref());
        let config = settle_hops(file, under);
        config.check()?;
        Ok(config)
    }
}

/// There is a fan-out a layer. Whoever gives one of the two means the other to follow.
fn settle_hops(given: RunFile, mut under: RunConfig) -> RunConfig {
    match (given.layers, &given.fanout) {
        (Some(layers), None) => {
            let last = under.fanout.last().copied().unwrap_or(-1);
            under.fanout.resize(layers.min(check::MOST_LAYERS), last);
        }
        (None, Some(fanout)) => under.layers = fanout.len(),
        _ => {}
    }
    given.complete(under)
}
