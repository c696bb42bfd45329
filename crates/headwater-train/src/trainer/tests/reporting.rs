//! What runs say of themselves: which epoch was the best, what was measured, what was decided, and what is used afterwards.

use std::path::Path;
use std::sync::Arc;

use headwater_feature::{HostTable, Source};
use headwater_graph::dataset::{Dataset, DatasetWriter, Description, NodeFiles, Splits};
use headwater_graph::{Layout, Schema, Silent, Topology};
use headwater_memory::Foreign;

use super::super::{EpochReport, Places, Predictor, Quiet, Summary, Trainer, Which};
use super::{config, data, losses, planted};
use crate::checkpoint::Checkpoints;
use crate::labels::Labels;
use crate::loss::UNLABELLED;
use crate::metric::Metric;
use crate::run_config::{Architecture, DeviceName, OptimiserName, PrecisionName, RunConfig, RunFile, Watch};
use crate::task::{Inverse, Task};

fn history(folder: &Path) -> Vec<EpochReport> {
    let lines = crate::journal::read(&folder.join("metrics.jsonl")).unwrap();
    lines.into_iter().map(|line| serde_json::from_value(line).unwrap()).collect()
}

/// Runs a task, and returns what was remarked too.
fn run(config: &RunConfig, task: Task, folder: &Path) -> (Summary, Vec<String>) {
    let mut trainer = Trainer::open(config.clone(), task, folder).unwrap();
    let remarks = trainer.remarks().to_vec();
    (trainer.run(&Quiet).unwrap().0, remarks)
}

/// What the network of a run says of the splits, and after which epoch.
fn asked(task: Task, folder: &Path, which: Which) -> (Option<f64>, Option<f64>, u64) {
    let file = RunFile::read(&folder.join("config.toml")).unwrap();
    let config = RunConfig::resolve(RunFile::default(), file).unwrap();
    let mut predictor = Predictor::open(config, task, Places { run: folder, scratch: folder }, which).unwrap();
    let nodes: Vec<u64> = (0..predictor.task().labels.nodes() as u64).collect();
    let outputs = predictor.outputs(&nodes, &Silent).unwrap();
    let of = |nodes: &[u64]| predictor.measure(&outputs, nodes).unwrap().0;
    (of(&predictor.task().valid), of(&predictor.task().test), predictor.state().epoch)
}

#[test]
fn the_best_epoch_is_kept_and_asked() {
    let folder = tempfile::tempdir().unwrap();
    for (is_full, watch, every) in
        [(true, Watch::Metric, 1000), (true, Watch::Loss, 7), (false, Watch::Metric, 0), (false, Watch::Loss, 1)]
    {
        let out = folder.path().join(format!("{is_full}-{watch:?}"));
        let epochs = if is_full { 30 } else { 6 };
        let rate = 0.3;
        let config = RunConfig { epochs, rate, watch, checkpoint_every: every, ..config(Architecture::Sage, is_full) };
        let (summary, _) = run(&config, planted(folder.path()), &out);
        let all = history(&out);
        assert_eq!(all.iter().map(|report| report.epoch).collect::<Vec<_>>(), (1..=epochs).collect::<Vec<_>>());
        let best = all[usize::try_from(summary.best_epoch.unwrap()).unwrap() - 1];
        assert!(!is_full || best.epoch < epochs, "a best epoch that is the last shows nothing: {summary:?}");
        assert_eq!((summary.valid, summary.test), (best.valid, best.test));
        let is_best = |report: &EpochReport| match watch {
            Watch::Loss => best.valid_loss <= report.valid_loss,
            _ => best.valid >= report.valid,
        };
        assert!(all.iter().all(is_best), "{best:?} of {all:?}");
        let best = (summary.valid, summary.test, best.epoch);
        assert_eq!(asked(planted(folder.path()), &out, Which::Best), best, "{is_full} {watch:?}");
        let last = all[all.len() - 1];
        assert_eq!(asked(planted(folder.path()), &out, Which::Last), (last.valid, last.test, epochs));
        let kept = Checkpoints::new(&out.join("checkpoints"), 2).list().unwrap().len();
        assert!(kept <= 3, "the last two and the best: {kept}");
    }
}

