//! The command line as a user types it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod bench_layer;
mod bench_tier;
mod bench_train;
mod cli;
mod compile;
mod datasets;
mod device_failures;
mod device_layers;
mod infer;
mod ingest;
mod options;
mod program;
mod runs;
mod tier;
mod train;

/// The command line's own description of itself, which is in no library.
#[path = "../../src"]
#[allow(dead_code, unused_imports, reason = "what is parsed is of no interest here, but how it is described")]
mod source {
    pub mod args;
}
