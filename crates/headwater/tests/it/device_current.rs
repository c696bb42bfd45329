//! The GPU that a thread has chosen, and streams that others make: calls leave both as they found them.

use std::ffi::c_void;
use std::ptr::null_mut;

use headwater::cuda::{Allocation, Event, Gpu, Graph, GreenContext, PassingStream, Registration, Span, Stream};

use crate::child::in_child;
use crate::emulator;
use crate::kernels::{add, gpu, words};

/// The driver as another library in the process has it.
struct Driver(libloading::Library);

impl Driver {
    fn new() -> Self {
        // SAFETY: the driver is loaded already.
        Self(emulator::library().unwrap_or_else(|| unsafe { libloading::Library::new("libcuda.so.1") }.unwrap()))
    }

    fn set(&self, context: *mut c_void) {
        // SAFETY: the function's type in the driver API's documentation.
        let set = unsafe { self.0.get::<unsafe extern "C" fn(*mut c_void) -> i32>(b"cuCtxSetCurrent") }.unwrap();
        // SAFETY: null, or a context that stays.
        assert_eq!(unsafe { set(context) }, 0);
    }

    fn current(&self) -> *mut c_void {
        let mut context = null_mut();
        // SAFETY: as above; writes one pointer.
        let code = unsafe {
            (self.0.get::<unsafe extern "C" fn(*mut *mut c_void) -> i32>(b"cuCtxGetCurrent").unwrap())(&raw mut context)
        };
        assert_eq!(code, 0);
        context
    }

    fn make_stream(&self) -> *mut c_void {
        type Make = unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> i32;
        let mut stream = null_mut();
        // SAFETY: as above; writes one pointer.
        let code = unsafe { (self.0.get::<Make>(b"cuStreamCreateWithPriority").unwrap())(&raw mut stream, 1, 0) };
        assert_eq!(code, 0);
        stream
    }

    fn destroy_stream(&self, stream: *mut c_void) {
        // SAFETY: the stream is live and nobody uses it any more.
        let code =
            unsafe { (self.0.get::<unsafe extern "C" fn(*mut c_void) -> i32>(b"cuStreamDestroy_v2").unwrap())(stream) };
        assert_eq!(code, 0);
    }
}

#[test]
fn calls_leave_the_current_gpu_as_it_was() {
    let Some(_) = gpu() else { return };
    in_child("device_current::calls_leave_the_current_gpu_as_it_was", &[("HWEMU_DEVICES", "2")], || {
        let gpus: Vec<Gpu> = (0..Gpu::count().unwrap()).map(|at| Gpu::open(at).unwrap()).collect();
        let driver = Driver::new();
        driver.set(null_mut());
        let contexts: Vec<*mut c_void> = gpus
            .iter()
            .map(|gpu| {
                let held = gpu.make_current().unwrap();
                let context = driver.current();
                drop(held);
                assert!(!context.is_null() && driver.current().is_null(), "it goes back to none");
                context
            })
            .collect();
        for chosen in contexts.iter().copied().chain([null_mut()]) {
            driver.set(chosen);
            for gpu in &gpus {
                let check = |what: &str| assert_eq!(driver.current(), chosen, "after {what} on {gpu:?}");
                everything(gpu, &check);
                check("dropping all of it");
            }
        }
    });
}

