//! Batches that are drawn and gathered while nobody trains: how fast the loader is by itself.

use std::time::Instant;

use super::company::Queued;
use super::sampled::Pipeline;
use super::slots::place;
use super::source::Source;
use crate::error::{Error, Result};
use crate::task::Task;
use crate::trainer::draw::Drawing;

impl Pipeline {
    /// Milliseconds a batch over so many of an epoch's first, the next one drawn while the last one's rows are on their way.
    /// `None` where another process loads.
    pub fn load(&mut self, task: &Task, drawing: Drawing, batches: u64) -> Result<Option<f64>> {
        let Self { streams, source, slots, .. } = self;
        if matches!(source, Source::Beside(_)) {
            return Ok(None);
        }
        let nothing = || Error::Stage { stage: "loader", why: "no batch was trained on yet".to_owned() };
        let slots = slots.as_mut().ok_or_else(nothing)?;
        let mut course = source.epoch(drawing, 0)?;
        course.set_window(headwater_feature::WINDOW);
        let last = batches.min(course.count());
        let mut queued = Queued::default();
        let begun = Instant::now();
        let mut done = 0u32;
        for at in 0..last {
            let drawn = course.draw(&streams.sample, at)?;
            if !slots.capacity.holds(&drawn.sizes) {
                continue;
            }
            streams.gather.wait_for(&streams.sample)?;
            course.gather(&streams.gather, task, &drawn, &slots.all[place(at)])?;
            queued.add(&streams.gather)?;
            if at + 1 < last {
                course.begin(&streams.sample, at + 1)?;
            }
            done += 1;
        }
        streams.gather.synchronize()?;
        Ok(Some(1e3 * begun.elapsed().as_secs_f64() / f64::from(done.max(1))))
    }
}
