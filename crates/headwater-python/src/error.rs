//! Errors as Python's own kinds: an id out of range is an IndexError, too little memory a MemoryError, the rest ValueErrors.

use headwater::graph::Error as GraphError;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyValueError};
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
        _ => PyValueError::new_err(why.to_string()),
    }
}
