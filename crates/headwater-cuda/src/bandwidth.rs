//! How fast this GPU's links are, measured and remembered.
//!
//! Plans need bandwidths, and data sheets do not know the machine. The probe takes well under a second and its result is
//! kept in the cache folder under the GPU's unique id and driver version.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cache;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernel::{Element, Grid, Kernel, Param, Scalar};
use crate::module::{Defines, Source};
use crate::span::{Allocation, Span};
use crate::stream::{Event, Stream};

static SOURCE: Source = Source { name: "bandwidth.cu", text: include_str!("bandwidth.cu"), headers: &[] };

// SAFETY: bandwidth.cu reads `vectors` vectors of 16 bytes and writes one word of `sink`.
static READ_ALL: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "read_all",
        &[
            Param::Read("data", Element::Bytes, &["vectors", "VECTOR_BYTES"]),
            Param::Value("vectors", Scalar::U64),
            Param::Write("sink", Element::U32, &[]),
        ],
    )
};

// SAFETY: `first` and the words of `next` are below `words`, as `latency_ns` has them; one word of `sink` is written.
static CHASE: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "chase",
        &[
            Param::Read("next", Element::U32, &["words"]),
            Param::Value("words", Scalar::U64),
            Param::Value("first", Scalar::U64),
            Param::Value("steps", Scalar::U64),
            Param::Write("sink", Element::U32, &[]),
        ],
    )
};

/// Loads of a chase, each of which waits for the one before.
const STEPS: u64 = 4096;
/// Words between the first ones of two chases: some lines of a cache.
const APART: usize = 1024;
/// How many words a chase goes on at a time, modulo a power of two: an odd number, so that it comes by all of them, and far.
const STRIDE: usize = 0x9e_3779;

/// This crate's kernels, for tests that compile every one of them.
pub static SOURCES: &[&Source] = &[&SOURCE];

/// Measured bandwidths in GB/s (10^9 bytes a second).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bandwidths {
    /// Pinned host memory to the device by the copy engine.
    pub host_to_device_gb_per_s: f64,
    /// Device to pinned host memory by the copy engine.
    pub device_to_host_gb_per_s: f64,
    /// Device memory, bytes read plus bytes written by a copy.
    pub device_gb_per_s: f64,
    /// Pinned host memory read in order by a kernel.
    pub zero_copy_gb_per_s: f64,
    /// From a load of device memory that misses all caches until its number is there, in nanoseconds.
    pub device_latency_ns: f64,
}

impl Bandwidths {
    /// The remembered figures, or a fresh measurement. A process measures a GPU once, with or without a cache folder.
    pub fn of(gpu: &Gpu) -> Result<Self> {
        static KNOWN: Mutex<BTreeMap<String, Bandwidths>> = Mutex::new(BTreeMap::new());
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let name = record_name(gpu);
        if let Some(found) = known().get(&name) {
            return Ok(*found);
        }
        let found = Self::on_disk_or_measured(gpu)?;
        // Another thread may have been faster.
        Ok(*known().entry(name).or_insert(found))
    }

