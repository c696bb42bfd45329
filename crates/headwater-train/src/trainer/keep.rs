//! Which weights stay: those of the last checkpoints, and those of the best epoch.
//!
//! An epoch over a whole small graph takes milliseconds, and a file that outlasts a crash many times that. So a best epoch that
//! no checkpoint is due after is held in memory and written with the next checkpoint, before it. A run that is killed before
//! goes on from the checkpoint before, and finds the same best epoch again.

use super::Trainer;
use crate::array::Array;
use crate::checkpoint::{Checkpoints, Snapshot, State};
use crate::error::Result;
use crate::optimiser::Optimiser;
use crate::parameter::Parameters;

/// A run as it was after its best epoch.
#[derive(Debug)]
pub(super) struct Kept {
    state: State,
    parameters: Parameters,
    optimiser: Optimiser,
    buffers: Vec<Array>,
}

impl Trainer {
    /// Holds the weights as they are: those of the best epoch so far.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.bring_back()?;
        self.note_journal();
        self.kept = Some(Box::new(Kept {
            state: self.state.clone(),
            parameters: self.network.parameters.clone(),
            optimiser: self.optimiser.clone(),
            buffers: self.network.buffers(),
        }));
        Ok(())
    }

    /// Writes a checkpoint, and before it the best epoch where that is not written yet.
    pub(super) fn save(&mut self) -> Result<()> {
        self.bring_back()?;
        self.journal.sync()?;
        self.note_journal();
        let checkpoints = Checkpoints::new(&self.folder.path().join("checkpoints"), self.config.keep);
        if let Some(kept) = self.kept.as_ref().filter(|kept| kept.state.step < self.state.step) {
            checkpoints.save(Snapshot {
                state: &kept.state,
                fingerprint: &self.fingerprint,
                parameters: &kept.parameters,
                optimiser: &kept.optimiser,
                buffers: &kept.buffers,
            })?;
        }
        checkpoints.save(Snapshot {
            state: &self.state,
            fingerprint: &self.fingerprint,
            parameters: &self.network.parameters,
            optimiser: &self.optimiser,
            buffers: &self.network.buffers(),
        })?;
        self.kept = None;
        Ok(())
    }

    fn note_journal(&mut self) {
        self.state.journal_bytes = self.journal.bytes();
        self.state.journal_sum = Some(self.journal.sum());
    }

    /// A checkpoint that cannot be written does not end the run: the one before stays.
    pub(super) fn save_or_go_on(&mut self) {
        self.unsaved.checkpoint = self.save().err().map(|why| why.to_string());
        if let Some(why) = &self.unsaved.checkpoint {
            log::warn!("no checkpoint was written, training goes on: {why}");
        }
    }
}
