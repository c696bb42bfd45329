//! `headwater train`: a run on a GPU or on the CPU, from its description to its summary.

mod machine;
pub mod planted;
mod producer;
pub mod trace;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use headwater::feature::HostServed;
use headwater::graph::Dataset;
use headwater::train::run_config::{Features, RunConfig, RunFile};
use headwater::train::trainer::{Ending, EpochReport, Summary};
use headwater::train::{Origin, RunFolder, journal, task};
use serde::Serialize;

pub use self::producer::produce;

use self::machine::Machine;
use self::watch::Watcher;
use super::set_threads;
use crate::args::TrainArgs;
use crate::picture::{self, Chart};
use crate::progress::Bar;
use crate::report;
use crate::signals::Signals;

/// The last line of a run for programs.
#[derive(Debug, Serialize)]
struct Closing<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    /// Most memory that the process held.
    peak_rss_bytes: u64,
    /// The same after the first epoch, before it was evaluated.
    training_rss_bytes: Option<u64>,
    /// What features alone give, where that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    features_alone: Option<f64>,
}

/// Trains and prints. What comes of a run is in its folder, so it goes on where printing fails.
pub fn run(args: &TrainArgs) -> anyhow::Result<ExitCode> {
    let (config, given) = described(args)?;
    producer::take_share(&config)?;
    report::go_on_without_output();
    let signals = Signals::listen()?;
    set_threads(config.threads)?;
    let machine = Machine::choose(&config, given)?;
    let Ground { folder, dataset, origin, config } = Ground::of(args, machine.config.clone())?;
    if args.verify {
        dataset.verify(&Bar::new()).with_context(|| format!("verifying {}", dataset.folder().display()))?;
        report::note("every file of the dataset is as it was written");
    }
    let open = || task::open(&config, &dataset).with_context(|| format!("training on {}", dataset.folder().display()));
    let task = open()?;
    if args.trace.is_some() {
        machine.check_trace(&task)?;
    }
    let run = folder.path().to_owned();
    let origin = origin.asking(&task);
    report::note(intention(&config));
    let command = || producer::command(dataset.folder());
    let mut trainer = machine.open(&config, task, folder, &open, &command)?;
    trainer.remarks().iter().for_each(report::note);
    if args.trace.is_some() {
        trainer.trace();
    }
    if Origin::read(&run)?.is_none_or(|known| args.resume.is_none() || known.folder != origin.folder) {
        origin.write(&run)?;
    }
    let watcher = Watcher::new(&config, trainer.state().epoch, args.json, &signals);
    let (summary, ending) = trainer.run(&watcher)?;
    watcher.finish();
    if let Some(path) = &args.trace {
        trace::write(path, &trainer.timeline(), &trainer.traced_kernels())?;
    }
    if let Err(why) = draw(&run) {
        report::note(format!("warning: there is no picture of the run: {why:#}"));
    }
    let is_whole = origin.made.is_some() && ending == Ending::Done;
    let features_alone = if is_whole { planted::features_alone(&config, open()?)? } else { None };
    let (peak_rss_bytes, training_rss_bytes) = (peak_rss_bytes(), watcher.trained_rss_bytes());
    close(args, &Closing { summary: &summary, peak_rss_bytes, training_rss_bytes, features_alone })?;
    if ending == Ending::Stopped {
        report::note(format!("stopped; go on with: headwater train --resume {}", run.display()));
        return Ok(ExitCode::from(signals.exit_code()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints how a run ended. One whose results are not all where they should be has failed.
fn close(args: &TrainArgs, closing: &Closing<'_>) -> anyhow::Result<()> {
    if args.json {
        report::json(closing)?;
    } else {
        show(closing);
    }
    let lost = &closing.summary.lost;
    ensure!(lost.is_empty(), "results of the run could not be written: {}", lost.join("; "));
    report::check_output()
}

/// Where a run is and what it is about.
struct Ground {
    folder: RunFolder,
    dataset: Dataset,
    origin: Origin,
    config: RunConfig,
}

impl Ground {
    /// The folder is claimed before anything is written into it.
    fn of(args: &TrainArgs, config: RunConfig) -> anyhow::Result<Self> {
        if let Some(run) = &args.resume {
            return Self::again(args, config, RunFolder::resume(run)?);
        }
        let named = config.dataset.as_deref().map(opened).transpose()?;
        let folder = match &config.out {
            Some(folder) => RunFolder::begin(folder)?,
            None => RunFolder::fresh(Path::new("runs"), &stem(&config))?,
        };
        let (dataset, made) = match named {
            Some(dataset) => (dataset, None),
            None => (opened(&planted::make(folder.path())?)?, Some(planted::recipe()?)),
        };
        let origin = Origin { made, ..Origin::of(&dataset) };
        Ok(Self { folder, dataset, origin, config })
    }

    /// A run that goes on does so with the same dataset, wherever that is now.
    fn again(args: &TrainArgs, config: RunConfig, folder: RunFolder) -> anyhow::Result<Self> {
        let known = Origin::read(folder.path())?;
        let elsewhere = "DATASET --resume RUN tells where it is now";
        let dataset = match (&args.dataset, &config.dataset, &known) {
            (Some(given), _, _) => opened(given)?,
            (None, None, _) => opened(&planted::again(folder.path(), known.as_ref(), &Bar::new())?)?,
            (None, Some(_), Some(known)) => known.open(folder.path()).context(elsewhere)?,
            (None, Some(kept), None) => opened(kept).context(elsewhere)?,
        };
        let found = Origin::of(&dataset);
        match &known {
            // Arrays in memory have no checksums.
            Some(known) if known.is_held() => known.check_kind(&found)?,
            Some(known) => known.check_same(&found)?,
            None => {}
        }
        let made = known.and_then(|known| known.made);
        let place = config.dataset.as_ref().map(|_| found.folder.clone());
        Ok(Self { folder, dataset, origin: Origin { made, ..found }, config: RunConfig { dataset: place, ..config } })
    }
}

fn opened(dataset: &Path) -> anyhow::Result<Dataset> {
    Dataset::open(dataset).with_context(|| format!("opening {}", dataset.display()))
}

/// The run that is described, and what was said of it.
fn described(args: &TrainArgs) -> anyhow::Result<(RunConfig, RunFile)> {
    let flags = args.flags().anchored();
    if let Some(folder) = &args.resume {
        let file = RunFile::read(&folder.join("config.toml"))
            .with_context(|| format!("{} is no run that can be gone on with", folder.display()))?;
        return Ok((RunConfig::resume(flags.clone(), file)?, flags));
    }
    let file = args.config.as_ref().map(|path| RunFile::read(path)).transpose()?.unwrap_or_default().anchored();
    let config = resolved(flags.clone(), &file)?;
    config.check_given(&file).with_context(|| {
        format!(
            "{} and the flags do not go together",
            args.config.as_deref().unwrap_or(Path::new("--config")).display()
        )
    })?;
    Ok((config, flags.over(file)))
}

fn resolved(flags: RunFile, file: &RunFile) -> anyhow::Result<RunConfig> {
    let file = file.clone();
    if flags.dataset.is_some() || file.dataset.is_some() {
        return Ok(RunConfig::resolve(flags, file)?);
    }
    let is_free = flags.features.is_none() && file.features.is_none();
    let settings = planted::settings();
    let config = RunConfig::resolve(flags.clone(), file.clone().over(settings.clone()))?;
    // The whole graph is read as it is, and so are rows that are normalised.
    let reads_all = is_free && (config.full_graph || config.normalises());
    if reads_all || config.features != Features::Tiered {
        let settings = RunFile { features: None, hot_share: None, ..settings };
        return Ok(RunConfig::resolve(flags, file.over(settings))?);
    }
    Ok(config)
}

/// What the folder of a run is called where nobody says: after its dataset and its model.
fn stem(config: &RunConfig) -> String {
    let dataset = config.dataset.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let name = format!("{}-{}", dataset.unwrap_or_else(|| "planted".to_owned()), config.model);
    name.replace(['/', '\\'], "-")
}

/// What is about to happen, where models differ: how long, and over what.
fn intention(config: &RunConfig) -> String {
    let RunConfig { model, epochs, batch, fanout, .. } = config;
    let patience = config.patience().map_or(0, |patience| patience.epochs);
    let hops: Vec<String> = fanout.iter().map(ToString::to_string).collect();
    let steps = match config.full_graph {
        true => "over the whole graph".to_owned(),
        false => format!("of batches of {batch} nodes, fan-out {}", hops.join(",")),
    };
    let early = if patience > 0 { format!(", fewer when nothing gets better for {patience}") } else { String::new() };
    format!("{model}: {epochs} epochs {steps}{early}")
}

/// The curves of a run, from its journal: a resumed run has all of it.
fn draw(folder: &Path) -> anyhow::Result<()> {
    let lines = journal::read(&folder.join("metrics.jsonl"))?;
    let reports: Vec<EpochReport> = lines.into_iter().filter_map(|line| serde_json::from_value(line).ok()).collect();
    let line = |pick: fn(&EpochReport) -> Option<f64>| {
        reports.iter().filter_map(|report| Some((report.epoch as f64, pick(report)?))).collect()
    };
    let chart = |title: &str, y_label: &str, lines| Chart {
        title: title.to_owned(),
        x_label: "epoch".to_owned(),
        y_label: y_label.to_owned(),
        lines,
    };
    let loss = chart(
        "Loss",
        "loss",
        vec![
            ("training".to_owned(), line(|report| Some(report.loss))),
            ("validation".to_owned(), line(|report| report.valid_loss)),
        ],
    );
    let both =
        vec![("validation".to_owned(), line(|report| report.valid)), ("test".to_owned(), line(|report| report.test))];
    picture::draw(&folder.join("curves.svg"), &[loss, chart("Metric", "metric", both)])
}

fn show(closing: &Closing<'_>) {
    let Summary { epochs, epoch_seconds, sample_seconds, gather_seconds, compute_seconds, .. } = closing.summary;
    report::line(reached(closing.summary));
    if let Some(alone) = closing.features_alone {
        report::line(format!("features alone give {:.2}%", 100.0 * alone));
    }
    report::line(format!(
        "{epochs} epochs of {epoch_seconds:.3} s: {gather_seconds:.3} gathering and {compute_seconds:.3} computing, {sample_seconds:.3} sampling meanwhile"
    ));
    show_features(closing.summary);
    if let Some(offload) = &closing.summary.offload {
        report::line(format!("{offload}; steps took {:.1} ms, waiting {:.1}", offload.measured_ms, offload.stall_ms));
    }
    report::line(format!("memory  {} MiB at most", closing.peak_rss_bytes >> 20));
    report::line(format!("run     {}", closing.summary.run_dir.display()));
}

/// How good the run is, and by which epoch's weights.
fn reached(summary: &Summary) -> String {
    let name = summary.metric.name();
    let percent = |value: Option<f64>| value.map_or("none".to_owned(), |value| format!("{:.2}%", 100.0 * value));
    let (test, valid) = (percent(summary.test), percent(summary.valid));
    match summary.best_epoch {
        Some(best) => format!("test {name} {test} in epoch {best}, the best for validation ({name} {valid})"),
        None => format!("test {name} {test} in the last epoch that was measured; no validation says which is best"),
    }
}

/// Where rows of features came from.
fn show_features(summary: &Summary) {
    if let Some(rows) = summary.gpu_features {
        let (share, all) = (100.0 * rows.hit_rate(), rows.gpu_rows + rows.host_rows);
        return report::line(format!(
            "features  {share:.1}% of {all} rows from GPU memory, the others from host memory"
        ));
    }
    let HostServed { memory_rows, memory_bytes, disk_rows, disk_bytes, read_bytes } = summary.features;
    let [memory, disk, read] = [memory_bytes, disk_bytes, read_bytes].map(|bytes| format!("{} MiB", bytes >> 20));
    let share = 100.0 * summary.feature_hit_rate;
    let others =
        if disk_rows > 0 { format!(", the others from disk ({disk}; {read} were read)") } else { String::new() };
    report::line(format!("features  {share:.1}% of {} rows from memory ({memory}){others}", memory_rows + disk_rows));
}

/// The most memory that this process held, as Linux counts it.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_run_is_read_back() {
        for text in ["", "full_graph = true", "model = 'gcn'", "model = 'gat'", "model = 'mlp'", "features = 'disk'"] {
            let path = Path::new("config.toml");
            let flags = RunFile::parse(text, path).unwrap();
            let kept = resolved(flags, &RunFile::default()).unwrap().to_toml().unwrap();
            let file = RunFile::parse(&kept, path).unwrap();
            resolved(RunFile::default(), &file).unwrap().check_given(&file).unwrap();
        }
    }
}
