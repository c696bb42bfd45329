//! What a run may do with the activations of its steps, and who does it.

use std::path::PathBuf;
use std::sync::Arc;

use headwater_cuda::Gpu;
use headwater_memory::host_bytes_available;
use headwater_offload::plan::{LinkRates, OffloadRoom};
use headwater_offload::{DiskConfig, GpuLane, OffloadPolicy, Offloader, OffloaderConfig};

use super::plan::{LEAST_SHARE, PlanLimits};
use super::shape::LayerShape;
use crate::error::Result;
use crate::run_config::{OffloadTo, RunConfig};

/// Host memory comes in pieces of at most this length: each is a copy of its own, which the host has to queue.
const MOST_SLOT_BYTES: usize = 64 << 20;
/// The same where they are requests to disks, too.
const MOST_DISK_SLOT_BYTES: usize = 16 << 20;
const LEAST_SLOT_BYTES: usize = 4096;
/// GPU memory that is left to kernels, cuBLAS and others.
const SPARED_BYTES: u64 = 256 << 20;
/// The smallest part of it on small devices.
const SPARED_SHARE: u64 = 16;

/// What a run says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OffloadSettings {
    host: bool,
    disk: Option<PathBuf>,
    recompute: bool,
    host_bytes: usize,
    disk_bytes: Option<u64>,
    gpu_bytes: Option<u64>,
    slack: f64,
}

impl OffloadSettings {
    /// Those of a run in a folder; none where nothing may leave.
    pub fn of(config: &RunConfig, run: &std::path::Path) -> Option<Self> {
        let goes = config.offload_to();
        if goes.is_empty() {
            return None;
        }
        let folder = config.offload_folder.clone().unwrap_or_else(|| run.to_owned());
        let given = |gb: Option<f64>| gb.map(bytes_of_gb);
        let host_bytes = given(config.offload_host_gb).unwrap_or(host_bytes_available() as u64 / 2);
        Some(Self {
            host: goes.contains(&OffloadTo::Host),
            disk: goes.contains(&OffloadTo::Disk).then_some(folder),
            recompute: goes.contains(&OffloadTo::Recompute),
            host_bytes: usize::try_from(host_bytes).unwrap_or(usize::MAX),
            disk_bytes: given(config.offload_disk_gb),
            gpu_bytes: given(config.offload_gpu_gb),
            slack: config.offload_slack(),
        })
    }

    /// The same without a disk, for a run whose disk failed.
    pub fn without_disk(&self) -> Self {
        Self { disk: None, host: true, ..self.clone() }
    }

    /// Whether a disk is among them.
    pub fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Pieces are small beside what leaves and beside the host memory that there is: the last one of each buffer is not full.
    fn slot_bytes(&self, layers: &[LayerShape]) -> usize {
        let most = if self.has_disk() { MOST_DISK_SLOT_BYTES } else { MOST_SLOT_BYTES };
        let a_buffer = self.host_bytes / (8 * leaving_buffers(layers).max(1));
        let wanted = (made_bytes(layers) / 256).next_power_of_two().min((a_buffer + 1).next_power_of_two() / 2);
        wanted.clamp(LEAST_SLOT_BYTES, most)
    }

    /// Who lets activations leave; nobody where they are only computed twice.
    pub fn offloader(&self, gpu: &Gpu, layers: &[LayerShape]) -> Result<Option<Arc<Offloader<GpuLane>>>> {
        if !self.host && self.disk.is_none() {
            return Ok(None);
        }
        let (all, slot_bytes) = (made_bytes(layers), self.slot_bytes(layers));
        let disk_bytes = self.disk_bytes.unwrap_or(2 * all as u64 + MOST_SLOT_BYTES as u64);
        let disk = self
            .disk
            .as_ref()
            .map(|folder| DiskConfig { allow_buffered: true, ..DiskConfig::new(vec![folder.clone()], disk_bytes) });
        let longest = layers.iter().flat_map(|layer| &layer.made).map(|made| made.bytes).max().unwrap_or(0);
        // Without host memory of their own, blocks pass through as much as two of them take each way.
        let buffers = leaving_buffers(layers);
        let passing = 4 * longest.next_multiple_of(slot_bytes) + (2 + buffers) * slot_bytes;
        // A step needs no more than this.
        let most = if self.host { passing.max(all + (1 + buffers) * slot_bytes) } else { passing };
        let host_bytes = most.min(self.host_bytes);
        let config = OffloaderConfig {
            host_bytes: host_bytes / slot_bytes * slot_bytes,
            slot_bytes,
            disk,
            policy: OffloadPolicy::All { most_bytes: None },
            window_bytes: longest,
        };
        Ok(Some(Arc::new(Offloader::new(GpuLane::new(gpu)?, &config)?)))
    }

    /// What a plan may use: what the GPU has free now, or what the run says.
    pub fn limits(
        &self,
        gpu: &Gpu,
        layers: &[LayerShape],
        (offloader, host_bytes): (Option<&Offloader<GpuLane>>, Option<u64>),
    ) -> Result<PlanLimits> {
        let free = gpu.memory()?.free_bytes as u64;
        let free = free.saturating_sub(SPARED_BYTES.min(free / SPARED_SHARE));
        let nothing = LinkRates { down: 0.0, up: 0.0, write: 0.0, read: 0.0 };
        // The last slot of a buffer is not full.
        let unused = (leaving_buffers(layers) * self.slot_bytes(layers)) as u64;
        let (rates, has) = match offloader {
            Some(offloader) => (offloader.rates()?, offloader.room()),
            None => (nothing, OffloadRoom { host_bytes: 0, disk_bytes: 0, gpu_bytes: None, window_bytes: 0 }),
        };
        let room = OffloadRoom {
            host_bytes: host_bytes.unwrap_or(has.host_bytes).min(has.host_bytes).saturating_sub(unused),
            gpu_bytes: Some(self.gpu_bytes.unwrap_or(free).min(free)),
            ..has
        };
        Ok(PlanLimits { rates, room, slack: self.slack, may_recompute: self.recompute })
    }
}

/// Buffers that are large enough to leave.
fn leaving_buffers(layers: &[LayerShape]) -> usize {
    let least = made_bytes(layers) / LEAST_SHARE;
    layers.iter().flat_map(|layer| &layer.made).filter(|made| made.bytes >= least).count()
}

fn made_bytes(layers: &[LayerShape]) -> usize {
    layers.iter().flat_map(|layer| &layer.made).map(|made| made.bytes).sum()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be above 0 and small")]
fn bytes_of_gb(gb: f64) -> u64 {
    (gb * 1e9) as u64
}
