//! Whether memory that others lend still lies where it was when it was taken.
//!
//! Torch moves the memory of a storage under everybody who looks at it: `share_memory_()`, sending a tensor to another process
//! and `resize_` put the elements elsewhere and free what was there. DLPack has no word for it, so whoever keeps such memory
//! asks the storage before every use, with the GIL, which whoever moves it holds too. NumPy does not move memory that somebody
//! holds, but may forbid writing to it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use headwater::memory::Moved;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;

/// Lenders of one object's arrays. Clones share them.
#[derive(Clone, Default)]
pub struct Lenders {
    watched: Vec<Arc<Watch>>,
    /// Where memory begins that its owner does not let be written.
    read_only: Vec<usize>,
}

/// A storage of torch's whose memory is held.
struct Watch {
    name: String,
    storage: Py<PyAny>,
    address: usize,
    bytes: usize,
    moved: Moved,
}

/// All that are held in this process, for whoever registers memory: others' may have lain at the same address. Looked at with
/// the GIL, which whoever forks holds too.
static ALL: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

impl Lenders {
    /// Of an array by its name, where it may move at all.
    pub fn of(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let py = array.py();
        if let Some(interface) = array.getattr_opt(intern!(py, "__array_interface__"))? {
            let (start, is_read_only): (usize, bool) = interface.get_item(intern!(py, "data"))?.extract()?;
            return Ok(Self { watched: Vec::new(), read_only: is_read_only.then_some(start).into_iter().collect() });
        }
        let Some(ask) = array.getattr_opt(intern!(py, "untyped_storage"))? else { return Ok(Self::default()) };
        let storage = ask.call0()?;
        let (address, bytes) = place(&storage)?;
        let (name, storage, moved) = (name.to_owned(), storage.unbind(), Moved::default());
        let watch = Arc::new(Watch { name, storage, address, bytes, moved });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|own| own.strong_count() > 0);
        all.push(Arc::downgrade(&watch));
        Ok(Self { watched: vec![watch], read_only: Vec::new() })
    }

    /// Of several arrays, those that there are.
    pub fn of_all(arrays: &[(&str, Option<&Bound<'_, PyAny>>)]) -> PyResult<Self> {
        let mut found = Self::default();
        for (name, array) in arrays {
            if let Some(array) = array {
                found.add(&Self::of(array, name)?);
            }
        }
        Ok(found)
    }

    /// With others.
    pub fn add(&mut self, other: &Self) {
        self.watched.extend_from_slice(&other.watched);
        self.read_only.extend_from_slice(&other.read_only);
    }

    /// Without those whose memory lies at none of these addresses, because it was copied.
    pub fn only_over(mut self, addresses: &[usize]) -> Self {
        self.read_only.retain(|start| addresses.contains(start));
        self.watched.retain(|own| {
            let range = own.address..own.address.saturating_add(own.bytes);
            addresses.iter().any(|address| range.contains(address))
        });
        self
    }

    /// Whether bytes belong to somebody who does not let them be written: trying would end the process.
    pub fn is_read_only(&self, bytes: &[u8]) -> bool {
        self.read_only.contains(&bytes.as_ptr().addr())
    }

    /// What registrations of the memory ask. Nothing where it cannot move.
    pub fn moved(&self) -> Option<Moved> {
        self.watched.first().map(|own| own.moved.clone())
    }

    /// Fails when memory of `what` is not there any more.
    pub fn check(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        let gone = self.watched.iter().find_map(|own| match own.is_there(py) {
            Ok(true) => None,
            Ok(false) => Some(Ok(own)),
            Err(why) => Some(Err(why)),
        });
        let Some(gone) = gone.transpose()? else { return Ok(()) };
        let why = format!(
            "torch has moved the memory of {} since the {what} was made over it: share_memory_(), sending a tensor to another \
             process and resize_() do; call share_memory_() before, or make the {what} anew",
            gone.name
        );
        Err(PyRuntimeError::new_err(why))
    }
}

impl Watch {
    fn is_there(&self, py: Python<'_>) -> PyResult<bool> {
        let (address, bytes) = place(self.storage.bind(py))?;
        let is_there = address == self.address && bytes >= self.bytes;
        if !is_there {
            self.moved.set();
        }
        Ok(is_there && !self.moved.is_set())
    }
}

fn place(storage: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    let py = storage.py();
    let address = storage.call_method0(intern!(py, "data_ptr"))?.extract()?;
    Ok((address, storage.call_method0(intern!(py, "nbytes"))?.extract()?))
}

/// Notices what has moved in the whole process. Before memory is registered: it may lie where memory lay that has moved.
pub fn look_around(py: Python<'_>) -> PyResult<()> {
    let all: Vec<Arc<Watch>> = {
        let known = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter_map(Weak::upgrade).collect()
    };
    all.iter().try_for_each(|own| own.is_there(py).map(|_| ()))
}
