//! Arrays of other libraries as the core's columns, where they lie.

use std::sync::Arc;

use bytemuck::Pod;
use headwater::graph::{Column, Ids};
use headwater::memory::Foreign;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dlpack::Lent;
use crate::dtype::Dtype;
use crate::error::of_graph;

/// One dimension of an array, with its kind of element.
pub fn list(array: &Bound<'_, PyAny>, name: &'static str) -> PyResult<(Foreign, Dtype)> {
    let lent = Lent::new(array, name)?;
    if lent.shape.len() != 1 {
        let why = format!("{name} has {} dimensions; it should have one", lent.shape.len());
        return Err(PyValueError::new_err(why));
    }
    let dtype = lent.dtype;
    Ok((Foreign::new(Arc::new(lent)), dtype))
}

fn column<T: Pod + Send + Sync>(bytes: Foreign, name: &'static str) -> PyResult<Column<T>> {
    Column::over(bytes, name).map_err(of_graph)
}

/// An array of the wrong kind.
pub fn wrong(name: &str, dtype: Dtype, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{name} has elements of {dtype:?}; it should have {expected}"))
}

/// Ids of 32 or 64 bits. Negative ones are out of every range.
pub fn ids(array: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Ids> {
    let (bytes, dtype) = list(array, name)?;
    match dtype {
        Dtype::I64 | Dtype::U64 => column(bytes, name).map(Ids::U64),
        Dtype::I32 | Dtype::U32 => column(bytes, name).map(Ids::U32),
        other => Err(wrong(name, other, "int64 or int32")),
    }
}

/// Ids that must be wide: those of 32 bits are copied.
pub fn wide(array: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Column<u64>> {
    let (bytes, dtype) = list(array, name)?;
    match dtype {
        Dtype::I64 | Dtype::U64 => column(bytes, name),
        Dtype::I32 => {
            let narrow: Column<i32> = column(bytes, name)?;
            // Negative ones stay negative.
            Ok(Column::from(narrow.iter().map(|id| i64::from(*id).cast_unsigned()).collect::<Vec<u64>>()))
        }
        Dtype::U32 => {
            let narrow: Column<u32> = column(bytes, name)?;
            Ok(Column::from(narrow.iter().map(|id| u64::from(*id)).collect::<Vec<u64>>()))
        }
        other => Err(wrong(name, other, "int64 or int32")),
    }
}

/// Times of 64 bits; those of 32 are copied.
pub fn times(array: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Column<i64>> {
    let (bytes, dtype) = list(array, name)?;
    match dtype {
        Dtype::I64 => column(bytes, name),
        Dtype::I32 => {
            let narrow: Column<i32> = column(bytes, name)?;
            Ok(Column::from(narrow.iter().map(|time| i64::from(*time)).collect::<Vec<_>>()))
        }
        other => Err(wrong(name, other, "int64 or int32")),
    }
}

/// Weights of 32 bits; those of 64 are rounded into a copy. One that would become nothing, or lose its last bits, is refused.
pub fn weights(array: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Column<f32>> {
    let (bytes, dtype) = list(array, name)?;
    match dtype {
        Dtype::F32 => column(bytes, name),
        Dtype::F64 => narrowed(&column(bytes, name)?, name).map(Column::from),
        other => Err(wrong(name, other, "float32 or float64")),
    }
}

fn narrowed(exact: &[f64], name: &str) -> PyResult<Vec<f32>> {
    #[expect(clippy::cast_possible_truncation, reason = "weights are compared, and 24 bits do")]
    let rounded: Vec<f32> = exact.iter().map(|weight| *weight as f32).collect();
    let is_lost = |(exact, rounded): (&f64, &f32)| {
        let is_small = *exact != 0.0 && rounded.abs() < f32::MIN_POSITIVE;
        is_small || (exact.is_finite() && !rounded.is_finite())
    };
    match exact.iter().zip(&rounded).position(is_lost) {
        None => Ok(rounded),
        Some(at) => Err(PyValueError::new_err(format!(
            "{name}[{at}] is {:e}, which float32 does not hold; only proportions matter, so divide all by the largest",
            exact[at]
        ))),
    }
}
