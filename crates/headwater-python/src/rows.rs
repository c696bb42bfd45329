//! Rows of tables in host memory.

use std::sync::Arc;

use headwater::tensor::gather::{GatherError, IdSlice, gather_host};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

use crate::array::Array;
use crate::column::{list, wrong};
use crate::dlpack::Lent;
use crate::dtype::Dtype;
use crate::recycle::Recycled;
use crate::threads;

/// `table[ids]`, gathered by threads out of host memory.
#[pyfunction]
pub fn take_rows(py: Python<'_>, table: &Bound<'_, PyAny>, ids: &Bound<'_, PyAny>) -> PyResult<Array> {
    let table = Lent::new(table, "table")?;
    let (bytes, kind) = list(ids, "ids")?;
    let ids = match kind {
        Dtype::I32 => IdSlice::I32(bytemuck::cast_slice(bytes.as_slice())),
        Dtype::U32 => IdSlice::U32(bytemuck::cast_slice(bytes.as_slice())),
        Dtype::I64 => IdSlice::I64(bytemuck::cast_slice(bytes.as_slice())),
        Dtype::U64 => IdSlice::U64(bytemuck::cast_slice(bytes.as_slice())),
        other => return Err(wrong("ids", other, "int64 or int32")),
    };
    let Some(width) = table.shape.get(1..) else {
        return Err(PyValueError::new_err("table has no dimensions; it should have rows"));
    };
    let width_bytes = width.iter().product::<usize>() * table.dtype.bytes();
    let shape = [&[ids.len()], width].concat();
    let bytes =
        ids.len().checked_mul(width_bytes).ok_or_else(|| PyValueError::new_err("ids ask for more than memory"))?;
    let mut out = Recycled::new(bytes);
    if width_bytes == 0 {
        return Ok(Array::over(Arc::new(out), shape, table.dtype));
    }
    let done = threads::run(py, || gather_host(table.as_ref(), width_bytes, ids, out.as_mut()))?;
    done.map_err(|why| of_gather(&why))?;
    Ok(Array::over(Arc::new(out), shape, table.dtype))
}

fn of_gather(why: &GatherError) -> PyErr {
    match why {
        GatherError::IdOutOfRange { position, id, rows } => {
            PyIndexError::new_err(format!("ids[{position}] is {id}, but the table has {rows} rows"))
        }
        other => PyValueError::new_err(other.to_string()),
    }
}
