//! Arrays of other libraries, seen where they lie, and ours, seen by them.
//!
//! Two protocols are spoken: DLPack, which torch and most others have, and NumPy's array interface, which also lends memory
//! that must not be written. Whoever lends memory is held until the last of ours that reads it is gone. That nobody writes to
//! it meanwhile is the user's promise, as between all libraries that share memory.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dtype::Dtype;

const NAME: &CStr = c"dltensor";
const USED_NAME: &CStr = c"used_dltensor";
/// DLPack's number for host memory.
pub const HOST: i32 = 1;
/// A GPU's memory.
pub const CUDA: i32 = 2;
/// Host memory that a GPU reads.
const PINNED_HOST: i32 = 3;

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    delete: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// Memory of somebody else, in rows one after the other, wherever it lies.
pub struct Taken {
    /// Of the first element.
    start: NonNull<u8>,
    bytes: usize,
    pub shape: Vec<usize>,
    pub dtype: Dtype,
    /// The kind of memory and the number of its device, as DLPack has them.
    device: (i32, i32),
    _lender: Lender,
}

/// Who is held.
enum Lender {
    /// An object with NumPy's interface.
    Object(#[expect(dead_code, reason = "held for its memory")] Py<PyAny>),
    /// A tensor that was handed over, to be deleted.
    Tensor(NonNull<Managed>),
}

impl Drop for Lender {
    fn drop(&mut self) {
        if let Self::Tensor(tensor) = self {
            // SAFETY: the tensor is ours since its capsule was renamed, and this is the only drop.
            unsafe {
                if let Some(delete) = tensor.as_ref().delete {
                    delete(tensor.as_ptr());
                }
            }
        }
    }
}

// SAFETY: only the address is kept, and both protocols let whoever holds a lender drop it on any thread.
unsafe impl Send for Taken {}
// SAFETY: as above.
unsafe impl Sync for Taken {}

impl Taken {
    /// The memory of an array, wherever it lies, to be read or written. `name` is what errors call it.
    pub fn new(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        if let Some((flag, resolve)) = pending(array)? {
            let why = format!("{name} is {flag} by a flag and not in memory; call `.{resolve}()` first");
            return Err(PyValueError::new_err(why));
        }
        Self::plain(array, name)
    }

    /// As `new`, of an array whose memory says all.
    fn plain(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let found = if array.hasattr("__array_interface__")? {
            Self::by_interface(array, name)?
        } else if array.hasattr("__dlpack__")? {
            Self::by_capsule(array, name)?
        } else {
            let kind = array.get_type();
            return Err(PyTypeError::new_err(format!("{name} is a {kind}; it should be a tensor or an array")));
        };
        let bytes = found.shape.iter().try_fold(found.dtype.bytes(), |bytes, length| bytes.checked_mul(*length));
        let bytes = bytes.ok_or_else(|| PyValueError::new_err(format!("{name} is larger than memory")))?;
        check_start(found.start.addr().get(), found.dtype, bytes, name)?;
        // Memory without bytes may lie anywhere, also where its elements could not.
        let start = if bytes == 0 { NonNull::<u128>::dangling().cast() } else { found.start };
        Ok(Self { start, bytes, ..found })
    }

    /// Whether the CPU reads it.
    pub fn is_on_host(&self) -> bool {
        [HOST, PINNED_HOST].contains(&self.device.0)
    }

    /// The number of the GPU it lies with.
    pub fn gpu(&self) -> Option<usize> {
        usize::try_from(self.device.1).ok().filter(|_| self.device.0 == CUDA)
    }

    /// Where it begins, and how long it is.
    pub fn range(&self) -> (u64, usize) {
        (self.start.as_ptr().expose_provenance() as u64, self.bytes)
    }

    fn by_interface(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let interface = array.getattr("__array_interface__")?;
        let field = |key: &str| interface.get_item(key);
        let shape: Vec<usize> = field("shape")?.extract()?;
        let dtype = Dtype::of_typestr(&field("typestr")?.extract::<String>()?, name)?;
        let (address, _): (usize, bool) = field("data")?.extract()?;
        let strides = interface.cast::<PyDict>()?.get_item("strides")?.filter(|strides| !strides.is_none());
        let strides: Option<Vec<isize>> = strides.map(|strides| strides.extract()).transpose()?;
        check_rows(&shape, strides.as_deref(), dtype.bytes(), name)?;
        let start = first_byte(std::ptr::with_exposed_provenance_mut(address), &shape, name)?;
        let _lender = Lender::Object(array.clone().unbind());
        Ok(Self { start, bytes: 0, shape, dtype, device: (HOST, 0), _lender })
    }

