//! When the stages of batches ran, by the GPU's own clock.

use headwater_cuda::{Event, Gpu, Stream, TracedLaunch};
use serde::Serialize;

use crate::error::Result;
use crate::trainer::Seconds;

/// Batches whose marks are kept until they are read: more than are ever under way.
const KEPT: u64 = 4;

/// What happens to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Neighbours are drawn.
    Sample,
    /// Tables of blocks are made.
    Blocks,
    /// Features are brought.
    Gather,
    /// A step is made.
    Train,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Sample, Self::Blocks, Self::Gather, Self::Train];
}

/// A stage of a batch, in milliseconds since the timeline began.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stretch {
    /// What.
    pub stage: Stage,
    /// Of which batch of its epoch.
    pub batch: u64,
    /// From when.
    pub begin_ms: f64,
    /// To when.
    pub end_ms: f64,
}

/// A kernel, in milliseconds since the timeline began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelStretch {
    /// The stage that it is part of.
    pub stage: Stage,
    /// What it does.
    pub name: String,
    /// From when.
    pub begin_ms: f64,
    /// To when.
    pub end_ms: f64,
}

/// Marks on streams, and what they said.
#[derive(Debug)]
pub(crate) struct Timeline {
    began: Option<Event>,
    marks: Vec<[Event; 2]>,
    seconds: Seconds,
    last_end_ms: f64,
    /// Every stretch, where somebody wants to see them.
    stretches: Option<Vec<Stretch>>,
    kernels: Vec<KernelStretch>,
}

impl Timeline {
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let pair = |_| Ok([Event::timed(gpu)?, Event::timed(gpu)?]);
        let marks = (0..KEPT * Stage::ALL.len() as u64).map(pair).collect::<Result<_>>()?;
        Ok(Self {
            began: None,
            marks,
            seconds: Seconds::default(),
            last_end_ms: 0.0,
            stretches: None,
            kernels: Vec::new(),
        })
    }

    /// Keeps every stretch from now on.
    pub fn keep(&mut self) {
        self.stretches.get_or_insert_with(Vec::new);
    }

    /// Every stretch so far.
    pub fn stretches(&self) -> &[Stretch] {
        self.stretches.as_deref().unwrap_or_default()
    }

    /// Every kernel so far, of streams whose launches are kept.
    pub fn kernels(&self) -> &[KernelStretch] {
        &self.kernels
    }

    /// Takes over the launches of a stage's stream that are over.
    pub fn add_kernels(&mut self, stage: Stage, stream: &Stream) -> Result<()> {
        let Some(began) = &self.began else { return Ok(()) };
        for TracedLaunch { name, begin, end } in stream.take_traced()? {
            let (begin_ms, end_ms) = (f64::from(begin.ms_since(began)?), f64::from(end.ms_since(began)?));
            self.kernels.push(KernelStretch { stage, name, begin_ms, end_ms });
        }
        Ok(())
    }

    /// Seconds of the stages since this was last asked for. They overlap.
    pub fn take(&mut self) -> Seconds {
        std::mem::take(&mut self.seconds)
    }

    pub fn begin(&mut self, stage: Stage, batch: u64, stream: &Stream) -> Result<()> {
        if self.began.is_none() {
            let began = Event::timed(stream.gpu())?;
            began.record_on(stream)?;
            self.began = Some(began);
        }
        Ok(self.of(stage, batch)[0].record_on(stream)?)
    }

    pub fn end(&mut self, stage: Stage, batch: u64, stream: &Stream) -> Result<()> {
        Ok(self.of(stage, batch)[1].record_on(stream)?)
    }

    /// Reads the marks of a batch whose stages are over. Milliseconds since the end of the batch before.
    pub fn close(&mut self, batch: u64) -> Result<f64> {
        let Some(began) = &self.began else { return Ok(0.0) };
        let mut last_ms = self.last_end_ms;
        for stage in Stage::ALL {
            let [begin, end] = self.of(stage, batch);
            let (begin_ms, end_ms) = (f64::from(begin.ms_since(began)?), f64::from(end.ms_since(began)?));
            let total = match stage {
                Stage::Sample | Stage::Blocks => &mut self.seconds.sample,
                Stage::Gather => &mut self.seconds.gather,
                Stage::Train => &mut self.seconds.compute,
            };
            *total += (end_ms - begin_ms) / 1e3;
            if let Some(kept) = &mut self.stretches {
                kept.push(Stretch { stage, batch, begin_ms, end_ms });
            }
            last_ms = end_ms;
        }
        Ok(last_ms - std::mem::replace(&mut self.last_end_ms, last_ms))
    }

    fn of(&self, stage: Stage, batch: u64) -> &[Event; 2] {
        let place = (batch % KEPT) * Stage::ALL.len() as u64 + stage as u64;
        &self.marks[usize::try_from(place).unwrap_or(0)]
    }
}
