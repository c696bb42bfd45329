//! The headwater command line: parse, run, exit code.

mod args;
mod commands;
mod picture;
mod progress;
mod report;
mod signals;
mod stop;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    report::log_to_stderr();
    let asked = args::Args::parse();
    match commands::run(asked.command) {
        Ok(code) => code,
        Err(error) => {
            stop::wait_if_stopping();
            report::error(&error);
            ExitCode::FAILURE
        }
    }
}
