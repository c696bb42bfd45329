//! One file a verb.

mod bench;
mod generate;
mod info;

use crate::args::{BenchCommand, Command};

/// Does what was asked.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Info(args) => info::run(&args),
        Command::Generate(args) => generate::run(&args.kind),
        Command::Bench(BenchCommand::Gather(args)) => bench::gather(&args),
    }
}