/// The same task with other labels.
fn labelled(task: Task, label: impl Fn(u64, i64) -> i64) -> Task {
    let Labels::Classes(labels) = &task.labels else { panic!("nodes have classes") };
    let labels = labels.iter().zip(0..).map(|(own, node)| label(node, *own)).collect();
    Task { labels: Labels::Classes(labels), ..task }
}

#[test]
fn without_a_validation_metric_the_last_epoch_counts() {
    let folder = tempfile::tempdir().unwrap();
    let without = |_: &str| Task { valid: Vec::new(), ..planted(folder.path()) };
    let unlabelled = |_: &str| {
        let task = planted(folder.path());
        let valid = task.valid.clone();
        labelled(task, |node, own| if valid.contains(&node) { UNLABELLED } else { own })
    };
    let one_class = |_: &str| {
        let task = planted(folder.path());
        let valid = task.valid.clone();
        let task = labelled(task, |node, own| if valid.contains(&node) { 1 } else { own % 2 });
        Task { classes: 2, ..task }
    };
    type Made<'a> = &'a dyn Fn(&str) -> Task;
    let cases: [(&str, Made<'_>, Metric, &str); 3] = [
        ("without", &without, Metric::Accuracy, "the dataset names no validation nodes"),
        ("unlabelled", &unlabelled, Metric::Accuracy, "no validation node has a label"),
        ("one-class", &one_class, Metric::RocAuc, "roc_auc of the validation nodes has no value"),
    ];
    for (name, task, metric, why) in cases {
        let out = folder.path().join(name);
        let base = RunConfig { metric: Some(metric), patience: None, ..config(Architecture::Sage, false) };
        let (summary, remarks) = run(&base, task(name), &out);
        assert_eq!((summary.best_epoch, summary.valid), (None, None), "{name}");
        let all = history(&out);
        assert!(all.len() == 6 && all.iter().all(|report| report.valid.is_none()), "{name}: {all:?}");
        assert_eq!(summary.test, all[5].test, "{name}");
        assert!(summary.test > Some(0.5), "{name}: {summary:?}");
        assert!(remarks.iter().any(|said| said.starts_with(why) && said.contains("the last")), "{remarks:?}");
        let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
        assert!(text.lines().all(|line| line.contains("\"valid\":null")), "{text}");
        assert_eq!(asked(task(name), &out, Which::Best).1, summary.test, "{name}");
        let refused = Trainer::open(RunConfig { patience: Some(2), ..base }, task(name), &folder.path().join("no"));
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("patience is 2") && said.contains(why), "{said}");
    }
    // The loss may be watched where the metric cannot.
    let watched = RunConfig { metric: Some(Metric::RocAuc), watch: Watch::Loss, ..config(Architecture::Sage, false) };
    let (summary, _) = run(&watched, one_class("loss"), &folder.path().join("loss"));
    assert!(summary.best_epoch.is_some() && summary.valid.is_none() && summary.valid_loss.is_some(), "{summary:?}");
    // What a model was published with is no reason to refuse it.
    let gat = RunConfig { patience: None, epochs: 2, ..config(Architecture::Gat, true) };
    assert_eq!(run(&gat, without("gat"), &folder.path().join("gat")).0.best_epoch, None);
}

#[test]
fn patience_is_counted_in_epochs() {
    let folder = tempfile::tempdir().unwrap();
    // Steps that change nothing: the first measurement stays the best.
    for (every, patience, wanted) in [(1, 3, 4), (2, 4, 6), (2, 3, 6), (3, 1, 6)] {
        let still = RunConfig { rate: 1e-30, epochs: 20, dropout: 0.0, ..config(Architecture::Sage, true) };
        let config = RunConfig { evaluate_every: every, patience: Some(patience), ..still };
        let out = folder.path().join(format!("{every}-{patience}"));
        run(&config, planted(folder.path()), &out);
        assert_eq!(history(&out).len(), wanted, "every {every}, patience {patience}");
    }
}

