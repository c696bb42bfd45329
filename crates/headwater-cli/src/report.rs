//! How results, warnings and errors reach a person or a program. The only place that prints.

use std::io::Write;

use serde::Serialize;

/// Prints a line of the result. A reader that has seen enough, as `head` has, ends the program without a word.
pub fn line(text: impl AsRef<str>) {
    if writeln!(std::io::stdout(), "{}", text.as_ref()).is_err() {
        std::process::exit(0);
    }
}

/// Prints a remark that is not part of the result.
pub fn note(text: impl AsRef<str>) {
    #[expect(clippy::print_stderr, reason = "this is the command line's voice")]
    {
        eprintln!("{}", text.as_ref());
    }
}

/// Prints one object as a line of JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?);
    Ok(())
}

/// Prints an error with everything that led to it.
pub fn error(error: &anyhow::Error) {
    note(format!("error: {error:#}"));
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
                note(format!("{}: {}", record.level().as_str().to_lowercase(), record.args()));
            }
        }
        fn flush(&self) {}
    }
    static LOGGER: Stderr = Stderr;
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}
