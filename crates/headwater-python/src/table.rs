//! Rows of an array in host memory, the most read of them in a GPU's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use headwater::cuda::{Gpu, Stream};
use headwater::feature::{IdMap, Layout, RowFormat, Source, Stored, TieredTable};
use headwater::memory::Foreign;
use headwater::tensor::ids::IdType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::column::wide;
use crate::cuda::{NamedStream, at, check_not_forked, gpu, on_gpu, raise_faults, stream};
use crate::dlpack::Lent;
use crate::dtype::Dtype;
use crate::error::of_feature;
use crate::lender::{Lenders, look_around};
use crate::threads;

/// A table that a GPU reads: `hot_rows` of its rows in GPU memory, the others where they lie in host memory.
#[pyclass(frozen, module = "headwater")]
pub struct Table {
    /// Waited for without the GIL: whoever moves rows may want it.
    table: RwLock<TieredTable>,
    /// Read without the lock, which a forked process may find taken for good.
    hot_rows: AtomicU64,
    gpu: Gpu,
    shape: Vec<usize>,
    dtype: Dtype,
    lenders: Lenders,
}

#[pymethods]
impl Table {
    /// The first rows are the hot ones, or, with `reads`, a number for every row, those that are read most. `id_map` has the
    /// row of every id; without it ids are rows.
    #[new]
    #[pyo3(signature = (rows, device = 0, hot_rows = 0, *, reads = None, id_map = None))]
    fn new(
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        device: usize,
        hot_rows: u64,
        reads: Option<&Bound<'_, PyAny>>,
        id_map: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let gpu = gpu(device)?;
        look_around(py)?;
        let lenders = Lenders::of(rows, "rows")?;
        let lent = Lent::new(rows, "rows")?;
        let (shape, dtype) = (lent.shape.clone(), lent.dtype);
        let Some(width) = shape.get(1..) else {
            return Err(PyValueError::new_err("rows has no dimensions; it should have rows"));
        };
        let elements = width.iter().product::<usize>() * dtype.bytes();
        if elements == 0 {
            return Err(PyValueError::new_err("rows are empty; a table needs at least a byte a row"));
        }
        let reads = reads.map(|array| wide(array, "reads")).transpose()?;
        let id_map = id_map.map(|array| wide(array, "id_map")).transpose()?;
        let format = RowFormat::packed(elements, Stored::Raw);
        let table = threads::run(py, || {
            let bytes = match lenders.moved() {
                Some(moved) => Foreign::watched(Arc::new(lent), moved),
                None => Foreign::new(Arc::new(lent)),
            };
            let source = Source::memory(bytes, Vec::new(), format)?;
            let hot = hot_rows.min(source.rows());
            let layout = Layout::new(source.rows(), hot, hot, 1)?;
            let mut table = TieredTable::place(&gpu, std::slice::from_ref(&gpu), &source, layout)?;
            let is_mixed = 0 < hot && hot < source.rows();
            // Rows that lie in that order already stay where they are.
            if let Some(reads) = reads.filter(|reads| is_mixed && !reads.is_sorted_by(|a, b| a >= b)) {
                table.retier(&Stream::new(&gpu)?, &reads)?;
            }
            match id_map {
                Some(rows_of_ids) => table.with_id_map(IdMap::of(&rows_of_ids, source.rows())),
                None => Ok(table),
            }
        })?;
        let table = table.map_err(of_feature)?;
        let hot_rows = AtomicU64::new(table.layout().interleaved_end);
        Ok(Self { table: RwLock::new(table), hot_rows, gpu, shape, dtype, lenders })
    }

    /// Lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Bytes of a row.
    #[getter]
    fn row_bytes(&self) -> usize {
        self.shape[1..].iter().product::<usize>() * self.dtype.bytes()
    }

    /// The number of the GPU that reads it.
    #[getter]
    fn device(&self) -> usize {
        self.gpu.ordinal()
    }

    /// Rows in GPU memory.
    #[getter]
    fn hot_rows(&self) -> u64 {
        self.hot_rows.load(Ordering::Relaxed)
    }

    /// Queues `out[i] = rows[ids[i]]` on a stream. An id that is none is raised by `synchronize`, or by a later gather.
    fn gather_into(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        stream: NamedStream,
    ) -> PyResult<()> {
        self.lenders.check(py, "table")?;
        let stream = self::stream(&self.gpu, stream)?;
        raise_faults(&stream)?;
        let (ids, out) = (on_gpu(ids, &self.gpu, "ids")?, on_gpu(out, &self.gpu, "out")?);
        let id_type = match ids.dtype {
            Dtype::I64 => IdType::I64,
            Dtype::U64 => IdType::U64,
            Dtype::I32 => IdType::I32,
            Dtype::U32 => IdType::U32,
            other => return Err(PyValueError::new_err(format!("ids has elements of {other:?}; it should have int64"))),
        };
        let expected = [&ids.shape[..], &self.shape[1..]].concat();
        if out.shape != expected || out.dtype != self.dtype {
            let why =
                format!("out is {:?} of {:?}; it should be {expected:?} of {:?}", out.shape, out.dtype, self.dtype);
            return Err(PyValueError::new_err(why));
        }
        let queued = py.detach(|| {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.gather(&stream, &ids.span, id_type, Stored::Raw, &out.span)
        });
        queued.map_err(of_feature)
    }

    /// As `gather_into`, with so many int64 ids and room for their rows at these addresses.
    fn _gather(&self, py: Python<'_>, ids: usize, count: usize, out: usize, stream: NamedStream) -> PyResult<()> {
        self.lenders.check(py, "table")?;
        let stream = self::stream(&self.gpu, stream)?;
        raise_faults(&stream)?;
        let width = self.row_bytes();
        let (ids, out) = (at(&self.gpu, ids, 8 * count), at(&self.gpu, out, width * count));
        let queued = py.detach(|| {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.gather(&stream, &ids, IdType::I64, Stored::Raw, &out)
        });
        queued.map_err(of_feature)
    }

    /// Rows that came out of GPU memory and out of host memory so far. Waits for what is queued on a stream.
    fn served(&self, py: Python<'_>, stream: NamedStream) -> PyResult<(u64, u64)> {
        let stream = self::stream(&self.gpu, stream)?;
        let served = py.detach(|| {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.served(&stream)
        });
        served.map(|served| (served.replicated.rows, served.host.rows)).map_err(of_feature)
    }

    /// Moves the rows that are read most to GPU memory. Waits for all gathers.
    fn retier(&self, py: Python<'_>, reads: &Bound<'_, PyAny>) -> PyResult<()> {
        check_not_forked()?;
        self.lenders.check(py, "table")?;
        let reads = wide(reads, "reads")?;
        let moved = threads::run(py, || {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            let moved = table.retier(&Stream::new(&self.gpu)?, &reads).map(|_| ());
            self.hot_rows.store(table.layout().interleaved_end, Ordering::Relaxed);
            moved
        })?;
        moved.map_err(of_feature)
    }

    fn __repr__(&self) -> String {
        let rows = self.shape.first().copied().unwrap_or(0);
        format!("Table({rows} rows, {} of them in the memory of cuda:{})", self.hot_rows(), self.gpu.ordinal())
    }
}
