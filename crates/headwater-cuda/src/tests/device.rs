//! On a GPU, or on the emulator.

use std::sync::Arc;
use std::time::Duration;

use crate::cublas::{Gemm, GemmOperand, GemmType};
use crate::gpu::lock;
use crate::{Allocation, Error, Gpu, Graph, Launched, RegisteredParts, Span, Stream};

pub(super) fn gpu() -> Option<Gpu> {
    Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()
}

/// A number that another thread's higher one could be overwritten by would let a waiter take a use for over that is not: it must
/// be given under the lock of the list that it goes into.
#[test]
fn numbers_of_uses_never_fall() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let span = Span::whole(Allocation::shareable(&gpu, 64).unwrap());
    std::thread::scope(|scope| {
        let uses = lock(&span.allocation().uses);
        scope.spawn(|| span.note_use(&stream));
        // Long enough for the thread to come to the lock.
        std::thread::sleep(Duration::from_millis(100));
        // Another use, of other memory, comes meanwhile.
        let other = Span::whole(Allocation::shareable(&gpu, 64).unwrap());
        other.note_use(&stream);
        let between = lock(&other.allocation().uses)[0].number;
        drop(uses);
        while lock(&span.allocation().uses).is_empty() {
            std::thread::yield_now();
        }
        assert!(lock(&span.allocation().uses)[0].number > between);
    });
}

/// Memory that goes back to a stream's scratch is handed out again at once, so a use that could not be ordered must stay noted.
#[test]
fn uses_stay_noted_where_one_cannot_be_waited_for() {
    let Some(gpu) = gpu() else { return };
    let [one, other, third] = std::array::from_fn(|_| Stream::new(&gpu).unwrap());
    let span = Span::whole(Allocation::shareable(&gpu, 64).unwrap());
    let memory = span.allocation();
    // A stream of one capture cannot wait for a stream of another.
    let captured = Graph::capture(&one, |one| {
        one.fill(&span, 1)?;
        span.note_use(&third);
        let inner = Graph::capture(&other, |other| {
            assert!(memory.settle_on(other).is_err());
            Ok::<_, Error>(())
        });
        assert_eq!(lock(&memory.uses).len(), 2, "neither was waited for");
        inner.map(drop)
    });
    drop(captured);
    memory.settle_on(&third).unwrap();
    assert_eq!(lock(&memory.uses).len(), 0);
}

#[test]
fn products_that_would_race_are_refused() {
    let Some(gpu) = gpu() else { return };
    // SAFETY: nothing is launched on it.
    let memory = unsafe { Allocation::lent(&gpu, 1 << 20, 4096, Arc::new(())) };
    let all = Span::whole(memory);
    let at = |offset: usize| GemmOperand {
        span: all.part(offset, 4096 - offset).unwrap(),
        row_stride: 4,
        transposed: false,
        batch_stride: 16,
    };
    let (rows, columns, inner, element) = (4, 4, 4, GemmType::F32);
    let good = Gemm { element, rows, columns, inner, batch: 3, a: at(0), b: at(256), c: at(512) };
    good.check().unwrap();
    // Side by side in rows of all of them.
    let beside = GemmOperand { row_stride: 12, batch_stride: 4, ..at(512) };
    Gemm { c: beside.clone(), ..good.clone() }.check().unwrap();
    let read_only = RegisteredParts { read_only: true, ..RegisteredParts::default() };
    let pinned = Allocation::pinned(&gpu, 4096).unwrap();
    let start = Span::whole(pinned.clone()).host_pointer().unwrap();
    // SAFETY: pinned by the driver, and held.
    let lent = unsafe { Allocation::borrowed(&gpu, start, 4096, read_only, pinned) }.unwrap();
    for (why, bad) in [
        ("shorter", Gemm { a: GemmOperand { span: all.part(0, 60).unwrap(), ..at(0) }, ..good.clone() }),
        ("over an operand", Gemm { c: at(0), ..good.clone() }),
        ("over an operand", Gemm { c: at(188), ..good.clone() }),
        ("over an operand", Gemm { b: at(4), c: at(192), ..good.clone() }),
        ("over each other", Gemm { c: GemmOperand { batch_stride: 0, ..at(512) }, ..good.clone() }),
        ("over each other", Gemm { c: GemmOperand { batch_stride: 3, ..beside.clone() }, ..good.clone() }),
        ("over each other", Gemm { c: GemmOperand { row_stride: 11, ..beside }, ..good.clone() }),
        ("between two elements", Gemm { c: at(514), ..good.clone() }),
        ("for reading", Gemm { c: GemmOperand { span: Span::whole(lent), ..at(512) }, ..good.clone() }),
    ] {
        let said = bad.check().unwrap_err().to_string();
        assert!(said.contains(why), "{why}: {said}");
    }
}

/// Parts without an order between them and one behind both; what is captured behind all of them waits for the last.
#[test]
fn parts_of_a_capture_wait_for_those_that_they_name() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    assert!(stream.branches().unwrap().is_none(), "nothing is captured");
    let [one, both, out] = [64, 128, 128].map(|bytes| Span::whole(Allocation::shareable(&gpu, bytes).unwrap()));
    let (left, right) = (both.part(0, 64).unwrap(), both.part(64, 64).unwrap());
    let graph = Graph::capture(&stream, |stream| {
        stream.fill(&one, 1)?;
        let Some(mut branches) = stream.branches()? else { return Ok(()) };
        branches.part(&[], Launched::After, || stream.copy(&one, &left))?;
        branches.part(&[], Launched::After, || stream.fill(&right, 2))?;
        branches.part(&[], Launched::After, || Ok::<_, Error>(()))?;
        branches.part(&[0, 1], Launched::After, || stream.copy(&both, &out))?;
        branches.join()?;
        stream.fill(&both, 3)
    });
    let mut graph = graph.unwrap();
    for _ in 0..3 {
        graph.launch(&stream).unwrap();
        let (mut found, mut after) = ([0; 128], [0; 128]);
        stream.download(&out, &mut found).unwrap();
        stream.download(&both, &mut after).unwrap();
        assert_eq!((&found[..64], &found[64..], after), (&[1; 64][..], &[2; 64][..], [3; 128]));
    }
}
