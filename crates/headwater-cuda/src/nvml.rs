//! Power and memory readings through NVML, where it is installed.

use nvml_wrapper::Nvml;

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::library::NVML;

/// A reader of one GPU's sensors.
#[derive(Debug)]
pub struct Sensors {
    nvml: Nvml,
    bus_id: String,
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
        let path = NVML.locate()?;
        let unavailable =
            |error: nvml_wrapper::error::NvmlError| Error::Unsupported { what: "NVML", why: error.to_string() };
        let nvml = Nvml::builder().lib_path(path.as_os_str()).init().map_err(unavailable)?;
        nvml.device_by_pci_bus_id(gpu.facts().pci_bus_id.as_str()).map_err(unavailable)?;
        Ok(Self { nvml, bus_id: gpu.facts().pci_bus_id.clone() })
    }

    /// Reads everything the GPU offers.
    #[must_use]
    pub fn read(&self) -> Reading {
        let nothing = Reading { watts: None, joules_total: None, memory_used_bytes: None, pcie: None };
        let Ok(device) = self.nvml.device_by_pci_bus_id(self.bus_id.as_str()) else { return nothing };
        let link =
            device.current_pcie_link_gen().and_then(|generation| Ok((generation, device.current_pcie_link_width()?)));
        Reading {
            watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
            joules_total: device.total_energy_consumption().ok().map(|millijoules| lossless(millijoules) / 1e3),
            memory_used_bytes: device.memory_info().ok().map(|memory| memory.used),
            pcie: link.ok(),
        }
    }
}

/// Millijoules stay far below 2^53.
fn lossless(millijoules: u64) -> f64 {
    millijoules as f64
}
