//! One GPU of this machine: its facts, its context, its default stream.
//!
//! The context is the device's primary one, which torch and every CUDA library in the process share, so pointers and
//! streams may cross between them. A `Gpu` is cheap to clone; the same ordinal always gives the same object.

use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::module::Modules;
use crate::stream::Stream;
use crate::types::{self, CUcontext, CUdevice, CUmemAccessDesc, CUmemLocation, CUmemoryPool, CUuuid};

/// An open GPU.
#[derive(Clone)]
pub struct Gpu(Arc<Inner>);

struct Inner {
    ordinal: usize,
    device: CUdevice,
    context: CUcontext,
    driver: &'static Driver,
    facts: Facts,
    modules: Modules,
    default_stream: OnceLock<Stream>,
    spare_streams: Mutex<Vec<Stream>>,
    /// Ordinals of the GPUs whose memory this one was given access to.
    reached: Mutex<Vec<usize>>,
}

// SAFETY: a context handle may be used from any thread once it is made current there, which `bind` does.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver locks internally.
unsafe impl Sync for Inner {}

/// What does not change while the GPU is open.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Facts {
    /// Marketing name.
    pub name: String,
    /// Unique id, in hexadecimal.
    pub uuid: String,
    /// PCI address, domain:bus:device.function.
    pub pci_bus_id: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Threads an SM can hold.
    pub threads_per_sm: u32,
    /// Device memory in all.
    pub memory_bytes: usize,
    /// Level-two cache.
    pub l2_bytes: usize,
    /// Shared memory a block may ask for.
    pub shared_bytes_per_block: usize,
    /// Whether kernels may read pinned host memory.
    pub maps_host_memory: bool,
    /// Whether host and device share one address space.
    pub unified_addressing: bool,
    /// The PCIe link as the system reports it, when it does.
    pub pcie: Option<PcieLink>,
}

/// Speed and width of the link to the host.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PcieLink {
    /// Transfer rate now, as the system words it.
    pub speed: String,
    /// Lanes now.
    pub width: String,
}

impl Facts {
    /// What the link to the host should carry, from its speed and width; a cautious guess when the system hides them.
    #[must_use]
    pub fn link_gb_per_s(&self) -> f64 {
        const UNKNOWN_GB_PER_S: f64 = 25.0;
        self.pcie.as_ref().and_then(PcieLink::gb_per_s).unwrap_or(UNKNOWN_GB_PER_S)
    }
}

impl PcieLink {
    /// Payload bandwidth, after the protocol's share.
    fn gb_per_s(&self) -> Option<f64> {
        /// Measured copies reach this part of the raw rate.
        const PAYLOAD: f64 = 0.865;
        let transfers: f64 = self.speed.split_whitespace().next()?.parse().ok()?;
        let lanes: f64 = self.width.parse().ok()?;
        Some(transfers * lanes / 8.0 * PAYLOAD).filter(|rate| *rate > 0.0)
    }
}

/// Free and total device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct DeviceMemory {
    /// Bytes nobody holds.
    pub free_bytes: usize,
    /// Bytes in all.
    pub total_bytes: usize,
}

