//! Plans against what can be computed by hand, and against each other.

use proptest::prelude::*;

use crate::model::{Transformer, years_until_worn_out};
use crate::plan::{
    Destination, DiskLoad, LinkRates, OffloadRoom, PauseForm, PlanLimit, SavedBlock, StepTrace, forecast, next_disk,
    pause_point, plan,
};

const GB: u64 = 1_000_000_000;
const RATES: LinkRates = LinkRates { down: 50e9, up: 50e9, write: 2e9, read: 4e9 };
const ROOM: OffloadRoom =
    OffloadRoom { host_bytes: 64 * GB, disk_bytes: 1000 * GB, gpu_bytes: None, window_bytes: GB / 4 };

fn paper(hidden: u64, layers: u64) -> Transformer {
    Transformer {
        hidden,
        layers,
        heads: hidden / 128,
        sequence: 1024,
        batch: 16,
        vocabulary: 32000,
        is_causal: true,
        is_checkpointed: false,
        flops: 400e12,
    }
}

/// `count` layers of `bytes` each, a second forward and two back.
fn layers(count: u32, bytes: u64) -> StepTrace {
    let forward = f64::from(count);
    let block = |at: u32| SavedBlock {
        bytes,
        saved_s: f64::from(at + 1),
        needed_s: forward + 2.0 * f64::from(count - 1 - at),
        freed_s: forward + 2.0 * f64::from(count - at),
    };
    StepTrace { blocks: (0..count).map(block).collect(), step_s: 3.0 * forward, beside: Vec::new() }
}

/// Two GPUs had halves of what one has here: the table of the paper says 11.13, 12.60 and 11.50 GiB.
#[test]
fn bytes_that_the_shapes_of_the_paper_save() {
    for (hidden, count, gib) in [(8192, 4, 11.13), (12288, 3, 12.60), (16384, 2, 11.50)] {
        let bytes = paper(hidden, count).saved_bytes();
        assert!((bytes as f64 / 2.0 / (1u64 << 30) as f64 - gib).abs() < 0.006, "{hidden}: {bytes}");
    }
}

/// 12.1 GB/s for half of the time wear out four disks of 12.8 TB, three times a day, in 3.67 years.
#[test]
fn years_of_disks() {
    let endurance = 3.0 * 12.8e12 * 365.0 * 5.0 * 4.0 * 2.5;
    assert!((years_until_worn_out(endurance, 12_100_000_000, 2.0) - 3.67).abs() < 0.01);
}

#[test]
fn checkpoints_save_their_inputs_alone() {
    let model = Transformer { is_checkpointed: true, ..paper(8192, 4) };
    let trace = model.trace();
    assert_eq!(trace.blocks.len(), 4);
    assert_eq!(trace.blocks[0].bytes, 2 * 16 * 1024 * 8192);
    assert!((trace.step_s / paper(8192, 4).trace().step_s - 4.0 / 3.0).abs() < 1e-9);
}

#[test]
fn nothing_leaves_and_nothing_waits() {
    let trace = layers(10, GB);
    let found = forecast(&trace, &[Destination::Nowhere; 10], &RATES, &ROOM);
    assert_eq!((found.peak_bytes, found.moved_bytes, found.host_bytes), (10 * GB, 0, 0));
    assert!(found.stall_s.abs() < 1e-12 && (found.step_s - 30.0).abs() < 1e-12);
}

#[test]
fn a_link_that_is_fast_enough_leaves_what_is_under_way() {
    let trace = layers(10, GB);
    let goes = [[Destination::Host; 9].as_slice(), &[Destination::Nowhere]].concat();
    let found = forecast(&trace, &goes, &RATES, &ROOM);
    assert!(found.stall_s.abs() < 1e-12, "{found:?}");
    // The last one, the one that is used, and the next that comes.
    assert!(found.peak_bytes <= 3 * GB, "{found:?}");
    assert_eq!((found.moved_bytes, found.host_bytes), (9 * GB, 9 * GB));
}

