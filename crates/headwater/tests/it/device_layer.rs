//! Streams, events, allocations and copies, as the rest of Headwater relies on them.

use std::path::PathBuf;
use std::sync::Arc;

use headwater::cuda::{Allocation, Bandwidths, Error, Event, Gpu, GreenContext, SmShare, Span, Stream};

use crate::child::{in_child, no_children};
use crate::emulator;
use crate::kernels::{CHECK_IDS, add, gpu, grid, step, words};

fn on(stream: &Stream, bytes: usize) -> Span {
    Span::whole(Allocation::on_stream(stream, bytes).unwrap())
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i * 7 + seed * 13) % 251) as u8).collect()
}

#[test]
fn copies_of_every_length_and_offset() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let (near, pinned) = (on(&stream, 400), Span::whole(Allocation::pinned(&gpu, 400).unwrap()));
    for length in 0..300 {
        let offset = length * 31 % 100;
        let (there, back) = (near.part(offset, length).unwrap(), pinned.part(99 - offset, length).unwrap());
        let data = pattern(length, offset);
        stream.fill(&near, 0xEE).unwrap();
        stream.upload(&data, &there).unwrap();
        stream.copy(&there, &back).unwrap();
        let mut read = vec![0; length];
        stream.download(&back, &mut read).unwrap();
        assert_eq!(read, data, "{length} bytes at {offset}");
        let mut all = vec![0; 400];
        stream.download(&near, &mut all).unwrap();
        assert!(all[..offset].iter().chain(&all[offset + length..]).all(|byte| *byte == 0xEE), "around {offset}");
    }
}

#[test]
fn lengths_that_differ_and_parts_that_leave_are_refused() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream().unwrap();
    let span = on(stream, 10);
    assert!(matches!(stream.upload(&[0; 9], &span), Err(Error::Unsupported { .. })));
    assert!(matches!(stream.download(&span, &mut [0; 11]), Err(Error::Unsupported { .. })));
    assert!(matches!(stream.copy(&span, &span.part(0, 5).unwrap()), Err(Error::Unsupported { .. })));
    assert!(span.part(5, 6).is_none() && span.part(usize::MAX, 2).is_none());
    assert_eq!(span.part(10, 0).unwrap().bytes(), 0);
}

#[test]
fn events_order_streams_and_measure_them() {
    let Some(gpu) = gpu() else { return };
    let (first, second) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let data = on(&first, 1 << 20);
    let (start, end) = (Event::timed(&gpu).unwrap(), Event::timed(&gpu).unwrap());
    start.record_on(&first).unwrap();
    first.fill(&data, 0).unwrap();
    for _ in 0..20 {
        // Each stream waits for the other, so the additions happen one after another.
        add(&first, &data, 1).unwrap();
        second.wait_for(&first).unwrap();
        add(&second, &data, 2).unwrap();
        first.wait(&second.record().unwrap()).unwrap();
    }
    end.record_on(&first).unwrap();
    end.synchronize().unwrap();
    assert!(start.has_passed().unwrap() && end.has_passed().unwrap());
    assert!(end.ms_since(&start).unwrap() >= 0.0);
    assert!(words(&first, &data).iter().all(|word| *word == 60));
    assert!(first.is_idle().unwrap());
    assert!(first.same_as(&first.clone()) && !first.same_as(&second));
    // An event for ordering only cannot be timed.
    assert!(matches!(end.ms_since(&first.record().unwrap()), Err(Error::Driver { .. })));
}

#[test]
fn a_buffer_dropped_early_is_freed_after_its_last_use() {
    let Some(gpu) = gpu() else { return };
    let (home, guest) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let bytes = 2 << 20;
    let results: Vec<Span> = (0..8u8)
        .map(|round| {
            let (data, result) = (on(&home, bytes), on(&guest, bytes));
            home.fill(&data, round).unwrap();
            guest.wait_for(&home).unwrap();
            add(&guest, &data, 1).unwrap();
            guest.copy(&data, &result).unwrap();
            // The next round's allocation may get this memory, and must not touch it before the copy is done.
            result
        })
        .collect();
    for (round, result) in results.iter().enumerate() {
        let expected = u32::from_le_bytes([round as u8; 4]) + 1;
        assert!(words(&guest, result).iter().all(|word| *word == expected), "round {round}");
    }
}

