//! A device that is nothing but a clock, with a link, a disk and a model whose steps it computes.

use std::collections::HashMap;

use headwater_memory::io::{FileOptions, IoFile};

use super::*;
use crate::disk::by_hand::HandClock;
use crate::disk::{Disk, Units};
use crate::offloader::SaveOutcome;
use crate::step::{DeviceUse, StepReport};

/// Bytes of a slot that stand for a megabyte.
pub(super) const PIECE: usize = 4096;

/// A device whose copies take as long as their bytes say. The host is as far ahead as it can be: it queues a whole step before the device
/// begins with it.
#[derive(Clone)]
pub(super) struct Timed(Arc<Mutex<Moments>>);

pub(super) struct Moments {
    pub host: f64,
    pub compute: f64,
    pub down_free: f64,
    pub up_free: f64,
    /// Bytes a second of the link, each way.
    pub rate: f64,
    /// Ends of copies to the host that the host has not seen.
    pub ends: Vec<f64>,
    /// How long the host is busy with each block.
    pub host_s: f64,
    /// By what factor computing takes longer while copies are under way.
    pub beside: f64,
    /// By what factor computing takes longer, whatever else there is.
    pub pace: f64,
    /// What the disk does, as a share of what it did at first.
    pub disk_share: f64,
}

impl Timed {
    fn new(rate: f64, host_s: f64) -> Self {
        let (host, compute, down_free, up_free, ends) = Default::default();
        Self(Arc::new(Mutex::new(Moments {
            host,
            compute,
            down_free,
            up_free,
            rate,
            ends,
            host_s,
            beside: 1.0,
            pace: 1.0,
            disk_share: 1.0,
        })))
    }

    /// The host queues some work of the device, which does not begin before that.
    fn compute(&self, seconds: f64) {
        let mut now = self.now();
        now.host += now.host_s;
        let begun = now.compute.max(now.host);
        let factor = if now.down_free.max(now.up_free) > begun { now.beside } else { 1.0 };
        now.compute = begun + seconds * factor * now.pace;
    }

    pub fn now(&self) -> std::sync::MutexGuard<'_, Moments> {
        self.0.lock().unwrap()
    }
}

impl HandClock for Timed {
    fn now(&self) -> f64 {
        Timed::now(self).host
    }

    fn share(&self) -> f64 {
        Timed::now(self).disk_share
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
pub(super) struct Model {
    pub offloader: Offloader<Timed>,
    pub lane: Timed,
    /// Bytes of blocks on the device, and of others beside those of [`BASE`].
    pub on_device: HashMap<BlockId, usize>,
    pub others: u64,
    /// Whether the host queues a step while the device is at the one before; and when that one began.
    pub is_ahead: bool,
    pub before_s: f64,
}

/// How long a step took, and the most bytes of blocks on the device in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Went {
    pub seconds: f64,
    pub peak: u64,
}

pub(super) const BASE: u64 = 1 << 30;

impl Model {
    pub fn new(rate: f64, policy: OffloadPolicy, window_bytes: usize) -> Self {
        let lane = Timed::new(rate, 0.0);
        let config = OffloaderConfig { host_bytes: 4096 * PIECE, slot_bytes: PIECE, disk: None, policy, window_bytes };
        Self {
            offloader: Offloader::new(lane.clone(), &config).unwrap(),
            lane,
            on_device: HashMap::new(),
            others: 0,
            is_ahead: false,
            before_s: 0.0,
        }
    }

    /// One with so many slots, and a disk that writes and reads so many bytes a second, on a host that is busy for a while with each block.
    pub fn with_disk(rate: f64, disk: (f64, f64), slots: usize, window_bytes: usize) -> Self {
        let lane = Timed::new(rate, 0.02);
        let policy = planned(None);
        let config = OffloaderConfig { host_bytes: slots * PIECE, slot_bytes: PIECE, disk: None, policy, window_bytes };
        let folder = tempfile::tempdir().unwrap();
        let file = IoFile::temporary(folder.path(), &FileOptions::default()).unwrap();
        let units = Units::new(vec![Arc::new(file)], PIECE, 1 << 40);
        let opened = (Disk::by_hand(lane.clone(), disk), units);
        let offloader = Offloader::by_hand(lane.clone(), &config, opened, disk);
        Self { offloader, lane, on_device: HashMap::new(), others: 0, is_ahead: false, before_s: 0.0 }
    }

    fn used(&self) -> DeviceUse {
        let blocks = self.on_device.values().map(|bytes| *bytes as u64).sum();
        DeviceUse { allocated: BASE + self.others + blocks, blocks, peak: 0 }
    }

    fn give_up(&mut self, told: &[BlockId]) {
        self.on_device.retain(|own, _| !told.contains(own));
    }

    /// Layers save blocks of so many bytes; each computes for a second, and for two on the way back.
    pub fn step(&mut self, layers: &[Vec<usize>]) -> Went {
        // Between steps the host waits for the device, as it does for a loss, or for what the device did before the last step.
        let begun = {
            let mut now = self.lane.now();
            let until = if self.is_ahead { self.before_s } else { now.compute };
            now.host = now.host.max(until);
            now.compute = now.compute.max(now.host);
            now.compute
        };
        self.before_s = begun;
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

    pub fn steps(&mut self, count: usize, layers: &[Vec<usize>]) -> Vec<Went> {
        (0..count).map(|_| self.step(layers)).collect()
    }

    pub fn report(&self) -> StepReport {
        self.offloader.steps()
    }
}

pub(super) fn planned(most_bytes: Option<u64>) -> OffloadPolicy {
    OffloadPolicy::Plan { slack: 0.02, most_bytes, device_bytes: 1 << 40 }
}

pub(super) fn layers(count: usize, pieces: &[usize]) -> Vec<Vec<usize>> {
    vec![pieces.iter().map(|pieces| pieces * PIECE).collect(); count]
}

pub(super) fn assert_near(expected: f64, found: f64, share: f64) {
    assert!((expected - found).abs() <= share * expected.abs().max(1e-9), "{expected} was expected, {found} found");
}
