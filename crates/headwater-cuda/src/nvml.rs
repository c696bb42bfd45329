//! Power and memory readings through NVML, where it is installed.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::library::{Library, NVML};

/// A reader of one GPU's sensors.
#[derive(Debug)]
pub struct Sensors {
    nvml: Nvml,
    bus_id: CString,
}

/// What the sensors say now.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Reading {
    /// Power drawn.
    pub watts: Option<f64>,
    /// Energy since the driver was loaded, where the GPU counts it.
    pub joules_total: Option<f64>,
    /// Memory in use by every process.
    pub memory_used_bytes: Option<u64>,
    /// PCIe generation and lanes now.
    pub pcie: Option<(u32, u32)>,
}

impl Sensors {
    /// Opens NVML for `gpu`.
    pub fn open(gpu: &Gpu) -> Result<Self> {
        let nvml = Nvml::open()?;
        let bus_id = CString::new(gpu.facts().pci_bus_id.as_str()).map_err(|why| unavailable(why.to_string()))?;
        nvml.device(&bus_id)?;
        Ok(Self { nvml, bus_id })
    }

    /// Reads everything the GPU offers.
    #[must_use]
    pub fn read(&self) -> Reading {
        let nothing = Reading { watts: None, joules_total: None, memory_used_bytes: None, pcie: None };
        let Ok(device) = self.nvml.device(&self.bus_id) else { return nothing };
        let milliwatts: Option<c_uint> = ask(self.nvml.power, device, 0);
        let millijoules: Option<c_ulonglong> = ask(self.nvml.energy, device, 0);
        let memory = ask(self.nvml.memory, device, Memory::ASKED);
        let generation = ask(self.nvml.link_generation, device, 0);
        Reading {
            watts: milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3),
            joules_total: millijoules.map(|millijoules| lossless(millijoules) / 1e3),
            memory_used_bytes: memory.map(|memory| memory.used),
            pcie: generation.zip(ask(self.nvml.link_width, device, 0)),
        }
    }
}

/// NVML's handle of a device.
type Device = *mut c_void;

/// A function of NVML that writes what it says of a device. `None` marks what this version does not have.
type Ask<T> = Option<unsafe extern "C" fn(Device, *mut T) -> c_int>;

/// The words for a result code.
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;

/// NVML as a table of functions, initialised. Initialisations are counted, so each of these ends its own.
#[derive(Debug)]
struct Nvml {
    shut_down: unsafe extern "C" fn() -> c_int,
    error_text: ErrorText,
    find: unsafe extern "C" fn(*const c_char, *mut Device) -> c_int,
    power: Ask<c_uint>,
    energy: Ask<c_ulonglong>,
    memory: Ask<Memory>,
    link_generation: Ask<c_uint>,
    link_width: Ask<c_uint>,
    _library: Library,
}

/// `nvmlMemory_v2_t`: what is used is counted apart from what the driver reserves.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Memory {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

const _: () = assert!(size_of::<Memory>() == 40);

impl Memory {
    /// What is handed in: NVML takes a structure's version to be its size and, in the highest byte, a number.
    const ASKED: Self = Self { version: 40 | 2 << 24, total: 0, reserved: 0, free: 0, used: 0 };
}

impl Nvml {
    fn open() -> Result<Self> {
        let library = NVML.load()?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the type it is given to is the function's type in NVML's documentation.
                unsafe { library.handle.get($name) }.map(|symbol| *symbol)
            };
        }
        let lacks = |error: libloading::Error| unavailable(format!("{}: {error}", library.path.display()));
        let initialise: unsafe extern "C" fn() -> c_int = symbol!(b"nvmlInit_v2").map_err(lacks)?;
        let shut_down = symbol!(b"nvmlShutdown").map_err(lacks)?;
        let error_text = symbol!(b"nvmlErrorString").map_err(lacks)?;
        let find = symbol!(b"nvmlDeviceGetHandleByPciBusId_v2").map_err(lacks)?;
        // SAFETY: takes nothing, and may be called any number of times.
        check(error_text, unsafe { initialise() })?;
        Ok(Self {
            shut_down,
            error_text,
            find,
            power: symbol!(b"nvmlDeviceGetPowerUsage").ok(),
            energy: symbol!(b"nvmlDeviceGetTotalEnergyConsumption").ok(),
            memory: symbol!(b"nvmlDeviceGetMemoryInfo_v2").ok(),
            link_generation: symbol!(b"nvmlDeviceGetCurrPcieLinkGeneration").ok(),
            link_width: symbol!(b"nvmlDeviceGetCurrPcieLinkWidth").ok(),
            _library: library,
        })
    }

    fn device(&self, bus_id: &CStr) -> Result<Device> {
        let mut device = std::ptr::null_mut();
        // SAFETY: reads a string that ends with a zero, and writes one handle.
        check(self.error_text, unsafe { (self.find)(bus_id.as_ptr(), &raw mut device) })?;
        Ok(device)
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: takes nothing; handles of devices are asked for anew by each reading, and none is kept.
        unsafe { (self.shut_down)() };
    }
}

/// Turns a result code into an error with NVML's own words.
fn check(error_text: ErrorText, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: any code may be asked for; the text is NVML's own, and lives as long as the library.
    let text = unsafe { error_text(code).as_ref().map(|text| CStr::from_ptr(text).to_string_lossy()) };
    Err(unavailable(text.unwrap_or_default().into_owned()))
}

fn ask<T>(function: Ask<T>, device: Device, mut answer: T) -> Option<T> {
    // SAFETY: the device was found by the same NVML, which is open; one answer of the function's own type is written.
    let code = unsafe { function?(device, &raw mut answer) };
    (code == 0).then_some(answer)
}

fn unavailable(why: String) -> Error {
    Error::Unsupported { what: "NVML", why }
}

/// Millijoules stay far below 2^53.
fn lossless(millijoules: u64) -> f64 {
    millijoules as f64
}
