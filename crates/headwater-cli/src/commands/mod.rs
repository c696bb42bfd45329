//! One file a verb.

mod bench;
mod compile;
mod export;
mod generate;
mod infer;
mod info;
mod ingest;
mod inspect;
mod offload;
mod reorder;
mod tier;
mod train;

use std::process::ExitCode;

use anyhow::anyhow;
use headwater::train::threads;

use crate::args::{BenchCommand, Command, OffloadCommand};
use crate::given::Given;
use crate::stop;

/// Does what was asked.
pub fn run(command: Command, given: &Given) -> anyhow::Result<ExitCode> {
    // Runs say how many threads they want, and end in more than two ways.
    match command {
        Command::Train(args) => train::run(&args),
        Command::Produce => train::produce().map(|()| ExitCode::SUCCESS),
        other => {
            // Before threads are started, which would not know of signals.
            if other.writes_dataset() {
                stop::leave_nothing()?;
            }
            set_threads(if let Command::Infer(args) = &other { args.threads } else { 0 })?;
            run_verb(other, given).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Starts the threads that everything is computed on; 0 for as many as there are cores. Where that is left to the first who
/// needs them, a system that refuses ends the program without a word.
pub fn set_threads(threads: usize) -> anyhow::Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads::bounded(threads));
    pool.build_global().map_err(|why| anyhow!("{}", threads::refused(threads, &why)))
}

fn run_verb(command: Command, given: &Given) -> anyhow::Result<()> {
    match command {
        Command::Info(args) => info::run(&args),
        Command::Ingest(args) => ingest::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Reorder(args) => reorder::run(&args),
        Command::Tier(args) => tier::run(&args),
        // These two were told apart before.
        Command::Train(_) | Command::Produce => Ok(()),
        Command::Infer(args) => infer::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Generate(args) => generate::run(&args.kind),
        Command::Offload(OffloadCommand::Plan(args)) => offload::plan_transformer(&args),
        Command::Bench(BenchCommand::Gather(args)) => bench::gather(&args, given),
        Command::Bench(BenchCommand::Sample(args)) => bench::sample(&args, given),
        Command::Bench(BenchCommand::Reorder(args)) => bench::reorder(&args),
        Command::Bench(BenchCommand::Tier(args)) => bench::tier(&args, given),
        Command::Bench(BenchCommand::Train(args)) => bench::train(&args, given),
        Command::Bench(BenchCommand::Score(args)) => bench::score(&args, given),
        Command::Bench(BenchCommand::Layer(args)) => bench::layer(&args, given),
    }
}
