//! Headwater from Python: classes over the core, and arrays that cross without a copy. `python/headwater` is what users see.
//!
//! | the question | the room |
//! | --- | --- |
//! | How does an array cross? | `dlpack.rs`, `dtype.rs` |
//! | Ours, for others? | `array.rs` |
//! | Theirs, for us? | `column.rs`, and `lender.rs` whether they still lie where they lay |
//! | Graphs and their samples? | `graph.rs`, `sampler.rs` |
//! | Layers as kernels? | `compile.rs`, `kernels.rs` |
//! | The same with a GPU? | `cuda.rs`, `device_graph.rs`, `device_sampler.rs`, `table.rs` |
//! | Host memory that a GPU reads? | `mapped.rs` |
//! | Graphs with features and labels, and where they come from? | `dataset.rs`, `source.rs` |
//! | Is an array still what it was? | `fingerprint.rs` |
//! | Rows of features? | `rows.rs`, into memory of `recycle.rs` |
//! | Which nodes are read most, and where do their rows lie? | `score.rs`, `plan.rs` |
//! | Runs, and what they leave? | `trainer.rs`, `run.rs`, with the plain values of `value.rs` |
//! | What leaves a device between forward and backward? | `offload.rs` |
//! | Which exception? | `error.rs` |
//! | On which threads? | `threads.rs` |
//! | Who hears warnings? | `warnings.rs` |

mod array;
mod column;
mod compile;
mod cuda;
mod dataset;
mod device_graph;
mod device_kernels;
mod device_layer_graph;
mod device_sampler;
mod dlpack;
mod dtype;
mod error;
mod fingerprint;
mod graph;
mod kernels;
mod lender;
mod mapped;
mod offload;
mod plan;
mod recycle;
mod rows;
mod run;
mod sampler;
mod score;
mod source;
mod table;
mod threads;
mod trainer;
mod value;
mod warnings;

use pyo3::prelude::*;

/// The native part of `headwater`.
#[pymodule]
fn _headwater(module: &Bound<'_, PyModule>) -> PyResult<()> {
    warnings::listen();
    error::tell_panics(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(threads::_panic, module)?)?;
    module.add_class::<array::Array>()?;
    module.add_class::<graph::Topology>()?;
    module.add_class::<graph::Graph>()?;
    module.add_class::<sampler::Sampler>()?;
    module.add_class::<sampler::Sample>()?;
    module.add_class::<device_graph::DeviceGraph>()?;
    module.add_class::<device_kernels::DevicePlan>()?;
    module.add_class::<device_kernels::PlacedPlan>()?;
    module.add_class::<device_layer_graph::DeviceLayerGraph>()?;
    module.add_class::<device_sampler::DeviceSampler>()?;
    module.add_class::<device_sampler::DeviceSample>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<mapped::Mapped>()?;
    module.add_class::<mapped::ManagedMemory>()?;
    module.add_class::<mapped::PinnedMemory>()?;
    module.add_function(wrap_pyfunction!(mapped::placement, module)?)?;
    module.add_function(wrap_pyfunction!(rows::take_rows, module)?)?;
    module.add_function(wrap_pyfunction!(fingerprint::fingerprint, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::gpu_count, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::gpu_memory, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::_lasting_stream, module)?)?;
    module.add("OffloadError", module.py().get_type::<offload::OffloadError>())?;
    module.add_class::<offload::RawOffloader>()?;
    module.add_class::<offload::CopyMark>()?;
    module.add_class::<offload::StoredBlock>()?;
    module.add_function(wrap_pyfunction!(offload::_host_bytes_available, module)?)?;
    module.add_class::<compile::Layer>()?;
    module.add_class::<compile::BoundLayer>()?;
    module.add_class::<kernels::LayerGraph>()?;
    module.add_class::<kernels::Plan>()?;
    module.add_function(wrap_pyfunction!(compile::builtin_layer, module)?)?;
    module.add_function(wrap_pyfunction!(compile::optimisations, module)?)?;
    module.add_function(wrap_pyfunction!(compile::check_compiled_with, module)?)?;
    module.add_class::<dataset::RawDataset>()?;
    module.add_function(wrap_pyfunction!(source::generate_rmat, module)?)?;
    module.add_function(wrap_pyfunction!(source::generate_planted, module)?)?;
    module.add_function(wrap_pyfunction!(source::generate_like, module)?)?;
    module.add_function(wrap_pyfunction!(source::shapes, module)?)?;
    module.add_function(wrap_pyfunction!(source::ingest, module)?)?;
    module.add_function(wrap_pyfunction!(score::score, module)?)?;
    module.add_function(wrap_pyfunction!(score::score_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan, module)?)?;
    module.add_class::<trainer::RawTrainer>()?;
    module.add_function(wrap_pyfunction!(run::run_history, module)?)?;
    module.add_function(wrap_pyfunction!(run::run_config, module)?)?;
    module.add_function(wrap_pyfunction!(run::run_dataset, module)?)?;
    module.add_function(wrap_pyfunction!(run::run_checkpoints, module)?)?;
    module.add_function(wrap_pyfunction!(run::run_predict, module)?)
}
