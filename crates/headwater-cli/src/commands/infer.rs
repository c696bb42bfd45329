//! `headwater infer`: what a trained network says of nodes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use headwater::graph::{Dataset, Progress};
use headwater::train::predictions::{Form, Predictions};
use headwater::train::run_config::{RunConfig, RunFile};
use headwater::train::trainer::{Places, Predictor, Which};
use headwater::train::{Origin, node_list, task, whole_file};
use serde::Serialize;

use super::train::planted;
use crate::args::{CheckpointChoice, InferArgs};
use crate::progress::{Bar, Lines};
use crate::report;

/// What was done.
#[derive(Debug, Serialize)]
struct Summary {
    nodes: usize,
    /// What is measured, and what it is over the predicted nodes with a label; absent where none has one.
    metric: &'static str,
    labelled: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    /// The same over the splits; absent where only some nodes were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<f64>,
    /// The step and the epoch of the checkpoint, the epoch from 1.
    step: u64,
    epoch: u64,
    seconds: f64,
    output: PathBuf,
}

/// Predicts, writes and prints.
pub fn run(args: &InferArgs) -> anyhow::Result<()> {
    let begun = Instant::now();
    let file = args.run.join("config.toml");
    let file = RunFile::read(&file).with_context(|| format!("{} is not the folder of a run", args.run.display()))?;
    let config = RunConfig::kept(file)?;
    let output = args.output.clone().unwrap_or_else(|| args.run.join("predictions.npy"));
    // Nobody should wait for predictions that cannot be made or written.
    if let (true, Some(loss)) = (args.probabilities, config.loss) {
        loss.probabilities(&mut [], 1)?;
    }
    whole_file::try_place(&output)?;
    let progress: Box<dyn Progress> = if args.progress { Box::new(Lines) } else { Box::new(Bar::new()) };
    let origin = Origin::read(&args.run)?;
    let dataset = dataset(args, &config, origin.as_ref(), &*progress)?;
    let task = task::open_to_ask(&config, &dataset, origin.as_ref().and_then(|origin| origin.asked.as_ref()))?;
    let scratch = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let which = match args.checkpoint {
        CheckpointChoice::Best => Which::Best,
        CheckpointChoice::Last => Which::Last,
    };
    let mut predictor = Predictor::open(config.clone(), task, Places { run: &args.run, scratch }, which)?;
    let summary = predict(args, &mut predictor, &*progress, output)?;
    drop(progress);
    show(args, &Summary { seconds: begun.elapsed().as_secs_f64(), ..summary })
}

fn predict(
    args: &InferArgs,
    predictor: &mut Predictor,
    progress: &dyn Progress,
    output: PathBuf,
) -> anyhow::Result<Summary> {
    let count = predictor.task().labels.nodes() as u64;
    let nodes = match &args.nodes {
        Some(file) => node_list::read(file, count)?,
        None => (0..count).collect(),
    };
    let outputs = predictor.outputs(&nodes, progress)?;
    let form = match (args.logits, args.probabilities) {
        (true, _) => Form::Logits,
        (_, true) => Form::Probabilities,
        _ => Form::Answers,
    };
    let (node_type, loss) = (predictor.task().node_type, predictor.loss());
    Predictions { outputs: &outputs, node_type, nodes: &nodes, form, loss }.write(&output, progress)?;
    let predictor = &*predictor;
    let (value, labelled) = predictor.measure(&outputs, &nodes)?;
    let of_split = |split: &[u64]| -> anyhow::Result<Option<f64>> {
        Ok(predictor.measure(&outputs, if args.nodes.is_none() { split } else { &[] })?.0)
    };
    Ok(Summary {
        nodes: nodes.len(),
        metric: predictor.metric().name(),
        labelled,
        value,
        valid: of_split(&predictor.task().valid)?,
        test: of_split(&predictor.task().test)?,
        step: predictor.state().step,
        epoch: predictor.state().epoch,
        seconds: 0.0,
        output,
    })
}

/// The dataset that was named, or the one the run was trained on.
fn dataset(
    args: &InferArgs,
    config: &RunConfig,
    origin: Option<&Origin>,
    progress: &dyn Progress,
) -> anyhow::Result<Dataset> {
    let open = |folder: &Path| {
        let hint = || format!("opening {}; another dataset can be named by --dataset", folder.display());
        Dataset::open(folder).with_context(hint)
    };
    let opened = match (&args.dataset, &config.dataset, origin) {
        (Some(folder), _, _) => open(folder)?,
        (None, Some(_), Some(origin)) => {
            let elsewhere = "another dataset can be named by --dataset, which takes it as it is";
            origin.open(&args.run).context(elsewhere)?
        }
        (None, Some(given), None) => open(given)?,
        (None, None, _) => open(&planted::again(&args.run, origin, progress)?)?,
    };
    if args.verify {
        opened.verify(progress).with_context(|| format!("verifying {}", opened.folder().display()))?;
        report::note("every file of the dataset is as it was written");
    }
    if let Some(origin) = origin {
        let found = Origin::of(&opened);
        match args.dataset {
            Some(_) => origin.check_kind(&found)?,
            None => origin.check_same(&found).context("naming it by --dataset takes it as it is")?,
        }
    }
    Ok(opened)
}

fn show(args: &InferArgs, summary: &Summary) -> anyhow::Result<()> {
    if args.json {
        return report::json(summary);
    }
    let percent = |value: f64| format!("{:.2}%", 100.0 * value);
    if let Some(value) = summary.value {
        let of = |name: &str, value: Option<f64>| {
            value.map_or_else(String::new, |value| format!(", {name} {}", percent(value)))
        };
        let splits = of("validation", summary.valid) + &of("test", summary.test);
        report::line(format!("{} {} of {} labelled nodes{splits}", summary.metric, percent(value), summary.labelled));
    }
    report::line(format!(
        "{} nodes in {:.2} s, by the weights of epoch {}",
        summary.nodes, summary.seconds, summary.epoch
    ));
    report::line(format!("predictions  {}", summary.output.display()));
    Ok(())
}
