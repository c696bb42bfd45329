//! Plans of random steps: no two buffers share bytes while both are needed, and what is expected is what happens.

use proptest::prelude::*;

use super::*;

const MB: u64 = 1 << 20;

fn rates(down: f64, disk: f64) -> LinkRates {
    LinkRates { down, up: down, write: disk, read: 2.0 * disk }
}

fn room(host_bytes: u64, disk_bytes: u64, gpu_bytes: Option<u64>) -> OffloadRoom {
    OffloadRoom { host_bytes, disk_bytes, gpu_bytes, window_bytes: 0 }
}

/// Layers as a network has them: each makes some bytes in the forward pass that it needs in the backward pass.
fn network(saved: &[u64], op_s: f64) -> FixedStep {
    let layers = saved.len();
    let buffer = |(at, bytes): (usize, &u64)| FixedBuffer {
        bytes: *bytes,
        first: at,
        last: 2 * layers - at,
        gap: Some((at, 2 * layers - at)),
    };
    let scratch = (0..=2 * layers).map(|op| FixedBuffer { bytes: MB, first: op, last: op, gap: None });
    FixedStep {
        op_s: vec![op_s; 2 * layers + 1],
        buffers: saved.iter().enumerate().map(buffer).chain(scratch).collect(),
    }
}

/// What has to hold of every plan.
fn check(step: &FixedStep, found: &FixedPlan) {
    let bytes = |own: &Residency| step.buffers[own.buffer].bytes;
    for (at, one) in found.residencies.iter().enumerate() {
        assert!(one.first <= one.last && one.offset + bytes(one) <= found.forecast.peak_bytes);
        for other in &found.residencies[at + 1..] {
            let apart = one.offset + bytes(one) <= other.offset || other.offset + bytes(other) <= one.offset;
            assert!(apart || one.last < other.first || other.last < one.first, "{one:?} and {other:?}");
        }
    }
    for own in &found.moves {
        let buffer = step.buffers[own.buffer];
        let (before, after) = buffer.gap.unwrap();
        assert_eq!((own.store_after, own.needed_by, own.last), (before, after, buffer.last));
        assert!(before < own.reused_from && own.reused_from < own.load_before && own.load_before <= after, "{own:?}");
        assert!(before < own.read_from && own.read_from <= own.load_before);
        for op in (buffer.first..own.reused_from).chain(own.load_before..=buffer.last) {
            assert!(found.offset(own.buffer, op).is_some());
        }
    }
    let sum: f64 = step.op_s.iter().sum();
    assert!((found.forecast.step_s - sum - found.forecast.stall_s).abs() < 1e-6 * sum.max(1e-3));
}

#[test]
fn a_fast_link_takes_all_that_has_time_to_leave() {
    let step = network(&[64 * MB; 6], 0.010);
    let fast = rates(64e9, 0.0);
    let found = plan_fixed(&step, &fast, &room(1 << 40, 0, None), (0.13, 0.02));
    check(&step, &found);
    let kept = laid_out(&step, &fast, &room(0, 0, None), Vec::new());
    assert!(found.forecast.peak_bytes * 2 < kept.forecast.peak_bytes, "{:?}", found.forecast);
    assert!(found.forecast.stall_s < 0.02 * 0.13);
    // The newest layer's bytes are needed at once.
    assert!(found.moves.iter().all(|own| own.buffer != 5));
}

#[test]
fn what_has_to_fit_fits_and_waits_as_long_as_that_takes() {
    let step = network(&[64 * MB; 6], 0.001);
    let slow = rates(10e9, 0.0);
    let free = plan_fixed(&step, &slow, &room(1 << 40, 0, None), (0.013, 0.02));
    let least = 64 * MB * 2 + 8 * MB;
    let tight = plan_fixed(&step, &slow, &room(1 << 40, 0, Some(least)), (0.013, 0.02));
    check(&step, &free);
    check(&step, &tight);
    assert!(free.forecast.stall_s <= 0.02 * 0.013 && free.forecast.peak_bytes > least);
    assert!(tight.forecast.peak_bytes <= least, "{:?}", tight.forecast);
    assert!(tight.forecast.stall_s > 0.02 * 0.013, "as long as it takes: {:?}", tight.forecast);
}

#[test]
fn the_oldest_go_to_disk_where_host_memory_is_short() {
    let step = network(&[64 * MB; 8], 0.050);
    let found = plan_fixed(&step, &rates(50e9, 4e9), &room(260 * MB, 1 << 40, None), (0.85, 0.02));
    check(&step, &found);
    let disk: Vec<usize> =
        found.moves.iter().filter(|own| own.goes == Destination::Disk).map(|own| own.buffer).collect();
    let host: Vec<usize> =
        found.moves.iter().filter(|own| own.goes == Destination::Host).map(|own| own.buffer).collect();
    assert!(!disk.is_empty() && !host.is_empty(), "{found:?}");
    assert!(disk.iter().max() < host.iter().min(), "the oldest have the most time: {disk:?} {host:?}");
    let without = plan_fixed(&step, &rates(50e9, 0.0), &room(260 * MB, 0, None), (0.85, 0.02));
    assert!(without.forecast.written_bytes == 0 && without.forecast.host_bytes <= 260 * MB);
}

#[test]
fn what_saves_next_to_nothing_stays() {
    let mut step = network(&[MB / 4, MB / 4], 0.010);
    step.buffers.push(FixedBuffer { bytes: 900 * MB, first: 0, last: 4, gap: None });
    let found = plan_fixed(&step, &rates(50e9, 0.0), &room(1 << 40, 0, None), (0.05, 0.02));
    assert!(found.moves.is_empty());
}

proptest! {
    #[test]
    fn plans_of_random_steps_hold(
        saved in prop::collection::vec(0u64..300 * MB, 1..9),
        op_ms in 0.01f64..30.0,
        down in 1e9f64..60e9,
        disk in prop_oneof![Just(0.0), 0.5e9f64..4e9],
        host in 0u64..1200,
        gpu in prop::option::of(1u64..900),
    ) {
        let step = network(&saved, op_ms / 1e3);
        let base = op_ms / 1e3 * step.op_s.len() as f64;
        let room = room(host * MB, 1 << 34, gpu.map(|own| own * MB));
        let found = plan_fixed(&step, &rates(down, disk), &room, (base, 0.02));
        check(&step, &found);
        prop_assert!(found.forecast.host_bytes <= room.host_bytes);
        let kept = laid_out(&step, &rates(down, disk), &room, Vec::new());
        prop_assert!(found.forecast.peak_bytes <= kept.forecast.peak_bytes);
        if room.gpu_bytes.is_none() {
            prop_assert!(found.forecast.stall_s <= 0.02 * base + 1e-6);
        }
    }
}
