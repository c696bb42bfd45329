//! Errors as Python's own kinds: an id out of range is an IndexError, too little memory a MemoryError, a fault in a layer's text
//! a SyntaxError at its place, the rest ValueErrors.

use headwater::compile::Error as CompileError;
use headwater::graph::Error as GraphError;
use headwater::train::Error as TrainError;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PySyntaxError, PyValueError};
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
