//! The run without a dataset: a graph of planted communities, and what its features alone would give.

use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater::graph::Progress;
use headwater::graph::generate::{Planted, Skew};
use headwater::train::Origin;
use headwater::train::run_config::{Architecture, Features, Model, RunConfig, RunFile};
use headwater::train::task::Task;
use headwater::train::trainer::{Quiet, Trainer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::progress::Bar;

/// How the graph is made. Kept with the run, so that it can be made again.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Communities {
    nodes: u64,
    edges_per_node: u64,
    classes: u64,
    features: u64,
    homophily: f64,
    separation: f32,
    seed: u64,
}

/// Communities are seen in who is next to whom; features hint at them.
const COMMUNITIES: Communities = Communities {
    nodes: 100_000,
    edges_per_node: 15,
    classes: 16,
    features: 64,
    homophily: 0.6,
    separation: 0.35,
    seed: 1,
};

/// Epochs that features alone are learnt for.
const ALONE_EPOCHS: u64 = 10;

/// Settings that suit this graph; whoever says otherwise goes before.
pub fn settings() -> RunFile {
    RunFile {
        hidden: Some(128),
        epochs: Some(8),
        rate: Some(0.01),
        dropout: Some(0.2),
        features: Some(Features::Tiered),
        hot_share: Some(0.5),
        ..RunFile::default()
    }
}

/// How the graph is made, to be kept with the run.
pub fn recipe() -> anyhow::Result<Value> {
    Ok(serde_json::to_value(COMMUNITIES)?)
}

/// Makes the graph in a run's folder, unless it is there.
pub fn make(folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    COMMUNITIES.make(&folder.join("dataset"), &Bar::new())
}

/// The graph of a run that made it up: where it is, or made again as it was made then.
pub fn again(run: &Path, origin: Option<&Origin>, progress: &dyn Progress) -> anyhow::Result<PathBuf> {
    let communities = match origin.and_then(|origin| origin.made.clone()) {
        Some(made) => serde_json::from_value(made).with_context(|| format!("making the graph of {}", run.display()))?,
        None => COMMUNITIES,
    };
    communities.make(&run.join("dataset"), progress)
}

impl Communities {
    fn make(self, dataset: &Path, progress: &dyn Progress) -> anyhow::Result<PathBuf> {
        if !dataset.join("headwater.json").exists() {
            let Self { nodes, edges_per_node, classes, features, homophily, separation, seed } = self;
            let skew = Skew::EVEN;
            let planted = Planted { nodes, edges_per_node, classes, features, homophily, separation, skew, seed };
            planted.recipe()?.write(dataset, progress).with_context(|| format!("making {}", dataset.display()))?;
        }
        Ok(dataset.to_owned())
    }
}

/// The test metric of a network that does not read neighbours.
pub fn features_alone(config: &RunConfig, task: Task) -> anyhow::Result<Option<f64>> {
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
    Ok(found?.0.test)
}

#[cfg(test)]
mod tests {
    use headwater::graph::{Dataset, Silent};

    use super::*;

    #[test]
    fn a_graph_is_made_again_as_its_run_says() {
        let folder = tempfile::tempdir().unwrap();
        let small = Communities { nodes: 200, classes: 4, seed: 7, ..COMMUNITIES };
        let dataset = small.make(&folder.path().join("dataset"), &Silent).unwrap();
        let made = Some(serde_json::to_value(small).unwrap());
        let origin = Origin { made, ..Origin::of(&Dataset::open(&dataset).unwrap()) };
        std::fs::remove_dir_all(&dataset).unwrap();
        let again = again(folder.path(), Some(&origin), &Silent).unwrap();
        origin.check_same(&Origin::of(&Dataset::open(&again).unwrap())).unwrap();
    }
}
