//! The headwater command line: parse, run, exit code.
//!
//! A library, so that it is compiled beside the crates below it: a program waits for all of them.

mod args;
mod commands;
mod given;
mod picture;
mod progress;
mod report;
mod signals;
mod stop;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

/// The whole program. Returns what it exits with.
pub fn main() -> ExitCode {
    report::log_to_stderr();
    signals::outlive_long_files();
    let matches = args::Args::command().get_matches();
    let given = given::Given::of(&matches);
    let asked = args::Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match commands::run(asked.command, &given) {
        Ok(code) => code,
        Err(error) => {
            stop::wait_if_stopping();
            report::error(&error);
            ExitCode::FAILURE
        }
    }
}
