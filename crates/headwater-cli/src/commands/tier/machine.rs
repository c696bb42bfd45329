//! What rows can be put in, and how fast it is: measured where there is a GPU, assumed where there is none.

use anyhow::ensure;
use headwater::cuda::{Bandwidths, Gpu};
use headwater::feature::{Budget, Links, Room, working_set_bytes};
use headwater::memory::host_bytes_available;
use indicatif::BinaryBytes;
use serde::Serialize;

use super::tables::Table;
use crate::args::RoomArgs;

/// A GPU's memory where none is there.
const ASSUMED_GPU_BYTES: u64 = 80 << 30;
/// Links to peers and to the disk are not measured yet.
const ASSUMED: Links = Links::TYPICAL;

/// Memories and links.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// The GPU's name; absent when one is assumed.
    pub gpu: Option<String>,
    /// How many there are; 0 when one is assumed.
    pub gpus: u64,
    /// Free bytes of it.
    pub gpu_bytes: u64,
    /// Available bytes of host memory.
    pub host_bytes: u64,
    pub links: Links,
}

impl Machine {
    /// This one.
    pub fn here() -> anyhow::Result<Self> {
        let host_bytes = host_bytes_available() as u64;
        let gpus = Gpu::count().unwrap_or(0) as u64;
        if gpus == 0 {
            return Ok(Self { gpu: None, gpus, gpu_bytes: ASSUMED_GPU_BYTES, host_bytes, links: ASSUMED });
        }
        let gpu = Gpu::open(0)?;
        let rates = Bandwidths::of(&gpu)?;
        // A row out of the GPU's own memory is read and written; the measured rate counts both.
        let (device_gb_per_s, host_gb_per_s) = (rates.device_gb_per_s / 2.0, rates.zero_copy_gb_per_s);
        let gpu_bytes = gpu.memory()?.free_bytes as u64;
        let links = Links { device_gb_per_s, host_gb_per_s, ..ASSUMED };
        Ok(Self { gpu: Some(gpu.facts().name.clone()), gpus, gpu_bytes, host_bytes, links })
    }

    /// What of it is for the rows of `tables`, with batches of `batch_bytes`.
    pub fn room(&self, args: &RoomArgs, tables: &[Table], batch_bytes: f64) -> anyhow::Result<Room> {
        let table_bytes = tables.iter().map(Table::bytes).fold(0, u64::saturating_add);
        let are_there = self.gpus == 0 || args.gpus <= self.gpus;
        ensure!(are_there, "--gpus is {}, and there are {}", args.gpus, self.gpus);
        ensure!(args.gpus > 0, "--gpus is at least 1");
        let reserved = working_set_bytes(batch_bytes);
        let (device, host) = (budget(args.gpu_bytes, args.gpu_share), budget(args.host_bytes, args.host_share));
        Ok(Room {
            device_bytes: device.bytes("GPU memory", self.gpu_bytes, reserved, table_bytes)?,
            members: args.gpus,
            host_bytes: host.bytes("host memory", self.host_bytes, self.host_bytes / 10, table_bytes)?,
            has_disk: !args.no_disk,
        })
    }

    /// In words.
    pub fn in_words(&self) -> String {
        let Links { device_gb_per_s, peer_gb_per_s, host_gb_per_s, disk_gb_per_s } = self.links;
        let near = format!("rows in GPU memory {device_gb_per_s:.0}, in host memory {host_gb_per_s:.1} GB/s");
        let far = format!("another GPU's {peer_gb_per_s:.0}, disk {disk_gb_per_s:.0} GB/s");
        match &self.gpu {
            Some(name) => format!("{name}; measured: {near}; assumed: {far}"),
            None => format!("no GPU here; assumed: one with {}, {near}, {far}", BinaryBytes(self.gpu_bytes)),
        }
    }
}

fn budget(bytes: Option<u64>, share: Option<f64>) -> Budget {
    match (bytes, share) {
        (Some(bytes), _) => Budget::Bytes(bytes),
        (None, Some(share)) => Budget::Share(share),
        (None, None) => Budget::Auto,
    }
}
