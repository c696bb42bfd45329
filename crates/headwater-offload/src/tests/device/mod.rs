//! Blocks of a GPU, or of the emulator.

mod caller;
mod direct;
mod emulator;
mod orders;
mod program;
mod schedules;

use headwater_cuda::{Gpu, Stream};
use headwater_memory::{Buffer, Device};

use super::*;
use crate::lane::GpuLane;

fn gpu() -> Option<Gpu> {
    Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()
}

fn stored_from(offloader: &Offloader<GpuLane>, buffer: &Buffer<u8, Device>, stream: &Stream) -> Option<BlockId> {
    match offloader.store(buffer.whole().clone(), stream).unwrap() {
        StoreOutcome::Leaving(block) => Some(block),
        StoreOutcome::NoRoom => None,
    }
}

fn mark_of(seed: usize) -> u8 {
    u8::try_from(seed % 200).unwrap() + 1
}

/// Forward and backward as a model has them: memory is written, saved, given up and used again; then all comes back, last first. The
/// host waits for nothing, so that only marks of streams keep the work in order. Returns what came back, with what it should be.
fn step(
    offloader: &Offloader<GpuLane>,
    stream: &Stream,
    sizes: &[usize],
    window: usize,
) -> Vec<(u8, Buffer<u8, Device>)> {
    let mut saved = Vec::new();
    let mut holds: Vec<(BlockId, Buffer<u8, Device>)> = Vec::new();
    for (seed, bytes) in sizes.iter().enumerate() {
        let buffer = Buffer::<u8, Device>::on_stream(stream, *bytes).unwrap();
        stream.fill(buffer.whole(), mark_of(seed)).unwrap();
        if let Some(block) = stored_from(offloader, &buffer, stream) {
            saved.push((seed, block));
            holds.push((block, buffer));
        }
        let mut gone = offloader.follow(stream, window).unwrap();
        gone.extend(offloader.drained().unwrap());
        // Written over in the order of the stream, as memory that is used again.
        for (_, buffer) in holds.extract_if(.., |(block, _)| gone.contains(block)) {
            stream.fill(buffer.whole(), 0xee).unwrap();
        }
    }
    let mut back = Vec::new();
    for (seed, block) in saved.into_iter().rev() {
        let held = holds.iter().position(|(held, _)| *held == block).map(|at| holds.remove(at).1);
        let buffer = held.unwrap_or_else(|| {
            let buffer = Buffer::<u8, Device>::on_stream(stream, sizes[seed]).unwrap();
            stream.fill(buffer.whole(), 0xdd).unwrap();
            let mark = offloader.load(block, buffer.whole(), stream).unwrap();
            offloader.join(stream, &mark).unwrap();
            buffer
        });
        offloader.release(block).unwrap();
        back.push((mark_of(seed), buffer));
    }
    back
}

#[test]
fn blocks_leave_a_gpu_and_come_back() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let sizes: Vec<usize> = (0..24).map(|at| 1 + at * 700).collect();
    for (slots, with_disk) in [(256, false), (8, false), (8, true), (16, true)] {
        let disk = with_disk.then(|| disk(folder.path(), 1 << 20, Choice::Auto));
        let config = OffloaderConfig {
            host_bytes: slots * SLOT,
            slot_bytes: SLOT,
            disk,
            policy: EVERYTHING,
            window_bytes: WINDOW,
        };
        let offloader = Offloader::new(GpuLane::new(&gpu).unwrap(), &config).unwrap();
        let mut back = Vec::new();
        for window in [0, 3 * SLOT, usize::MAX, 0] {
            back.extend(step(&offloader, &stream, &sizes, window));
        }
        for (mark, buffer) in back {
            assert!(buffer.to_vec(&stream).unwrap().iter().all(|byte| *byte == mark), "block {mark}");
        }
        assert_eq!(offloader.held().unwrap(), (0, 0));
        assert!(offloader.counts().unwrap().down > 0);
    }
}

/// Where `emulator/slow` stands before the driver, copies begin so much later: otherwise tests would be as fast as ever, and show nothing.
#[test]
fn copies_are_late_where_that_is_wanted() {
    let (Some(gpu), Ok(delay)) = (gpu(), std::env::var("SLOW_COPIES_US")) else { return };
    let stream = Stream::new(&gpu).unwrap();
    let memory = Buffer::<u8, Device>::on_stream(&stream, 2 * SLOT).unwrap();
    let begun = std::time::Instant::now();
    for _ in 0..10 {
        stream.copy(&memory.part(0..SLOT).unwrap(), &memory.part(SLOT..2 * SLOT).unwrap()).unwrap();
    }
    stream.synchronize().unwrap();
    assert!(begun.elapsed() >= std::time::Duration::from_micros(10 * delay.parse::<u64>().unwrap()));
}

/// One stream saves and another needs, with no mark between them but the offloader's.
#[test]
fn a_stream_that_did_not_save_may_load() {
    let Some(gpu) = gpu() else { return };
    let (saves, needs) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let config = OffloaderConfig {
        host_bytes: 4 * SLOT,
        slot_bytes: SLOT,
        disk: None,
        policy: EVERYTHING,
        window_bytes: WINDOW,
    };
    let offloader = Offloader::new(GpuLane::new(&gpu).unwrap(), &config).unwrap();
    let mut back = Vec::new();
    for seed in 0..8 {
        let source = Buffer::<u8, Device>::on_stream(&saves, 3 * SLOT).unwrap();
        saves.fill(source.whole(), mark_of(seed)).unwrap();
        let block = stored_from(&offloader, &source, &saves).unwrap();
        let to = Buffer::<u8, Device>::on_stream(&needs, 3 * SLOT).unwrap();
        let mark = offloader.load(block, to.whole(), &needs).unwrap();
        // Its slots go to the next block while this one is on its way up.
        offloader.release(block).unwrap();
        offloader.follow(&saves, 0).unwrap();
        back.push((seed, to, mark));
    }
    for (seed, to, mark) in back {
        offloader.join(&needs, &mark).unwrap();
        assert!(to.to_vec(&needs).unwrap().iter().all(|byte| *byte == mark_of(seed)), "block {seed}");
    }
}
