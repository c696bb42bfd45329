//! What nodes should be: one class each, a yes or no for each of several questions, or numbers.
//!
//! The kind of a dataset's labels decides what is minimised and what is measured, where a run does not say.

mod open;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::loss::{Loss, Targets, UNLABELLED};
use crate::metric::Metric;

/// Labels of nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    /// The class of each node; -1 is none.
    Classes(Vec<i64>),
    /// Numbers of each node; NaN is none.
    Values {
        /// Node by node.
        values: Vec<f32>,
        /// Numbers of a node.
        columns: usize,
        /// What they say.
        says: Says,
    },
}

/// What numbers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// Yes or no: 1 or 0.
    YesOrNo,
    /// How much.
    HowMuch,
}

impl Labels {
    /// How many nodes they are of.
    #[must_use]
    pub fn nodes(&self) -> usize {
        match self {
            Self::Classes(labels) => labels.len(),
            Self::Values { values, columns, .. } => values.len().checked_div(*columns).unwrap_or(0),
        }
    }

    /// Whether anything is known of a node.
    #[must_use]
    pub fn is_known(&self, node: u64) -> bool {
        let Ok(at) = usize::try_from(node) else { return false };
        match self {
            Self::Classes(labels) => labels.get(at).is_some_and(|label| *label >= 0),
            Self::Values { values, columns, .. } => {
                let own = values.chunks(*columns).nth(at);
                own.is_some_and(|own| own.iter().any(|value| !value.is_nan()))
            }
        }
    }

    /// As losses and metrics take them.
    #[must_use]
    pub fn targets(&self) -> Targets<'_> {
        match self {
            Self::Classes(labels) => Targets::Classes(labels),
            Self::Values { values, .. } => Targets::Values(values),
        }
    }

    /// Those of some nodes, in their order.
    #[must_use]
    pub fn of(&self, nodes: &[u64]) -> Self {
        match self {
            Self::Classes(labels) => Self::Classes(nodes.iter().map(|node| labels[at(*node)]).collect()),
            Self::Values { values, columns, says } => {
                let rows = nodes.iter().flat_map(|node| &values[at(*node) * columns..][..*columns]);
                Self::Values { values: rows.copied().collect(), columns: *columns, says: *says }
            }
        }
    }

    /// Those of some nodes where they are; the others have none.
    #[must_use]
    pub fn only(&self, nodes: &[u64]) -> Self {
        match self {
            Self::Classes(labels) => {
                let mut found = vec![UNLABELLED; labels.len()];
                nodes.iter().map(|node| at(*node)).for_each(|node| found[node] = labels[node]);
                Self::Classes(found)
            }
            Self::Values { values, columns, says } => {
                let mut found = vec![f32::NAN; values.len()];
                for first in nodes.iter().map(|node| at(*node) * columns) {
                    found[first..first + columns].copy_from_slice(&values[first..first + columns]);
                }
                Self::Values { values: found, columns: *columns, says: *says }
            }
        }
    }

    /// What is minimised where nothing else is said.
    #[must_use]
    pub fn usual_loss(&self) -> Loss {
        match self {
            Self::Classes(_) => Loss::CrossEntropy,
            Self::Values { says: Says::YesOrNo, .. } => Loss::Bce,
            Self::Values { says: Says::HowMuch, .. } => Loss::Mse,
        }
    }

    /// What is measured where nothing else is said.
    #[must_use]
    pub fn usual_metric(&self) -> Metric {
        match self {
            Self::Classes(_) => Metric::Accuracy,
            Self::Values { says: Says::YesOrNo, .. } => Metric::F1Micro,
            Self::Values { says: Says::HowMuch, .. } => Metric::R2,
        }
    }

    /// Refuses a loss or a metric that these labels are nothing for. `columns` are the outputs of a node.
    pub fn check(&self, loss: Loss, metric: Metric, columns: usize) -> Result<()> {
        let unfit = |what, expected| Err(Error::TargetKind { what, expected, found: self.name(columns) });
        match (self, loss) {
            (Self::Classes(_), Loss::Bce | Loss::Mse) => return unfit(loss.name(), "a number for each output"),
            (Self::Values { .. }, Loss::CrossEntropy | Loss::Nll) => return unfit(loss.name(), "one class a node"),
            _ => {}
        }
        match (self, metric) {
            (Self::Classes(_), Metric::R2) => unfit(metric.name(), "a number for each output"),
            (Self::Classes(_), Metric::RocAuc) if columns != 2 => {
                unfit(metric.name(), "a yes or no for each output, or two classes")
            }
            (
                Self::Values { says: Says::HowMuch, .. },
                Metric::Accuracy | Metric::F1Micro | Metric::F1Macro | Metric::RocAuc,
            ) => unfit(metric.name(), "classes, or a yes or no for each output"),
            _ => Ok(()),
        }
    }

    /// In words.
    fn name(&self, columns: usize) -> String {
        match self {
            Self::Classes(_) => format!("one of {columns} classes a node"),
            Self::Values { says: Says::YesOrNo, .. } => format!("{columns} times yes or no a node"),
            Self::Values { says: Says::HowMuch, .. } => format!("{columns} numbers a node"),
        }
    }
}

fn at(node: u64) -> usize {
    usize::try_from(node).unwrap_or(usize::MAX)
}