#[test]
fn a_slow_link_makes_the_gpu_wait_for_as_long_as_bytes_take() {
    let trace = layers(4, 10 * GB);
    let rates = LinkRates { down: 5e9, ..RATES };
    let found = forecast(
        &trace,
        &[Destination::Host, Destination::Host, Destination::Nowhere, Destination::Nowhere],
        &rates,
        &ROOM,
    );
    // The first is down at 3 s, the second at 5: neither is waited for, since two may be under way.
    assert!(found.stall_s.abs() < 1e-12, "{found:?}");
    let found = forecast(&trace, &[Destination::Host; 4], &rates, &OffloadRoom { gpu_bytes: Some(0), ..ROOM });
    // The third waits until the first is down, 3 s: it is then. The fourth is saved at 4 s and waits for the second, until 5.
    assert!((found.stall_s - 1.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn a_plan_keeps_what_would_not_be_in_time() {
    // A layer computes for a second: 1 GB/s leaves one of 1 GB in time, and none of 20.
    let slow = LinkRates { down: 1.1e9, up: 1.1e9, write: 0.0, read: 0.0 };
    let made = plan(&layers(10, GB), &slow, &ROOM, 0.02);
    assert!(made.forecast.stall_s <= 0.02 * 30.0 && made.forecast.peak_bytes < 10 * GB, "{made:?}");
    let made = plan(&layers(10, 20 * GB), &slow, &OffloadRoom { host_bytes: 1000 * GB, ..ROOM }, 0.02);
    assert_eq!((made.limit, made.goes), (PlanLimit::Peak, vec![Destination::Nowhere; 10]));
    let made = plan(&layers(10, GB), &RATES, &OffloadRoom { host_bytes: 0, ..ROOM }, 0.02);
    assert_eq!(made.limit, PlanLimit::Space);
    let made = plan(&StepTrace { blocks: Vec::new(), step_s: 1.0, beside: Vec::new() }, &RATES, &ROOM, 0.02);
    assert_eq!((made.limit, made.goes.len()), (PlanLimit::Nothing, 0));
}

/// By the end of the forward pass, so much has left as host memory holds and disks have taken.
#[test]
fn a_disk_lowers_the_peak_by_what_it_takes_in_time() {
    let room = OffloadRoom { host_bytes: 2 * GB, ..ROOM };
    let trace = layers(20, GB);
    let made = plan(&trace, &LinkRates { write: 0.5e9, read: 5e9, ..RATES }, &room, 0.02);
    let bound = 2 * GB + 20 * GB / 2;
    assert!(made.kept.peak_bytes - made.forecast.peak_bytes <= bound, "{made:?}");
    assert!(made.forecast.peak_bytes < 12 * GB, "{made:?}");
    assert!(made.forecast.host_bytes <= 2 * GB, "{made:?}");
}

#[test]
fn one_block_that_leaves_is_not_there_at_the_peak() {
    let goes = [[Destination::Host].as_slice(), &[Destination::Nowhere; 9]].concat();
    let found = forecast(&layers(10, GB), &goes, &RATES, &ROOM);
    assert_eq!((found.peak_bytes, found.moved_bytes), (9 * GB, GB));
}

#[test]
fn the_oldest_go_to_disk_and_the_newest_stay() {
    let room = OffloadRoom { host_bytes: 4 * GB, ..ROOM };
    let made = plan(&layers(10, GB), &RATES, &room, 0.02);
    let rank = |goes: &Destination| match goes {
        Destination::Disk => 0,
        Destination::Host => 1,
        Destination::Nowhere => 2,
    };
    assert!(made.goes.is_sorted_by_key(rank), "{made:?}");
    assert!(made.goes.contains(&Destination::Disk) && made.goes.contains(&Destination::Host));
}

#[test]
fn a_wish_for_the_gpu_is_met_with_as_little_as_possible() {
    let room = OffloadRoom { gpu_bytes: Some(6 * GB), ..ROOM };
    let made = plan(&layers(10, GB), &RATES, &room, 0.02);
    assert_eq!(made.limit, PlanLimit::Enough);
    assert!(made.forecast.peak_bytes <= 6 * GB && made.forecast.moved_bytes <= 7 * GB, "{made:?}");
    let made = plan(&layers(10, GB), &RATES, &OffloadRoom { gpu_bytes: Some(20 * GB), ..ROOM }, 0.02);
    assert_eq!(made.forecast.moved_bytes, 0);
}

/// (1 + 2) / (30 - 2) of the text, (1 + 2) / 30 of the program: modules of 1 byte and a second each, ten of them.
#[test]
fn where_the_paper_pauses() {
    let modules = [(1, 1.0); 10];
    let largest =
        |form| (0..=10).map(|at| (at, pause_point(&modules, f64::from(at) / 10.0 * 0.6, form))).collect::<Vec<_>>();
    assert_eq!(pause_point(&modules, 100.0, PauseForm::Text), 10);
    assert_eq!(pause_point(&modules, 0.0, PauseForm::Text), 0);
    // Of module 4 there are 4 + 2 bytes in 30 - 10 seconds, or in 30 - 8.
    assert_eq!(pause_point(&modules, 6.0 / 20.0, PauseForm::Text), 5);
    assert_eq!(pause_point(&modules, 6.0 / 22.0, PauseForm::Code), 5);
    for (text, code) in largest(PauseForm::Text).iter().zip(largest(PauseForm::Code)) {
        assert!(text.1 <= code.1, "the program is the more hopeful one");
    }
}

proptest! {
    /// Whatever is planned: it is never worse than keeping all, never late, and never in more room than there is.
    #[test]
    fn plans_keep_their_promises(
        sizes in prop::collection::vec(1..4_000_000_000u64, 1..40),
        down in 1e8..1e11f64,
        write in 0.0..5e9f64,
        host in 0..40u64,
        disk in 0..40u64,
        cap in prop::option::of(0..100u64),
    ) {
        let mut trace = layers(u32::try_from(sizes.len()).unwrap(), 1);
        trace.blocks.iter_mut().zip(&sizes).for_each(|(block, bytes)| block.bytes = *bytes);
        let rates = LinkRates { down, up: down, write, read: write };
        let room = OffloadRoom { host_bytes: host * GB, disk_bytes: disk * GB, gpu_bytes: cap.map(|cap| cap * GB), window_bytes: GB / 4 };
        let made = plan(&trace, &rates, &room, 0.02);
        let total: u64 = sizes.iter().sum();
        prop_assert!(made.forecast.peak_bytes <= made.kept.peak_bytes && made.kept.peak_bytes == total);
        prop_assert!(made.forecast.written_bytes <= disk * GB);
        prop_assert!(made.forecast.host_bytes <= host * GB, "what is read back early has to have room: {made:?}");
        prop_assert!(made.forecast.stall_s >= -1e-9);
        if cap.is_none() {
            prop_assert!(made.forecast.stall_s <= 0.02 * trace.step_s + 1e-9);
        }
        let stays: u64 = made.goes.iter().zip(&sizes).filter(|(goes, _)| **goes == Destination::Nowhere).map(|(_, bytes)| bytes).sum();
        // What should leave may still be there when it is needed.
        prop_assert!(stays + made.forecast.moved_bytes <= total);
        prop_assert!(made.forecast.peak_bytes >= stays);
    }
}

/// A trace of layers with blocks of these lengths.
fn of_sizes(sizes: &[u64]) -> StepTrace {
    let mut trace = layers(u32::try_from(sizes.len()).unwrap(), 1);
    trace.blocks.iter_mut().zip(sizes).for_each(|(block, bytes)| block.bytes = *bytes);
    trace
}

/// Host memory has as much as it holds, and the disk what it can take in time: the slower, the less.
#[test]
fn a_slower_disk_gets_less() {
    let room = OffloadRoom { host_bytes: 3 * GB, ..ROOM };
    let of = |write: f64| plan(&layers(20, GB), &LinkRates { write, read: 2.0 * write, ..RATES }, &room, 0.02).forecast;
    let all: Vec<_> = [0.7e9, 0.5e9, 0.3e9, 0.1e9, 0.0].into_iter().map(of).collect();
    for (faster, slower) in all.iter().zip(&all[1..]) {
        assert!(slower.written_bytes < faster.written_bytes && slower.peak_bytes > faster.peak_bytes, "{all:?}");
    }
    // Without a disk, host memory is all that there is.
    assert_eq!((all[4].moved_bytes, all[4].written_bytes), (3 * GB, 0));
}

/// Disks take pieces at the same time, so that all are done at once.
#[test]
fn the_slower_of_several_disks_gets_less() {
    let spread = |rates: &[Option<f64>], limits: &[u64], count: usize| -> Vec<u64> {
        let disk = |(rate, left): (&Option<f64>, &u64)| DiskLoad { taken: 0, left: *left, rate: *rate };
        let mut disks: Vec<DiskLoad> = rates.iter().zip(limits).map(disk).collect();
        for _ in 0..count {
            let Some(at) = next_disk(&disks) else { break };
            (disks[at].taken, disks[at].left) = (disks[at].taken + 1, disks[at].left - 1);
        }
        disks.iter().map(|disk| disk.taken).collect()
    };
    assert_eq!(spread(&[Some(3e9), Some(1e9)], &[1000, 1000], 100), [75, 25]);
    assert_eq!(spread(&[Some(1e9), Some(2e9), Some(1e9)], &[1000; 3], 100), [25, 50, 25]);
    assert_eq!(spread(&[None, None, None], &[1000; 3], 99), [33; 3]);
    assert_eq!(spread(&[Some(2e9), None], &[1000; 2], 100), [50, 50], "like the other, as long as nothing is known");
    assert_eq!(spread(&[Some(3e9), Some(1e9)], &[50, 1000], 100), [50, 50], "what is full gets no more");
    assert_eq!(spread(&[Some(3e9), Some(0.0)], &[10, 10], 100), [10, 10]);
    assert_eq!(next_disk(&[]), None);
}

proptest! {
    /// A slower disk is given no more to write, a slower link no more to take, and neither leads to a lower peak.
    #[test]
    fn what_is_slower_gets_no_more(
        sizes in prop::collection::vec(100_000_000..GB, 4..40),
        down in 4e8..4e9f64,
        disk in 1e8..2e9f64,
        host in 1..20u64,
        slower in 0.05..0.9f64,
        which in 0..4usize,
    ) {
        let trace = of_sizes(&sizes);
        let fast = LinkRates { down, up: down, write: disk, read: 2.0 * disk };
        let slow = match which {
            0 => LinkRates { write: fast.write * slower, ..fast },
            1 => LinkRates { read: fast.read * slower, ..fast },
            2 => LinkRates { down: fast.down * slower, ..fast },
            _ => LinkRates { up: fast.up * slower, ..fast },
        };
        let room = OffloadRoom { host_bytes: host * GB, ..ROOM };
        let (more, less) = (plan(&trace, &fast, &room, 0.02), plan(&trace, &slow, &room, 0.02));
        let found = (more.forecast, less.forecast);
        prop_assert!(found.1.peak_bytes >= found.0.peak_bytes, "{found:?}");
        // By a slower way back blocks have to begin earlier, and may need to be fewer or more.
        prop_assert!(which == 3 || found.1.moved_bytes <= found.0.moved_bytes, "{found:?}");
        prop_assert!(which == 3 || found.1.written_bytes <= found.0.written_bytes, "{found:?}");
    }
}
