//! Small runs from end to end: they learn, they repeat, they go on where they were stopped, they fail with a reason.

mod data;
mod device;
mod device_beside;
mod device_failures;
mod device_offload;
mod reporting;
mod targets;
mod typed;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use headwater_graph::generate::Planted;
use headwater_graph::{Dataset, Silent};

use super::{Ending, EpochReport, Listener, Quiet, Summary, Trainer};
use crate::blocks::SelfLoops;
use crate::checkpoint::Checkpoints;
use crate::error::{Error, Result};
use crate::run_config::{Architecture, Features, Model, RunConfig, RunFile};
use crate::run_folder::RunFolder;
use crate::task::{self, Inverse, Task};

fn planted(folder: &Path) -> Task {
    planted_of(600, folder)
}

fn planted_of(nodes: u64, folder: &Path) -> Task {
    let recipe = Planted { nodes, edges_per_node: 8, classes: 4, features: 16, ..Planted::default() };
    let dataset = folder.join("dataset");
    if !dataset.exists() {
        recipe.recipe().unwrap().write(&dataset, &Silent).unwrap();
    }
    Task::open(&Dataset::open(&dataset).unwrap(), Inverse::Off).unwrap()
}

fn config(model: Architecture, is_full: bool) -> RunConfig {
    let flags = RunFile {
        model: Some(Model::Named(model)),
        hidden: Some(16),
        epochs: Some(6),
        batch: Some(64),
        fanout: Some(vec![5, 5]),
        patience: Some(0),
        checkpoint_every: Some(1),
        normalise_features: Some(false),
        full_graph: Some(is_full),
        rate: Some(0.01),
        seed: Some(3),
        ..RunFile::default()
    };
    RunConfig::resolve(RunFile::default(), flags).unwrap()
}

fn run(config: &RunConfig, folder: &Path, data: &Path) -> Result<Summary> {
    let mut trainer = Trainer::open(config.clone(), planted(data), folder)?;
    Ok(trainer.run(&Quiet)?.0)
}

/// Asks for a stop after some batches.
struct StopAfter(Cell<u64>);

impl Listener for StopAfter {
    fn batch(&self, _done: u64, _of: u64, _loss: f64) {
        // Batches that were under way are told too.
        self.0.set(self.0.get().saturating_sub(1));
    }

    fn epoch(&self, _report: &EpochReport) {}

    fn should_stop(&self) -> bool {
        self.0.get() == 0
    }
}

fn weights(folder: &Path) -> Vec<crate::array::Array> {
    Checkpoints::new(&folder.join("checkpoints"), 2).newest().unwrap().unwrap().parameters
}

fn losses(folder: &Path) -> Vec<f64> {
    let lines = crate::journal::read(&folder.join("metrics.jsonl")).unwrap();
    lines.iter().map(|line| line["loss"].as_f64().unwrap()).collect()
}

#[test]
fn models_learn_communities_sampled_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (model, is_full, epochs) in [
        (Architecture::Sage, false, 6),
        (Architecture::Gcn, false, 8),
        (Architecture::Gat, true, 60),
        (Architecture::Gin, true, 60),
    ] {
        let config = RunConfig { epochs, dropout: 0.2, ..config(model, is_full) };
        let out = folder.path().join(format!("{model:?}-{is_full}"));
        let summary = run(&config, &out, folder.path()).unwrap();
        assert!(summary.test > Some(0.6), "{model:?}: {summary:?}");
        assert!(out.join("summary.json").exists() && out.join("config.toml").exists());
    }
}

#[test]
fn a_run_that_is_stopped_anywhere_ends_with_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    for is_full in [false, true] {
        let config = config(Architecture::Sage, is_full);
        let whole = folder.path().join(format!("whole-{is_full}"));
        let wanted = run(&config, &whole, folder.path()).unwrap();
        for batches in [1, 4] {
            let parts = folder.path().join(format!("parts-{is_full}-{batches}"));
            let listener = StopAfter(Cell::new(batches));
            let mut trainer = Trainer::open(config.clone(), planted(folder.path()), &parts).unwrap();
            assert_eq!(trainer.run(&listener).unwrap().1, Ending::Stopped);
            drop(trainer);
            let found = run(&config, &parts, folder.path()).unwrap();
            assert_eq!((found.test, found.best_epoch), (wanted.test, wanted.best_epoch));
            let again = run(&config, &parts, folder.path()).unwrap();
            assert_eq!(again.test, wanted.test, "a run that is over knows how it went");
            assert_eq!(weights(&parts), weights(&whole), "stopped after {batches} batches");
            assert_eq!(losses(&parts), losses(&whole), "means over whole epochs, stopped after {batches} batches");
        }
    }
}

