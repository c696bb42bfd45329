//! A run while it goes: a bar a batch, a line an epoch, and a stop when somebody asks for it.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use headwater::train::run_config::RunConfig;
use headwater::train::trainer::{EpochReport, Listener};
use indicatif::{ProgressBar, ProgressStyle};

use crate::report;
use crate::signals::Signals;

const TEMPLATE: &str = "epoch {prefix} [{bar:30}] {pos}/{len} {msg} {eta}";

/// Shows and listens.
pub struct Watcher {
    bar: ProgressBar,
    json: bool,
    is_full_graph: bool,
    epochs: u64,
    batch_seeds: usize,
    begun: Cell<Instant>,
    epoch: Cell<u64>,
    /// Most memory that the process held when the first epoch was trained, before anything was evaluated.
    trained_rss_bytes: Cell<Option<u64>>,
    signals: Arc<Signals>,
}

impl Watcher {
    /// For a run that begins with an epoch.
    pub fn new(config: &RunConfig, epoch: u64, json: bool, signals: &Arc<Signals>) -> Self {
        let signals = Arc::clone(signals);
        signals.begin_training();
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("=> "));
        }
        let (is_full_graph, epochs, batch_seeds) = (config.full_graph, config.epochs, config.batch);
        let (begun, epoch) = (Cell::new(Instant::now()), Cell::new(epoch));
        let trained_rss_bytes = Cell::new(None);
        Self { bar, json, is_full_graph, epochs, batch_seeds, begun, epoch, trained_rss_bytes, signals }
    }

    /// Most memory that training alone took, as far as an epoch was trained.
    pub fn trained_rss_bytes(&self) -> Option<u64> {
        self.trained_rss_bytes.get()
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Listener for Watcher {
    fn batch(&self, done: u64, of: u64, loss: f64) {
        if done == of && self.trained_rss_bytes.get().is_none() {
            self.trained_rss_bytes.set(Some(super::peak_rss_bytes()));
        }
        if self.is_full_graph {
            self.bar.set_length(self.epochs);
            self.bar.set_position(self.epoch.get() + 1);
            self.bar.set_message(format!("loss {loss:.4}"));
            return;
        }
        if done == 1 {
            self.begun.set(Instant::now());
            self.bar.reset();
        }
        self.bar.set_prefix(format!("{}/{}", self.epoch.get() + 1, self.epochs));
        self.bar.set_length(of);
        self.bar.set_position(done);
        let seeds = done.saturating_sub(1) as f64 * self.batch_seeds as f64 / self.begun.get().elapsed().as_secs_f64();
        self.bar.set_message(format!("loss {loss:.4} {:.0} k seeds/s", seeds / 1e3));
    }

    fn epoch(&self, report: &EpochReport) {
        self.epoch.set(report.epoch);
        if self.json {
            let _ = report::json(report);
            return;
        }
        // A line for each of hundreds of short epochs tells nobody anything.
        if self.is_full_graph && !report.epoch.is_multiple_of(20) && report.epoch != self.epochs {
            return;
        }
        let shown = |name: &str, value: Option<f64>| {
            value.map_or_else(String::new, |value| format!("  {name} {:.2}%", 100.0 * value))
        };
        let measured = shown("valid", report.valid) + &shown("test", report.test);
        let line = format!(
            "epoch {:>4}  loss {:.4}{measured}  {:.3} s (sample {:.3}, gather {:.3}, compute {:.3})",
            report.epoch,
            report.loss,
            report.epoch_seconds,
            report.seconds.sample,
            report.seconds.gather,
            report.seconds.compute
        );
        self.bar.suspend(|| report::line(line));
    }

    fn should_stop(&self) -> bool {
        self.signals.has_come()
    }
}
