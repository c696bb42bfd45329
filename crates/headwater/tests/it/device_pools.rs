//! Pools: bounded, counted, and never lending what somebody still uses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headwater::cuda::{Gpu, Stream};
use headwater::memory::{Buffer, Device, Error, Pinned, Pool, PoolConfig, Tier, registry_use};

use crate::child::in_child;
use crate::kernels::{add, gpu, words};

fn pool(gpu: &Gpu, tier: Tier, limit_bytes: usize, patience_ms: u64) -> Pool {
    let patience = Duration::from_millis(patience_ms);
    Pool::new(gpu, PoolConfig { name: "test", tier, limit_bytes, patience })
}

#[test]
fn a_pool_is_bounded_and_says_so() {
    let Some(gpu) = gpu() else { return };
    for tier in [Tier::Device, Tier::Pinned, Tier::WriteCombined] {
        let pool = pool(&gpu, tier, 10_000, 5);
        let held = pool.lease(8000).unwrap();
        let why = pool.lease(4000).unwrap_err();
        let Error::PoolExhausted { pool: name, asked_bytes, used_bytes, limit_bytes, waited } = why else {
            panic!("{why}")
        };
        assert_eq!((name, asked_bytes, used_bytes, limit_bytes), ("test", 4000, 8192, 10_000));
        assert!(waited >= Duration::from_millis(5));
        assert_eq!(pool.usage().waits, 1, "one request waited, however often it looked");
        drop(held);
        assert_eq!(pool.lease(4000).unwrap().span().bytes(), 4000);
        // More than the pool may ever hold does not wait.
        for impossible in [10_001, usize::MAX] {
            assert!(matches!(pool.lease(impossible), Err(Error::PoolExhausted { waited: Duration::ZERO, .. })));
        }
    }
}

#[test]
fn blocks_are_used_again_by_class_and_counted() {
    let Some(gpu) = gpu() else { return };
    let pool = pool(&gpu, Tier::Pinned, 1 << 20, 0);
    let pointer = pool.lease(1000).unwrap().span().pointer();
    for bytes in [1000, 1024, 897, 1001] {
        let lease = pool.lease(bytes).unwrap();
        assert_eq!((lease.span().pointer(), lease.span().bytes()), (pointer, bytes));
    }
    let usage = pool.usage();
    assert_eq!((usage.hits, usage.misses, usage.waits), (4, 1, 0));
    assert_eq!((usage.held_bytes, usage.free_bytes, usage.blocks_in_flight), (1024, 1024, 0));
    let (one, two) = (pool.lease(1000).unwrap(), pool.lease(1000).unwrap());
    assert_ne!(one.span().pointer(), two.span().pointer());
    assert_eq!((pool.usage().held_bytes, pool.usage().free_bytes), (2048, 0));
    drop(one);
    pool.trim().unwrap();
    assert_eq!((pool.usage().held_bytes, pool.usage().free_bytes), (1024, 0));
    drop(two);
    pool.trim().unwrap();
    assert_eq!((pool.usage().held_bytes, pool.usage().free_bytes), (0, 0));
    assert_eq!(pool.lease(0).unwrap().span().bytes(), 0);
}

#[test]
fn other_classes_make_room() {
    let Some(gpu) = gpu() else { return };
    let pool = pool(&gpu, Tier::Device, 16 << 10, 0);
    drop((0..4).map(|_| pool.lease(4096).unwrap()).collect::<Vec<_>>());
    assert_eq!(pool.usage().free_bytes, 16 << 10);
    assert_eq!(pool.lease(16 << 10).unwrap().span().bytes(), 16 << 10);
    assert_eq!(pool.usage().held_bytes, 16 << 10);
}

#[test]
fn a_lease_returns_when_the_gpu_is_done() {
    let Some(gpu) = gpu() else { return };
    let (pool, stream) = (pool(&gpu, Tier::Device, 4 << 20, 10_000), Stream::new(&gpu).unwrap());
    // One block only: each round must wait for the last one's kernels.
    for round in 0..20 {
        let lease = pool.lease(4 << 20).unwrap();
        stream.fill(lease.span(), 0).unwrap();
        add(&stream, lease.span(), round).unwrap();
        if round % 5 == 0 {
            assert!(words(&stream, lease.span()).iter().all(|word| *word == round));
        }
    }
    assert_eq!((pool.usage().misses, pool.usage().hits), (1, 19));
}

