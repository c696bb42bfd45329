//! After a mixed workload nothing is alive but what the process keeps on purpose.
//!
//! Kept for good, and therefore warmed up before counting: loaded modules (not counted here), the GPU's default stream with
//! its fault cell (one stream, one host allocation), and a fault cell for each foreign stream.

use std::sync::Arc;
use std::time::Duration;

use headwater::cuda::{Allocation, Event, Gpu, Graph, GreenContext, Span, Stream};
use headwater::memory::{
    Buffer, Device, Mapping, Pinned, Pool, PoolConfig, Tier, WriteCombined, lay_over, pinned_arena,
};

use crate::child::in_child;
use crate::emulator;
use crate::kernels::{BREAKS, add, gpu, grid, words};

fn counts() -> Vec<(String, u64)> {
    emulator::KINDS.iter().map(|kind| (kind.to_string_lossy().into_owned(), emulator::live(kind).unwrap())).collect()
}

fn workload(gpu: &Gpu) {
    let (stream, other) = (Stream::new(gpu).unwrap(), Stream::new(gpu).unwrap());
    let pools = [Tier::Device, Tier::Pinned, Tier::WriteCombined].map(|tier| {
        Pool::new(gpu, PoolConfig { name: "leaks", tier, limit_bytes: 32 << 20, patience: Duration::ZERO })
    });
    for pool in &pools {
        let leases: Vec<_> = [100, 5000, 9 << 20].map(|bytes| pool.lease(bytes).unwrap()).into();
        leases.iter().for_each(|lease| stream.fill(lease.span(), 1).unwrap());
        let _ = pool.lease(30 << 20).unwrap_err();
    }
    let memory = Arc::new(Mapping::anonymous(100_000).unwrap());
    // SAFETY: the mapping is held as the keeper.
    let laid = [0, 5000, 70_000].map(|at| unsafe { lay_over(gpu, memory.start().add(at), 20_000, memory.clone()) });
    laid.iter().flatten().for_each(|span| add(&other, span, 1).unwrap());
    let near = Buffer::<u32, Device>::from_slice(&stream, &[1; 1000]).unwrap();
    let _combined = Buffer::<u32, WriteCombined>::new(gpu, 1000).unwrap();
    let _pinned = Buffer::<u32, Pinned>::new(gpu, 1000).unwrap();
    let arena = pinned_arena(gpu, 1 << 20).unwrap();
    add(&stream, near.whole(), 1).unwrap();
    let mut graph = Graph::capture(&stream, |stream| add(stream, near.whole(), 1)).unwrap();
    graph.launch(&stream).unwrap();
    graph.launch(&other).unwrap();
    let _ = Graph::capture(&stream, |stream| {
        add(stream, near.whole(), 1)?;
        stream.synchronize()
    });
    let _ = Graph::capture(&other, |_| BREAKS.on(&other, &crate::kernels::step(1), grid(1)).go()).unwrap_err();
    let green = GreenContext::new(gpu, 16).unwrap();
    let share = green.stream().unwrap();
    add(&share, &arena, 1).unwrap();
    other.wait_for(&share).unwrap();
    let event = Event::timed(gpu).unwrap();
    event.record_on(&other).unwrap();
    let _ = Allocation::shareable(gpu, usize::MAX / 2).unwrap_err();
    // SAFETY: null is the legacy default stream.
    let legacy = unsafe { Stream::foreign(gpu, std::ptr::null_mut()) }.unwrap();
    legacy.wait_for(&other).unwrap();
    add(&legacy, near.whole(), 1).unwrap();
    drop((graph, near));
    stream.synchronize().unwrap();
}

#[test]
fn a_mixed_workload_leaves_nothing_behind() {
    let Some(_) = gpu() else { return };
    if !emulator::here() {
        return;
    }
    in_child("device_leaks::a_mixed_workload_leaves_nothing_behind", &[], || {
        let gpu = Gpu::open(0).unwrap();
        let warm = Span::whole(Allocation::on_stream(gpu.stream().unwrap(), 4).unwrap());
        assert_eq!(words(gpu.stream().unwrap(), &warm).len(), 1);
        // SAFETY: null is the legacy default stream.
        drop(unsafe { Stream::foreign(&gpu, std::ptr::null_mut()) }.unwrap());
        drop(warm);
        let before = counts();
        for _ in 0..3 {
            workload(&gpu);
            assert_eq!(counts(), before);
        }
    });
}
