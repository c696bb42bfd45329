//! Buffers in every tier, and files read straight into pinned memory.

use std::sync::Arc;

use headwater::cuda::{Allocation, Gpu, Span, Stream};
use headwater::memory::io::{Engine, EngineConfig, FileOptions, IoFile};
use headwater::memory::{
    Buffer, Capacity, Device, Error, Managed, Mapping, Pinned, RegistryUse, SharedHost, Uploader, WriteCombined,
    lay_over, pinned_arena, registry_use,
};

use crate::child::{in_child, no_children};
use crate::kernels::{add, gpu, words};

#[test]
fn every_tier_holds_what_is_written() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let numbers: Vec<u32> = (0..1000).collect();
    let near = Buffer::<u32, Device>::from_slice(&stream, &numbers).unwrap();
    assert_eq!(near.to_vec(&stream).unwrap(), numbers);
    let mut pinned = Buffer::<u32, Pinned>::new(&gpu, 1000).unwrap();
    let mut read = vec![7; 1000];
    pinned.read(0, &mut read).unwrap();
    assert_eq!(read, [0; 1000]);
    pinned.write(10, &numbers[10..]).unwrap();
    add(&stream, pinned.whole(), 1).unwrap();
    // Reading waits for the kernel by itself.
    pinned.read(0, &mut read).unwrap();
    assert!(read.iter().enumerate().all(|(i, word)| *word == if i < 10 { 1 } else { i as u32 + 1 }));
    let mut combined = Buffer::<u32, WriteCombined>::new(&gpu, 1000).unwrap();
    combined.write(0, &numbers).unwrap();
    add(&stream, combined.whole(), 2).unwrap();
    assert_eq!(words(&stream, combined.whole())[999], 1001);
    let mut managed = Buffer::<u32, Managed>::new(&gpu, 1000).unwrap();
    // SAFETY: this test alone knows the buffer, and queues nothing on it while it holds a slice.
    unsafe {
        assert!(managed.as_slice().unwrap().iter().all(|word| *word == 0));
        managed.as_mut_slice().unwrap().copy_from_slice(&numbers);
        add(&stream, managed.whole(), 3).unwrap();
        assert_eq!(managed.as_slice().unwrap()[999], 1002);
        managed.part_mut(998..1000).unwrap()[1] = 5;
        assert_eq!(managed.as_slice().unwrap()[998..], [1001, 5]);
        assert!(matches!(managed.part_mut(999..1001), Err(Error::Misfit { .. })));
    }
    for refused in [
        pinned.read(1, &mut read),
        pinned.write(999, &[1, 2]),
        combined.write(usize::MAX, &[1]),
        managed.write(1001, &[]),
    ] {
        assert!(matches!(refused, Err(Error::Misfit { .. })));
    }
}

#[test]
fn parts_and_empty_buffers() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let pinned = Buffer::<u64, Pinned>::new(&gpu, 100).unwrap();
    assert_eq!(pinned.part(10..20).unwrap().bytes(), 80);
    assert!(pinned.part(90..101).is_none() && pinned.part(usize::MAX..usize::MAX).is_none());
    assert!(pinned.part(std::ops::Range { start: 5, end: 4 }).is_none());
    let none = Buffer::<u64, Device>::from_slice(&stream, &[]).unwrap();
    assert!(none.is_empty() && none.to_vec(&stream).unwrap().is_empty());
    Buffer::<u64, Pinned>::new(&gpu, 0).unwrap().read(0, &mut []).unwrap();
    assert!(matches!(Buffer::<u64, Pinned>::new(&gpu, usize::MAX), Err(Error::TooLarge { .. })));
    assert!(Capacity::now(Some(&gpu)).unwrap().device_bytes > 0);
}

#[test]
fn too_much_device_memory_is_an_error_to_shrink_on() {
    let Some(gpu) = gpu() else { return };
    let _alone = no_children();
    let why = Buffer::<u8, Device>::shareable(&gpu, gpu.facts().memory_bytes * 2).unwrap_err();
    assert!(why.is_out_of_memory() && matches!(why, Error::Cuda(_)), "{why}");
    assert_eq!(Buffer::<u8, Device>::shareable(&gpu, 1 << 20).unwrap().len(), 1 << 20);
}

#[test]
fn memory_of_others_is_laid_over() {
    let Some(_) = gpu() else { return };
    // In a process of its own, whose registrations are its own.
    in_child("device_memory::memory_of_others_is_laid_over", &[], lay_over_each_kind);
}

