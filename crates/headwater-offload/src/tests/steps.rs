//! Steps on a device that is nothing but a clock: what plans expect, and what becomes of it.

use std::collections::HashMap;

use headwater_memory::io::{FileOptions, IoFile};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::*;
use crate::disk::by_hand::HandClock;
use crate::disk::{Disk, Units};
use crate::offloader::SaveOutcome;
use crate::plan::PlanLimit;
use crate::step::{DeviceUse, StepReport};

/// Bytes of a slot that stand for a megabyte.
const PIECE: usize = 4096;

/// A device whose copies take as long as their bytes say. The host is as far ahead as it can be: it queues a whole step before the device
/// begins with it.
#[derive(Clone)]
struct Timed(Arc<Mutex<Moments>>);

struct Moments {
    host: f64,
    compute: f64,
    down_free: f64,
    up_free: f64,
    /// Bytes a second of the link, each way.
    rate: f64,
    /// Ends of copies to the host that the host has not seen.
    ends: Vec<f64>,
    /// How long the host is busy with each block.
    host_s: f64,
}

impl Timed {
    fn new(rate: f64, host_s: f64) -> Self {
        let (host, compute, down_free, up_free, ends) = Default::default();
        Self(Arc::new(Mutex::new(Moments { host, compute, down_free, up_free, rate, ends, host_s })))
    }

    /// The host queues some work of the device, which does not begin before that.
    fn compute(&self, seconds: f64) {
        let mut now = self.now();
        now.host += now.host_s;
        now.compute = now.compute.max(now.host) + seconds;
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Moments> {
        self.0.lock().unwrap()
    }
}

impl HandClock for Timed {
    fn now(&self) -> f64 {
        Timed::now(self).host
    }

    /// Until the disk or a copy is done, or the device has nothing to do.
    fn wait(&self, next_s: Option<f64>) {
        let mut now = Timed::now(self);
        let (host, compute) = (now.host, now.compute);
        let events = now.ends.iter().copied().chain(next_s).chain([compute]).filter(|moment| *moment > host);
        let next = events.min_by(f64::total_cmp).unwrap_or(host + 1e-3);
        now.host = next;
        now.ends.retain(|end| *end > next);
    }
}

impl Lane for Timed {
    type Slot = AlignedBuffer;
    type Memory = usize;
    type Queue = ();
    type Mark = f64;

    fn slots(&self, count: usize, bytes: usize) -> Result<Vec<AlignedBuffer>> {
        (0..count).map(|_| Ok(AlignedBuffer::new(bytes)?)).collect()
    }

    fn transfer(&self, files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Box<dyn Transfer<AlignedBuffer>>> {
        Ok(Box::new(EngineTransfer::new(files, config)?))
    }

    fn bytes(memory: &usize) -> usize {
        *memory
    }

    fn mark(&self, (): &()) -> Result<f64> {
        Ok(self.now().compute)
    }

    fn down(&self, after: &f64, from: &usize, _: &mut [AlignedBuffer]) -> Result<CopyMarks<f64>> {
        let mut now = self.now();
        let begun = now.down_free.max(*after).max(now.host);
        now.down_free = begun + *from as f64 / now.rate;
        let end = now.down_free;
        now.ends.push(end);
        Ok(CopyMarks { begun, ended: now.down_free })
    }

    fn up(&self, after: &[f64], _: &[AlignedBuffer], to: &usize) -> Result<CopyMarks<f64>> {
        let mut now = self.now();
        let begun = after.iter().fold(now.up_free.max(now.host), |latest, own| latest.max(*own));
        now.up_free = begun + *to as f64 / now.rate;
        Ok(CopyMarks { begun, ended: now.up_free })
    }

    fn has_passed(&self, mark: &f64) -> Result<bool> {
        Ok(*mark <= self.now().host)
    }

    fn follow(&self, (): &(), mark: &f64) -> Result<()> {
        let mut now = self.now();
        now.compute = now.compute.max(*mark);
        Ok(())
    }

    fn seconds(&self, from: &f64, to: &f64) -> Result<f64> {
        Ok(to - from)
    }

    fn rates(&self) -> Result<(f64, f64)> {
        let rate = self.now().rate;
        Ok((rate, rate))
    }
}

/// Layers that save some blocks each, computed forward and back, with everything that a caller of an offloader does.
struct Model {
    offloader: Offloader<Timed>,
    lane: Timed,
    /// Bytes of blocks on the device, and of others beside those of [`BASE`].
    on_device: HashMap<BlockId, usize>,
    others: u64,
}

/// How long a step took, and the most bytes of blocks on the device in it.
#[derive(Debug, Clone, Copy)]
struct Went {
    seconds: f64,
    peak: u64,
}

const BASE: u64 = 1 << 30;

impl Model {
    fn new(rate: f64, policy: OffloadPolicy, window_bytes: usize) -> Self {
        let lane = Timed::new(rate, 0.0);
        let config = OffloaderConfig { host_bytes: 4096 * PIECE, slot_bytes: PIECE, disk: None, policy, window_bytes };
        Self { offloader: Offloader::new(lane.clone(), &config).unwrap(), lane, on_device: HashMap::new(), others: 0 }
    }

