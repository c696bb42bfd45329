//! One file a verb.

mod bench;
mod compile;
mod export;
mod generate;
mod infer;
mod info;
mod ingest;
mod inspect;
mod reorder;
mod tier;
mod train;

use crate::args::{BenchCommand, Command};
use crate::given::Given;

/// Does what was asked.
pub fn run(command: Command, given: &Given) -> anyhow::Result<()> {
    match command {
        Command::Info(args) => info::run(&args),
        Command::Ingest(args) => ingest::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Reorder(args) => reorder::run(&args),
        Command::Tier(args) => tier::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Produce => train::produce(),
        Command::Infer(args) => infer::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Generate(args) => generate::run(&args.kind),
        Command::Bench(BenchCommand::Gather(args)) => bench::gather(&args, given),
        Command::Bench(BenchCommand::Sample(args)) => bench::sample(&args, given),
        Command::Bench(BenchCommand::Reorder(args)) => bench::reorder(&args),
        Command::Bench(BenchCommand::Tier(args)) => bench::tier(&args, given),
        Command::Bench(BenchCommand::Train(args)) => bench::train(&args, given),
        Command::Bench(BenchCommand::Score(args)) => bench::score(&args, given),
    }
}
