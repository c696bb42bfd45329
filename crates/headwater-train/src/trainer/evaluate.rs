//! How good a network is: layer by layer over the whole graph, without dropout, then the metric of each split.

use headwater_compile::cpu::fast::Given;

use super::Trainer;
use crate::error::Result;
use crate::loss;
use crate::metric::Meter;
use crate::network::{Read, Stage};

/// The metric of each split; 0 where it has no nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub valid: f64,
    pub test: f64,
}

impl Trainer {
    /// Outputs of all nodes of the type that has labels.
    pub fn predict(&mut self) -> Result<Vec<f32>> {
        let stage = Stage { graph: &self.whole.graph, extras: &self.whole.extras };
        let lent = self.whole.rows.lent();
        let read = self.network.read(lent.inputs())?;
        let mut rows: Option<Vec<f32>> = None;
        for at in 0..self.network.depth() {
            let x = match &rows {
                Some(rows) => Some(Given::Dense(rows)),
                None => read.given(),
            };
            let next = self.network.infer(at, stage, x)?;
            if let Some(before) = rows.replace(next) {
                self.network.give(before);
            }
        }
        if let Read::Made(made) = read {
            self.network.give(made);
        }
        let (columns, first) = (self.task.classes, self.first_row());
        let all = rows.unwrap_or_default();
        let found = all[first * columns..(first + self.task.labels.nodes()) * columns].to_vec();
        self.network.give(all);
        Ok(found)
    }

    /// The metrics of the validation and the test nodes.
    pub(super) fn evaluate(&mut self) -> Result<Measured> {
        let outputs = self.predict()?;
        Ok(Measured {
            valid: self.measure(&outputs, &self.task.valid)?,
            test: self.measure(&outputs, &self.task.test)?,
        })
    }

    fn measure(&self, outputs: &[f32], nodes: &[u64]) -> Result<f64> {
        let columns = self.task.classes;
        let at = |node: &u64| usize::try_from(*node).unwrap_or(usize::MAX);
        let rows: Vec<f32> =
            nodes.iter().flat_map(|node| outputs[at(node) * columns..][..columns].iter().copied()).collect();
        let labels = self.task.labels.of(nodes);
        let mut meter = Meter::new(self.metric, columns);
        meter.add(loss::Rows { outputs: &rows, columns, targets: labels.targets() })?;
        Ok(meter.value().unwrap_or(0.0))
    }
}
