//! Streams that somebody else records, as torch does: by the driver's own functions, in the mode that forbids most.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use super::device::gpu;
use crate::types::{CUgraph, CUgraphExec};
use crate::{Allocation, Error, Gpu, Graph, Span, Stream};

const GLOBAL: c_int = 0;

/// A graph of somebody else's.
struct Theirs {
    gpu: Gpu,
    graph: CUgraph,
    executable: CUgraphExec,
}

impl Theirs {
    fn record(stream: &Stream, work: impl FnOnce()) -> Self {
        let gpu = stream.gpu().clone();
        let (mut graph, mut executable) = (null_mut(), null_mut());
        let driver = gpu.bind().unwrap();
        // SAFETY: the stream is live, and is ended below.
        assert_eq!(unsafe { (driver.cuStreamBeginCapture_v2)(stream.raw(), GLOBAL) }, 0);
        assert!(stream.is_recorded());
        work();
        // SAFETY: writes one handle each.
        unsafe {
            assert_eq!((driver.cuStreamEndCapture)(stream.raw(), &raw mut graph), 0, "the capture was broken");
            assert_eq!((driver.cuGraphInstantiateWithFlags)(&raw mut executable, graph, 0), 0);
        }
        drop(driver);
        assert!(!stream.is_recorded());
        Self { gpu, graph, executable }
    }

    fn replay(&self, stream: &Stream) {
        let driver = self.gpu.bind().unwrap();
        // SAFETY: both handles are live.
        assert_eq!(unsafe { (driver.cuGraphLaunch)(self.executable, stream.raw()) }, 0);
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let driver = self.gpu.bind().unwrap();
        // SAFETY: ours alone.
        unsafe {
            (driver.cuGraphDestroy)(self.graph);
            (driver.cuGraphExecDestroy)(self.executable);
        }
    }
}

#[test]
fn memory_lives_as_long_as_the_graph_that_somebody_else_records() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let out = Span::whole(Allocation::on_stream(&stream, 64).unwrap());
    let mut watched = None;
    let theirs = Theirs::record(&stream, || {
        stream
            .queue_recorded::<Error>(|stream| {
                let own = Span::whole(Allocation::shareable(stream.gpu(), 64)?);
                watched = Some(Arc::downgrade(own.allocation()));
                stream.fill(&own, 7)?;
                stream.copy(&own, &out)
            })
            .unwrap();
    });
    let is_there = || watched.as_ref().is_some_and(|own| own.strong_count() > 0);
    let mut found = [0u8; 64];
    for _ in 0..2 {
        stream.fill(&out, 0).unwrap();
        theirs.replay(&stream);
        stream.download(&out, &mut found).unwrap();
        assert_eq!(found, [7; 64]);
    }
    assert!(is_there());
    drop(theirs);
    // The next who allocates frees it. A driver may take a moment to say that the graph is gone.
    for _ in 0..200 {
        drop(Allocation::on_stream(&stream, 64).unwrap());
        if !is_there() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the memory of a graph that is gone is still there");
}

#[test]
fn memory_that_goes_while_its_stream_is_recorded_breaks_no_capture() {
    let Some(gpu) = gpu() else { return };
    let [stream, other] = std::array::from_fn(|_| Stream::new(&gpu).unwrap());
    let used = Span::whole(Allocation::shareable(&gpu, 64).unwrap());
    stream.fill(&used, 1).unwrap();
    let of_it = Span::whole(Allocation::on_stream(&stream, 64).unwrap());
    let beside = Span::whole(Allocation::on_stream(&other, 64).unwrap());
    stream.wait_for(&other).unwrap();
    stream.fill(&beside, 2).unwrap();
    drop(Theirs::record(&stream, || drop((used, of_it, beside))));
    // Nothing of it is left once somebody allocates.
    drop(Allocation::on_stream(&stream, 64).unwrap());
    stream.synchronize().unwrap();
}

#[test]
fn a_stream_may_be_met_first_while_it_is_recorded() {
    let Some(gpu) = gpu() else { return };
    let mut raw = null_mut();
    let driver = gpu.bind().unwrap();
    // SAFETY: writes one handle, which is never destroyed.
    assert_eq!(unsafe { (driver.cuStreamCreateWithPriority)(&raw mut raw, 1, 0) }, 0);
    // SAFETY: as above; both are ended below.
    unsafe {
        assert_eq!((driver.cuStreamBeginCapture_v2)(raw, GLOBAL), 0);
        assert!(Stream::foreign(&gpu, raw.cast()).unwrap().is_recorded());
        let mut graph = null_mut();
        assert_eq!((driver.cuStreamEndCapture)(raw, &raw mut graph), 0, "the capture was broken");
        (driver.cuGraphDestroy)(graph);
    }
}

#[test]
fn one_handle_is_another_stream_in_every_thread() {
    let Some(gpu) = gpu() else { return };
    // SAFETY: these are never destroyed.
    let of = |handle: usize| unsafe { Stream::foreign(&gpu, std::ptr::without_provenance_mut(handle)) }.unwrap();
    assert_eq!([0, 1, 2].map(|handle| of(handle).is_of_thread()), [false, false, true]);
    assert!(!gpu.stream().unwrap().is_of_thread());
}

#[test]
fn a_graph_keeps_no_memory_that_it_was_lent() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let (lent, own) = (
        Span::whole(Allocation::on_stream(&stream, 64).unwrap()),
        Span::whole(Allocation::on_stream(&stream, 64).unwrap()),
    );
    let mut graph = Graph::capture_over::<Error>(stream.recorder().unwrap(), std::slice::from_ref(&lent), |stream| {
        stream.fill(&own, 3)?;
        stream.copy(&own, &lent)
    })
    .unwrap();
    let watched = [&lent, &own].map(|span| Arc::downgrade(span.allocation()));
    drop(own);
    graph.launch_over(&stream, std::slice::from_ref(&lent)).unwrap();
    let mut found = [0u8; 64];
    stream.download(&lent, &mut found).unwrap();
    assert_eq!(found, [3; 64]);
    let elsewhere = Span::whole(Allocation::on_stream(&stream, 64).unwrap());
    for wrong in [&[][..], &[elsewhere], &[lent.part(0, 32).unwrap()], &[lent.clone(), lent.clone()]] {
        assert!(graph.launch_over(&stream, wrong).unwrap_err().to_string().contains("does not lie where it lay"));
    }
    assert!(graph.launch(&stream).is_err());
    drop(lent);
    assert_eq!(watched.map(|memory| memory.strong_count()), [0, 1]);
}
