//! Steps that see the whole graph.

use std::time::Instant;

use headwater_compile::cpu::fast::{Given, SparseRows};

use super::{Listener, MOST_FILLED, Rows, Seconds, Trainer};
use crate::blocks::scales;
use crate::error::Result;
use crate::loss::{self, Targets};
use crate::network::Stage;

impl Rows {
    pub(super) fn given(&self) -> Given<'_> {
        match self {
            Self::Dense(values) => Given::Dense(values),
            Self::Sparse(rows) => Given::Sparse(rows),
        }
    }
}

impl Trainer {
    /// Everything that steps and evaluations over the whole graph read.
    pub(super) fn prepare_whole(&mut self) -> Result<()> {
        let all = self.whole.degrees.concat();
        self.whole.extras = scales(&all, &all, &self.whole.graph);
        let Some(width) = self.task.width else { return Ok(()) };
        let ids: Vec<Vec<u64>> = self.task.node_counts().into_iter().map(|count| (0..count).collect()).collect();
        let lists: Vec<&[u64]> = ids.iter().map(Vec::as_slice).collect();
        let mut rows = vec![0.0; lists.iter().map(|ids| ids.len()).sum::<usize>() * width];
        self.task.gather(&lists, &mut rows)?;
        if self.config.normalise_features {
            normalise(&mut rows, width);
        }
        self.whole.rows = Some(match SparseRows::of(&rows, width, MOST_FILLED) {
            Some(sparse) => Rows::Sparse(sparse),
            None => Rows::Dense(rows),
        });
        Ok(())
    }

    /// One step over all training nodes.
    pub(super) fn full_epoch(&mut self, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        if listener.should_stop() {
            return Ok(None);
        }
        let begun = Instant::now();
        let step = self.step_key();
        let stage = Stage { graph: &self.whole.graph, extras: &self.whole.extras };
        let stages = vec![stage; self.network.depth()];
        let x = self.whole.rows.as_ref().map(Rows::given);
        let trace = self.network.forward(&stages, x, step)?;
        let labels = self.training_labels();
        let first = self.first_row();
        let columns = self.task.classes;
        let mut gradient = vec![0.0; trace.outputs().len()];
        let own = first * columns..(first + labels.len()) * columns;
        let rows = loss::Rows { outputs: &trace.outputs()[own.clone()], columns, targets: Targets::Classes(&labels) };
        let found = self.config.loss.of(rows, &mut gradient[own])?;
        self.check_loss(found.mean)?;
        let gradients = self.network.backward(&stages, x, trace, gradient)?;
        self.step(gradients)?;
        listener.batch(1, 1, found.mean);
        let seconds = Seconds { compute: begun.elapsed().as_secs_f64(), ..Seconds::default() };
        Ok(Some((found.mean, seconds)))
    }

    /// Labels of training nodes; -1 for all others.
    fn training_labels(&self) -> Vec<i64> {
        let mut labels = vec![-1; self.task.labels.len()];
        for node in &self.task.train {
            let at = usize::try_from(*node).unwrap_or(usize::MAX);
            labels[at] = self.task.labels[at];
        }
        labels
    }

    /// The row of the first node of the type that has labels, among nodes of all types.
    pub(super) fn first_row(&self) -> usize {
        let before = self.task.node_counts().into_iter().take(self.task.node_type).sum::<u64>();
        usize::try_from(before).unwrap_or(usize::MAX)
    }
}

/// Every row over the sum of its elements, as published features of documents are used.
pub(super) fn normalise(rows: &mut [f32], width: usize) {
    for row in rows.chunks_exact_mut(width) {
        let sum: f32 = row.iter().sum();
        if sum > 0.0 {
            row.iter_mut().for_each(|x| *x /= sum);
        }
    }
}