    /// One with so many slots, and a disk that writes and reads so many bytes a second, on a host that is busy for a while with each block.
    fn with_disk(rate: f64, disk: (f64, f64), slots: usize, window_bytes: usize) -> Self {
        let lane = Timed::new(rate, 0.02);
        let policy = planned(None);
        let config = OffloaderConfig { host_bytes: slots * PIECE, slot_bytes: PIECE, disk: None, policy, window_bytes };
        let folder = tempfile::tempdir().unwrap();
        let file = IoFile::temporary(folder.path(), &FileOptions::default()).unwrap();
        let units = Units::new(vec![Arc::new(file)], PIECE, 1 << 40);
        let opened = (Disk::by_hand(lane.clone(), disk), units);
        let offloader = Offloader::by_hand(lane.clone(), &config, opened, disk);
        Self { offloader, lane, on_device: HashMap::new(), others: 0 }
    }

    fn used(&self) -> DeviceUse {
        let blocks = self.on_device.values().map(|bytes| *bytes as u64).sum();
        DeviceUse { allocated: BASE + self.others + blocks, blocks, peak: 0 }
    }

    fn give_up(&mut self, told: &[BlockId]) {
        self.on_device.retain(|own, _| !told.contains(own));
    }

    /// Layers save blocks of so many bytes; each computes for a second, and for two on the way back.
    fn step(&mut self, layers: &[Vec<usize>]) -> Went {
        // Between steps the host waits for the device, as it does for a loss.
        let begun = {
            let mut now = self.lane.now();
            now.host = now.host.max(now.compute);
            now.compute = now.host;
            now.compute
        };
        let (mut saved, mut left, mut peak) = (Vec::new(), HashMap::new(), 0);
        for sizes in layers {
            for bytes in sizes {
                self.lane.compute(1.0 / sizes.len() as f64);
                let SaveOutcome { number, leaves, drained, followed } =
                    self.offloader.save(*bytes, &(), self.used()).unwrap();
                self.on_device.insert(number, *bytes);
                peak = peak.max(self.used().blocks);
                left.extend((leaves == Some(true)).then_some((number, *bytes)));
                self.give_up(&drained);
                self.give_up(&followed);
                saved.push((number, *bytes, sizes.len()));
            }
        }
        let (mut loading, mut early) = (HashMap::new(), HashMap::new());
        for (number, bytes, of) in saved.into_iter().rev() {
            if !self.on_device.contains_key(&number) {
                loading.insert(number, self.offloader.load(number, &bytes, &()).unwrap());
                self.on_device.insert(number, bytes);
            }
            if let Some(mark) = loading.remove(&number) {
                self.offloader.join(&(), &mark).unwrap();
                early.remove(&number);
            }
            let here: Vec<BlockId> = self.on_device.keys().copied().collect();
            let early_bytes = early.values().sum();
            for next in self.offloader.need(number, &(), self.used(), (&here, early_bytes)).unwrap() {
                let bytes = left[&next];
                loading.insert(next, self.offloader.load(next, &bytes, &()).unwrap());
                self.on_device.insert(next, bytes);
                early.insert(next, bytes);
            }
            peak = peak.max(self.used().blocks);
            self.lane.compute(2.0 / of as f64);
            self.offloader.release(number).unwrap();
            self.on_device.remove(&number);
            self.offloader.drained().unwrap();
        }
        Went { seconds: self.lane.now().compute - begun, peak }
    }

    fn steps(&mut self, count: usize, layers: &[Vec<usize>]) -> Vec<Went> {
        (0..count).map(|_| self.step(layers)).collect()
    }

    fn report(&self) -> StepReport {
        self.offloader.steps()
    }
}

fn planned(most_bytes: Option<u64>) -> OffloadPolicy {
    OffloadPolicy::Plan { slack: 0.02, most_bytes, device_bytes: 1 << 40 }
}

fn layers(count: usize, pieces: &[usize]) -> Vec<Vec<usize>> {
    vec![pieces.iter().map(|pieces| pieces * PIECE).collect(); count]
}

fn assert_near(expected: f64, found: f64, share: f64) {
    assert!((expected - found).abs() <= share * expected.abs().max(1e-9), "{expected} was expected, {found} found");
}

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

/// A plan that was made for a faster link is made again until it waits for no copies.
#[test]
fn a_link_that_got_slower_leads_to_another_plan() {
    let layers = layers(16, &[4]);
    let mut model = Model::new(8.0 * PIECE as f64, planned(None), 2 * PIECE);
    model.steps(6, &layers);
    assert!(!model.offloader.is_idle() && model.report().expected.unwrap().moved_bytes > 0);
    model.lane.now().rate /= 3.0;
    let slow = model.step(&layers);
    assert!(slow.seconds > 48.0 * 1.03, "{slow:?}");
    let last = model.steps(200, &layers)[199];
    assert!(last.seconds < 48.0 * 1.025, "{last:?} {:?}", model.report());
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
