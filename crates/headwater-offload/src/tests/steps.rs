//! Steps on a device that is nothing but a clock: what plans expect, and what becomes of it.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::clock::{BASE, Model, PIECE, Went, assert_near, layers, planned};
use super::*;
use crate::plan::PlanLimit;

#[test]
fn a_plan_lowers_the_peak_at_no_cost_and_says_by_how_much() {
    let layers = layers(16, &[8, 2, 4]);
    // 14 pieces a second have to leave, and 28 do.
    let mut model = Model::new(28.0 * PIECE as f64, planned(None), 4 * PIECE);
    let kept = model.steps(3, &layers);
    assert_near(48.0, kept[0].seconds, 1e-9);
    assert_eq!(
        (kept[0].peak, model.offloader.counts().unwrap().down),
        (16 * 14 * PIECE as u64, 0),
        "nothing leaves without a plan"
    );
    let went = model.steps(20, &layers);
    let report = model.report();
    let expected = report.expected.unwrap();
    assert_eq!((report.steps, report.planned_steps), (23, 20));
    for own in went {
        assert_near(48.0, own.seconds, 0.01);
        assert_near(expected.peak_bytes as f64, own.peak as f64, 0.1);
        assert!(own.peak * 4 < kept[0].peak, "{own:?}");
    }
    assert!(report.planned_stall_s < 0.01, "{report:?}");
}

#[test]
fn a_slow_link_keeps_everything_and_says_so() {
    let layers = layers(8, &[8]);
    let mut model = Model::new(0.8 * PIECE as f64, planned(None), 4 * PIECE);
    for _ in 0..6 {
        let went = model.step(&layers);
        assert_near(24.0, went.seconds, 1e-9);
    }
    assert_eq!(model.report().limit, Some(PlanLimit::Rate));
    assert!(model.offloader.is_idle(), "nobody need tell of what is saved");
    assert_eq!(model.offloader.may_keep(), (true, true));
    assert_eq!(model.offloader.counts().unwrap().down, 0);
    // What comes before the first block and behind the last is not seen.
    assert_near(8.0 * 8.0 * PIECE as f64 / 12.0, model.report().needed_rate, 0.2);
}

/// Steps that are compared with those in which nobody tells of what is saved move nothing, also the first one that has a plan; and it
/// shows from then on that there is one.
#[test]
fn steps_that_are_compared_keep_what_has_memory() {
    let layers = layers(16, &[8, 2, 4]);
    let mut model = Model::new(28.0 * PIECE as f64, planned(None), 4 * PIECE);
    model.offloader.keep(true);
    model.steps(3, &layers);
    assert_eq!(model.offloader.may_keep(), (false, false), "there is no plan");
    for own in model.steps(20, &layers) {
        assert_eq!((own.peak, model.offloader.may_keep()), (16 * 14 * PIECE as u64, (true, true)));
        assert_near(48.0, own.seconds, 1e-9);
    }
    assert_eq!(model.offloader.counts().unwrap().down, 0);
    let report = model.report();
    assert!(
        report.planned_steps == 0 && report.expected.unwrap().moved_bytes > 0,
        "none of them is the plan's: {report:?}"
    );
    // With the comparison over, the plan is as good as new.
    model.offloader.keep(false);
    let went = model.steps(2, &layers)[1];
    assert_near(report.expected.unwrap().peak_bytes as f64, went.peak as f64, 0.1);
    assert_eq!(model.report().planned_steps, 2);
}

