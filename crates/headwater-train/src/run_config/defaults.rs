//! What was published for each model.
//!
//! GCN: Kipf and Welling 2017. GAT: Veličković and others 2018, whose Pubmed has more heads, decay and rate. GraphSAGE: as
//! OGB trains it on products, with two layers. RGCN: Schlichtkrull and others 2018. Nothing was published for GIN, RGAT
//! and HGT that holds for nodes of any graph; they have a width that suits most.

use std::path::Path;

use headwater_graph::score::{DAMPING, Score};

use super::{
    Activation, Architecture, Course, DeviceName, Features, Model, Norm, OptimiserName, PrecisionName, ProducerName,
    RunConfig, SamplerName, Watch,
};

/// Epochs without anything better after which a published run of a model stops; 0 is never.
#[must_use]
pub(super) fn published_patience(model: &Model) -> u64 {
    if *model == Model::Named(Architecture::Gat) { 100 } else { 0 }
}

/// A run of this model on this dataset of which nothing else is known.
#[must_use]
pub fn defaults(model: &Model, dataset: Option<&Path>) -> RunConfig {
    let plain = plain(model.clone());
    match model {
        Model::Named(Architecture::Gcn) => gcn(plain),
        Model::Named(Architecture::Gat) => gat(plain, is_pubmed(dataset)),
        Model::Named(Architecture::Sage) => RunConfig { hidden: 256, rate: 0.003, ..plain },
        Model::Named(Architecture::Rgcn) => rgcn(plain),
        Model::Named(Architecture::Rgat | Architecture::Hgt) => RunConfig { heads: 4, dropout: 0.2, ..plain },
        Model::Named(Architecture::Gin | Architecture::Mlp) | Model::Text(_) => plain,
    }
}

fn gcn(plain: RunConfig) -> RunConfig {
    RunConfig {
        hidden: 16,
        epochs: 200,
        decay: 5e-4,
        decay_first_layer_only: true,
        checkpoint_every: 20,
        full_graph: true,
        normalise_features: None,
        ..plain
    }
}

fn gat(plain: RunConfig, is_pubmed: bool) -> RunConfig {
    let (output_heads, rate, decay) = if is_pubmed { (8, 0.01, 1e-3) } else { (1, 0.005, 5e-4) };
    RunConfig {
        hidden: 8,
        heads: 8,
        output_heads,
        rate,
        decay,
        activation: Activation::Elu,
        dropout: 0.6,
        attention_dropout: 0.6,
        epochs: 1000,
        watch: Watch::Loss,
        checkpoint_every: 20,
        full_graph: true,
        normalise_features: None,
        ..plain
    }
}

fn rgcn(plain: RunConfig) -> RunConfig {
    let dropout = 0.0;
    RunConfig {
        hidden: 16,
        epochs: 50,
        decay: 5e-4,
        dropout,
        checkpoint_every: 10,
        full_graph: true,
        inverse_relations: true,
        ..plain
    }
}

/// What all have in common.
fn plain(model: Model) -> RunConfig {
    RunConfig {
        dataset: None,
        out: None,
        offload: None,
        offload_folder: None,
        offload_host_gb: None,
        offload_disk_gb: None,
        offload_gpu_gb: None,
        offload_slack: None,
        loss: None,
        metric: None,
        model,
        hidden: 64,
        input_width: 0,
        embedding: 0,
        layers: 2,
        heads: 1,
        output_heads: 1,
        activation: Activation::Relu,
        fanout: vec![10, 10],
        batch: 1024,
        full_graph: false,
        epochs: 20,
        optimiser: OptimiserName::Adam,
        rate: 0.01,
        momentum: 0.9,
        nesterov: false,
        decay: 0.0,
        decay_first_layer_only: false,
        normalise_features: Some(false),
        inverse_relations: false,
        dropout: 0.5,
        attention_dropout: 0.0,
        norm: Norm::None,
        residual: false,
        schedule: Course::Constant,
        schedule_epochs: 50,
        schedule_gamma: 0.5,
        schedule_floor: 0.0,
        warmup_steps: 0,
        clip: 0.0,
        patience: None,
        without: None,
        tune: None,
        min_delta: 0.0,
        watch: Watch::Metric,
        seed: 0,
        device: DeviceName::Auto,
        sampler: SamplerName::Auto,
        precision: PrecisionName::Tf32x3,
        producer: ProducerName::Thread,
        producer_percent: 10,
        gather_sms: 0,
        gather_green: false,
        gather_window: 0,
        features: Features::Auto,
        hot_share: 0.2,
        scores: Score::Expected,
        score_damping: DAMPING,
        score_iterations: 0,
        score_batches: 0,
        threads: 0,
        evaluate_every: 1,
        checkpoint_every: 1,
        keep: 2,
    }
}

/// Whether the folder is called after that dataset.
fn is_pubmed(dataset: Option<&Path>) -> bool {
    let name = dataset.and_then(Path::file_name).map(|name| name.to_string_lossy().to_lowercase());
    name.is_some_and(|name| name.contains("pubmed"))
}
