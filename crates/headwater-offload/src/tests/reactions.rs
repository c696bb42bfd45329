//! Steps that are not what their plan says, on a device that is nothing but a clock: how soon there is a plan that they keep to.

use super::clock::{BASE, Model, PIECE, assert_near, layers, planned};
use crate::plan::PlanLimit;

/// A model with a plan, how long its steps take if nothing leaves, and its layers.
fn settled(rate: f64) -> (Model, f64, Vec<Vec<usize>>) {
    let layers = layers(16, &[4]);
    let mut model = Model::new(rate * PIECE as f64, planned(None), 2 * PIECE);
    let kept = model.step(&layers).seconds;
    model.steps(5, &layers);
    assert!(model.report().expected.unwrap().moved_bytes > 0 && model.report().made_smaller == 0);
    (model, kept, layers)
}

/// Steps until three in a row are as short as they should be.
fn late_steps(model: &mut Model, kept: f64, layers: &[Vec<usize>]) -> usize {
    let took: Vec<f64> = model.steps(60, layers).iter().map(|went| went.seconds).collect();
    took.windows(3).position(|own| own.iter().all(|seconds| *seconds <= kept * 1.031)).unwrap_or(took.len())
}

/// A link at a third of its rate: a smaller plan that is in time after some steps, and what still leaves in time does.
#[test]
fn a_link_that_got_slower_leads_to_another_plan_soon() {
    let (mut model, kept, layers) = settled(8.0);
    model.lane.now().rate /= 3.0;
    let slow = model.step(&layers);
    assert!(slow.seconds > kept * 1.03, "{slow:?}");
    let late = late_steps(&mut model, kept, &layers);
    assert!(late <= 9, "{late} steps were too long: {:?}", model.report());
    let last = model.steps(200, &layers)[199];
    assert!(last.seconds < kept * 1.031, "{last:?} {:?}", model.report());
}

/// The host is a step ahead of the device: what a step was like is known one step later.
#[test]
fn a_host_that_is_ahead_sees_late_steps_as_well() {
    let (mut model, kept, layers) = settled(8.0);
    model.is_ahead = true;
    model.lane.now().rate /= 3.0;
    let late = late_steps(&mut model, kept, &layers);
    assert!(late <= 9, "{late} steps were too long: {:?}", model.report());
}

/// One that moves next to nothing: all is kept.
#[test]
fn a_link_that_hardly_moves_leads_to_keeping_everything() {
    let (mut model, kept, layers) = settled(8.0);
    model.lane.now().rate /= 40.0;
    let late = late_steps(&mut model, kept, &layers);
    assert!(late <= 12, "{late} steps were too long: {:?}", model.report());
    assert_eq!(model.report().limit, Some(PlanLimit::Rate), "{:?}", model.report());
}

/// No stream waits, and steps are longer all the same: computing takes 6 % longer while copies are under way. Fewer bytes move.
#[test]
fn computing_that_is_slower_beside_copies_leads_to_fewer_copies() {
    let (mut model, kept, layers) = settled(6.0);
    let before = model.report().expected.unwrap();
    model.lane.now().beside = 1.06;
    let slow = model.step(&layers);
    assert!(slow.seconds > kept * 1.03, "{slow:?}");
    assert!(model.report().planned_stall_s < 0.01 * kept, "no stream waits: {:?}", model.report());
    let late = late_steps(&mut model, kept, &layers);
    assert!(late <= 6, "{late} steps were too long: {:?}", model.report());
    let now = model.report().expected.unwrap();
    assert!(now.moved_bytes < before.moved_bytes, "{before:?} {now:?}");
}

/// Where little memory is wished for, blocks leave all the same, and the step is expected to take as long as it does.
#[test]
fn a_wish_for_memory_is_kept_where_computing_is_slower() {
    let (layers, most) = (layers(12, &[4, 4]), 40 * PIECE as u64);
    let mut model = Model::new(6.0 * PIECE as f64, planned(Some(BASE + most)), 4 * PIECE);
    model.steps(5, &layers);
    model.lane.now().beside = 1.1;
    let went = model.steps(30, &layers)[29];
    let report = model.report();
    assert!(went.peak <= most + 8 * PIECE as u64, "{went:?}");
    assert_near(report.expected.unwrap().step_s, went.seconds - 1.0, 0.05);
    assert!((1..=3).contains(&report.made_smaller), "{report:?}");
}

