//! How fast bytes have moved.

use std::collections::VecDeque;
use std::time::Instant;

use crate::error::Result;
use crate::lane::{CopyMarks, Lane};
use crate::plan::LinkRates;

/// Bytes and the time that they took. What is old counts less and less.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateMeter {
    bytes: f64,
    seconds: f64,
    /// From so many bytes on a rate is believed, and what came before more of them is forgotten.
    enough: f64,
}

impl Default for RateMeter {
    fn default() -> Self {
        Self { bytes: 0.0, seconds: 0.0, enough: (64 << 20) as f64 }
    }
}

impl RateMeter {
    const MOST: f64 = 64.0;

    #[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
    pub fn add(&mut self, bytes: usize, seconds: f64) {
        self.bytes += bytes as f64;
        self.seconds += seconds.max(0.0);
        if self.bytes > Self::MOST * self.enough {
            (self.bytes, self.seconds) = (self.bytes / 2.0, self.seconds / 2.0);
        }
    }

    /// Bytes a second.
    pub fn rate(&self) -> Option<f64> {
        (self.bytes >= self.enough && self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }
}

/// One way of the disks, whose jobs overlap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DiskMeter {
    meter: RateMeter,
    busy_until: Option<Instant>,
}

impl DiskMeter {
    pub fn add(&mut self, bytes: usize, (begun, ended): (Instant, Instant)) {
        let from = self.busy_until.map_or(begun, |until| until.max(begun));
        self.meter.add(bytes, ended.saturating_duration_since(from).as_secs_f64());
        self.busy_until = Some(self.busy_until.map_or(ended, |until| until.max(ended)));
    }

    pub fn rate(&self) -> Option<f64> {
        self.meter.rate()
    }

    /// A rate that is known from elsewhere; so many bytes are enough to know it.
    #[cfg(test)]
    pub fn measured(&mut self, bytes: usize, (begun, ended): (Instant, Instant)) {
        self.meter.enough = bytes as f64;
        self.meter.add(bytes, ended.duration_since(begun).as_secs_f64());
    }
}

/// Marks whose distance will be known.
pub(crate) struct Spans<M>(VecDeque<(M, M, usize)>);

impl<M> Default for Spans<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M: Clone> Spans<M> {
    /// More than these are not waited for.
    const MOST: usize = 4096;

    pub fn add(&mut self, copied: &CopyMarks<M>, bytes: usize) {
        if self.0.len() < Self::MOST {
            self.0.push_back((copied.begun.clone(), copied.ended.clone(), bytes));
        }
    }

    /// Bytes and seconds of those that are over by now.
    pub fn over<L: Lane<Mark = M>>(&mut self, lane: &L) -> Result<Vec<(usize, f64)>> {
        let mut over = Vec::new();
        while let Some((from, to, bytes)) = self.0.front() {
            if !lane.has_passed(to)? {
                break;
            }
            over.push((*bytes, lane.seconds(from, to)?));
            self.0.pop_front();
        }
        Ok(over)
    }
}

/// What is known of the ways that bytes take.
pub(crate) struct Meters<M> {
    pub down: RateMeter,
    pub up: RateMeter,
    pub write: DiskMeter,
    pub read: DiskMeter,
    /// Copies to the device.
    rising: Spans<M>,
    /// Waits of callers' streams for copies.
    pub waits: Spans<M>,
    /// Rates of the link without anything beside, measured once.
    link: Option<(f64, f64)>,
}

impl<M> Default for Meters<M> {
    fn default() -> Self {
        let (down, up, write, read) = Default::default();
        Self { down, up, write, read, rising: Spans::default(), waits: Spans::default(), link: None }
    }
}

impl<M: Clone> Meters<M> {
    /// What disks are taken to do before they did anything.
    const WRITE: f64 = 1e9;
    const READ: f64 = 2e9;

    /// Takes note of a copy to the device, and of those before it that are over: their marks go, also where nobody asks for rates.
    pub fn rise<L: Lane<Mark = M>>(&mut self, lane: &L, copied: &CopyMarks<M>, bytes: usize) -> Result<()> {
        self.rising.add(copied, bytes);
        for (bytes, seconds) in self.rising.over(lane)? {
            self.up.add(bytes, seconds);
        }
        Ok(())
    }

    pub fn rates<L: Lane<Mark = M>>(&mut self, lane: &L, has_disk: bool) -> Result<LinkRates> {
        for (bytes, seconds) in self.rising.over(lane)? {
            self.up.add(bytes, seconds);
        }
        let link = match self.link {
            Some(link) => link,
            None => *self.link.insert(lane.rates()?),
        };
        let disk = |meter: &DiskMeter, assumed| if has_disk { meter.rate().unwrap_or(assumed) } else { 0.0 };
        Ok(LinkRates {
            down: self.down.rate().unwrap_or(link.0),
            up: self.up.rate().unwrap_or(link.1),
            write: disk(&self.write, Self::WRITE),
            read: disk(&self.read, Self::READ),
        })
    }
}
