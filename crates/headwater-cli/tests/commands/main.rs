//! The command line as a user types it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod bench_tier;
mod bench_train;
mod cli;
mod compile;
mod datasets;
mod device_failures;
mod infer;
mod ingest;
mod program;
mod runs;
mod tier;
mod train;
