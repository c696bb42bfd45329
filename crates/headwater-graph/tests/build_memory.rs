//! What a build allocates against what its plan says. Every allocation of this program is counted.
#![allow(unsafe_code, reason = "a global allocator is unsafe to implement")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use headwater_graph::build::{BuildOptions, Coo, EdgeIds};
use headwater_graph::random::Key;
use headwater_graph::{Layout, Silent};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(memory.size(), Relaxed) + memory.size(), Relaxed);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(memory) }
    }

    unsafe fn alloc_zeroed(&self, memory: Memory) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(memory.size(), Relaxed) + memory.size(), Relaxed);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc_zeroed(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        NOW.fetch_sub(memory.size(), Relaxed);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn edges(rows: u64, edges: u64) -> Coo {
    let key = Key::new(11);
    let ends =
        |salt| -> Vec<u32> { (0..edges).map(|at| u32::try_from(key.of(salt).below(at, rows)).unwrap()).collect() };
    Coo::new(ends(1).into(), ends(2).into(), rows, rows)
}

/// One test only: another one beside it would be counted too.
#[test]
fn builds_stay_within_their_plans() {
    for (rows, count, weighted, edge_ids) in [
        (1 << 18, 1 << 22, false, EdgeIds::Dropped),
        (1 << 18, 1 << 22, false, EdgeIds::Kept),
        (1 << 14, 1 << 22, true, EdgeIds::Kept),
    ] {
        let mut coo = edges(rows, count);
        coo.weights = weighted.then(|| vec![1.0; 1 << 22].into());
        let options = BuildOptions { layout: Layout::Csc, edge_ids };
        let plan = coo.plan(options);
        let input = usize::try_from(plan.input_bytes).unwrap();
        let before = NOW.load(Relaxed) - input;
        MOST.store(NOW.load(Relaxed), Relaxed);
        let built = coo.build(options, &Silent).unwrap();
        let most = (MOST.load(Relaxed) - before) as u64;
        assert_eq!(built.edges(), count);
        assert_eq!(built.bytes(), plan.output_bytes);
        // Small vectors and the thread pool come on top.
        assert!(most <= plan.peak_bytes + (1 << 20), "{most} bytes for {plan:?}");
        assert!(most * 10 > plan.peak_bytes * 9, "the plan promises too much: {most} bytes for {plan:?}");
        assert!(most <= (plan.input_bytes + plan.output_bytes) / 2 * 3 + (1 << 20), "{most} bytes for {plan:?}");
    }
}
