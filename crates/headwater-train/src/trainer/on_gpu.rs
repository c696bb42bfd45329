//! Epochs of a run whose steps are made on a GPU.

use std::sync::Arc;
use std::time::Instant;

use headwater_cuda::Gpu;
use headwater_graph::score::Score;

use super::draw::Drawing;
use super::{Listener, Seconds, Trainer};
use crate::error::{Error, Result};
use crate::features::Fetched;
use crate::gpu::beside::Beside;
use crate::gpu::company::{Company, Repeat};
use crate::gpu::plan::Mode;
use crate::gpu::timeline::{KernelStretch, Stretch};
use crate::gpu::{BroughtRows, Engine, Epoch, Found, Kind, Parts, Step, StepOffload};
use crate::labels::Labels;

impl Trainer {
    /// Brings a run to a GPU. What it does from here on is done there; evaluations and checkpoints are made here.
    pub(super) fn bring(&mut self, gpu: &Gpu, beside: Option<&Beside<'_>>) -> Result<()> {
        // What the data decided, such as that rows are divided by their sums, may be nothing that a GPU's batches have.
        self.config.check_on_gpu(self.task.has_types())?;
        let parts = Parts { beside, ..self.parts() };
        let engine = Engine::new(gpu, parts, &|| Drawing::new(self))?;
        if engine.mode() == Some(Mode::AllGpu) && self.config.scores != Score::Expected {
            let name = self.config.scores.name();
            self.remarks.push(format!("all rows fit the GPU, so none is put before another by its score ({name})"));
        }
        self.remarks.extend(engine.offload().map(|offload| offload.to_string()));
        self.engine = Some(Box::new(engine));
        Ok(())
    }