impl Gpu {
    /// How many GPUs the driver sees. No driver is an error that says where it was looked for.
    pub fn count() -> Result<usize> {
        let driver = Driver::get()?;
        let mut count = 0;
        // SAFETY: writes one integer.
        driver.check("cuDeviceGetCount", unsafe { (driver.cuDeviceGetCount)(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Opens GPU `ordinal`, or returns the one already open.
    pub fn open(ordinal: usize) -> Result<Self> {
        static OPEN: OnceLock<Mutex<HashMap<usize, Gpu>>> = OnceLock::new();
        let mut open = lock(OPEN.get_or_init(Mutex::default));
        if let Some(gpu) = open.get(&ordinal) {
            return Ok(gpu.clone());
        }
        let gpu = Self::open_new(ordinal)?;
        open.insert(ordinal, gpu.clone());
        Ok(gpu)
    }

    fn open_new(ordinal: usize) -> Result<Self> {
        let driver = Driver::get()?;
        let count = Self::count()?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let Some(number) = number else { return Err(Error::NoDevice { asked: ordinal, count }) };
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: each call writes one handle; `number` is below the device count.
        unsafe {
            driver.check("cuDeviceGet", (driver.cuDeviceGet)(&raw mut device, number))?;
            driver.check("cuDevicePrimaryCtxRetain", (driver.cuDevicePrimaryCtxRetain)(&raw mut context, device))?;
        }
        let facts = read_facts(driver, device)?;
        let modules = Modules::default();
        let (default_stream, spare_streams, reached) = (OnceLock::new(), Mutex::default(), Mutex::default());
        let inner = Inner { ordinal, device, context, driver, facts, modules, default_stream, spare_streams, reached };
        let gpu = Self(Arc::new(inner));
        gpu.keep_freed_memory()?;
        Ok(gpu)
    }

    /// Position in the driver's list.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.0.ordinal
    }

    /// What is known about the device.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// The architecture kernels are compiled for, such as `sm_80`. One with warpgroups is `sm_90a`, which has instructions that no other has.
    #[must_use]
    pub fn arch(&self) -> String {
        let (major, minor) = self.0.facts.compute_capability;
        format!("sm_{major}{minor}{}", if self.has_warpgroups() { "a" } else { "" })
    }

    /// Whether four warps of a thread block can multiply together, with one side in shared memory (`wgmma`): compute capability 9.0 alone.
    #[must_use]
    pub fn has_warpgroups(&self) -> bool {
        self.0.facts.compute_capability == (9, 0)
    }

    /// The stream work goes to unless the caller names another.
    pub fn stream(&self) -> Result<&Stream> {
        if let Some(stream) = self.0.default_stream.get() {
            return Ok(stream);
        }
        let made = Stream::new(self)?;
        Ok(self.0.default_stream.get_or_init(|| made))
    }

    /// Free and total memory now.
    pub fn memory(&self) -> Result<DeviceMemory> {
        let driver = self.bind()?;
        let (mut free_bytes, mut total_bytes) = (0, 0);
        // SAFETY: writes two integers.
        let code = unsafe { (driver.cuMemGetInfo_v2)(&raw mut free_bytes, &raw mut total_bytes) };
        driver.check("cuMemGetInfo", code)?;
        Ok(DeviceMemory { free_bytes, total_bytes })
    }

    /// Whether this GPU's kernels can read `other`'s memory directly.
    pub fn can_access(&self, other: &Self) -> Result<bool> {
        let mut can = 0;
        // SAFETY: writes one integer; both devices are open.
        let code = unsafe { (self.0.driver.cuDeviceCanAccessPeer)(&raw mut can, self.0.device, other.0.device) };
        self.0.driver.check("cuDeviceCanAccessPeer", code)?;
        Ok(can != 0)
    }

    /// Lets this GPU's kernels read `other`'s memory. Doing so twice is fine.
    pub fn enable_access(&self, other: &Self) -> Result<()> {
        const ALREADY_ENABLED: c_int = 704;
        let driver = self.bind()?;
        // SAFETY: both contexts are live.
        match unsafe { (driver.cuCtxEnablePeerAccess)(other.0.context, 0) } {
            ALREADY_ENABLED => {}
            code => driver.check("cuCtxEnablePeerAccess", code)?,
        }
        self.enter_pool_of(other)
    }

    /// Whether this GPU's kernels can read `other`'s memory, letting them if they were not yet.
    pub(crate) fn reaches(&self, other: &Self) -> bool {
        let mut reached = lock(&self.0.reached);
        if !reached.contains(&other.ordinal())
            && self.can_access(other).unwrap_or(false)
            && self.enable_access(other).is_ok()
        {
            reached.push(other.ordinal());
        }
        reached.contains(&other.ordinal())
    }

    /// Stream-ordered memory comes from a pool, which peers enter by a call of its own.
    fn enter_pool_of(&self, other: &Self) -> Result<()> {
        let Some(set_access) = self.0.driver.cuMemPoolSetAccess else { return Ok(()) };
        let location = CUmemLocation { kind: types::CU_MEM_LOCATION_TYPE_DEVICE, id: self.0.device };
        let access = CUmemAccessDesc { location, flags: types::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the description outlives the call; the default pool lives as long as the device.
        let code = unsafe { set_access(other.pool()?, &raw const access, 1) };
        self.0.driver.check("cuMemPoolSetAccess", code)
    }

    /// Waits for everything this context has been given.
    pub fn synchronize(&self) -> Result<()> {
        let driver = self.bind()?;
        // SAFETY: no arguments; the context is current.
        driver.check("cuCtxSynchronize", unsafe { (driver.cuCtxSynchronize)() })
    }

    /// Gives freed stream-ordered memory above `keep_bytes` back to the system.
    pub fn trim(&self, keep_bytes: usize) -> Result<()> {
        let (driver, pool) = (self.bind()?, self.pool()?);
        // SAFETY: the default pool lives as long as the device.
        driver.check("cuMemPoolTrimTo", unsafe { (driver.cuMemPoolTrimTo)(pool, keep_bytes) })
    }

    /// Makes this GPU's context current on the calling thread for as long as the result lives.
    ///
    /// Every call of this crate does so by itself. A thread that makes many of them holds one of these: a call that finds its
    /// context current asks the driver once and changes nothing.
    pub fn make_current(&self) -> Result<Current> {
        Ok(Current(self.bind()?))
    }

    /// The driver, with this GPU's context current on the calling thread.
    pub(crate) fn bind(&self) -> Result<Bound> {
        let driver = self.0.driver;
        let mut before = std::ptr::null_mut();
        // SAFETY: writes one handle.
        driver.check("cuCtxGetCurrent", unsafe { (driver.cuCtxGetCurrent)(&raw mut before) })?;
        if before == self.0.context {
            return Ok(Bound { driver, before: None });
        }
        // SAFETY: the context was retained and is never released.
        driver.check("cuCtxSetCurrent", unsafe { (driver.cuCtxSetCurrent)(self.0.context) })?;
        Ok(Bound { driver, before: Some(before) })
    }

    pub(crate) fn driver(&self) -> &'static Driver {
        self.0.driver
    }

    pub(crate) fn device(&self) -> CUdevice {
        self.0.device
    }

    pub(crate) fn spare_streams(&self) -> &Mutex<Vec<Stream>> {
        &self.0.spare_streams
    }

    pub(crate) fn modules(&self) -> &Modules {
        &self.0.modules
    }

    fn pool(&self) -> Result<CUmemoryPool> {
        let mut pool = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (self.0.driver.cuDeviceGetDefaultMemPool)(&raw mut pool, self.0.device) };
        self.0.driver.check("cuDeviceGetDefaultMemPool", code)?;
        Ok(pool)
    }

    /// By default the driver returns freed memory at every synchronisation and the next allocation pays for it again.
    fn keep_freed_memory(&self) -> Result<()> {
        const RELEASE_THRESHOLD: c_int = 4;
        let (driver, pool) = (self.bind()?, self.pool()?);
        let mut everything = u64::MAX;
        // SAFETY: this attribute's value is one u64.
        let code = unsafe { (driver.cuMemPoolSetAttribute)(pool, RELEASE_THRESHOLD, (&raw mut everything).cast()) };
        driver.check("cuMemPoolSetAttribute", code)
    }
}

/// A GPU's context is current on this thread while this lives. Several of them go in the reverse of their order.
#[derive(Debug)]
pub struct Current(#[expect(dead_code, reason = "held for its drop")] Bound);

/// The driver, with a GPU's context current on this thread. What was current before is so again when this goes: torch and other
/// libraries take the current context for the GPU that their user chose.
pub(crate) struct Bound {
    driver: &'static Driver,
    /// What to go back to, if it was another one. A thread that had none has none again.
    before: Option<CUcontext>,
}

impl Deref for Bound {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: it was current on this thread, which this value cannot leave. A context that was destroyed meanwhile is
            // refused by the driver.
            unsafe { (self.driver.cuCtxSetCurrent)(before) };
        }
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("before", &self.before).finish_non_exhaustive()
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {})", self.0.ordinal, self.0.facts.name)
    }
}