#[test]
fn evaluations_keep_no_more_memory_the_more_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |evaluations: usize| {
        let path = folder.path().join(evaluations.to_string());
        let mut trainer = Trainer::open(config(Architecture::Sage, false), planted(folder.path()), &path).unwrap();
        for _ in 0..evaluations {
            trainer.evaluate().unwrap();
        }
        // Arrays of outputs that are there already have room for one number more than is asked for.
        let outputs = 600 * trainer.task.classes;
        (0..100).filter(|_| trainer.network.take(outputs - 1).capacity() == outputs).count()
    };
    assert_eq!(kept(9), kept(2));
}

#[test]
fn what_a_killed_run_had_no_time_to_remove_goes_when_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (config, path) = (config(Architecture::Sage, true), folder.path().join("run"));
    run(&config, &path, folder.path()).unwrap();
    let checkpoints = path.join("checkpoints");
    let names = || fs::read_dir(&checkpoints).unwrap().map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>();
    let wanted = names();
    for name in ["step-000000000001.safetensors", "step-000000000001.json", ".step-000000000002.json.7-0.partial"] {
        fs::write(checkpoints.join(name), b"").unwrap();
    }
    let unfinished = path.join(".config.toml.7-0.partial");
    fs::write(&unfinished, b"").unwrap();
    run(&config, &path, folder.path()).unwrap();
    assert_eq!(names(), wanted, "also where nothing is left to do");
    assert!(!unfinished.exists());
    // One that cannot be read stays until the run has come past it.
    fs::write(checkpoints.join("step-000000000009.safetensors"), b"").unwrap();
    run(&config, &path, folder.path()).unwrap();
    assert_eq!(names().len(), wanted.len() + 1);
}

#[test]
fn a_run_that_was_killed_before_its_first_checkpoint_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let config = |epochs| RunConfig { epochs, checkpoint_every: 3, ..config(Architecture::Sage, true) };
    run(&config(6), &whole, folder.path()).unwrap();
    let go_on = || Trainer::open(config(6), planted(folder.path()), RunFolder::resume(&parts)?);
    for (lines, is_lost) in [(2, false), (3, false), (4, true)] {
        let _ = fs::remove_dir_all(&parts);
        run(&config(lines), &parts, folder.path()).unwrap();
        fs::remove_file(parts.join("summary.json")).unwrap();
        fs::remove_dir_all(parts.join("checkpoints")).unwrap();
        let found = go_on().and_then(|mut trainer| trainer.run(&Quiet));
        match found {
            Err(Error::LostCheckpoints { epochs, .. }) => assert!(is_lost && epochs as u64 == lines, "{lines}"),
            found => assert!(!is_lost && found.unwrap().0.best_epoch.is_some(), "{lines}"),
        }
        assert!(is_lost || weights(&parts) == weights(&whole), "{lines}");
    }
}

#[test]
fn a_loss_that_is_not_a_number_stops_the_run_and_names_the_batch() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig { rate: 1e30, ..config(Architecture::Sage, false) };
    let found = run(&config, &folder.path().join("run"), folder.path());
    assert!(matches!(found, Err(Error::NotFinite { .. })), "{found:?}");
}

#[test]
fn a_text_that_asks_for_self_loops_gets_them() {
    let folder = tempfile::tempdir().unwrap();
    let layer = "def mine(g, x: node[d_in], W: matrix[d_in, d_out]):\n    for n in g.dst_nodes():\n        \
                 n[\"out\"] = linear(sum(e.src.x for e in n.incoming_edges()), W)\n";
    for (head, wanted) in [("@layer(self_loops=True)\n", SelfLoops::Added), ("", SelfLoops::AsTheyAre)] {
        let text = folder.path().join("mine.py");
        std::fs::write(&text, format!("{head}{layer}")).unwrap();
        let config = RunConfig { model: Model::Text(text), ..config(Architecture::Sage, true) };
        let trainer =
            Trainer::open(config, planted(folder.path()), &folder.path().join(format!("{wanted:?}"))).unwrap();
        assert_eq!(trainer.whole.loops, wanted);
        let held = trainer.whole.held.as_ref().unwrap();
        let edges = held.graph.rows(headwater_compile::inter::Domain::Edge) as u64;
        assert_eq!(edges > trainer.task.graph.edges(), wanted == SelfLoops::Added);
    }
}

