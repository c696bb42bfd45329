//! Blocks that leave a device, as `python/headwater/offload/site.py` names them: by addresses and numbers.

use std::path::PathBuf;
use std::sync::Arc;

use headwater::cuda::{Event, Gpu};
use headwater::offload::{
    BlockId, DeviceUse, DiskConfig, Error, GpuLane, HostLane, Measuring, OffloadPolicy, Offloader, OffloaderConfig,
    Result, SaveOutcome,
};
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;

use crate::cuda::{NamedStream, at, gpu, host_at, stream};
use crate::error::{of_cuda, of_memory};

create_exception!(headwater, OffloadError, PyRuntimeError, "Bytes that left a device could not come back.");

/// Folders, the most bytes in them, and whether these are reserved at once, may lie in the page cache, and on other machines, and whether
/// the GPU reads and writes them by itself.
type Disks = (Vec<PathBuf>, u64, bool, bool, bool, bool);

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

/// Bytes of host memory, of a slot, and of copies that are under way without a plan.
type Lengths = (usize, usize, usize);

/// Bytes that are allocated, those of blocks, and the most that were allocated.
type Used = (u64, u64, u64);

fn of_device((allocated, blocks, peak): Used) -> DeviceUse {
    DeviceUse { allocated, blocks, peak }
}

/// When blocks leave by a plan: the share of its time that a step may become longer, and the bytes that the device has.
type Planning = (f64, u64);

