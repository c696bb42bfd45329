//! A run as it was at one moment, on disk.
//!
//! A checkpoint is one file, `step-N.safetensors`. Arrays are its tensors, and everything else is JSON in its metadata, so
//! that one rename is the moment from which it counts: no crash leaves half of one. `step-N.json` beside it says the same
//! for people; nothing reads it. `write.rs` and `read.rs` are the file, `folder.rs` is all files of a run and
//! `fingerprint.rs` tells whose they are.

mod fingerprint;
mod folder;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use fingerprint::Fingerprint;
pub use folder::{Checkpoints, Entry};

use crate::array::Array;
use crate::early_stop::EarlyStop;
use crate::error::{Error, Result};
use crate::optimiser::Optimiser;
use crate::parameter::Parameters;
use crate::run_config::Watch;

/// The newest format that is read, and the one that is written.
const VERSION: u64 = 1;

/// Where a run stands, besides its arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Epochs that are done.
    pub epoch: u64,
    /// Batches of the next one that are done.
    pub batch: u64,
    /// Steps that were taken in all.
    pub step: u64,
    /// The seed of the run. With the counters it names every random number still to come.
    pub seed: u64,
    /// The best value so far.
    pub best: Option<Best>,
    /// How long nothing got better.
    pub early_stop: EarlyStop,
    /// How long the loss of the validation nodes got no better.
    #[serde(default)]
    pub loss_stop: EarlyStop,
    /// Length of the journal that belongs to this moment.
    pub journal_bytes: u64,
    /// Checksum of that journal. Absent in earlier checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_sum: Option<String>,
    /// Sum of the losses of the nodes of the batches that are done. Absent in the first checkpoints there were.
    #[serde(default)]
    pub losses: f64,
}

/// The best value of a run, and when it was reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The metric, where it had a value; finite.
    pub value: Option<f64>,
    /// The epoch it was reached in, from 1.
    pub epoch: u64,
    /// The step it was reached at, which names its checkpoint.
    pub step: u64,
    /// The loss that went with it: of two that are as good, the one with less is better.
    #[serde(default)]
    pub loss: Option<f64>,
}

impl Best {
    /// Whether its loss is less, where that is what is watched; else whether its value is larger, or as large with less loss.
    #[must_use]
    pub fn is_better_than(&self, other: &Self, watch: Watch) -> bool {
        let has_less_loss = self.loss.zip(other.loss).is_some_and(|(own, other)| own < other);
        match watch {
            Watch::Loss => has_less_loss,
            Watch::Metric | Watch::Either => self.value > other.value || (self.value == other.value && has_less_loss),
        }
    }

    /// Whether it has what is watched.
    #[must_use]
    pub fn is_told_by(&self, watch: Watch) -> bool {
        match watch {
            Watch::Loss => self.loss.is_some(),
            Watch::Metric | Watch::Either => self.value.is_some(),
        }
    }
}

/// What is to be saved, where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// Where the run stands.
    pub state: &'a State,
    /// Whose parameters these are.
    pub fingerprint: &'a Fingerprint,
    /// What is learned.
    pub parameters: &'a Parameters,
    /// How.
    pub optimiser: &'a Optimiser,
    /// Arrays that are neither, such as running means. Their names are their own.
    pub buffers: &'a [Array],
}

/// What was saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Where the run stood.
    pub state: State,
    /// Whose parameters these are.
    pub fingerprint: Fingerprint,
    /// Steps of the optimiser.
    pub optimiser_steps: u64,
    /// What was learned.
    pub parameters: Vec<Array>,
    /// What the optimiser remembers.
    pub optimiser: Vec<Array>,
    /// Arrays that are neither.
    pub buffers: Vec<Array>,
}

impl Checkpoint {
    /// Reads one and makes sure that it says what was written.
    pub fn read(path: &Path) -> Result<Self> {
        read::read(path)
    }

    /// Refuses a checkpoint of another model and names the first difference.
    pub fn check(&self, model: &Fingerprint) -> Result<()> {
        match self.fingerprint.first_difference(model) {
            None => Ok(()),
            Some(difference) => Err(Error::OtherModel { difference }),
        }
    }

    /// Puts everything back where it was and returns what the caller keeps itself. The parameters are of the model that
    /// [`check`](Self::check) was asked about.
    pub fn restore(self, parameters: &mut Parameters, optimiser: &mut Optimiser) -> Result<(State, Vec<Array>)> {
        optimiser.restore(self.optimiser_steps, self.optimiser)?;
        parameters.restore(self.parameters)?;
        Ok((self.state, self.buffers))
    }
}

/// The metadata of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Meta {
    version: u64,
    state: State,
    fingerprint: Fingerprint,
    optimiser_steps: u64,
}

/// Keys of the file's metadata.
const META_KEY: &str = "headwater";
const SUM_KEY: &str = "blake3";

/// What an array is for; the first part of its name in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Parameter,
    Optimiser,
    Buffer,
}

impl Part {
    const ALL: [Self; 3] = [Self::Parameter, Self::Optimiser, Self::Buffer];

    fn prefix(self) -> &'static str {
        match self {
            Self::Parameter => "parameter/",
            Self::Optimiser => "optimiser/",
            Self::Buffer => "buffer/",
        }
    }

    /// The part and the rest of a name in the file.
    fn split(name: &str) -> Option<(Self, &str)> {
        Self::ALL.iter().find_map(|&part| name.strip_prefix(part.prefix()).map(|rest| (part, rest)))
    }
}

/// The checksum of a checkpoint: of what it says, array by array.
struct Sum(blake3::Hasher);

impl Sum {
    fn new(meta: &str) -> Self {
        let mut sum = Self(blake3::Hasher::new());
        sum.text(meta);
        sum
    }

    /// Lengths come first, so that no two lists of texts and arrays look the same.
    fn text(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }

    fn array(&mut self, name: &str, shape: &[usize]) {
        self.text(name);
        self.text(&format!("{shape:?}"));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}
