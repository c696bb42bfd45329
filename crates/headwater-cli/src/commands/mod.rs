//! One file a verb.

mod bench;
mod export;
mod info;
mod ingest;
mod inspect;

use crate::args::{BenchCommand, Command};

/// Does what was asked.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Info(args) => info::run(&args),
        Command::Ingest(args) => ingest::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Bench(BenchCommand::Gather(args)) => bench::gather(&args),
    }
}
