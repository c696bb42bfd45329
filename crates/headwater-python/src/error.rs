//! Errors as Python's own kinds: an id out of range is an IndexError, too little memory a MemoryError, what the system says of
//! a file an OSError of its kind with the file's name, the rest ValueErrors.

use std::io;
use std::path::Path;

use headwater::feature::Error as FeatureError;
use headwater::graph::Error as GraphError;
use headwater::graph::ingest::fault::Fault;
use headwater::tensor::Error as TensorError;
use headwater::train::Error as TrainError;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyFloatingPointError, PyIndexError, PyMemoryError, PyOSError,
    PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;

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
        GraphError::Room { .. } | GraphError::Memory(_) => PyMemoryError::new_err(why.to_string()),
        _ => PyValueError::new_err(why.to_string()),
    }
}

/// What Python raises for an error of a run.
pub fn of_train(why: TrainError) -> PyErr {
    match why {
        TrainError::Graph(why) => of_graph(why),
        TrainError::Io { ref path, why: ref said, .. } => of_file(path, said, &why.to_string()),
        TrainError::Feature(FeatureError::File { ref path, why: ref said, .. }) => {
            of_file(path, said, &why.to_string())
        }
        // As Python says of any keyword.
        TrainError::NoField { .. } => PyTypeError::new_err(why.to_string()),
        TrainError::Setting { field: "nodes", .. } => PyIndexError::new_err(why.to_string()),
        TrainError::NoCheckpoint { .. } => PyFileNotFoundError::new_err(why.to_string()),
        TrainError::Memory(_) | TrainError::NoRoom { .. } => PyMemoryError::new_err(why.to_string()),
        TrainError::Cuda(_) | TrainError::Stage { .. } => PyRuntimeError::new_err(why.to_string()),
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