    fn on_disk_or_measured(gpu: &Gpu) -> Result<Self> {
        if let Some(known) = record_path(gpu).and_then(|path| std::fs::read(path).ok())
            && let Ok(bandwidths) = serde_json::from_slice(&known)
        {
            return Ok(bandwidths);
        }
        let measured = Self::measure(gpu)?;
        if let (Some(path), Ok(text)) = (record_path(gpu), serde_json::to_vec(&measured)) {
            let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
            // The record is a convenience; without it the next process measures again.
            let _ = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, &path));
        }
        Ok(measured)
    }

    /// Measures now.
    pub fn measure(gpu: &Gpu) -> Result<Self> {
        // Much more than the L2 holds, large enough to hide launch costs on a fast link, small enough for a small card.
        // A power of two, which the chase goes through all of: on an H200 256 MiB.
        let bytes = (4 * gpu.facts().l2_bytes).next_power_of_two().clamp(64 << 20, 256 << 20);
        Self::measure_with(gpu, bytes.min(gpu.memory()?.free_bytes / 4))
    }

    /// Measures with buffers of `bytes`. Small ones are quick and show launch costs rather than links.
    pub fn measure_with(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(16);
        let stream = Stream::new(gpu)?;
        let host = Span::whole(Allocation::pinned(gpu, bytes)?);
        let near = Span::whole(Allocation::on_stream(&stream, bytes)?);
        let far = Span::whole(Allocation::on_stream(&stream, bytes)?);
        let sink = Span::whole(Allocation::on_stream(&stream, 4)?);
        let rate = |traffic_bytes: usize, work: &dyn Fn() -> Result<()>| -> Result<f64> {
            Ok(traffic_bytes as f64 / 1e6 / f64::from(best_ms(&stream, work)?))
        };
        let defines = Defines::new().with("VECTOR_BYTES", 16);
        let grid = Grid { blocks: gpu.facts().sms * 2, threads: 512, shared_bytes: 0 };
        let read = || {
            let launch = READ_ALL.on(&stream, &defines, grid).bytes(&host).u64(bytes as u64 / 16);
            launch.buffer(&sink, Element::U32).go()
        };
        Ok(Self {
            host_to_device_gb_per_s: rate(bytes, &|| stream.copy(&host, &near))?,
            device_to_host_gb_per_s: rate(bytes, &|| stream.copy(&near, &host))?,
            device_gb_per_s: rate(2 * bytes, &|| stream.copy(&near, &far))?,
            zero_copy_gb_per_s: rate(bytes, &read)?,
            device_latency_ns: latency_ns(&stream, &near)?,
        })
    }
}

/// The latency of memory, by a chase through all of a span.
fn latency_ns(stream: &Stream, through: &Span) -> Result<f64> {
    let words = 1usize << (through.bytes() / 4).max(1).ilog2();
    let next: Vec<u32> = (0..words).map(|at| u32::try_from((at + STRIDE) % words).unwrap_or(0)).collect();
    let ring = through.part(0, 4 * words).unwrap_or_else(|| through.clone());
    stream.upload(bytemuck::cast_slice(&next), &ring)?;
    let sink = Span::whole(Allocation::on_stream(stream, 4)?);
    let defines = Defines::new().with("VECTOR_BYTES", 16);
    // Each run comes by words that none before it has brought into a cache.
    let runs = Cell::new(0);
    let chase = || {
        let first = runs.replace(runs.get() + 1) * APART % words;
        let launch = CHASE.on(stream, &defines, Grid { blocks: 1, threads: 1, shared_bytes: 0 });
        let launch = launch.buffer(&ring, Element::U32).u64(words as u64).u64(first as u64).u64(STEPS);
        launch.buffer(&sink, Element::U32).go()
    };
    Ok(f64::from(best_ms(stream, &chase)?) * 1e6 / STEPS as f64)
}

/// The best of a few runs: interference only ever slows a copy down.
fn best_ms(stream: &Stream, work: &dyn Fn() -> Result<()>) -> Result<f32> {
    let (start, end) = (Event::timed(stream.gpu())?, Event::timed(stream.gpu())?);
    let mut best = f32::INFINITY;
    for _ in 0..4 {
        start.record_on(stream)?;
        work()?;
        end.record_on(stream)?;
        end.synchronize()?;
        best = best.min(end.ms_since(&start)?);
    }
    Ok(best.max(f32::MIN_POSITIVE))
}

fn record_path(gpu: &Gpu) -> Option<PathBuf> {
    let folder = cache::folder()?;
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join(record_name(gpu)))
}

/// What tells a GPU and its driver from others.
fn record_name(gpu: &Gpu) -> String {
    format!("bandwidth-{}-{}.json", gpu.facts().uuid, gpu.driver().version())
}