/// Most of what this crate does, one call after the other.
fn everything(gpu: &Gpu, check: &dyn Fn(&str)) {
    gpu.memory().unwrap();
    check("memory");
    gpu.synchronize().unwrap();
    gpu.trim(0).unwrap();
    check("trim");
    let (stream, event) = (Stream::new(gpu).unwrap(), Event::timed(gpu).unwrap());
    check("making a stream");
    let near = Span::whole(Allocation::on_stream(&stream, 64).unwrap());
    let other = Span::whole(Allocation::shareable(gpu, 64).unwrap());
    let pinned = Span::whole(Allocation::pinned(gpu, 64).unwrap());
    check("allocating");
    stream.fill(&near, 0).unwrap();
    stream.copy(&near, &other).unwrap();
    stream.upload(&[0; 64], &pinned).unwrap();
    add(&stream, &near, 1).unwrap();
    check("launching");
    event.record_on(&stream).unwrap();
    stream.wait(&event).unwrap();
    assert_eq!(words(&stream, &near)[0], 1);
    stream.synchronize().unwrap();
    assert!(stream.is_idle().unwrap() && event.has_passed().unwrap());
    check("waiting");
    let mut graph = Graph::capture(&stream, |stream| stream.fill(&other, 3)).unwrap();
    graph.launch(&stream).unwrap();
    check("a graph");
    drop(graph);
    check("dropping a graph");
    let green = GreenContext::new(gpu, 8).and_then(|green| green.stream());
    check("a green context");
    drop(green);
    check("dropping a green context");
    let mut page = vec![0u8; 8192];
    let start = std::ptr::NonNull::new(page.as_mut_ptr()).unwrap();
    // SAFETY: the vector lives longer.
    drop(unsafe { Registration::new(gpu, start, 4096) });
    check("registering");
    drop((near, other, pinned, event));
    check("dropping memory");
    drop(gpu.spare_stream().unwrap());
    drop(stream);
}

/// A thread that holds its GPU pays one question a call.
#[test]
fn a_call_that_finds_its_gpu_current_asks_once() {
    let Some(gpu) = gpu() else { return };
    if !emulator::here() {
        return;
    }
    in_child("device_current::a_call_that_finds_its_gpu_current_asks_once", &[], || {
        let gpu = Gpu::open(0).unwrap();
        let calls = |work: &dyn Fn()| {
            let before = emulator::live(c"driver_calls").unwrap();
            work();
            emulator::live(c"driver_calls").unwrap() - before
        };
        let synchronize = || gpu.synchronize().unwrap();
        assert_eq!(calls(&synchronize), 4, "ask, enter, do, leave");
        let _held = gpu.make_current().unwrap();
        assert_eq!(calls(&synchronize), 2, "ask, do");
    });
    drop(gpu);
}

/// A stream that its owner destroys behind a call is not asked about afterwards, however long memory that it worked on stays.
#[test]
fn a_stream_may_be_destroyed_behind_the_call_that_used_it() {
    let Some(gpu) = gpu() else { return };
    let driver = Driver::new();
    let _held = gpu.make_current().unwrap();
    let data = Span::whole(Allocation::shareable(&gpu, 4000).unwrap());
    for round in 1..4 {
        let theirs = driver.make_stream();
        // SAFETY: destroyed behind the block.
        let own = unsafe { PassingStream::new(&gpu, theirs) }.unwrap();
        own.fill(&data, 1).unwrap();
        (0..round).for_each(|_| add(&own, &data, 1).unwrap());
        let scratch = own.scratch(100).unwrap();
        own.fill(&scratch, 0).unwrap();
        drop((scratch, own));
        driver.destroy_stream(theirs);
        data.allocation().wait_until_unused().unwrap();
        assert_eq!(words(gpu.stream().unwrap(), &data), [0x0101_0101 + round; 1000]);
    }
    drop(data);
}

/// What is queued on their stream afterwards comes behind, and what was queued before comes first.
#[test]
fn work_for_a_passing_stream_is_in_its_order() {
    let Some(gpu) = gpu() else { return };
    let before = Stream::new(&gpu).unwrap();
    let driver = Driver::new();
    let _held = gpu.make_current().unwrap();
    let raw = driver.make_stream();
    let data = Span::whole(Allocation::shareable(&gpu, 4000).unwrap());
    before.fill(&data, 0).unwrap();
    before.synchronize().unwrap();
    for _ in 0..20 {
        // SAFETY: destroyed at the end.
        let own = unsafe { PassingStream::new(&gpu, raw) }.unwrap();
        add(&own, &data, 1).unwrap();
    }
    // SAFETY: as above.
    let last = unsafe { PassingStream::new(&gpu, raw) }.unwrap();
    assert_eq!(words(&last, &data), [20; 1000]);
    drop(last);
    driver.destroy_stream(raw);
}
