//! Blocks that leave a device, as `python/headwater/offload.py` names them: by addresses and numbers.

use std::path::PathBuf;
use std::sync::Arc;

use headwater::cuda::{Event, Gpu};
use headwater::offload::{
    BlockId, DiskConfig, Error, GpuLane, HostLane, Offloader, OffloaderConfig, Result, StoreOutcome,
};
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::cuda::{NamedStream, at, gpu, host_at, stream};
use crate::error::{of_cuda, of_memory};

create_exception!(headwater, OffloadError, PyRuntimeError, "Bytes that left a device could not come back.");

/// Folders, the most bytes in them, and whether these are reserved at once, may lie in the page cache, and on other machines.
type Disks = (Vec<PathBuf>, u64, bool, bool, bool);

/// The same call for either device.
macro_rules! on_either {
    ($kind:expr, $name:ident => $call:expr) => {
        match $kind {
            Kind::Gpu(_, $name) => $call,
            Kind::Host($name) => $call,
        }
    };
}

/// Blocks of one device.
#[pyclass(frozen, module = "headwater")]
pub struct RawOffloader(Arc<Kind>);

/// A block, released when this goes: where Python could be interrupted, it cannot be forgotten.
#[pyclass(frozen, module = "headwater")]
pub struct StoredBlock {
    #[pyo3(get)]
    number: u64,
    kind: Arc<Kind>,
}

impl Drop for StoredBlock {
    fn drop(&mut self) {
        // An error means another process, or a lost device: nothing is left to be released.
        let _ = on_either!(&*self.kind, offloader => offloader.release(BlockId(self.number)));
    }
}

enum Kind {
    Gpu(Gpu, Offloader<GpuLane>),
    Host(Offloader<HostLane>),
}

/// The end of a copy to a GPU.
#[pyclass(frozen, module = "headwater")]
pub struct CopyMark(Option<Arc<Event>>);

#[pymethods]
impl RawOffloader {
    #[new]
    fn new(
        py: Python<'_>,
        device: Option<usize>,
        host_bytes: usize,
        slot_bytes: usize,
        disks: Option<Disks>,
    ) -> PyResult<Self> {
        let disk = disks.map(|(folders, limit_bytes, is_reserved, allow_buffered, allow_network)| DiskConfig {
            is_reserved,
            allow_buffered,
            allow_network,
            ..DiskConfig::new(folders, limit_bytes)
        });
        let config = OffloaderConfig { host_bytes, slot_bytes, disk };
        let gpu = device.map(gpu).transpose()?;
        let made = py.detach(|| match gpu {
            Some(gpu) => Ok(Kind::Gpu(gpu.clone(), Offloader::new(GpuLane::new(&gpu)?, &config)?)),
            None => Ok(Kind::Host(Offloader::new(HostLane, &config)?)),
        });
        made.map(|kind| Self(Arc::new(kind))).map_err(raised)
    }

    /// Lets bytes leave; none when there is no room.
    fn store(&self, py: Python<'_>, address: usize, bytes: usize, named: NamedStream) -> PyResult<Option<StoredBlock>> {
        let stored = match &*self.0 {
            Kind::Gpu(gpu, offloader) => {
                let (queue, memory) = (stream(gpu, named)?, at(gpu, address, bytes));
                py.detach(|| offloader.store(memory, &queue))
            }
            Kind::Host(offloader) => {
                let memory = host_at(address, bytes);
                py.detach(|| offloader.store(memory, &()))
            }
        };
        Ok(match stored.map_err(raised)? {
            StoreOutcome::Leaving(BlockId(number)) => Some(StoredBlock { number, kind: Arc::clone(&self.0) }),
            StoreOutcome::NoRoom => None,
        })
    }

    /// Blocks whose memory nobody reads any more, since this was asked last.
    fn drained(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let drained = py.detach(|| on_either!(&*self.0, offloader => offloader.drained()));
        numbers(drained)
    }

    /// Blocks that `drained` or `follow` will still name.
    fn unnamed(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        numbers(py.detach(|| on_either!(&*self.0, offloader => offloader.unnamed())))
    }

    /// Makes a stream wait until at most so many bytes are under way, and names the blocks that it waits for.
    fn follow(&self, py: Python<'_>, named: NamedStream, most_bytes: usize) -> PyResult<Vec<u64>> {
        numbers(match &*self.0 {
            Kind::Gpu(gpu, offloader) => {
                let queue = stream(gpu, named)?;
                py.detach(|| offloader.follow(&queue, most_bytes))
            }
            Kind::Host(offloader) => offloader.follow(&(), most_bytes),
        })
    }

    /// Brings a block back to memory that is free behind what the stream has to do now.
    fn load(&self, py: Python<'_>, block: u64, address: usize, bytes: usize, named: NamedStream) -> PyResult<CopyMark> {
        let mark = match &*self.0 {
            Kind::Gpu(gpu, offloader) => {
                let (queue, memory) = (stream(gpu, named)?, at(gpu, address, bytes));
                py.detach(|| offloader.load(BlockId(block), &memory, &queue)).map(Some)
            }
            Kind::Host(offloader) => {
                let memory = host_at(address, bytes);
                py.detach(move || offloader.load(BlockId(block), &memory, &())).map(|()| None)
            }
        };
        mark.map(CopyMark).map_err(raised)
    }

    /// Makes a stream wait for the end of a copy.
    fn join(&self, mark: &CopyMark, named: NamedStream) -> PyResult<()> {
        match (&*self.0, &mark.0) {
            (Kind::Gpu(gpu, offloader), Some(mark)) => offloader.join(&*stream(gpu, named)?, mark).map_err(raised),
            _ => Ok(()),
        }
    }

    /// Starts to read a block from disk; whether it is, or will be, in host memory.
    fn prefetch(&self, py: Python<'_>, block: u64) -> PyResult<bool> {
        py.detach(|| on_either!(&*self.0, offloader => offloader.prefetch(BlockId(block)))).map_err(raised)
    }

    /// Whether a block can be loaded without waiting for a disk.
    fn is_near(&self, py: Python<'_>, block: u64) -> PyResult<bool> {
        py.detach(|| on_either!(&*self.0, offloader => offloader.is_near(BlockId(block)))).map_err(raised)
    }

    /// Blocks that are not released, and their bytes.
    fn held(&self) -> PyResult<(usize, usize)> {
        on_either!(&*self.0, offloader => offloader.held()).map_err(raised)
    }

    /// What was done so far, as JSON.
    fn counts(&self) -> PyResult<String> {
        let counts = on_either!(&*self.0, offloader => offloader.counts()).map_err(raised)?;
        serde_json::to_string(&counts).map_err(|why| PyRuntimeError::new_err(why.to_string()))
    }
}

/// Host memory that can be had without swapping, in bytes.
#[pyfunction]
pub fn _host_bytes_available() -> usize {
    headwater::memory::host_bytes_available()
}

fn numbers(blocks: Result<Vec<BlockId>>) -> PyResult<Vec<u64>> {
    Ok(blocks.map_err(raised)?.into_iter().map(|BlockId(block)| block).collect())
}

fn raised(why: Error) -> PyErr {
    match why {
        Error::Cuda(why) => of_cuda(why),
        Error::Memory(why) => of_memory(why),
        Error::Setting { .. } | Error::Folder { .. } | Error::Length { .. } => PyValueError::new_err(why.to_string()),
        other => OffloadError::new_err(other.to_string()),
    }
}