/// A block, released when this goes: where Python could be interrupted, it cannot be forgotten.
#[pyclass(frozen, module = "headwater")]
pub struct StoredBlock {
    #[pyo3(get)]
    number: u64,
    /// Whether it leaves; none where there was no room.
    #[pyo3(get)]
    leaves: Option<bool>,
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
        lengths: Lengths,
        disks: Option<Disks>,
        most_bytes: Option<u64>,
        planning: Option<Planning>,
    ) -> PyResult<Self> {
        let (host_bytes, slot_bytes, window_bytes) = lengths;
        let is_direct = disks.as_ref().is_some_and(|(.., is_direct)| *is_direct);
        let disk = disks.map(|(folders, limit_bytes, is_reserved, allow_buffered, allow_network, _)| DiskConfig {
            is_reserved,
            allow_buffered,
            allow_network,
            ..DiskConfig::new(folders, limit_bytes)
        });
        let policy = match planning {
            Some((slack, device_bytes)) => OffloadPolicy::Plan { slack, most_bytes, device_bytes },
            None => OffloadPolicy::All { most_bytes },
        };
        let config = OffloaderConfig { host_bytes, slot_bytes, disk, policy, window_bytes };
        let gpu = device.map(gpu).transpose()?;
        let made = py.detach(|| match gpu {
            Some(gpu) => {
                let lane = if is_direct { GpuLane::direct(&gpu)? } else { GpuLane::new(&gpu)? };
                let offloader = Offloader::new(lane, &config)?;
                // The GPU's own memory is there now, and may not be in the middle of a step.
                if is_direct && offloader.reserve(host_bytes)? < host_bytes / slot_bytes * slot_bytes {
                    let must_be = "no more than the GPU has free";
                    return Err(Error::Setting { field: "gds", value: host_bytes as u64, must_be });
                }
                Ok(Kind::Gpu(gpu, offloader))
            }
            None => Ok(Kind::Host(Offloader::new(HostLane, &config)?)),
        });
        made.map(|kind| Self(Arc::new(kind))).map_err(raised)
    }

    /// Takes note of bytes that are saved, of the bytes that are allocated, and how many of these are blocks: the block, and those whose
    /// memory nobody reads any more, or that the stream goes on behind.
    fn save(
        &self,
        py: Python<'_>,
        address: usize,
        bytes: usize,
        named: NamedStream,
        used: Used,
    ) -> PyResult<(StoredBlock, Vec<u64>, Vec<u64>)> {
        let used = of_device(used);
        let saving = match &*self.0 {
            Kind::Gpu(gpu, offloader) => {
                let (queue, memory) = (stream(gpu, named)?, at(gpu, address, bytes));
                py.detach(|| offloader.save(memory, &queue, used))
            }
            Kind::Host(offloader) => {
                let memory = host_at(address, bytes);
                py.detach(|| offloader.save(memory, &(), used))
            }
        };
        let SaveOutcome { number: BlockId(number), leaves, drained, followed } = saving.map_err(raised)?;
        let block = StoredBlock { number, leaves, kind: Arc::clone(&self.0) };
        Ok((block, numbers(Ok(drained))?, numbers(Ok(followed))?))
    }

    /// Takes note of a block that is needed, and names those that should be loaded now. Those of `here` have not gone, and `early`
    /// bytes of others are on their way back or there.
    fn need(
        &self,
        py: Python<'_>,
        block: u64,
        named: NamedStream,
        used: Used,
        here: Vec<u64>,
        early: usize,
    ) -> PyResult<Vec<u64>> {
        let here: Vec<BlockId> = here.into_iter().map(BlockId).collect();
        let used = of_device(used);
        numbers(match &*self.0 {
            Kind::Gpu(gpu, offloader) => {
                let queue = stream(gpu, named)?;
                py.detach(|| offloader.need(BlockId(block), &queue, used, (&here, early)))
            }
            Kind::Host(offloader) => py.detach(|| offloader.need(BlockId(block), &(), used, (&here, early))),
        })
    }

    /// Of blocks that are needed soon, those that should be loaded now.
    fn expect(&self, py: Python<'_>, soon: Vec<u64>, here: Vec<u64>, early: usize) -> PyResult<Vec<u64>> {
        let [soon, here] = [soon, here].map(|all| all.into_iter().map(BlockId).collect::<Vec<_>>());
        numbers(py.detach(|| on_either!(&*self.0, offloader => offloader.expect(&soon, (&here, early)))))
    }

    /// Whether a block of so many bytes would stay if it were saved now.
    fn would_stay(&self, bytes: u64, used: Used) -> bool {
        let used = of_device(used);
        on_either!(&*self.0, offloader => offloader.would_stay(bytes, used))
    }

    /// Whether the plan is to keep everything.
    fn is_idle(&self) -> bool {
        on_either!(&*self.0, offloader => offloader.is_idle())
    }

    /// Whether steps keep to a plan, and whether there is memory for one in which nothing leaves.
    fn may_keep(&self) -> (bool, bool) {
        on_either!(&*self.0, offloader => offloader.may_keep())
    }

    /// Keeps everything that has memory, whatever a plan says, or no longer so.
    fn keep(&self, keeps: bool) {
        on_either!(&*self.0, offloader => offloader.keep(keeps));
    }

    /// How closely the bytes that are allocated are looked at now: 0 is not at all, 1 roughly, 2 with every block.
    fn measuring(&self) -> u8 {
        match on_either!(&*self.0, offloader => offloader.measuring()) {
            Measuring::Nothing => 0,
            Measuring::Roughly => 1,
            Measuring::Exactly => 2,
        }
    }

    /// How steps went, and what is expected of the next, as JSON.
    fn steps(&self) -> PyResult<String> {
        json(&on_either!(&*self.0, offloader => offloader.steps()))
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

    /// Brings a block back to memory that is free behind what the stream has to do now.
    fn load(&self, py: Python<'_>, block: u64, address: usize, bytes: usize, named: NamedStream) -> PyResult<CopyMark> {
        let mark = match &*self.0 {
            Kind::Gpu(gpu, offloader) => {
                let (queue, memory) = (stream(gpu, named)?, at(gpu, address, bytes));
                py.detach(|| offloader.load(BlockId(block), &memory, &queue)).map(Some)
            }
            Kind::Host(offloader) => {
                let memory = host_at(address, bytes);
                py.detach(move || offloader.load(BlockId(block), &memory, &())).map(|_| None)
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
        json(&on_either!(&*self.0, offloader => offloader.counts()).map_err(raised)?)
    }
}

fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|why| PyRuntimeError::new_err(why.to_string()))
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
