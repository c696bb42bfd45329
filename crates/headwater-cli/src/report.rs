//! How results, warnings and errors reach a person or a program. The only place that prints.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use serde::Serialize;

/// Whether the work goes on when its results cannot be printed.
static GOES_ON: AtomicBool = AtomicBool::new(false);
/// Why results could not be printed, once that happened.
static UNPRINTED: OnceLock<std::io::Error> = OnceLock::new();

/// From now on the work goes on when its results cannot be printed: it is worth more than they are.
pub fn go_on_without_output() {
    GOES_ON.store(true, Ordering::SeqCst);
}

/// Whether everything was printed. A reader that has seen enough, as `head` has, is no failure.
pub fn check_output() -> anyhow::Result<()> {
    match UNPRINTED.get() {
        Some(why) if why.kind() != ErrorKind::BrokenPipe => bail!("not everything could be printed: {why}"),
        _ => Ok(()),
    }
}

/// Prints a line of the result. A reader that has seen enough, as `head` has, ends the program without a word; any other
/// refusal is a failure.
pub fn line(text: impl AsRef<str>) {
    if UNPRINTED.get().is_some() {
        return;
    }
    let Err(why) = writeln!(std::io::stdout(), "{}", text.as_ref()) else { return };
    let is_refused = why.kind() != ErrorKind::BrokenPipe;
    if is_refused {
        note(format!("warning: standard output cannot be written: {why}"));
    }
    if !GOES_ON.load(Ordering::SeqCst) {
        std::process::exit(i32::from(is_refused));
    }
    let _ = UNPRINTED.set(why);
}

/// Prints a remark that is not part of the result. Where that cannot be done nobody can be told.
pub fn note(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
}

/// Prints one object as a line of JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?);
    Ok(())
}

/// Prints an error with everything that led to it.
pub fn error(error: &anyhow::Error) {
    note(format!("error: {}", in_words(error)));
}

/// An error and its causes, each once: many errors have their cause in their own words already.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

fn word(level: log::Level) -> String {
    if level == log::Level::Warn { "warning".to_owned() } else { level.as_str().to_lowercase() }
}

/// Lets the libraries' warnings through to standard error.
pub fn log_to_stderr() {
    struct Stderr;
    impl log::Log for Stderr {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.level() <= log::Level::Warn
        }
        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                note(format!("{}: {}", word(record.level()), record.args()));
            }
        }
        fn flush(&self) {}
    }
    static LOGGER: Stderr = Stderr;
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = || std::io::Error::other("no such file");
        let said = anyhow::Error::new(cause()).context("a.npy: no such file").context("opening a");
        assert_eq!(in_words(&said), "opening a: a.npy: no such file");
        assert_eq!(in_words(&anyhow::Error::new(cause()).context("opening a")), "opening a: no such file");
    }
}
