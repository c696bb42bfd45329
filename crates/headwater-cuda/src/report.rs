//! What this machine offers, gathered without failing: the answer to "why is my GPU not used?".

use std::path::PathBuf;

use serde::Serialize;

use crate::cublas;
use crate::cufile::CuFile;
use crate::driver::Driver;
use crate::gpu::{DeviceMemory, Facts, Gpu};
use crate::library::{CUBLAS, NVML};
use crate::nvrtc;

/// Everything found, and a sentence for everything not found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The driver API's version, or why there is none.
    pub driver: Found<String>,
    /// The run-time compiler: path and version.
    pub nvrtc: Found<String>,
    /// Where cuBLAS is.
    pub cublas: Found<PathBuf>,
    /// Where NVML is.
    pub nvml: Found<PathBuf>,
    /// How files get straight to GPU memory.
    pub gpudirect_storage: Found<String>,
    /// Every GPU.
    pub gpus: Vec<GpuReport>,
    /// `peers[i][j]`: whether GPU i can read GPU j's memory.
    pub peers: Vec<Vec<bool>>,
}

/// Something looked for.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Found<T> {
    /// It is there.
    Here(T),
    /// It is not, and this is why.
    Missing {
        /// The reason, with every place that was tried.
        missing: String,
    },
}

/// One GPU.
#[derive(Debug, Clone, Serialize)]
pub struct GpuReport {
    /// What does not change.
    pub facts: Facts,
    /// Memory now.
    pub memory: Option<DeviceMemory>,
}

impl Report {
    /// Looks at this machine.
    #[must_use]
    pub fn new() -> Self {
        let count = Gpu::count().unwrap_or(0);
        let gpus: Vec<Gpu> = (0..count).filter_map(|ordinal| Gpu::open(ordinal).ok()).collect();
        let compiler = nvrtc::path().and_then(|path| Ok(format!("{} in {}", nvrtc::version()?, path.display())));
        Self {
            driver: found(Driver::get().map(Driver::version)),
            nvrtc: found(compiler),
            cublas: found(
                CUBLAS.locate().map_err(Into::into).and_then(|path| cublas::cublas_available().map(|()| path)),
            ),
            nvml: found(NVML.locate()),
            gpudirect_storage: found(Gpu::open(0).and_then(|gpu| Ok(CuFile::open(&gpu)?.route().to_owned()))),
            peers: gpus
                .iter()
                .map(|gpu| gpus.iter().map(|peer| gpu.can_access(peer).unwrap_or(false)).collect())
                .collect(),
            gpus: gpus.iter().map(|gpu| GpuReport { facts: gpu.facts().clone(), memory: gpu.memory().ok() }).collect(),
        }
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

fn found<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> Found<T> {
    match result {
        Ok(value) => Found::Here(value),
        Err(error) => Found::Missing { missing: error.to_string() },
    }
}
