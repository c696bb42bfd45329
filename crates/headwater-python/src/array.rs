//! Arrays of ours that any library reads without a copy.

use std::sync::Arc;

use bytemuck::Pod;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rayon::prelude::*;

use crate::dlpack;
use crate::dtype::Dtype;
use crate::recycle::Recycled;
use crate::threads;

/// An array in host memory: `torch.from_dlpack(a)` and `numpy.asarray(a)` see it where it lies.
#[pyclass(frozen, module = "headwater")]
pub struct Array {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    shape: Vec<usize>,
    dtype: Dtype,
    is_read_only: bool,
}

/// A vector that lends its bytes.
struct Elements<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Numbers that a thread turns at a time.
const TURNED_TOGETHER: usize = 1 << 14;

impl Array {
    /// Over elements of one kind, in one dimension.
    pub fn new<T: Pod + Send + Sync>(elements: Vec<T>, dtype: Dtype) -> Self {
        let shape = vec![elements.len()];
        Self::over(Arc::new(Elements(elements)), shape, dtype)
    }

    /// Over bytes that somebody owns.
    pub fn over(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, shape: Vec<usize>, dtype: Dtype) -> Self {
        Self { owner, shape, dtype, is_read_only: false }
    }

    /// The same elements in other dimensions, which have as many.
    pub fn shaped(self, shape: Vec<usize>) -> Self {
        Self { shape, ..self }
    }

    /// The same for readers alone, where `is_read_only` says that writing would end the process.
    pub fn for_readers(self, is_read_only: bool) -> Self {
        Self { is_read_only, ..self }
    }

    /// Ids, as torch has them: signed.
    pub fn ids(ids: Vec<u64>) -> Self {
        Self::new(ids, Dtype::I64)
    }

    /// Local numbers, as wide as torch indexes with.
    pub fn numbers(py: Python<'_>, numbers: &[u32]) -> PyResult<Self> {
        Self::widened(py, [numbers], vec![numbers.len()])
    }

    /// Both ends of edges: two rows of one array.
    pub fn ends(py: Python<'_>, row: &[u32], col: &[u32]) -> PyResult<Self> {
        Self::widened(py, [row, col], vec![2, row.len()])
    }

    fn widened<const N: usize>(py: Python<'_>, parts: [&[u32]; N], shape: Vec<usize>) -> PyResult<Self> {
        let mut wide = Recycled::new(8 * parts.iter().map(|part| part.len()).sum::<usize>());
        threads::run(py, || {
            let mut rest: &mut [i64] = bytemuck::cast_slice_mut(wide.as_mut());
            for part in parts {
                let (to, behind) = rest.split_at_mut(part.len());
                let pairs = to.par_iter_mut().with_min_len(TURNED_TOGETHER).zip(part);
                pairs.for_each(|(to, number)| *to = i64::from(*number));
                rest = behind;
            }
        })?;
        Ok(Self::over(Arc::new(wide), shape, Dtype::I64))
    }
}

#[pymethods]
impl Array {
    /// Lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn __len__(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    fn __repr__(&self) -> String {
        format!("Array(shape={:?}, dtype={})", self.shape, self.dtype.typestr())
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dlpack::interface(py, (*self.owner).as_ref(), &self.shape, self.dtype, self.is_read_only)
    }

    #[pyo3(signature = (**wishes))]
    fn __dlpack__<'py>(&self, py: Python<'py>, wishes: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        let device = self.__dlpack_device__();
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = if dlpack::wants_copy(wishes, device)? {
            let mut copy = Recycled::new((*self.owner).as_ref().len());
            py.detach(|| copy.as_mut().copy_from_slice((*self.owner).as_ref()));
            Arc::new(copy)
        } else if self.is_read_only {
            // The protocol has no word for it that every library knows.
            let why = "the array lies in memory that must not be written; ask for a copy (`copy=True`)";
            return Err(PyBufferError::new_err(why));
        } else {
            Arc::clone(&self.owner)
        };
        let address = (*owner).as_ref().as_ptr().expose_provenance() as u64;
        dlpack::lend(py, dlpack::Lease { owner: Arc::new(owner), address, device }, &self.shape, self.dtype)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::HOST, 0)
    }
}