#[test]
fn an_epochs_loss_is_the_mean_over_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let task = || Task { train: planted(folder.path()).train[..30].to_vec(), ..planted(folder.path()) };
    let still = RunConfig { rate: 1e-30, epochs: 1, dropout: 0.0, ..config(Architecture::Sage, false) };
    let of = |batch: usize, is_full: bool| {
        let out = folder.path().join(format!("{batch}-{is_full}"));
        run(&RunConfig { batch, full_graph: is_full, fanout: vec![-1, -1], ..still.clone() }, task(), &out);
        losses(&out)[0]
    };
    let whole = of(30, true);
    for batch in [30, 29, 16, 7] {
        let found = of(batch, false);
        assert!((found - whole).abs() < 1e-5, "batches of {batch}: {found}, all at once: {whole}");
    }
}

#[test]
fn only_nodes_with_a_label_are_learnt_from_and_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let labels: Vec<i64> =
        (0..data::COUNTS[0]).map(|node| if node.is_multiple_of(3) { -1 } else { (node % 4) as i64 }).collect();
    let write = |name: &str, labels: Vec<i64>| {
        let path = folder.path().join(name);
        data::write_with(
            &path,
            [Some(8); 3],
            |_, _| {},
            |writer| {
                writer.array("labels", &[data::COUNTS[0] as u64], &labels).unwrap();
                Some(data::COMMUNITIES as u64)
            },
        )
    };
    let task = Task::open(&write("some", labels.clone()), Inverse::Off).unwrap();
    assert!(task.train.len() == 80 && task.train.iter().all(|node| !node.is_multiple_of(3)), "{:?}", task.train);
    assert_eq!(task.remarks, ["40 of 120 training nodes have no label and are left out"]);
    let none = Task::open(&write("none", labels.iter().map(|_| -1).collect()), Inverse::Off).unwrap();
    let refused = Trainer::open(config(Architecture::Rgcn, false), none, &folder.path().join("run"));
    assert!(refused.unwrap_err().to_string().contains("no training nodes that have a label"));
    let mut remarks = Vec::new();
    assert_eq!(crate::task::distinct(vec![4, 1, 4, 2, 1], &mut remarks), [4, 1, 2]);
    assert_eq!(crate::task::distinct(vec![1, 2, 4], &mut remarks), [1, 2, 4]);
    assert_eq!(remarks, ["a split names nodes twice; each of its 3 nodes counts once"]);
}

/// The same task with other features.
fn with_rows(task: Task, change: impl Fn(f32) -> f32) -> Task {
    let table = task.features[0].as_ref().unwrap();
    let values: Vec<f32> = table.in_place().unwrap().iter().map(|value| change(*value)).collect();
    let bytes: Vec<u8> = bytemuck::cast_slice(&values).to_vec();
    let source = Source::memory(Foreign::new(Arc::new(bytes)), Vec::new(), *table.source().format()).unwrap();
    Task { features: vec![Some(HostTable::of(source))], ..task }
}

#[test]
fn a_run_that_a_gpu_began_says_what_is_other_here() {
    let folder = tempfile::tempdir().unwrap();
    for (precision, is_said) in [(PrecisionName::Bf16, true), (PrecisionName::Tf32x3, false)] {
        let base = config(Architecture::Gcn, true);
        let base = RunConfig { precision, device: DeviceName::Cpu, normalise_features: Some(false), ..base };
        let out = folder.path().join(format!("{precision:?}"));
        let trainer = Trainer::open(base, planted(folder.path()), out.as_path()).unwrap();
        let said = trainer.remarks().iter().any(|said| said.contains("bf16 is how a GPU computes"));
        assert_eq!(said, is_said, "{:?}", trainer.remarks());
    }
}

