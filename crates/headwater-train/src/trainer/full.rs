//! Steps that see the whole graph.

use std::time::Instant;

use super::{Listener, Seconds, Trainer};
use crate::error::Result;
use crate::loss;
use crate::network::Stage;

impl Trainer {
    /// One step over all training nodes.
    pub(super) fn full_epoch(&mut self, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        if listener.should_stop() {
            return Ok(None);
        }
        let begun = Instant::now();
        let step = self.step_key();
        let Some(held) = &self.whole.held else { return Ok(None) };
        let stage = Stage { graph: &held.graph, extras: &held.extras };
        let stages = vec![stage; self.network.depth()];
        let lent = held.rows.lent();
        let trace = self.network.forward(&stages, lent.inputs(), step)?;
        let labels = self.task.labels.only(&self.task.train);
        let first = self.first_row();
        let columns = self.task.classes;
        let mut gradient = vec![0.0; trace.outputs().len()];
        let own = first * columns..(first + labels.nodes()) * columns;
        let rows = loss::Rows { outputs: &trace.outputs()[own.clone()], columns, targets: labels.targets() };
        let found = self.loss.of(rows, &mut gradient[own])?;
        self.check_finite("loss", found.mean)?;
        let gradients = self.network.backward(&stages, lent.inputs(), trace, gradient)?;
        self.step(gradients)?;
        listener.batch(1, 1, found.mean);
        let seconds = Seconds { compute: begun.elapsed().as_secs_f64(), ..Seconds::default() };
        Ok(Some((found.mean, seconds)))
    }

    /// The row of the first node of the type that has labels, among nodes of all types.
    pub(super) fn first_row(&self) -> usize {
        let before = self.task.node_counts().into_iter().take(self.task.node_type).sum::<u64>();
        usize::try_from(before).unwrap_or(usize::MAX)
    }
}
