//! Registrations that overlap in every way, in any order, with an exact count. The table is the process's, so each test
//! here runs in a process of its own.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Arc;

use headwater::cuda::{Gpu, Span, Stream};
use headwater::memory::{Error, Mapping, RegistryUse, lay_over, registry_use};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::child::in_child;
use crate::emulator;
use crate::kernels::{add, gpu, words};

const PAGE: usize = 4096;
const NONE: RegistryUse = RegistryUse { chunks: 0, bytes: 0 };

fn over(gpu: &Gpu, memory: &Arc<Mapping>, offset: usize, bytes: usize) -> Result<Span, Error> {
    assert!(offset + bytes <= memory.bytes());
    // SAFETY: inside the mapping, which is the keeper.
    unsafe { lay_over(gpu, memory.start().add(offset), bytes, memory.clone()) }
}

/// Pages that are registered when these ranges are held.
fn pages<'a>(ranges: impl Iterator<Item = &'a (usize, usize)>) -> BTreeSet<usize> {
    ranges.flat_map(|(offset, bytes)| offset / PAGE..(offset + bytes.max(&1)).div_ceil(PAGE)).collect()
}

#[test]
fn any_order_of_overlapping_requests() {
    let Some(_) = gpu() else { return };
    in_child("device_registry::any_order_of_overlapping_requests", &[], || {
        let gpu = Gpu::open(0).unwrap();
        let stream = Stream::new(&gpu).unwrap();
        let request = (0usize..30 * PAGE, 0usize..9 * PAGE, any::<prop::sample::Index>(), any::<bool>());
        let runs = prop::collection::vec(request, 1..25);
        let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&runs, |run| {
            let memory = Arc::new(Mapping::anonymous(40 * PAGE).unwrap());
            let mut held: Vec<((usize, usize), Span)> = Vec::new();
            for (offset, bytes, victim, drops) in run {
                if drops && !held.is_empty() {
                    held.swap_remove(victim.index(held.len()));
                }
                held.push(((offset, bytes), over(&gpu, &memory, offset, bytes).unwrap()));
                let wanted = pages(held.iter().map(|(range, _)| range));
                // A chunk goes with its last holder, so every page somebody holds is there, and maybe more.
                prop_assert!(registry_use().bytes >= wanted.len() * PAGE);
                // Copies cross the seams between chunks.
                for (_, span) in &held {
                    stream.fill(span, 9).unwrap();
                    let mut read = vec![0; span.bytes()];
                    stream.download(span, &mut read).unwrap();
                    prop_assert!(read.iter().all(|byte| *byte == 9));
                }
            }
            drop(held);
            prop_assert_eq!(registry_use(), NONE);
            prop_assert_eq!(Arc::strong_count(&memory), 1);
            Ok(())
        });
        outcome.unwrap();
    });
}

#[test]
fn the_count_is_exact() {
    let Some(_) = gpu() else { return };
    in_child("device_registry::the_count_is_exact", &[], || {
        let gpu = Gpu::open(0).unwrap();
        let memory = Arc::new(Mapping::anonymous(20 * PAGE).unwrap());
        let at = |offset, bytes| over(&gpu, &memory, offset, bytes).unwrap();
        let is = |chunks, pages| assert_eq!(registry_use(), RegistryUse { chunks, bytes: pages * PAGE });
        let middle = at(4 * PAGE + 100, PAGE);
        is(1, 2);
        let same = at(4 * PAGE + 100, PAGE);
        let inside = at(5 * PAGE, 1);
        is(1, 2);
        let beside = at(6 * PAGE, PAGE);
        is(2, 3);
        let all = at(0, 20 * PAGE);
        is(4, 20);
        drop((middle, same, beside));
        is(4, 20);
        drop(all);
        is(1, 2);
        drop(inside);
        is(0, 0);
        let empty = at(PAGE, 0);
        is(1, 1);
        drop(empty);
        is(0, 0);
    });
}

/// What it keeps is unmapped when it goes, and it tells.
struct Told(Mapping, std::sync::mpsc::Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        assert!(self.0.bytes() > 0);
        let _ = self.1.send(());
    }
}

#[test]
fn memory_stays_while_a_neighbour_keeps_its_chunk_registered() {
    let Some(_) = gpu() else { return };
    let test = "device_registry::memory_stays_while_a_neighbour_keeps_its_chunk_registered";
    in_child(test, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let stream = Stream::new(&gpu).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let owner = Arc::new(Told(Mapping::anonymous(4 * PAGE).unwrap(), tell));
        let start = owner.0.start();
        // SAFETY: inside the mapping, which the owner keeps.
        let first = unsafe { lay_over(&gpu, start, 2 * PAGE, owner.clone()) }.unwrap();
        // A neighbour on the same page that does not own the first array, as two vectors in one heap page.
        // SAFETY: the chunk keeps the owner for as long as the neighbour is registered.
        let second = unsafe { lay_over(&gpu, start.add(PAGE + 8), 2 * PAGE, Arc::new(())) }.unwrap();
        drop((first, owner));
        assert!(told.try_recv().is_err(), "the chunk is registered still, so its pages must stay");
        stream.fill(&second, 1).unwrap();
        add(&stream, &second, 1).unwrap();
        assert!(words(&stream, &second).iter().all(|word| *word == 0x0101_0102));
        drop(second);
        told.try_recv().unwrap();
        assert_eq!(registry_use(), NONE);
    });
}

#[test]
fn a_request_that_fails_half_way_takes_nothing() {
    if !emulator::here() {
        return;
    }
    let test = "device_registry::a_request_that_fails_half_way_takes_nothing";
    in_child(test, &[("HWEMU_REGISTER_BYTES", "40960")], || {
        let gpu = Gpu::open(0).unwrap();
        let memory = Arc::new(Mapping::anonymous(20 * PAGE).unwrap());
        let middle = over(&gpu, &memory, 4 * PAGE, PAGE).unwrap();
        let held = registry_use();
        let live = emulator::live(c"registrations");
        // The gap before the middle fits below the limit, the gap behind it does not.
        let why = over(&gpu, &memory, 0, 20 * PAGE).unwrap_err();
        let Error::Register { asked_bytes, free_bytes, ref limit, .. } = why else { panic!("{why}") };
        assert_eq!(asked_bytes, 20 * PAGE);
        assert!(free_bytes > 0 && limit.contains("locked memory"), "{why}");
        assert!(why.is_out_of_memory());
        assert_eq!(registry_use(), held);
        assert_eq!(emulator::live(c"registrations"), live);
        drop(middle);
        assert_eq!(registry_use(), NONE);
        assert_eq!(over(&gpu, &memory, 0, 10 * PAGE).unwrap().bytes(), 10 * PAGE);
    });
}

#[test]
fn eight_threads_register_one_buffer() {
    let Some(_) = gpu() else { return };
    in_child("device_registry::eight_threads_register_one_buffer", &[], || {
        let gpu = Gpu::open(0).unwrap();
        let memory = Arc::new(Mapping::anonymous(64 * PAGE).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (gpu, memory) = (&gpu, &memory);
                scope.spawn(move || {
                    for round in 0..50 {
                        let offset = (thread * 7919 + round * 4099) % (32 * PAGE);
                        let span = over(gpu, memory, offset, 1 + (thread * 3 + round) % 32 * PAGE).unwrap();
                        assert_eq!(span.host_pointer(), NonNull::new(memory.start().as_ptr().wrapping_add(offset)));
                    }
                });
            }
        });
        assert_eq!(registry_use(), NONE);
        assert_eq!(Arc::strong_count(&memory), 1);
    });
}