    /// Whether batches come from a process beside this one.
    #[must_use]
    pub fn has_producer(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| engine.has_producer())
    }

    /// What became of activations, where steps on a GPU see the whole graph and activations may leave.
    #[must_use]
    pub fn offload(&self) -> Option<StepOffload> {
        self.engine.as_ref().and_then(|engine| engine.offload())
    }

    /// Where features lie, where a GPU gathers them batch by batch.
    #[must_use]
    pub fn feature_mode(&self) -> Option<Mode> {
        self.engine.as_ref().and_then(|engine| engine.mode())
    }

    /// Translations of host addresses that a gather has under way, where a GPU reads host memory.
    #[must_use]
    pub fn gather_window(&self) -> Option<u64> {
        self.engine.as_ref().and_then(|engine| engine.gather_window())
    }

    /// Rows of features that were brought to a GPU so far, batch by batch.
    pub fn feature_rows(&mut self) -> Result<BroughtRows> {
        self.engine.as_mut().map_or_else(|| Ok(BroughtRows::default()), |engine| engine.brought())
    }

    /// Milliseconds of a step on a GPU, on a batch again and again, beside another stage: for measurements. The run is
    /// spoilt. Nothing where that stage is in another process.
    pub fn repeat_step(&mut self, times: u32, company: Company) -> Result<Option<f64>> {
        let (step, drawing) = (self.coming_step(0), Drawing::new(self)?);
        let repeat = Repeat { task: &self.task, drawing, step, times, company };
        match &mut self.engine {
            Some(engine) => engine.repeat_step(repeat),
            None => Err(Error::NotOnGpu { why: "the run is on the CPU" }),
        }
    }

    /// Milliseconds of a batch that is drawn and gathered while nobody trains, over so many. Nothing where another process loads.
    pub fn load(&mut self, batches: u64) -> Result<Option<f64>> {
        let drawing = Drawing::new(self)?;
        match &mut self.engine {
            Some(engine) => engine.load(&self.task, drawing, batches),
            None => Err(Error::NotOnGpu { why: "the run is on the CPU" }),
        }
    }

    /// A step on the last batch, kernel by kernel: what ran, and for how many milliseconds. The run is spoilt.
    pub fn kernels(&mut self) -> Result<Vec<(String, f64)>> {
        let step = self.coming_step(0);
        self.engine.as_mut().map_or_else(|| Ok(Vec::new()), |engine| engine.kernels(&step))
    }

    /// Keeps from now on when the stages of every batch ran.
    pub fn keep_timeline(&mut self) {
        if let Some(timeline) = self.engine.as_mut().and_then(|engine| engine.timeline()) {
            timeline.keep();
        }
    }

    /// Keeps from now on when the stages of every batch and their kernels ran. Batches take a little longer.
    pub fn trace(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.trace();
        }
    }

    /// When the kernels of batches ran, where that is kept.
    pub fn traced_kernels(&mut self) -> Vec<KernelStretch> {
        let timeline = self.engine.as_mut().and_then(|engine| engine.timeline());
        timeline.map_or_else(Vec::new, |timeline| timeline.kernels().to_vec())
    }

    /// When the stages of batches ran, where that is kept.
    pub fn timeline(&mut self) -> Vec<Stretch> {
        let timeline = self.engine.as_mut().and_then(|engine| engine.timeline());
        timeline.map_or_else(Vec::new, |timeline| timeline.stretches().to_vec())
    }

    /// Brings back what was learnt on a GPU since the last time.
    pub(super) fn bring_back(&mut self) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        engine.fetch(&mut self.network, &mut self.optimiser)?;
        self.optimiser.set_steps(self.state.step);
        Ok(())
    }

    /// One epoch on a GPU, or what is left of it; nothing when the listener stops it.
    pub(super) fn epoch_on(
        &mut self,
        mut engine: Box<Engine>,
        listener: &dyn Listener,
    ) -> Result<Option<(f64, Seconds)>> {
        let found = match engine.kind() {
            Kind::Full => self.full_epoch_on(&mut engine, listener),
            Kind::Sampled => self.sampled_epoch_on(&mut engine, listener),
            Kind::Apart => self.apart_epoch_on(&mut engine, listener),
        };
        self.engine = Some(engine);
        found
    }

    fn full_epoch_on(&mut self, engine: &mut Engine, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        if listener.should_stop() {
            return Ok(None);
        }
        let begun = Instant::now();
        let found = engine.full_step(&self.coming_step(0))?;
        self.note(found)?;
        listener.batch(1, 1, found.loss);
        Ok(Some((found.loss, Seconds { compute: begun.elapsed().as_secs_f64(), ..Seconds::default() })))
    }

    fn sampled_epoch_on(&mut self, engine: &mut Engine, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        let batches = self.task.train.len().div_ceil(self.config.batch) as u64;
        // The engine reads features of the task while the run is told what was found.
        let (config, task) = (self.config.clone(), Arc::clone(&self.task));
        let mut epoch = Told { run: self, listener, batches, is_stopped: false };
        let seconds = engine.sampled_epoch(&config, &task, &mut epoch)?;
        let is_stopped = epoch.is_stopped && self.state.batch < batches;
        Ok((!is_stopped).then(|| (self.mean_loss(), seconds)))
    }

    fn apart_epoch_on(&mut self, engine: &mut Engine, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        let drawing = Drawing::new(self)?;
        let (batches, mut seconds) = (drawing.count(), Seconds::default());
        while self.state.batch < batches {
            if listener.should_stop() {
                return Ok(None);
            }
            let begun = Instant::now();
            let batch = drawing.batch(self.state.batch)?;
            let drawn = Instant::now();
            let ids: Vec<&[u64]> = batch.sample.nodes.iter().map(|nodes| nodes.ids.as_slice()).collect();
            let features = self.reader().copied(&ids, &mut |len| vec![0.0; len])?;
            let gathered = Instant::now();
            let x = features.iter().flatten().find_map(|rows| match rows {
                Fetched::Copied(rows) => Some(rows.as_slice()),
                Fetched::InPlace(_) => None,
            });
            let found = engine.apart_step(&batch, x, &self.coming_step(0))?;
            if let Err(why) = self.note(found) {
                self.reader().check(&features, &ids)?;
                return Err(why);
            }
            self.note_loss(found.loss);
            seconds.sample += (drawn - begun).as_secs_f64();
            seconds.gather += (gathered - drawn).as_secs_f64();
            seconds.compute += gathered.elapsed().as_secs_f64();
            listener.batch(self.state.batch, batches, found.loss);
        }
        Ok(Some((self.mean_loss(), seconds)))
    }

    /// What the step that comes so many steps from now is made with.
    fn coming_step(&self, ahead: u64) -> Step {
        let number = self.state.step + ahead;
        Step { rate: self.schedule.at(number), number, key: self.key_of_step(number) }
    }

    /// Notes that a step is over.
    fn note(&mut self, found: Found) -> Result<()> {
        self.check_finite("loss", found.loss)?;
        self.check_finite("norm of the gradients", found.norm)?;
        self.state.step += 1;
        Ok(())
    }

    fn parts(&self) -> Parts<'_> {
        let Self { config, task, network, optimiser, whole, loss, folder, .. } = self;
        Parts { config, task, network, optimiser, whole, loss: *loss, run: folder.path(), beside: None }
    }

    /// Whether a feature of a batch is to blame for a number that is none.
    fn blame(&self, batch: u64) -> Result<()> {
        let (_, sample) = Drawing::new(self)?.sample(batch)?;
        let ids: Vec<&[u64]> = sample.nodes.iter().map(|nodes| nodes.ids.as_slice()).collect();
        let rows = self.reader().copied(&ids, &mut |len| vec![0.0; len])?;
        self.reader().check(&rows, &ids)
    }
}

/// An epoch of a run, as its engine asks for it.
struct Told<'a> {
    run: &'a mut Trainer,
    listener: &'a dyn Listener,
    batches: u64,
    is_stopped: bool,
}

impl Epoch for Told<'_> {
    fn first(&self) -> u64 {
        self.run.state.batch
    }

    fn drawing(&self) -> Result<Drawing> {
        Drawing::new(self.run)
    }

    fn labels(&self, seeds: &[u64]) -> Labels {
        self.run.task.labels.of(seeds)
    }

    fn step(&self, ahead: u64) -> Step {
        self.run.coming_step(ahead)
    }

    fn done(&mut self, found: Found) -> Result<bool> {
        if let Err(why @ Error::NotFinite { .. }) = self.run.note(found) {
            // Whoever looks for the reason is told the feature, if there is one.
            self.run.blame(self.run.state.batch)?;
            return Err(why);
        }
        self.run.note_loss(found.loss);
        self.listener.batch(self.run.state.batch, self.batches, found.loss);
        self.is_stopped |= self.listener.should_stop();
        Ok(!self.is_stopped)
    }
}
