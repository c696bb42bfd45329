//! What fields mean to the parts of a run.

use headwater_compile::Optimisations;
use headwater_compile::cuda::{Precision, Tuning};

use super::defaults::published_patience;
use super::{Course, OffloadTo, OptimiserName, PrecisionName, RunConfig, Tune};
use crate::early_stop::Patience;
use crate::error::Result;
use crate::optimiser::{Adam, Group, Rule, Sgd};
use crate::schedule::{self, Schedule};

impl From<PrecisionName> for Precision {
    fn from(name: PrecisionName) -> Self {
        match name {
            PrecisionName::F32 => Self::F32,
            PrecisionName::Tf32 => Self::Tf32,
            PrecisionName::Tf32x3 => Self::Tf32x3,
            PrecisionName::Bf16 => Self::Bf16,
        }
    }
}

impl RunConfig {
    /// Those of `all` that layers are compiled with.
    pub(crate) fn optimisations(&self, all: Optimisations) -> Result<Optimisations> {
        Ok(all.without(self.without.as_deref().unwrap_or_default())?)
    }

    /// How schedules of kernels are chosen.
    pub(crate) fn tuning(&self) -> Tuning {
        self.tune.map_or(Tuning::Fixed, |Tune(tuning)| tuning)
    }

    /// What may become of activations, each named.
    pub(crate) fn offload_to(&self) -> Vec<OffloadTo> {
        let has_folder = self.offload_folder.is_some();
        self.offload.iter().flatten().flat_map(|to| to.all(has_folder)).collect()
    }

    /// By which share of its time a step may become longer where activations leave.
    pub(crate) fn offload_slack(&self) -> f64 {
        const USUAL: f64 = 0.02;
        self.offload_slack.unwrap_or(USUAL)
    }

    /// How exact products are on a GPU.
    pub(crate) fn precision(&self) -> Precision {
        self.precision.into()
    }

    /// Width of what the first layer reads where it is made, and of a learnt row.
    #[must_use]
    pub fn input_widths(&self) -> (usize, usize) {
        let or = |width: usize, other: usize| if width > 0 { width } else { other };
        let width = or(self.input_width, self.hidden);
        (width, or(self.embedding, width))
    }

    /// How steps are taken.
    #[must_use]
    pub fn rule(&self) -> Rule {
        match self.optimiser {
            OptimiserName::Sgd => Rule::Sgd(Sgd { momentum: self.momentum, nesterov: self.nesterov }),
            OptimiserName::Adam => Rule::Adam(Adam::default()),
            OptimiserName::AdamW => Rule::AdamW(Adam::default()),
        }
    }

    /// The groups of parameters: those of the first layer, those of the others, and rows that are learnt for nodes. The last
    /// do not decay: a step over a batch sees few of them, and rows that are seen more often would decay faster.
    #[must_use]
    pub fn groups(&self) -> [Group; 3] {
        let decay = if self.decay_first_layer_only { 0.0 } else { self.decay };
        [Group { decay: self.decay }, Group { decay }, Group { decay: 0.0 }]
    }

    /// The group of rows that are learnt for nodes.
    pub(crate) const LEARNT_ROWS: usize = 2;

    /// Which of the groups the parameters of a layer are in.
    #[must_use]
    pub fn group_of_layer(layer: usize) -> usize {
        usize::from(layer > 0)
    }

    /// The learning rate of a run whose epochs have so many steps.
    #[must_use]
    pub fn schedule(&self, epoch_steps: u64) -> Schedule {
        let course = match self.schedule {
            Course::Constant => schedule::Course::Constant,
            Course::Step => schedule::Course::Step { every_epochs: self.schedule_epochs, gamma: self.schedule_gamma },
            Course::Cosine => schedule::Course::Cosine { floor: self.schedule_floor },
        };
        let total_steps = self.epochs.saturating_mul(epoch_steps);
        Schedule { rate: self.rate, course, warmup_steps: self.warmup_steps, total_steps, epoch_steps }
    }

    /// When to stop early, if ever.
    #[must_use]
    pub fn patience(&self) -> Option<Patience> {
        let epochs = self.patience.unwrap_or_else(|| published_patience(&self.model));
        (epochs > 0).then_some(Patience { epochs, min_delta: self.min_delta })
    }

    /// Whether rows of features are divided by their sums. A run that was opened has decided.
    #[must_use]
    pub fn normalises(&self) -> bool {
        self.normalise_features == Some(true)
    }

    /// The largest norm of all gradients together, if there is one.
    #[must_use]
    pub fn most_norm(&self) -> Option<f64> {
        (self.clip > 0.0).then_some(self.clip)
    }
}