/// A step without memory for all that it saves lets blocks leave, compared or not: where the plan knows, and where others take memory.
#[test]
fn steps_that_are_compared_and_do_not_fit_let_blocks_leave() {
    let (layers, all) = (layers(16, &[14]), 16 * 14 * PIECE as u64);
    for (device_bytes, others) in [((BASE + all) / 3 * 4 - (1 << 20), 0), (1 << 40, (1 << 40) / 4 * 3 - BASE - all / 2)]
    {
        let policy = OffloadPolicy::Plan { slack: 0.02, most_bytes: None, device_bytes };
        let mut model = Model::new(28.0 * PIECE as f64, policy, 4 * PIECE);
        model.steps(3, &layers);
        model.others = others;
        model.offloader.keep(true);
        let (before, went) = (model.offloader.counts().unwrap().down, model.step(&layers));
        assert!(model.offloader.counts().unwrap().down > before && went.peak < all, "{others}: {went:?}");
        assert_eq!(model.offloader.may_keep(), (true, others > 0));
    }
}

/// The device waits where less memory is there than copies leave in time, and for as long as was said.
#[test]
fn a_wish_for_memory_costs_what_was_expected() {
    let layers = layers(12, &[4, 4]);
    let most = 40 * PIECE as u64;
    let mut model = Model::new(4.0 * PIECE as f64, planned(Some(BASE + most)), 4 * PIECE);
    let went = model.steps(12, &layers);
    let (report, last) = (model.report(), went[11]);
    let expected = report.expected.unwrap();
    assert_eq!(report.limit, Some(PlanLimit::Enough), "{report:?}");
    assert!(last.peak <= most + 8 * PIECE as u64, "{last:?} {expected:?}");
    assert_near(expected.step_s, last.seconds - 1.0, 0.1);
    assert_near(expected.peak_bytes as f64, last.peak as f64, 0.15);
}

#[test]
fn steps_that_change_are_measured_again() {
    let (short, long) = (layers(8, &[4]), layers(8, &[6]));
    let mut model = Model::new(24.0 * PIECE as f64, planned(None), 2 * PIECE);
    model.steps(4, &short);
    let moved = |model: &Model| model.offloader.counts().unwrap().down;
    let before = moved(&model);
    assert!(before > 0 && model.report().planned_steps == 1);
    model.step(&long);
    assert_eq!(moved(&model), before, "nothing is known of this one");
    model.steps(4, &long);
    assert!(moved(&model) > before);
    // Both are known now.
    let before = moved(&model);
    model.step(&short);
    assert!(moved(&model) > before);
}

/// 32 inputs of checkpointed layers of 268 MB, a disk of 1.8 GB/s and host memory for less than four: blocks that find no host memory are on
/// the device for as long as the plan says, although the host could be far ahead of it, and of what the disk has done.
#[test]
fn what_waits_for_a_disk_is_on_the_device_as_long_as_the_plan_says() {
    let block = 64 * PIECE;
    let (link, disk) = (9.6 * block as f64, (0.315 * block as f64, 0.665 * block as f64));
    let mut model = Model::with_disk(link, disk, 238, block);
    let layers = vec![vec![block]; 32];
    let kept = model.step(&layers);
    model.steps(3, &layers);
    let (went, expected) = (model.step(&layers), model.report().expected.unwrap());
    assert!(expected.written_bytes >= 8 * block as u64 && expected.peak_bytes < kept.peak * 3 / 4, "{expected:?}");
    assert_near(expected.peak_bytes as f64, went.peak as f64, 0.05);
    assert_near(kept.seconds, went.seconds, 0.02);
}

/// A step whose first blocks are those of another one.
#[test]
fn a_step_that_turns_out_to_be_another_is_left_alone() {
    let (short, mut long) = (layers(8, &[4]), layers(12, &[4]));
    long[5] = vec![9 * PIECE];
    let mut model = Model::new(24.0 * PIECE as f64, planned(None), 2 * PIECE);
    for round in 0..6 {
        model.steps(4, &short);
        let went = model.step(&long);
        assert!(went.seconds < 36.0 * 1.05, "{round}: {went:?}");
    }
    model.steps(5, &long);
    assert!(model.report().planned_steps > 0);
}