#[test]
fn counts_are_divided_by_their_sums_and_signed_features_are_not() {
    let folder = tempfile::tempdir().unwrap();
    for (name, model, given, is_signed, normalises) in [
        ("signed gcn", Architecture::Gcn, None, true, false),
        ("signed gat", Architecture::Gat, None, true, false),
        ("counts gcn", Architecture::Gcn, None, false, true),
        ("asked for", Architecture::Gcn, Some(true), true, true),
        ("not asked for", Architecture::Gcn, Some(false), false, false),
    ] {
        let task = with_rows(planted(folder.path()), |value| if is_signed { value } else { value.max(0.0) });
        let base = RunConfig { normalise_features: given, epochs: 60, dropout: 0.2, ..config(model, true) };
        let out = folder.path().join(name);
        let (summary, remarks) = run(&base, task, &out);
        assert_eq!(remarks.len(), usize::from(given.is_none()), "{name}: {remarks:?}");
        assert!(given.is_some() || remarks[0].contains("divided by their sums"), "{name}: {remarks:?}");
        let kept = RunFile::read(&out.join("config.toml")).unwrap().normalise_features;
        assert_eq!(kept, Some(normalises), "{name}: whoever asks the network divides as the run did");
        assert!(summary.test > Some(0.8), "{name}: {summary:?}");
    }
}

#[test]
fn rows_that_are_learnt_do_not_decay_sampled_or_whole() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = data::write(&folder.path().join("data"), [Some(8), Some(5), None], |_, _| {});
    for is_full in [true, false] {
        // A step of decay alone: a tenth of everything that decays goes.
        let sgd = RunConfig { optimiser: OptimiserName::Sgd, momentum: 0.0, ..config(Architecture::Rgcn, is_full) };
        let config = RunConfig { rate: 1e-9, decay: 1e8, epochs: 1, batch: 1000, embedding: 6, ..sgd };
        let task = Task::open(&dataset, Inverse::Off).unwrap();
        let mut trainer = Trainer::open(config, task, &folder.path().join(format!("{is_full}"))).unwrap();
        let before = trainer.network().parameters.clone();
        trainer.run(&Quiet).unwrap();
        for (before, after) in before.iter().zip(trainer.network().parameters.iter()) {
            let kept = if before.name.ends_with("embedding") { 1.0 } else { 0.9 };
            let is_kept = |(a, b): (&f32, &f32)| (kept * a - b).abs() < 1e-5 * a.abs().max(1.0);
            assert!(before.values.iter().zip(&after.values).all(is_kept), "{is_full}: {}", before.name);
        }
    }
}

#[test]
fn edge_weights_that_nobody_reads_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, weights: Option<Vec<f32>>| {
        let writer = DatasetWriter::create(&folder.path().join(name)).unwrap();
        let lists = Topology::new(Layout::Csc, 3, vec![0u64, 1, 2, 3].into(), vec![1u32, 2, 0].into()).unwrap();
        let lists = weights.map_or(lists.clone(), |weights| lists.with_weights(weights.into()).unwrap());
        writer.relation(0, &lists).unwrap();
        writer.array("labels", &[3], &[0i64, 1, 0]).unwrap();
        writer.array("train", &[2], &[0u32, 1]).unwrap();
        let splits = Splits { train: Some("train".to_owned()), ..Splits::default() };
        let nodes = vec![NodeFiles { labels: Some("labels".to_owned()), splits, ..NodeFiles::default() }];
        let about = Description::new(name, Schema::homogeneous(3), Layout::Csc, "made by a test");
        writer.finish(Description { nodes, ..about }).unwrap();
        Task::open(&Dataset::open(&folder.path().join(name)).unwrap(), Inverse::Off).unwrap().remarks
    };
    assert!(write("plain", None).is_empty());
    let said = write("weighted", Some(vec![1.0, 2.0, 0.5]));
    assert!(said.len() == 1 && said[0].contains("edge weights are not used"), "{said:?}");
}