#[test]
fn a_span_that_outlives_its_lease_keeps_the_block() {
    let Some(gpu) = gpu() else { return };
    let (pool, stream) = (pool(&gpu, Tier::Pinned, 1024, 0), Stream::new(&gpu).unwrap());
    let lease = pool.lease(1024).unwrap();
    let span = lease.span().part(100, 8).unwrap();
    stream.fill(lease.span(), 5).unwrap();
    drop(lease);
    assert!(matches!(pool.lease(1024), Err(Error::PoolExhausted { used_bytes: 1024, .. })));
    assert_eq!(pool.usage().blocks_in_flight, 1);
    assert_eq!(words(&stream, &span), [0x0505_0505; 2]);
    drop(span);
    assert_eq!(pool.lease(1024).unwrap().span().bytes(), 1024);
    assert_eq!(pool.usage().misses, 1);
}

#[test]
fn a_pool_dropped_under_running_work_waits_for_it() {
    let Some(_) = gpu() else { return };
    // In a process of its own, whose registrations are its own.
    in_child("device_pools::a_pool_dropped_under_running_work_waits_for_it", &[], drop_a_pool_in_use);
}

fn drop_a_pool_in_use() {
    let gpu = Gpu::open(0).unwrap();
    let stream = Stream::new(&gpu).unwrap();
    // Large enough to come from an arena, whose pages are unmapped at once when it goes.
    let pool = pool(&gpu, Tier::Pinned, 64 << 20, 0);
    for _ in 0..3 {
        let lease = pool.lease(16 << 20).unwrap();
        stream.fill(lease.span(), 1).unwrap();
        add(&stream, lease.span(), 1).unwrap();
    }
    let _ = pool.usage();
    drop(pool);
    stream.synchronize().unwrap();
    assert_eq!(registry_use().chunks, 0);
}

#[test]
fn a_lease_of_another_tier_is_refused() {
    let Some(gpu) = gpu() else { return };
    let pool = pool(&gpu, Tier::Device, 1 << 20, 0);
    let why = Buffer::<u32, Pinned>::from_lease(pool.lease(400).unwrap()).unwrap_err();
    assert!(matches!(why, Error::WrongTier { wanted: Tier::Pinned, got: Tier::Device }), "{why}");
    let why = Buffer::<u32, Device>::from_lease(pool.lease(401).unwrap()).unwrap_err();
    assert!(matches!(why, Error::Misfit { bytes: 401, element_bytes: 4 }), "{why}");
    assert_eq!(Buffer::<u32, Device>::from_lease(pool.lease(400).unwrap()).unwrap().len(), 100);
}

#[test]
fn eight_threads_share_a_pool() {
    let Some(gpu) = gpu() else { return };
    let limit = 256 << 10;
    let pool = pool(&gpu, Tier::Pinned, limit, 30_000);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let (pool, gpu, done) = (&pool, &gpu, &done);
            scope.spawn(move || {
                let stream = Stream::new(gpu).unwrap();
                for round in 0..20u32 {
                    let bytes = 4 * (1 + (thread * 997 + round * 7919) % 8000) as usize;
                    let lease = pool.lease(bytes).unwrap();
                    stream.fill(lease.span(), thread as u8).unwrap();
                    add(&stream, lease.span(), 1).unwrap();
                    let expected = u32::from_le_bytes([thread as u8; 4]) + 1;
                    assert!(words(&stream, lease.span()).iter().all(|word| *word == expected));
                    assert!(pool.usage().held_bytes <= limit);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let usage = pool.usage();
    assert_eq!(done.into_inner(), 160);
    assert_eq!(usage.hits + usage.misses, 160);
    pool.trim().unwrap();
    assert_eq!((pool.usage().held_bytes, pool.usage().free_bytes, pool.usage().blocks_in_flight), (0, 0, 0));
}
