//! How far the work is, as a bar on standard error. Without a terminal there is none.

use std::sync::{Mutex, PoisonError};

use headwater::graph::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// One bar for the step that runs.
#[derive(Debug, Default)]
pub struct Bars {
    current: Mutex<Option<ProgressBar>>,
}

impl Progress for Bars {
    fn begin(&self, step: &str, total: u64) {
        let style = "{msg:24} {wide_bar} {percent:>3}%  {elapsed_precise}, {eta} left";
        let bar = if total == 0 { ProgressBar::new_spinner() } else { ProgressBar::new(total) };
        // A style that cannot be parsed leaves the plain one.
        let bar =
            ProgressStyle::with_template(style).map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style));
        bar.set_message(step.to_owned());
        self.put(Some(bar));
    }

    fn advance(&self, units: u64) {
        if let Some(bar) = &*self.current.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.inc(units);
        }
    }
}

impl Bars {
    fn put(&self, bar: Option<ProgressBar>) {
        let before = std::mem::replace(&mut *self.current.lock().unwrap_or_else(PoisonError::into_inner), bar);
        if let Some(before) = before {
            before.finish_and_clear();
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.put(None);
    }
}
