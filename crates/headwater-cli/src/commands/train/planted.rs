//! The run without a dataset: a graph of planted communities, and what its features alone would give.

use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater::graph::generate::Planted;
use headwater::train::run_config::{Architecture, Model, RunConfig, RunFile};
use headwater::train::task::Task;
use headwater::train::trainer::{Quiet, Trainer};

use crate::progress::Bar;

/// Communities are seen in who is next to whom; features hint at them.
const PLANTED: Planted = Planted {
    nodes: 100_000,
    edges_per_node: 15,
    classes: 16,
    features: 64,
    homophily: 0.6,
    separation: 0.35,
    skew: headwater::graph::generate::Skew::EVEN,
    seed: 1,
};

/// Epochs that features alone are learnt for.
const ALONE_EPOCHS: u64 = 10;

/// Settings that suit this graph; whoever says otherwise goes before.
pub fn settings() -> RunFile {
    RunFile { hidden: Some(128), epochs: Some(8), rate: Some(0.01), dropout: Some(0.2), ..RunFile::default() }
}

/// Makes the graph in a run's folder, unless it is there.
pub fn make(folder: &Path) -> anyhow::Result<PathBuf> {
    let dataset = folder.join("dataset");
    if !dataset.join("headwater.json").exists() {
        let bar = Bar::new();
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        PLANTED.recipe()?.write(&dataset, &bar).with_context(|| format!("making {}", dataset.display()))?;
    }
    Ok(dataset)
}

/// The test accuracy of a network that does not read neighbours.
pub fn features_alone(config: &RunConfig, task: Task) -> anyhow::Result<f64> {
    let folder = std::env::temp_dir().join(format!("headwater-alone-{}", std::process::id()));
    let alone = RunConfig {
        model: Model::Named(Architecture::Mlp),
        epochs: ALONE_EPOCHS,
        checkpoint_every: 0,
        // Nothing is read around seeds.
        fanout: vec![0; config.layers],
        dropout: 0.0,
        ..config.clone()
    };
    let found = Trainer::open(alone, task, &folder).and_then(|mut trainer| trainer.run(&Quiet));
    let _ = std::fs::remove_dir_all(&folder);
    Ok(found?.0.test_accuracy)
}