    fn by_capsule(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        // Whoever asks orders its work behind the array's by streams, so nobody has to wait here.
        let wishes = PyDict::new(array.py());
        wishes.set_item("stream", -1)?;
        let capsule = array.call_method("__dlpack__", (), Some(&wishes))?;
        // SAFETY: the capsule is live; a wrong name gives null and an error.
        let raw = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) }.cast::<Managed>();
        let Some(managed) = NonNull::new(raw) else { return Err(PyErr::fetch(array.py())) };
        // SAFETY: as above. From here on the tensor is ours to delete.
        if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), USED_NAME.as_ptr()) } != 0 {
            return Err(PyErr::fetch(array.py()));
        }
        let _lender = Lender::Tensor(managed);
        // SAFETY: the protocol's layout, live until it is deleted.
        let tensor = unsafe { &managed.as_ref().tensor };
        let wrong = |what: &str| PyValueError::new_err(format!("{name} is lent with {what}, which cannot be"));
        let dimensions = usize::try_from(tensor.dimensions).map_err(|_| wrong("less than no dimensions"))?;
        // SAFETY: the protocol's arrays have so many elements; without dimensions they may be null.
        let numbers = |all: *mut i64| unsafe {
            if dimensions == 0 || all.is_null() { None } else { Some(std::slice::from_raw_parts(all, dimensions)) }
        };
        let lengths = numbers(tensor.shape).unwrap_or_default();
        let shape = lengths.iter().map(|length| usize::try_from(*length)).collect::<Result<Vec<usize>, _>>();
        let shape = shape.map_err(|_| wrong("a negative length"))?;
        let strides = numbers(tensor.strides)
            .map(|all| all.iter().map(|own| isize::try_from(*own)).collect::<Result<Vec<_>, _>>())
            .transpose()
            .map_err(|_| wrong("a step beyond memory"))?;
        check_rows(&shape, strides.as_deref(), 1, name)?;
        let DataType { code, bits, lanes } = tensor.dtype;
        let dtype = Dtype::of_dlpack(code, bits, lanes, name)?;
        let device = (tensor.device.kind, tensor.device.id);
        let start = first_byte(tensor.data.cast::<u8>(), &shape, name)?;
        let offset = usize::try_from(tensor.byte_offset).map_err(|_| wrong("an offset beyond memory"))?;
        // SAFETY: the offset is inside the lender's memory.
        let start = unsafe { start.add(offset) };
        Ok(Self { start, bytes: 0, shape, dtype, device, _lender })
    }
}

/// Memory of somebody else that the CPU reads.
pub struct Lent(Taken);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the lender promises so many bytes of host memory there, and is held.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.bytes) }
    }
}

impl std::ops::Deref for Lent {
    type Target = Taken;

    fn deref(&self) -> &Taken {
        &self.0
    }
}

impl Lent {
    /// The memory of an array on the host. `name` is what errors call it.
    pub fn new(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let mut array = array.clone();
        while let Some((_, resolve)) = pending(&array)? {
            array = array.call_method0(resolve)?;
        }
        let taken = Taken::plain(&array, name)?;
        if !taken.is_on_host() {
            let why = format!("{name} lies on a device; it should lie in host memory (`.cpu()`)");
            return Err(PyValueError::new_err(why));
        }
        Ok(Self(taken))
    }
}

/// What torch remembers by a flag instead of in memory, which no protocol carries: how it is called and what writes it out.
fn pending(array: &Bound<'_, PyAny>) -> PyResult<Option<(&'static str, &'static str)>> {
    let py = array.py();
    let flags =
        [(intern!(py, "is_neg"), ("negated", "resolve_neg")), (intern!(py, "is_conj"), ("conjugated", "resolve_conj"))];
    for (flag, named) in flags {
        if let Some(is_set) = array.getattr_opt(flag)?
            && is_set.call0()?.is_truthy()?
        {
            return Ok(Some(named));
        }
    }
    Ok(None)
}

/// Where memory begins, which only what has no elements may leave open.
fn first_byte(start: *mut u8, shape: &[usize], name: &str) -> PyResult<NonNull<u8>> {
    match NonNull::new(start) {
        Some(start) => Ok(start),
        None if shape.contains(&0) => Ok(NonNull::<u128>::dangling().cast()),
        None => Err(PyValueError::new_err(format!("{name} has elements but no memory"))),
    }
}

/// Elements begin where the CPU and GPUs read them at once: at a multiple of their bytes, of eight for the largest.
fn check_start(address: usize, dtype: Dtype, bytes: usize, name: &str) -> PyResult<()> {
    let unit = dtype.bytes().min(8);
    if bytes == 0 || address.is_multiple_of(unit) {
        return Ok(());
    }
    let why = format!("{name} begins at byte {address}, which is no multiple of {unit}; copy it first");
    Err(PyValueError::new_err(why))
}

