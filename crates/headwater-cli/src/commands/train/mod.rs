//! `headwater train`: a run on a GPU or on the CPU, from its description to its summary.

mod machine;
pub mod planted;
mod producer;
pub mod trace;
mod watch;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use headwater::feature::HostServed;
use headwater::graph::Dataset;
use headwater::train::run_config::{RunConfig, RunFile};
use headwater::train::trainer::{Ending, EpochReport, Summary};
use headwater::train::{Checkpoints, Origin, journal, task};
use serde::Serialize;

pub use self::producer::produce;

use self::machine::Machine;
use self::watch::Watcher;
use crate::args::TrainArgs;
use crate::picture::{self, Chart};
use crate::progress::Bar;
use crate::report;

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

/// Trains and prints.
pub fn run(args: &TrainArgs) -> anyhow::Result<()> {
    let (config, folder) = described(args)?;
    producer::take_share(&config)?;
    set_threads(config.threads)?;
    let machine = Machine::choose(&config)?;
    let config = machine.config.clone();
    let made_up = config.dataset.is_none();
    let dataset = match &config.dataset {
        Some(dataset) => dataset.clone(),
        None => planted::make(&folder)?,
    };
    let dataset = Dataset::open(&dataset).with_context(|| format!("opening {}", dataset.display()))?;
    if args.verify {
        dataset.verify(&Bar::new()).with_context(|| format!("verifying {}", dataset.folder().display()))?;
    }
    let open = || task::open(&config, &dataset).with_context(|| format!("training on {}", dataset.folder().display()));
    let task = open()?;
    let made = if made_up { Some(planted::recipe()?) } else { None };
    let origin = Origin { made, ..Origin::of(&dataset).asking(&task) };
    let command = || producer::command(dataset.folder());
    let mut trainer = machine.open(task, &folder, &open, &command)?;
    trainer.remarks().iter().for_each(report::note);
    if args.trace.is_some() {
        trainer.trace();
    }
    if args.resume.is_none() {
        origin.write(&folder)?;
    }
    let watcher = Watcher::new(&config, trainer.state().epoch, args.json)?;
    let (summary, ending) = trainer.run(&watcher)?;
    watcher.finish();
    if let Some(path) = &args.trace {
        trace::write(path, &trainer.timeline(), &trainer.traced_kernels())?;
    }
    if let Err(why) = draw(&folder) {
        report::note(format!("warning: there is no picture of the run: {why:#}"));
    }
    let features_alone =
        if made_up && ending == Ending::Done { planted::features_alone(&config, open()?)? } else { None };
    let closing = Closing {
        summary: &summary,
        peak_rss_bytes: peak_rss_bytes(),
        training_rss_bytes: watcher.trained_rss_bytes(),
        features_alone,
    };
    if args.json {
        report::json(&closing)?
    } else {
        show(&closing)
    }
    if ending == Ending::Stopped {
        report::note(format!("stopped; go on with: headwater train --resume {}", folder.display()));
    }
    Ok(())
}

/// Sets how many threads there are, unless it is left to the machine.
pub fn set_threads(threads: usize) -> anyhow::Result<()> {
    if threads > 0 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build_global().context("setting the number of threads")?;
    }
    Ok(())
}

/// The run that is described, and its folder.
fn described(args: &TrainArgs) -> anyhow::Result<(RunConfig, PathBuf)> {
    if let Some(folder) = &args.resume {
        let file = RunFile::read(&folder.join("config.toml"))
            .with_context(|| format!("{} is no run that can be gone on with", folder.display()))?;
        // How long it goes on and where features lie may change; what it learns may not.
        let TrainArgs { epochs, threads, device, sampler, producer, producer_percent, .. } = *args;
        let TrainArgs { gather_sms, gather_green, gather_window, features, hot_share, .. } = *args;
        let gather = RunFile { gather_sms, gather_green, gather_window, ..RunFile::default() };
        let machine = RunFile { device, sampler, producer, producer_percent, ..gather };
        let flags = RunFile { epochs, threads, features, hot_share, ..machine };
        return Ok((RunConfig::resolve(flags, file)?, folder.clone()));
    }
    let file = args.config.as_ref().map(|path| RunFile::read(path)).transpose()?.unwrap_or_default();
    let are_epochs_said = args.epochs.or(file.epochs).is_some();
    let is_made_up = args.dataset.is_none() && file.dataset.is_none();
    let file = if is_made_up { file.over(planted::settings()) } else { file };
    let config = RunConfig::resolve(args.flags(), file)?;
    if !are_epochs_said {
        report::note(format!(
            "{} epochs at most, as published for {}; --epochs says otherwise",
            config.epochs, config.model
        ));
    }
    let folder = match &config.out {
        Some(folder) => folder.clone(),
        None => new_folder(&config),
    };
    let is_used = Checkpoints::new(&folder.join("checkpoints"), 1).newest().is_ok_and(|newest| newest.is_some());
    ensure!(!is_used, "{} holds a run already; go on with it by --resume, or name another folder", folder.display());
    Ok((config, folder))
}

/// The first folder below runs/ that is not there yet.
fn new_folder(config: &RunConfig) -> PathBuf {
    let dataset = config.dataset.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let name = format!("{}-{}", dataset.unwrap_or_else(|| "planted".to_owned()), config.model);
    let name = name.replace(['/', '\\'], "-");
    let free = (1..).map(|number| PathBuf::from("runs").join(format!("{name}-{number}"))).find(|path| !path.exists());
    free.unwrap_or_else(|| PathBuf::from("runs"))
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
