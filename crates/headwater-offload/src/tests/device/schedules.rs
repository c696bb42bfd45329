//! Random programs whose streams go their own ways: whatever is done when, what comes back is what was saved.

use super::caller::{Caller, Moved, Shared};
use super::direct::StandIn;
use super::emulator::{Emulator, Handle};
use super::program::{Draw, program};
use super::*;
use crate::lane::GpuLane;
use crate::offloader::OffloadCounts;

/// What all programs of a test share, so that there are not more streams with each.
pub(super) struct Bench {
    gpu: Gpu,
    lane: Shared,
    streams: Vec<Stream>,
    folder: tempfile::TempDir,
    pub emulator: Option<Emulator>,
    /// The two streams of the lane, where they are emulated.
    pub down: Handle,
    pub up: Handle,
    pub compute: Vec<Handle>,
}

impl Bench {
    pub fn new() -> Option<Self> {
        Self::over(GpuLane::new)
    }

    fn over(lane: impl Fn(&Gpu) -> Result<GpuLane>) -> Option<Self> {
        let gpu = gpu()?;
        let emulator = Emulator::here();
        let newest = |before| emulator.as_ref().map_or(std::ptr::null_mut(), |own| own.newest_stream(before));
        let streams: Vec<Stream> = (0..3).map(|_| Stream::new(&gpu).unwrap()).collect();
        let compute = (0..3).map(newest).collect();
        let lane = Shared(Arc::new(lane(&gpu).unwrap()));
        let (up, down) = (newest(0), newest(1));
        Some(Self { gpu, lane, streams, folder: tempfile::tempdir().unwrap(), down, up, compute, emulator })
    }

    /// Runs a program in an order of its own. What was wrong is told.
    fn run(&self, seed: u64) -> std::result::Result<Moved, String> {
        let races = self.emulator.as_ref().map_or(0, |emulator| {
            emulator.order(Draw(seed).below(1 << 30).try_into().unwrap());
            emulator.races()
        });
        let program = program(seed);
        let done = Caller::new(&self.gpu, &self.lane, &self.streams, &program, self.folder.path()).run(&program);
        self.settle();
        let raced = self.emulator.as_ref().filter(|emulator| emulator.races() > races);
        raced.map_or(done, |emulator| Err(emulator.last_race()))
    }

    /// What is wrong with a program, or that nothing is. Then every wait is made again.
    pub fn noticed(&self, seed: u64) -> Option<String> {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.run(seed)));
        self.emulator.as_ref().inspect(|emulator| emulator.find_all());
        self.settle();
        done.unwrap_or_else(|_| Err("a call failed".to_owned())).err()
    }

    fn settle(&self) {
        self.streams.iter().for_each(|stream| stream.synchronize().unwrap());
    }

    pub fn is_held(&self) -> bool {
        self.emulator.as_ref().is_some_and(|emulator| emulator.order(0))
    }
}

/// Which programs: those of `HEADWATER_SCHEDULES`, such as 0..10000, or a few.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("HEADWATER_SCHEDULES").ok();
    let number = |text: &str| text.parse().expect("HEADWATER_SCHEDULES is two numbers with dots between");
    asked.map_or(0..few, |text| text.split_once("..").map(|(from, to)| number(from)..number(to)).unwrap())
}

#[test]
fn programs_in_any_order() {
    if let Some(bench) = Bench::new() {
        run_all(&bench);
    }
}

/// The same with disks that the GPU reaches by itself, whose reads and writes no stream orders.
#[test]
fn programs_past_the_host() {
    let Some(_cufile) = StandIn::new(true) else { return };
    if let Some(bench) = Bench::over(GpuLane::direct) {
        run_all(&bench);
    }
}

fn run_all(bench: &Bench) {
    let seeds = seeds(if bench.is_held() { 100 } else { 20 });
    let (count, mut moved) = (seeds.end - seeds.start, Moved::default());
    for seed in seeds {
        match bench.run(seed) {
            Ok(more) => moved = moved.and(&more),
            Err(why) => panic!("program {seed}, {:?}: {why}", program(seed)),
        }
    }
    let OffloadCounts { blocks, down, up, written, read, writes_cancelled, refused, .. } = moved.counts;
    println!(
        "{count} programs: {blocks} blocks left with {down} bytes and {refused} found no room, {up} bytes came back, for {} blocks \
         early; {written} bytes were written to disk, {read} read, {writes_cancelled} blocks taken back; {} steps kept to a plan",
        moved.early, moved.planned_steps
    );
    assert!(count < 20 || [down, up, written, read, moved.early, moved.planned_steps].iter().all(|count| *count > 0));
}