proptest::proptest! {
    /// Whatever a model saves: steps are hardly longer, take no more memory than without a plan, and as much as was said.
    #[test]
    fn plans_come_true(
        sizes in proptest::collection::vec(proptest::collection::vec(1..12usize, 1..4), 4..20),
        rate in 1.0..60.0f64,
        window in 1..16usize,
    ) {
        let layers: Vec<Vec<usize>> =
            sizes.iter().map(|sizes| sizes.iter().map(|pieces| pieces * PIECE).collect()).collect();
        let mut model = Model::new(rate * PIECE as f64, planned(None), window * PIECE);
        let kept = model.step(&layers);
        model.steps(3, &layers);
        let went = model.steps(4, &layers);
        let report = model.report();
        let expected = report.expected.unwrap();
        let largest = layers.iter().flatten().max().copied().unwrap() as f64;
        for own in went {
            proptest::prop_assert!(own.seconds <= kept.seconds * 1.05, "{own:?} {kept:?} {report:?}");
            proptest::prop_assert!(own.peak <= kept.peak);
            let off = (own.peak as f64 - expected.peak_bytes as f64).abs();
            proptest::prop_assert!(off <= 0.1 * expected.peak_bytes as f64 + 2.0 * largest, "{own:?} {report:?}");
        }
    }

    /// The same with a disk that cannot take all, and host memory for a few blocks: what waits for host memory is on the device.
    #[test]
    fn plans_with_a_slow_disk_come_true(drawn in slow_disks()) {
        let (kept, went, expected, largest) = steps_with(&drawn);
        for own in went {
            let off = (own.peak as f64 - expected).abs();
            proptest::prop_assert!(off <= 0.1 * expected + largest, "{own:?} {expected}");
            proptest::prop_assert!(own.seconds <= 1.25 * kept.seconds, "{own:?} {kept:?}");
        }
    }
}

/// Pieces of each block; blocks a second that the link and the disk take; blocks in host memory; pieces of a window.
type SlowDisk = (Vec<usize>, f64, f64, usize, usize);

fn slow_disks() -> impl Strategy<Value = SlowDisk> {
    (proptest::collection::vec(1..16usize, 16..40), 3.0..23.0f64, 0.1..1.1f64, 3..9usize, 1..9usize)
}

/// A step in which all stays, two by plan, the peak that was expected of them, and the bytes of the largest block.
fn steps_with((sizes, link, write, blocks, window): &SlowDisk) -> (Went, Vec<Went>, f64, f64) {
    let layers: Vec<Vec<usize>> = sizes.iter().map(|pieces| vec![pieces * PIECE]).collect();
    let largest = sizes.iter().max().copied().unwrap();
    let a_block = (sizes.iter().sum::<usize>() * PIECE) as f64 / sizes.len() as f64;
    let disk = (a_block * write, a_block * write * 2.0);
    let mut model = Model::with_disk(a_block * link, disk, largest * blocks, window * PIECE);
    let kept = model.step(&layers);
    model.steps(3, &layers);
    let went = model.steps(2, &layers);
    (kept, went, model.report().expected.unwrap().peak_bytes as f64, (largest * PIECE) as f64)
}

/// The host does not queue work behind reads that have time: steps take what was said but for few.
#[test]
fn steps_with_a_slow_disk_are_as_short_as_was_said() {
    let mut runner = TestRunner::deterministic();
    let drawn: Vec<SlowDisk> = (0..200).map(|_| slow_disks().new_tree(&mut runner).unwrap().current()).collect();
    let longer = |drawn: &SlowDisk| {
        let (kept, went, ..) = steps_with(drawn);
        went.iter().map(|own| own.seconds / kept.seconds).fold(0.0, f64::max)
    };
    let ratios: Vec<f64> = drawn.iter().map(longer).collect();
    let (mean, late) = (ratios.iter().sum::<f64>() / 200.0, ratios.iter().filter(|ratio| **ratio > 1.02).count());
    assert!(mean < 1.005 && late <= 8, "{mean} in the mean, {late} of 200 are more than 2 % longer");
}
