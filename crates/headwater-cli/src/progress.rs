//! A bar on standard error for work that takes a while. Nothing is drawn where nobody looks.

use std::time::Duration;

use headwater::graph::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::report;

const KNOWN: &str = "{msg} [{bar:30}] {percent}% {eta}";
const UNKNOWN: &str = "{msg} {spinner} {human_pos}";

/// One bar for all steps of a command, gone when it is dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that waits for its first step.
    #[must_use]
    pub fn new() -> Self {
        let bar = ProgressBar::no_length();
        // A bar that nobody sees needs no thread that moves it.
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self(bar)
    }
}

impl Progress for Bar {
    fn begin(&self, step: &str, total: u64) {
        let template = if total > 0 { KNOWN } else { UNKNOWN };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style.progress_chars("=> "));
        }
        self.0.reset();
        self.0.set_length(total);
        self.0.set_message(step.to_owned());
    }

    fn advance(&self, units: u64) {
        self.0.inc(units);
    }
}

/// A line a step on standard error, for logs.
#[derive(Debug)]
pub struct Lines;

impl Progress for Lines {
    fn begin(&self, step: &str, total: u64) {
        report::note(if total > 0 { format!("{step}: {total}") } else { step.to_owned() });
    }

    fn advance(&self, _units: u64) {}
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