#[test]
fn two_threads_that_wait_for_one_buffer_both_wait() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let host = Span::whole(Allocation::pinned(&gpu, 4 << 20).unwrap());
    for round in 1..20u8 {
        stream.fill(&host, round).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    host.allocation().wait_until_unused().unwrap();
                    // SAFETY: inside the allocation, and the GPU is done with it.
                    let last = unsafe { host.host_pointer().unwrap().add(host.bytes() - 1).read_volatile() };
                    assert_eq!(last, round);
                });
            }
        });
    }
    assert!(!host.allocation().has_users());
}

#[test]
fn memory_behind_an_event_that_passed_is_not_waited_for() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let host = Span::whole(Allocation::pinned(&gpu, 4096).unwrap());
    let is_emulated = emulator::live(c"driver_calls").is_some();
    let other = on(&stream, if is_emulated { 4096 } else { 1 << 30 });
    stream.fill(&host, 7).unwrap();
    let event = stream.record().unwrap();
    (0..100).for_each(|_| stream.fill(&other, 1).unwrap());
    event.synchronize().unwrap();
    let calls = emulator::live(c"driver_calls");
    host.allocation().wait_until_unused().unwrap();
    // Other tests of this process call the emulated driver too, unless each has a process of its own.
    if is_emulated && std::env::var_os("NEXTEST").is_some() {
        assert_eq!(emulator::live(c"driver_calls"), calls, "the driver was asked to wait");
    }
    assert!(is_emulated || !stream.is_idle().unwrap(), "everything on the stream was waited for");
    assert!(!host.allocation().has_users());
    // What was queued after the event is.
    stream.fill(&host, 9).unwrap();
    assert!(event.has_passed().unwrap());
    host.allocation().wait_until_unused().unwrap();
    // SAFETY: inside the allocation, and the GPU is done with it.
    assert_eq!(unsafe { host.host_pointer().unwrap().add(host.bytes() - 1).read_volatile() }, 9);
}

#[test]
fn a_fault_is_reported_once() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let check = |ids: &[i64], rows: u64| {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let span = on(&stream, bytes.len());
        stream.upload(&bytes, &span).unwrap();
        let defines = step(1);
        let launch = CHECK_IDS.on(&stream, &defines, grid(ids.len()));
        launch.buffer(&span, headwater::cuda::Element::I64).u64(ids.len() as u64).u64(rows).go().unwrap();
    };
    check(&[0, 1, 9], 10);
    stream.synchronize().unwrap();
    check(&[0, 1, 10], 10);
    let fault = stream.synchronize().unwrap_err();
    assert!(matches!(fault, Error::Fault { code: 1, position: 2, value: 10, limit: 10 }), "{fault}");
    assert!(fault.to_string().contains("id 10 at position 2"), "{fault}");
    stream.synchronize().unwrap();
    check(&[5, -1], 10);
    assert!(matches!(stream.synchronize(), Err(Error::Fault { position: 1, value: -1, .. })));
    check(&[3], 10);
    stream.synchronize().unwrap();
}

#[test]
fn a_share_of_the_multiprocessors() {
    let Some(gpu) = gpu() else { return };
    let sms = gpu.facts().sms;
    assert_eq!(SmShare::All.sms(sms), sms);
    assert_eq!(SmShare::AtMost(4).sms(sms), 4.min(sms));
    let blocks = crate::kernels::ADD_STEP.blocks_per_sm(&gpu, &step(1), grid(128)).unwrap();
    assert!(blocks >= 1);
}

#[test]
fn a_green_context_where_there_is_one() {
    let Some(gpu) = gpu() else { return };
    let green = match GreenContext::new(&gpu, 8) {
        Ok(green) => green,
        Err(why) => return eprintln!("no green contexts: skipped ({why})"),
    };
    assert!(green.sms() >= 8 && green.sms() <= gpu.facts().sms);
    let stream = green.stream().unwrap();
    // The stream keeps its green context.
    drop(green);
    let data = on(&stream, 4000);
    stream.fill(&data, 0).unwrap();
    add(&stream, &data, 3).unwrap();
    assert_eq!(words(&stream, &data), [3; 1000]);
    let too_many = GreenContext::new(&gpu, gpu.facts().sms + 1).unwrap_err();
    assert!(matches!(too_many, Error::Unsupported { .. }), "{too_many}");
}

