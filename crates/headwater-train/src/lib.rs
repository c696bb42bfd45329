//! One epoch after the other: what a training run is made of.
//!
//! This crate wires the rooms together: samplers of `headwater-graph`, tables of `headwater-feature` and layers of
//! `headwater-compile`. It never prints: what happens is told through [`headwater_graph::Progress`] and written into the
//! run's folder.

pub mod error;

pub use error::{Error, Result};
