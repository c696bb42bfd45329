//! Graphs: what is captured runs at replay and not before, and keeps what it needs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use headwater::cuda::{Allocation, Element, Error, Graph, Result, Span, Stream};

use crate::kernels::{CHECK_IDS, add, gpu, grid, step, words};

fn zeroed(stream: &Stream, bytes: usize) -> Span {
    let span = Span::whole(Allocation::on_stream(stream, bytes).unwrap());
    stream.fill(&span, 0).unwrap();
    // Loads the kernel: its first use cannot be captured.
    add(stream, &span, 0).unwrap();
    span
}

fn sure_it_works(stream: &Stream) {
    let data = zeroed(stream, 400);
    add(stream, &data, 0).unwrap();
    assert_eq!(words(stream, &data), [0; 100]);
}

#[test]
fn replays_run_again() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let data = zeroed(&stream, 4000);
    let mut graph = Graph::capture(&stream, |stream| {
        add(stream, &data, 0)?;
        stream.fill(&data.part(0, 4).unwrap(), 0)?;
        add(stream, &data, 0)
    })
    .unwrap();
    let mut adding =
        Graph::capture(&stream, |stream| add(stream, &data, 0).and_then(|()| add(stream, &data, 0))).unwrap();
    assert_eq!(words(&stream, &data), [0; 1000], "capturing runs nothing");
    stream.fill(&data, 1).unwrap();
    graph.launch(&stream).unwrap();
    adding.launch(&stream).unwrap();
    adding.launch(&stream).unwrap();
    let after = words(&stream, &data);
    assert_eq!(after[0], 0);
    assert!(after[1..].iter().all(|word| *word == 0x0101_0101));
}

#[test]
fn buffers_dropped_after_capture_stay() {
    let Some(gpu) = gpu() else { return };
    let (stream, other) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let (scratch, result) = (zeroed(&stream, 1 << 20), zeroed(&other, 1 << 20));
    add(&stream, &scratch, 3).unwrap();
    stream.wait_for(&other).unwrap();
    let mut graph = Graph::capture(&stream, |stream| {
        add(stream, &scratch, 3)?;
        stream.copy(&scratch, &result)
    })
    .unwrap();
    drop(scratch);
    // Memory that was free would be handed out and overwritten here.
    let others: Vec<Span> = (0..4).map(|_| zeroed(&stream, 1 << 20)).collect();
    graph.launch(&stream).unwrap();
    graph.launch(&stream).unwrap();
    assert!(words(&stream, &result).iter().all(|word| *word == 9));
    for span in &others {
        assert!(words(&stream, span).iter().all(|word| *word == 0));
    }
    graph.launch(&stream).unwrap();
    drop(graph);
    stream.synchronize().unwrap();
}

#[test]
fn a_second_stream_that_joins_is_captured_and_its_buffers_kept() {
    let Some(gpu) = gpu() else { return };
    let (stream, side) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let (data, aside) = (zeroed(&stream, 4000), zeroed(&side, 4000));
    add(&stream, &data, 2).unwrap();
    stream.synchronize().unwrap();
    side.synchronize().unwrap();
    let copy = zeroed(&stream, 4000);
    let mut graph = Graph::capture(&stream, |stream| {
        side.wait_for(stream)?;
        side.copy(&data, &aside)?;
        add(&side, &aside, 2)?;
        stream.wait_for(&side)?;
        stream.copy(&aside, &copy)
    })
    .unwrap();
    drop(aside);
    let others: Vec<Span> = (0..4).map(|_| zeroed(&side, 4000)).collect();
    side.synchronize().unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(words(&stream, &copy), [4; 1000]);
    assert!(others.iter().all(|span| words(&side, span) == [0; 1000]));
    // The side stream is out of the capture.
    sure_it_works(&side);
}

#[test]
fn a_buffer_dropped_during_the_capture_does_not_break_it() {
    let Some(gpu) = gpu() else { return };
    let (stream, other) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let data = zeroed(&stream, 4000);
    let (home, foreign) = (zeroed(&stream, 4000), zeroed(&other, 4000));
    stream.wait_for(&other).unwrap();
    add(&stream, &foreign, 0).unwrap();
    let mut graph = Graph::capture(&stream, |stream| {
        drop((home, foreign));
        add(stream, &data, 0)
    })
    .unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(words(&stream, &data), [0; 1000]);
    drop(graph);
    sure_it_works(&stream);
    sure_it_works(&other);
}

#[test]
fn a_capture_inside_a_capture_is_refused() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let data = zeroed(&stream, 400);
    let mut inner = None;
    let graph = Graph::capture(&stream, |stream| {
        inner = Some(Graph::capture(stream, |_| Ok(())).unwrap_err());
        add(stream, &data, 0)
    });
    assert!(matches!(inner, Some(Error::Unsupported { what: "a capture", .. })), "{inner:?}");
    graph.unwrap().launch(&stream).unwrap();
    sure_it_works(&stream);
}

#[test]
fn work_that_fails_leaves_the_stream_usable() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let data = zeroed(&stream, 400);
    let fails = |_: &Stream| -> Result<()> { Err(Error::Unsupported { what: "this", why: "a test".into() }) };
    let after_work = |stream: &Stream| add(stream, &data, 0).and_then(|()| fails(stream));
    for outcome in [Graph::capture(&stream, fails), Graph::capture(&stream, after_work)] {
        assert!(matches!(outcome, Err(Error::Unsupported { what: "this", .. })));
        sure_it_works(&stream);
    }
    // Waiting inside invalidates the capture, which the driver says in its own words.
    let waiting = Graph::capture(&stream, |stream| stream.synchronize());
    assert!(matches!(waiting, Err(Error::Driver { .. })), "{waiting:?}");
    sure_it_works(&stream);
    let panics = catch_unwind(AssertUnwindSafe(|| {
        Graph::capture::<headwater_cuda::Error>(&stream, |_| panic!("in the middle of a capture"))
    }));
    assert!(panics.is_err());
    sure_it_works(&stream);
}

#[test]
fn a_fault_in_a_replay_is_the_replaying_streams() {
    let Some(gpu) = gpu() else { return };
    let (recorder, player) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let ids = Span::whole(Allocation::shareable(&gpu, 8).unwrap());
    recorder.fill(&ids, 0).unwrap();
    let defines = step(1);
    let check = |stream: &Stream| CHECK_IDS.on(stream, &defines, grid(1)).buffer(&ids, Element::I64).u64(1).u64(5).go();
    check(&recorder).unwrap();
    recorder.synchronize().unwrap();
    let mut graph = Graph::capture(&recorder, check).unwrap();
    // The recorded kernel reports to a cell of the stream that is gone now.
    drop(recorder);
    graph.launch(&player).unwrap();
    player.synchronize().unwrap();
    player.fill(&ids, 1).unwrap();
    graph.launch(&player).unwrap();
    drop(graph);
    let fault = player.synchronize().unwrap_err();
    assert!(matches!(fault, Error::Fault { value: 0x0101_0101_0101_0101, limit: 5, .. }), "{fault}");
    player.synchronize().unwrap();
}