fn lay_over_each_kind() {
    let gpu = Gpu::open(0).unwrap();
    let stream = Stream::new(&gpu).unwrap();
    vector_kept_by_an_arc(&gpu, &stream);
    mapped_file(&gpu, &stream);
    let mut shared = SharedHost::create(10_000).unwrap();
    shared.write(0, &[1; 10_000]).unwrap();
    let span = shared.map_into(&gpu).unwrap();
    add(&stream, &span, 1).unwrap();
    // It waits for the kernel.
    let mut word = [0; 4];
    shared.read(9996, &mut word).unwrap();
    assert_eq!(word, [2, 1, 1, 1]);
    // The span keeps the mapping by itself.
    drop(shared);
    assert_eq!(words(&stream, &span)[0], 0x0101_0102);
    drop(span);
    let arena = pinned_arena(&gpu, 3 << 20).unwrap();
    assert!(words(&stream, &arena).iter().all(|word| *word == 0));
    drop(arena);
    assert_eq!(registry_use(), RegistryUse { chunks: 0, bytes: 0 });
}

fn vector_kept_by_an_arc(gpu: &Gpu, stream: &Stream) {
    // Long enough to have pages of its own, or it could share one with memory that the driver has pinned.
    let kept = Arc::new(vec![7u32; 100_000]);
    let start = std::ptr::NonNull::from(kept.as_slice()).cast();
    // SAFETY: the vector is held as the keeper, and the CPU reads it only when the GPU is done.
    let span = unsafe { lay_over(gpu, start, 400_000, kept.clone()) }.unwrap();
    assert_eq!(words(stream, &span), *kept);
    let weak = Arc::downgrade(&kept);
    drop(kept);
    assert!(weak.upgrade().is_some(), "the span keeps the vector");
    assert!(words(stream, &span).iter().all(|word| *word == 7));
    drop(span);
    assert!(weak.upgrade().is_none(), "and lets go of it");
}

fn mapped_file(gpu: &Gpu, stream: &Stream) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(12_000).unwrap();
    // SAFETY: nobody else has the file.
    let mut map = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
    map.fill(3);
    let kept = Arc::new(map);
    let start = std::ptr::NonNull::from(&kept[..]).cast();
    // SAFETY: the mapping is held as the keeper.
    let span = unsafe { lay_over(gpu, start, 12_000, kept) }.unwrap();
    assert_eq!(words(stream, &span), [0x0303_0303; 3000]);
    // Systems that do not let a device write a file's pages map them for reading, and then nothing may write them.
    if span.allocation().is_read_only() {
        let refused = add(stream, &span, 1).unwrap_err();
        assert!(refused.to_string().contains("mapped for reading"), "{refused}");
        assert!(stream.fill(&span, 0).is_err());
    } else {
        add(stream, &span, 1).unwrap();
        assert_eq!(words(stream, &span), [0x0303_0304; 3000]);
    }
}

#[test]
fn a_file_is_read_straight_into_pinned_memory() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    let content: Vec<u8> = (0..64 << 10).map(|i| (i % 253) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let file = Arc::new(IoFile::open(&path, &FileOptions::default()).unwrap());
    let mut buffer = Buffer::<u8, Pinned>::new(&gpu, content.len()).unwrap();
    for _ in 0..3 {
        // The GPU's last use of the buffer is over before the file is read into it.
        stream.fill(buffer.whole(), 0xFF).unwrap();
        let (read, bytes) = engine.read_exact_at(&file, 0, buffer).unwrap().into_result().unwrap();
        assert_eq!(bytes, content.len());
        let near = Buffer::<u8, Device>::on_stream(&stream, content.len()).unwrap();
        stream.copy(read.whole(), near.whole()).unwrap();
        assert_eq!(near.to_vec(&stream).unwrap(), content);
        add(&stream, read.whole(), 1).unwrap();
        let first = u32::from_le_bytes([0, 1, 2, 3]) + 1;
        assert_eq!(words(&stream, read.whole())[0], first);
        buffer = read;
    }
}

#[test]
fn a_mapping_is_zero_when_it_is_new() {
    // The arena of the device tests is this, so it stands beside them.
    assert_eq!(Mapping::anonymous(1 << 20).unwrap().bytes(), 1 << 20);
}

#[test]
fn large_arrays_go_there_and_back() {
    let Some(gpu) = gpu() else { return };
    let mut uploader = Uploader::new(&gpu, 40 << 20).unwrap();
    // None, less than a stage, exactly two of them, and two and a bit.
    for bytes in [0, 1000, 32 << 20, (32 << 20) + 12_345] {
        let from: Vec<u8> = (0..bytes).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect();
        let there = Span::whole(Allocation::shareable(&gpu, bytes).unwrap());
        uploader.copy(&from, &there).unwrap();
        uploader.wait().unwrap();
        let mut back = vec![0; bytes];
        uploader.bring_back(&there, &mut back).unwrap();
        assert!(back == from, "{bytes}");
    }
}
