//! Steps over batches of training nodes. While one is computed the next is drawn: threads that have nothing to do with the
//! one find work in the other.

use std::time::Instant;

use super::draw::{Batch, Drawing};
use super::{Listener, Seconds, Trainer};
use crate::error::{Error, Result};
use crate::features::{Fetched, Lent, Reader};
use crate::loss;
use crate::network::Stage;

impl Trainer {
    /// All batches of an epoch that are not done yet.
    pub(super) fn sampled_epoch(&mut self, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        let drawing = Drawing::new(self)?;
        let draw = |at: u64| {
            let begun = Instant::now();
            drawing.batch(at).map(|batch| (batch, begun.elapsed().as_secs_f64()))
        };
        let batches = drawing.count();
        let (mut seconds, mut next) = (Seconds::default(), None);
        while self.state.batch < batches {
            if listener.should_stop() {
                return Ok(None);
            }
            let at = self.state.batch;
            let (batch, took) = next.take().unwrap_or_else(|| draw(at))?;
            seconds.sample += took;
            let loss;
            (loss, next) =
                rayon::join(|| self.train_on(&batch, &mut seconds), || (at + 1 < batches).then(|| draw(at + 1)));
            let loss = loss?;
            self.note_loss(loss);
            listener.batch(self.state.batch, batches, loss);
        }
        Ok(Some((self.mean_loss(), seconds)))
    }

    /// Reads the features of a batch, and makes a step.
    fn train_on(&mut self, batch: &Batch, seconds: &mut Seconds) -> Result<f64> {
        let begun = Instant::now();
        let ids: Vec<&[u64]> = batch.sample.nodes.iter().map(|nodes| nodes.ids.as_slice()).collect();
        let features = self.features_of(&ids)?;
        let gathered = Instant::now();
        let loss = match self.sampled_step(batch, &features, &ids) {
            // Whoever looks for the reason is told the feature, if there is one.
            Err(why @ Error::NotFinite { .. }) => {
                self.reader().check(&features, &ids)?;
                return Err(why);
            }
            found => found?,
        };
        for rows in features.into_iter().flatten() {
            if let Fetched::Copied(rows) = rows {
                self.network.give(rows);
            }
        }
        seconds.gather += (gathered - begun).as_secs_f64();
        seconds.compute += gathered.elapsed().as_secs_f64();
        Ok(loss)
    }

    /// Reads features as the network wants them.
    pub(super) fn reader(&self) -> Reader<'_> {
        let (plan, normalise) = (self.network.input_plan().clone(), self.config.normalises());
        Reader { task: &self.task, plan, normalise }
    }

    /// The features of some nodes of each type, in memory that is used again.
    fn features_of(&mut self, ids: &[&[u64]]) -> Result<Vec<Option<Fetched>>> {
        let mut free = std::mem::take(&mut self.network.workspace);
        let found = self.reader().read(ids, &mut |len| free.take(len));
        self.network.workspace = free;
        found
    }

    fn sampled_step(&mut self, batch: &Batch, features: &[Option<Fetched>], ids: &[&[u64]]) -> Result<f64> {
        let step = self.step_key();
        let lent = Lent::listed(&self.task, features, ids);
        let stages: Vec<Stage<'_>> = batch.blocks.iter().map(|(graph, extras)| Stage { graph, extras }).collect();
        let trace = self.network.forward(&stages, lent.inputs(), step)?;
        let columns = self.task.classes;
        // Seeds are of one type, so they are all that the last layer writes.
        let mut gradient = self.network.take(trace.outputs().len());
        let rows = loss::Rows { outputs: trace.outputs(), columns, targets: batch.labels.targets() };
        let found = self.loss.of(rows, &mut gradient)?;
        self.check_finite("loss", found.mean)?;
        let gradients = self.network.backward(&stages, lent.inputs(), trace, gradient)?;
        self.step(gradients)?;
        Ok(found.mean)
    }
}