#[test]
fn batch_norm_goes_on_where_it_was_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let newest = |run: &Path| Checkpoints::new(&run.join("checkpoints"), 2).newest().unwrap().unwrap();
    for is_full in [false, true] {
        let norm = crate::run_config::Norm::Batch;
        let config = RunConfig { norm, epochs: if is_full { 25 } else { 4 }, ..config(Architecture::Sage, is_full) };
        let (whole, parts) = (folder.path().join(format!("whole-{is_full}")), folder.path().join(format!("{is_full}")));
        let summary = run(&config, &whole, folder.path()).unwrap();
        assert!(summary.test > Some(0.6), "{is_full}: {summary:?}");
        let mut trainer = Trainer::open(config.clone(), planted(folder.path()), &parts).unwrap();
        assert_eq!(trainer.run(&StopAfter(Cell::new(7))).unwrap().1, Ending::Stopped);
        drop(trainer);
        run(&config, &parts, folder.path()).unwrap();
        let (wanted, found) = (newest(&whole), newest(&parts));
        assert_eq!(
            found.buffers.iter().map(|b| b.name.as_str()).collect::<Vec<_>>(),
            ["layers.0.running_mean", "layers.0.running_variance"]
        );
        assert_eq!((found.parameters, found.buffers), (wanted.parameters, wanted.buffers), "{is_full}");
        // Layer norm learns arrays of the same names; it has no moments.
        let other = RunConfig { norm: crate::run_config::Norm::Layer, ..config };
        assert!(matches!(run(&other, &parts, folder.path()), Err(Error::RunFile { .. })));
    }
}

#[test]
fn a_checkpoint_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&RunConfig { epochs: 1, ..config(Architecture::Sage, false) }, &out, folder.path()).unwrap();
    let other = RunConfig { hidden: 8, ..config(Architecture::Sage, false) };
    let found = run(&other, &out, folder.path());
    assert!(matches!(found, Err(Error::OtherModel { .. })), "{found:?}");
}

#[test]
fn a_run_whose_settings_have_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, path) = (config(Architecture::Sage, false), folder.path().join("run"));
    run(&kept, &path, folder.path()).unwrap();
    for (changed, words) in [
        (RunConfig { rate: 0.02, ..kept.clone() }, "rate was 0.01, and now is 0.02"),
        (RunConfig { seed: 4, ..kept.clone() }, "seed was 3, and now is 4"),
    ] {
        let said = run(&changed, &path, folder.path()).unwrap_err().to_string();
        assert!(said.contains("config.toml") && said.contains(words), "{said}");
    }
    run(&RunConfig { epochs: 7, keep: 3, ..kept }, &path, folder.path()).unwrap();
}

/// A run whose features lie where its config says.
fn placed(config: &RunConfig, folder: &Path, data: &Path) -> Trainer {
    drop(planted(data));
    let dataset = Dataset::open(&data.join("dataset")).unwrap();
    Trainer::open(config.clone(), task::open(config, &dataset).unwrap(), folder).unwrap()
}

#[test]
fn weights_are_the_same_wherever_features_lie() {
    let folder = tempfile::tempdir().unwrap();
    let mut wanted = None;
    for (features, hot_share, hits) in [
        (Features::Memory, 0.2, 1.0..=1.0),
        (Features::Auto, 0.2, 1.0..=1.0),
        (Features::Disk, 0.2, 0.0..=0.0),
        (Features::Tiered, 0.0, 0.0..=0.0),
        (Features::Tiered, 0.3, 0.3..=0.7),
        (Features::Tiered, 1.0, 1.0..=1.0),
    ] {
        let config = RunConfig { features, hot_share, epochs: 2, ..config(Architecture::Sage, false) };
        let out = folder.path().join(format!("{features:?}-{hot_share}"));
        let summary = placed(&config, &out, folder.path()).run(&Quiet).unwrap().0;
        assert!(hits.contains(&summary.feature_hit_rate), "{features:?} {hot_share}: {summary:?}");
        let found = (weights(&out), losses(&out), summary.test);
        assert_eq!(*wanted.get_or_insert_with(|| found.clone()), found, "{features:?} {hot_share}");
    }
}

#[test]
fn features_that_are_cut_short_end_the_run_and_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let config = RunConfig { features: Features::Disk, epochs: 1, ..config(Architecture::Sage, false) };
    placed(&config, &out, folder.path()).run(&Quiet).unwrap();
    let before = weights(&out);
    let mut trainer = placed(&RunConfig { epochs: 3, ..config }, &out, folder.path());
    let dataset = Dataset::open(&folder.path().join("dataset")).unwrap();
    let file = dataset.features(0).unwrap().path().to_owned();
    std::fs::File::options().write(true).open(&file).unwrap().set_len(9000).unwrap();
    let said = trainer.run(&Quiet).unwrap_err().to_string();
    assert!(said.contains(file.to_str().unwrap()) && said.contains("ends at byte"), "{said}");
    assert_eq!(weights(&out), before, "the checkpoint stays");
}

#[test]
fn folders_that_cannot_be_written_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for place in [file.join("run"), "/proc/nowhere/run".into()] {
        let said = run(&config(Architecture::Sage, false), &place, folder.path()).unwrap_err().to_string();
        assert!(said.contains("cannot create") && said.contains(place.to_str().unwrap()), "{said}");
    }
}
