//! Errors as Python's own kinds: an id out of range is an IndexError, too little memory a MemoryError, a fault in a layer's text
//! a SyntaxError at its place, what a GPU refuses a RuntimeError, the rest ValueErrors.

use headwater::compile::Error as CompileError;
use headwater::cuda::Error as CudaError;
use headwater::feature::Error as FeatureError;
use headwater::graph::Error as GraphError;
use headwater::memory::Error as MemoryError;
use headwater::tensor::Error as TensorError;
use headwater::train::Error as TrainError;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyRuntimeError, PySyntaxError, PyValueError};
use pyo3::prelude::*;

/// What Python raises for an error of the graph's.
pub fn of_graph(why: GraphError) -> PyErr {
    match &why {
        GraphError::IdOutOfRange { name, position, id, limit } => {
            // Ids are signed where they come from.
            let id = id.cast_signed();
            PyIndexError::new_err(format!("{name}[{position}] is {id}, but there are only {limit} nodes"))
        }
        GraphError::Room { .. } => PyMemoryError::new_err(why.to_string()),
        GraphError::Cuda(why) | GraphError::Memory(MemoryError::Cuda(why)) => of_cuda(why.clone()),
        _ => PyValueError::new_err(why.to_string()),
    }
}

/// What Python raises for an error of a GPU's.
pub fn of_cuda(why: CudaError) -> PyErr {
    match &why {
        CudaError::Fault { .. } => PyIndexError::new_err(why.to_string()),
        _ if why.is_out_of_memory() || why.is_out_of_host_memory() => PyMemoryError::new_err(why.to_string()),
        _ => PyRuntimeError::new_err(why.to_string()),
    }
}

/// What Python raises for an error of memory's.
pub fn of_memory(why: MemoryError) -> PyErr {
    match why {
        MemoryError::Cuda(why) => of_cuda(why),
        _ if why.is_out_of_memory() => PyMemoryError::new_err(why.to_string()),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// What Python raises for an error of a table's.
pub fn of_feature(why: FeatureError) -> PyErr {
    match why {
        FeatureError::Cuda(why) => of_cuda(why),
        FeatureError::Memory(why) => of_memory(why),
        FeatureError::Tensor(TensorError::Cuda(why)) => of_cuda(why),
        FeatureError::NoRoom { .. } => PyMemoryError::new_err(why.to_string()),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// What Python raises for an error of the compiler's. A fault in `text` has its line.
pub fn of_compile(why: CompileError, text: &str) -> PyErr {
    match why {
        CompileError::Text { name, line, column, why, .. } => {
            let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().to_owned();
            PySyntaxError::new_err((why, (name, line, column, shown)))
        }
        other => PyValueError::new_err(other.to_string()),
    }
}

/// What Python raises for an error of training's.
pub fn of_train(why: TrainError) -> PyErr {
    match why {
        TrainError::Graph(why) => of_graph(why),
        TrainError::Compile(why) => of_compile(why, ""),
        other => PyValueError::new_err(other.to_string()),
    }
}
