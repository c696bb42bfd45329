//! Errors as Python's own kinds: an id out of range is an IndexError, too little memory a MemoryError, a fault in a layer's text
//! a SyntaxError at its place, what the system says of a file an OSError of its kind, what a GPU refuses a RuntimeError, the rest
//! ValueErrors. A panic is a RuntimeError too, whichever function it was in.

use std::io;
use std::path::Path;

use std::sync::atomic::{AtomicU64, Ordering};

use headwater::compile::Error as CompileError;
use headwater::compile::cuda::block;
use headwater::cuda::Error as CudaError;
use headwater::feature::Error as FeatureError;
use headwater::graph::Error as GraphError;
use headwater::graph::ingest::fault::Fault;
use headwater::memory::Error as MemoryError;
use headwater::tensor::Error as TensorError;
use headwater::train::Error as TrainError;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyFloatingPointError, PyIndexError, PyMemoryError, PyOSError,
    PyRuntimeError, PySyntaxError, PyTypeError, PyValueError,
};
use pyo3::panic::PanicException;
use pyo3::prelude::*;

/// Makes a RuntimeError of what the caller of every function gets for a panic. PyO3 derives it from BaseException, so that it
/// passes by `except Exception` and ends a server, a notebook's cell or a worker that could have gone on.
pub fn tell_panics(py: Python<'_>) -> PyResult<()> {
    py.get_type::<PanicException>().setattr("__bases__", (py.get_type::<PyRuntimeError>(),))
}

/// What Python raises for an error of the graph's.
pub fn of_graph(why: GraphError) -> PyErr {
    match &why {
        GraphError::IdOutOfRange { name, position, id, limit } => {
            // Ids are signed where they come from.
            let id = id.cast_signed();
            PyIndexError::new_err(format!("{name}[{position}] is {id}, but there are only {limit} nodes"))
        }
        GraphError::File { path, why: said, .. } => of_file(path, said, &why.to_string()),
        GraphError::Tensor(TensorError::Io { path, source }) => of_file(path, source, &why.to_string()),
        GraphError::Source { path, fault, .. } => match &**fault {
            Fault::Io(said) => of_file(path, said, &why.to_string()),
            _ => PyValueError::new_err(why.to_string()),
        },
        // Something is there already; other faults of a folder have none yet.
        GraphError::DatasetFolder { path, .. } if path.exists() => PyFileExistsError::new_err(why.to_string()),
        GraphError::Room { .. } => PyMemoryError::new_err(why.to_string()),
        GraphError::Cuda(why) | GraphError::Memory(MemoryError::Cuda(why)) => of_cuda(why.clone()),
        GraphError::Memory(_) => PyMemoryError::new_err(why.to_string()),
        _ => PyValueError::new_err(why.to_string()),
    }
}

/// What Python raises for an error of a GPU's.
pub fn of_cuda(why: CudaError) -> PyErr {
    match &why {
        CudaError::Fault { .. } => {
            FAULTS.fetch_add(1, Ordering::Relaxed);
            match block::explained(why) {
                CompileError::Graph { why, .. } => PyValueError::new_err(why),
                other => PyIndexError::new_err(other.to_string()),
            }
        }
        _ if why.is_out_of_memory() || why.is_out_of_host_memory() => PyMemoryError::new_err(why.to_string()),
        _ => PyRuntimeError::new_err(why.to_string()),
    }
}

/// Faults of kernels that were told so far.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// How many faults of kernels were told so far. What was made on a GPU before one may be what it was about.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
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
        CompileError::Cuda(why) => of_cuda(why),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// What Python raises for an error of a run.
pub fn of_train(why: TrainError) -> PyErr {
    match why {
        TrainError::Graph(why) => of_graph(why),
        TrainError::Compile(why) => of_compile(why, ""),
        TrainError::Io { ref path, why: ref said, .. } => of_file(path, said, &why.to_string()),
        TrainError::Feature(FeatureError::File { ref path, why: ref said, .. }) => {
            of_file(path, said, &why.to_string())
        }
        // As Python says of any keyword.
        TrainError::NoField { .. } => PyTypeError::new_err(why.to_string()),
        TrainError::Setting { field: "nodes", .. } => PyIndexError::new_err(why.to_string()),
        TrainError::UsedFolder { .. } => PyFileExistsError::new_err(why.to_string()),
        TrainError::InUse { .. } | TrainError::TakenOver { .. } => PyRuntimeError::new_err(why.to_string()),
        TrainError::NoCheckpoint { .. } | TrainError::NoRun { .. } | TrainError::LostCheckpoints { .. } => {
            PyFileNotFoundError::new_err(why.to_string())
        }
        TrainError::Memory(_) | TrainError::NoRoom { .. } => PyMemoryError::new_err(why.to_string()),
        TrainError::Cuda(why) => of_cuda(why),
        TrainError::Stage { .. } => PyRuntimeError::new_err(why.to_string()),
        TrainError::NotFinite { .. } => PyFloatingPointError::new_err(why.to_string()),
        _ => PyValueError::new_err(why.to_string()),
    }
}

/// What Python raises where the system refused a file: the kind follows from the number, as in Python itself.
fn of_file(path: &Path, said: &io::Error, words: &str) -> PyErr {
    match said.raw_os_error() {
        Some(number) => {
            let text = said.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, path.display().to_string()))
        }
        None => PyOSError::new_err(words.to_owned()),
    }
}