/// All steps are longer from some moment on, whatever leaves: that is not what copies cost, and blocks leave again.
#[test]
fn steps_that_are_longer_for_another_reason_are_recorded_again() {
    let (mut model, kept, layers) = settled(8.0);
    let before = model.report().expected.unwrap();
    model.lane.now().pace = 1.1;
    let went = model.steps(80, &layers);
    let (now, last) = (model.report().expected.unwrap(), went[79]);
    assert!(now.moved_bytes * 10 >= before.moved_bytes * 9, "{before:?} {:?}", model.report());
    assert_near(kept * 1.1, last.seconds, 0.03);
}

/// A single step that is held up by something else changes nothing, and neither do two.
#[test]
fn steps_that_are_held_up_now_and_then_keep_their_plan() {
    let (mut model, _, layers) = settled(8.0);
    for _ in 0..10 {
        model.lane.now().pace = 1.5;
        model.steps(2, &layers);
        model.lane.now().pace = 1.0;
        model.step(&layers);
    }
    assert_eq!(model.report().made_smaller, 0, "{:?}", model.report());
}

/// What slowed the link is over: more leaves again, if not at once.
#[test]
fn a_link_that_is_fast_again_is_used_again() {
    let (mut model, _, layers) = settled(8.0);
    let before = model.report().expected.unwrap();
    model.lane.now().rate /= 3.0;
    model.steps(12, &layers);
    assert!(model.report().expected.unwrap().peak_bytes > before.peak_bytes * 3 / 2);
    model.lane.now().rate *= 3.0;
    model.steps(800, &layers);
    assert!(model.report().expected.unwrap().peak_bytes < before.peak_bytes * 3 / 2, "{before:?} {:?}", model.report());
}

/// Of two kinds of steps in turn, each is held against its own plan.
#[test]
fn kinds_of_steps_are_not_held_against_each_other() {
    let (short, long) = (layers(8, &[4]), layers(16, &[6]));
    let mut model = Model::new(24.0 * PIECE as f64, planned(None), 2 * PIECE);
    for _ in 0..12 {
        model.steps(4, &short);
        model.steps(4, &long);
    }
    assert_eq!(model.report().made_smaller, 0, "{:?}", model.report());
}

/// A disk at a quarter of the rates that were measured: less goes there, steps are short again, and it is said once.
#[test]
fn a_disk_that_got_slower_gets_less_and_is_named() {
    let block = 64 * PIECE;
    let (link, disk) = (9.6 * block as f64, (0.6 * block as f64, 0.9 * block as f64));
    let mut model = Model::with_disk(link, disk, 238, block);
    let layers = vec![vec![block]; 32];
    let kept = model.step(&layers).seconds;
    model.steps(6, &layers);
    let before = model.report();
    assert!(before.expected.unwrap().written_bytes >= 8 * block as u64 && before.slow_disk.is_none(), "{before:?}");
    model.lane.now().disk_share = 0.6;
    model.steps(8, &layers);
    let after = model.report();
    let said = after.slow_disk.clone().unwrap_or_default();
    assert!(said.contains("writes") && said.contains("were expected"), "{said}");
    let written = [&before, &after].map(|report| report.expected.unwrap().written_bytes);
    assert!(written[1] > 0 && written[1] * 5 < written[0] * 4, "{written:?} {after:?}");
    assert_near(after.rates.unwrap().write, disk.0 * 0.6, 0.2);
    let went = model.step(&layers);
    assert!(went.seconds < kept * 1.031, "{went:?}");
    assert_near(after.expected.unwrap().peak_bytes as f64, went.peak as f64, 0.1);
    // A disk that does hardly anything is not written to.
    model.lane.now().disk_share = 0.05;
    model.steps(8, &layers);
    let after = model.report();
    assert_eq!((after.expected.unwrap().written_bytes, after.slow_disk), (0, Some(said)), "it is said once");
}