#[test]
fn no_green_contexts() {
    if !emulator::here() {
        return;
    }
    in_child("device_layer::no_green_contexts", &[("HWEMU_NO_GREEN", "1")], || {
        let why = GreenContext::new(&Gpu::open(0).unwrap(), 8).unwrap_err();
        assert!(matches!(why, Error::Unsupported { what: "a green context", .. }), "{why}");
    });
}

#[test]
fn memory_runs_out_with_the_numbers_and_comes_back() {
    let Some(gpu) = gpu() else { return };
    let _alone = no_children();
    let stream = Stream::new(&gpu).unwrap();
    let too_many = gpu.facts().memory_bytes * 2;
    for outcome in [Allocation::on_stream(&stream, too_many), Allocation::shareable(&gpu, too_many)] {
        let why = outcome.unwrap_err();
        let Error::OutOfMemory { what, asked_bytes, free_bytes, total_bytes } = why else { panic!("{why}") };
        assert_eq!((what, asked_bytes, total_bytes), ("device memory", too_many, gpu.memory().unwrap().total_bytes));
        assert!(free_bytes <= total_bytes);
    }
    let small = on(&stream, 1000);
    stream.fill(&small, 1).unwrap();
    assert_eq!(words(&stream, &small), [0x0101_0101; 250]);
    drop(small);
    gpu.trim(0).unwrap();
}

#[test]
fn bandwidths_are_measured_and_remembered() {
    let Some(gpu) = gpu() else { return };
    let measured = Bandwidths::measure_with(&gpu, 1 << 20).unwrap();
    let rates = [
        measured.host_to_device_gb_per_s,
        measured.device_to_host_gb_per_s,
        measured.device_gb_per_s,
        measured.zero_copy_gb_per_s,
        measured.device_latency_ns,
    ];
    assert!(rates.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{measured:?}");
    let folder = tempfile::tempdir().unwrap();
    // A child that is told of a figure finds that one; each finds the same twice, with a folder and without.
    let run = |folder: &str, told: &str| {
        let changes = [("HEADWATER_CACHE", folder), ("TOLD_GB_PER_S", told), ("HWEMU_DEVICE_BYTES", "8388608")];
        in_child("device_layer::bandwidths_are_measured_and_remembered", &changes, || {
            let gpu = Gpu::open(0).unwrap();
            let first = Bandwidths::of(&gpu).unwrap();
            // Two measurements never agree to the last digit; two readings of one record do.
            assert_eq!(Bandwidths::of(&gpu).unwrap(), first);
            let told = std::env::var("TOLD_GB_PER_S").unwrap_or_default();
            assert!(told.is_empty() || told.parse() == Ok(first.device_gb_per_s), "{told}: {first:?}");
        });
    };
    run("", "");
    if crate::child::role().is_some() {
        return;
    }
    let cache = folder.path().to_str().unwrap();
    run(cache, "");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let is_record = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("bandwidth-");
    let records: Vec<PathBuf> = files.filter(is_record).collect();
    assert!(records.len() == 1 && records[0].extension() == Some("json".as_ref()), "{records:?}");
    let record = std::fs::read_to_string(&records[0]).unwrap();
    let (front, behind) = record.split_once("\"device_gb_per_s\":").unwrap();
    let behind = behind.split_once(',').unwrap().1;
    std::fs::write(&records[0], format!("{front}\"device_gb_per_s\":12.5,{behind}")).unwrap();
    run(cache, "12.5");
}

#[test]
fn a_foreign_stream_can_be_dropped_while_it_works() {
    let Some(gpu) = gpu() else { return };
    let data = Span::whole(Allocation::shareable(&gpu, 4000).unwrap());
    for _ in 0..3 {
        // SAFETY: null is the legacy default stream, which is always there.
        let legacy = unsafe { Stream::foreign(&gpu, std::ptr::null_mut()) }.unwrap();
        legacy.fill(&data, 1).unwrap();
        add(&legacy, &data, 1).unwrap();
    }
    // SAFETY: as above.
    let legacy = unsafe { Stream::foreign(&gpu, std::ptr::null_mut()) }.unwrap();
    assert_eq!(words(&legacy, &data), [0x0101_0102; 1000]);
    assert_eq!(Arc::strong_count(data.allocation()), 1);
}