/// Elements stand one after the other, as in C. Strides are in units of which an element has `element`: bytes are compared as
/// bytes, because steps may be no multiple of an element, as those of a field in packed records.
fn check_rows(shape: &[usize], strides: Option<&[isize]>, element: usize, name: &str) -> PyResult<()> {
    let Some(strides) = strides else { return Ok(()) };
    if strides.len() != shape.len() {
        let why = format!("{name} has {} dimensions and {} strides", shape.len(), strides.len());
        return Err(PyValueError::new_err(why));
    }
    let mut expected = isize::try_from(element).unwrap_or(isize::MAX);
    let is_empty = shape.contains(&0);
    for (length, stride) in shape.iter().zip(strides).rev() {
        if *length > 1 && *stride != expected && !is_empty {
            let why = format!("{name} is not contiguous; call `.contiguous()` or `numpy.ascontiguousarray` first");
            return Err(PyValueError::new_err(why));
        }
        expected = expected.saturating_mul(isize::try_from(*length).unwrap_or(isize::MAX));
    }
    Ok(())
}

/// What a tensor that we lend holds.
struct Loan {
    managed: Managed,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _owner: Arc<dyn Any + Send + Sync>,
}

/// Memory of ours that is lent: whoever holds it, its address as the device sees it, and the device.
pub struct Lease {
    pub owner: Arc<dyn Any + Send + Sync>,
    pub address: u64,
    pub device: (i32, i32),
}

/// Whether whoever takes memory of `own` device wants a copy of it. What cannot be given is refused, as the protocol has it.
pub fn wants_copy(wishes: Option<&Bound<'_, PyDict>>, own: (i32, i32)) -> PyResult<bool> {
    let mut wants_copy = false;
    for (name, wish) in wishes.into_iter().flat_map(|wishes| wishes.iter()) {
        match name.extract::<String>()?.as_str() {
            // Nothing is queued on memory of ours when it is lent, and tensors go out as the first version has them.
            "stream" | "max_version" => {}
            "copy" => wants_copy = wish.extract::<Option<bool>>()?.unwrap_or(false),
            "dl_device" => {
                let wished: Option<(i32, i32)> = wish.extract()?;
                if let Some(wished) = wished.filter(|wished| *wished != own) {
                    let why = format!("dl_device is {wished:?}, but the memory lies with device {own:?}");
                    return Err(PyBufferError::new_err(why));
                }
            }
            other => return Err(PyTypeError::new_err(format!("__dlpack__ takes no {other:?}"))),
        }
    }
    Ok(wants_copy)
}

/// As [`wants_copy`], for memory that is there to be shared.
pub fn check_shared(wishes: Option<&Bound<'_, PyDict>>, own: (i32, i32)) -> PyResult<()> {
    if wants_copy(wishes, own)? {
        let why = "copy is True, but this memory is lent where it lies; copy the tensor that comes of it";
        return Err(PyBufferError::new_err(why));
    }
    Ok(())
}

/// A capsule over memory of ours, which stays until whoever takes it deletes it.
pub fn lend<'py>(py: Python<'py>, lease: Lease, shape: &[usize], dtype: Dtype) -> PyResult<Bound<'py, PyAny>> {
    let address = usize::try_from(lease.address).unwrap_or(0);
    let data = std::ptr::with_exposed_provenance_mut::<c_void>(address);
    let (code, bits) = dtype.dlpack();
    let shape: Vec<i64> = shape.iter().map(|length| i64::try_from(*length).unwrap_or(i64::MAX)).collect();
    let mut strides = vec![1i64; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].max(1);
    }
    let tensor = Tensor {
        data,
        device: Device { kind: lease.device.0, id: lease.device.1 },
        dimensions: i32::try_from(shape.len()).unwrap_or(0),
        dtype: DataType { code, bits, lanes: 1 },
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = Managed { tensor, context: std::ptr::null_mut(), delete: Some(delete_loan) };
    let loan = Box::into_raw(Box::new(Loan { managed, shape, strides, _owner: lease.owner }));
    // SAFETY: the box was just made and nobody else has it. Vectors inside do not move.
    let capsule = unsafe {
        (*loan).managed.tensor.shape = (*loan).shape.as_mut_ptr();
        (*loan).managed.tensor.strides = (*loan).strides.as_mut_ptr();
        (*loan).managed.context = loan.cast();
        ffi::PyCapsule_New((&raw mut (*loan).managed).cast(), NAME.as_ptr(), Some(drop_capsule))
    };
    // SAFETY: a new reference, or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

unsafe extern "C" fn delete_loan(managed: *mut Managed) {
    // SAFETY: the context is the box of `lend`, and whoever took the tensor deletes it once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Loan>()) });
}

/// A capsule that nobody took deletes its tensor.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with the capsule of `lend`; one that was taken has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast::<Managed>();
            delete_loan(managed);
        }
    }
}

/// NumPy's interface over memory of ours. The object that has it is held by whoever reads.
pub fn interface<'py>(
    py: Python<'py>,
    bytes: &[u8],
    shape: &[usize],
    dtype: Dtype,
    is_read_only: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("version", 3)?;
    fields.set_item("shape", PyTuple::new(py, shape)?)?;
    fields.set_item("typestr", dtype.typestr())?;
    fields.set_item("data", (bytes.as_ptr().expose_provenance(), is_read_only))?;
    Ok(fields)
}
