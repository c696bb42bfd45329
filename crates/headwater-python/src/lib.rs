//! Headwater from Python: classes over the core, and arrays that cross without a copy. `python/headwater` is what users see.
//!
//! | the question | the room |
//! | --- | --- |
//! | How does an array cross? | `dlpack.rs`, `dtype.rs` |
//! | Ours, for others? | `array.rs` |
//! | Theirs, for us? | `column.rs` |
//! | Graphs and their samples? | `graph.rs`, `sampler.rs` |
//! | Layers as kernels? | `compile.rs`, `kernels.rs` |
//! | Rows of features? | `rows.rs`, into memory of `recycle.rs` |
//! | The same with a GPU? | `cuda.rs`, `device_graph.rs`, `device_sampler.rs`, `table.rs` |
//! | Host memory that a GPU reads? | `mapped.rs` |
//! | Which exception? | `error.rs` |
//! | On which threads? | `threads.rs` |

mod array;
mod column;
mod compile;
mod cuda;
mod device_graph;
mod device_sampler;
mod dlpack;
mod dtype;
mod error;
mod graph;
mod kernels;
mod mapped;
mod recycle;
mod rows;
mod sampler;
mod table;
mod threads;

use pyo3::prelude::*;

/// The native part of `headwater`.
#[pymodule]
fn _headwater(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<array::Array>()?;
    module.add_class::<graph::Topology>()?;
    module.add_class::<graph::Graph>()?;
    module.add_class::<sampler::Sampler>()?;
    module.add_class::<sampler::Sample>()?;
    module.add_class::<device_graph::DeviceGraph>()?;
    module.add_class::<device_sampler::DeviceSampler>()?;
    module.add_class::<device_sampler::DeviceSample>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<mapped::Mapped>()?;
    module.add_class::<mapped::ManagedMemory>()?;
    module.add_function(wrap_pyfunction!(mapped::placement, module)?)?;
    module.add_function(wrap_pyfunction!(rows::take_rows, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::gpu_count, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::gpu_memory, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::synchronize, module)?)?;
    module.add_class::<compile::Layer>()?;
    module.add_class::<compile::BoundLayer>()?;
    module.add_class::<kernels::LayerGraph>()?;
    module.add_class::<kernels::Plan>()?;
    module.add_function(wrap_pyfunction!(compile::builtin_layer, module)?)
}