/// A poisoned lock only means that another thread failed; what these locks guard is valid at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_facts(driver: &Driver, device: CUdevice) -> Result<Facts> {
    let number = |attribute: c_int| -> Result<usize> {
        let mut value = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (driver.cuDeviceGetAttribute)(&raw mut value, attribute, device) };
        driver.check("cuDeviceGetAttribute", code)?;
        Ok(usize::try_from(value).unwrap_or(0))
    };
    let small = |attribute| number(attribute).map(|value| u32::try_from(value).unwrap_or(u32::MAX));
    let mut memory_bytes = 0;
    // SAFETY: writes one integer.
    driver.check("cuDeviceTotalMem", unsafe { (driver.cuDeviceTotalMem_v2)(&raw mut memory_bytes, device) })?;
    let pci_bus_id = text(|buffer, length| {
        // SAFETY: `text` passes a buffer of `length` bytes.
        driver.check("cuDeviceGetPCIBusId", unsafe { (driver.cuDeviceGetPCIBusId)(buffer, length, device) })
    })?;
    Ok(Facts {
        name: text(|buffer, length| {
            // SAFETY: as above.
            driver.check("cuDeviceGetName", unsafe { (driver.cuDeviceGetName)(buffer, length, device) })
        })?,
        uuid: uuid(driver, device)?,
        pcie: pcie_link(&pci_bus_id),
        pci_bus_id,
        compute_capability: (
            small(types::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            small(types::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        sms: small(types::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        threads_per_sm: small(types::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        memory_bytes,
        l2_bytes: number(types::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        shared_bytes_per_block: number(types::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        maps_host_memory: number(types::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)? != 0,
        unified_addressing: number(types::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)? != 0,
    })
}

fn uuid(driver: &Driver, device: CUdevice) -> Result<String> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: writes 16 bytes.
    driver.check("cuDeviceGetUuid", unsafe { (driver.cuDeviceGetUuid)(&raw mut uuid, device) })?;
    Ok(uuid.bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn text(fill: impl Fn(*mut std::ffi::c_char, c_int) -> Result<()>) -> Result<String> {
    let mut buffer = [0u8; 256];
    fill(buffer.as_mut_ptr().cast(), 256)?;
    Ok(CStr::from_bytes_until_nul(&buffer).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default())
}

fn pcie_link(pci_bus_id: &str) -> Option<PcieLink> {
    let folder = format!("/sys/bus/pci/devices/{}", pci_bus_id.to_lowercase());
    let read = |leaf| std::fs::read_to_string(format!("{folder}/{leaf}")).map(|text| text.trim().to_owned()).ok();
    Some(PcieLink { speed: read("current_link_speed")?, width: read("current_link_width")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_sixteen_fifth_generation_lanes_carries_fifty_five_gigabytes() {
        let link = |speed: &str, width: &str| PcieLink { speed: speed.into(), width: width.into() }.gb_per_s();
        assert!(link("32.0 GT/s PCIe", "16").is_some_and(|rate| (rate - 55.4).abs() < 0.1));
        assert_eq!(link("Unknown", "16"), None);
        assert_eq!(link("0 GT/s", "0"), None);
    }
}
