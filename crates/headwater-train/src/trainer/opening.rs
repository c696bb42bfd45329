//! How a run begins: anew, or where its newest checkpoint says.

use std::path::Path;

use super::JOURNAL;
use crate::checkpoint::{Checkpoints, Fingerprint, State};
use crate::early_stop::EarlyStop;
use crate::error::{Error, Result};
use crate::journal::{self, Journal};
use crate::network::Network;
use crate::optimiser::Optimiser;
use crate::run_config::{Course, RunConfig, RunFile};
use crate::run_folder::{Purpose, RunFolder};
use crate::whole_file::{Real, sweep};

/// What a run puts beside its checkpoints, each at once.
const FILES: [&str; 4] = ["config.toml", "dataset.json", "summary.json", "curves.svg"];

/// The first state of a run, or that of its newest checkpoint; and the journal cut back to it.
pub(super) fn begin(
    config: &RunConfig,
    folder: &mut RunFolder,
    fingerprint: &Fingerprint,
    network: &mut Network,
    optimiser: &mut Optimiser,
) -> Result<(State, Journal)> {
    let path = folder.path().to_owned();
    let journal = path.join(JOURNAL);
    // The folder is this process's alone, so what nobody finished was left by one that was killed.
    sweep(&Real, &path, |name| FILES.contains(&name));
    let checkpoints = Checkpoints::new(&path.join("checkpoints"), config.keep);
    let Some(checkpoint) = checkpoints.newest()? else {
        if folder.purpose() == Purpose::Resume {
            begin_again(config, &path)?;
        }
        config.write(&path.join("config.toml"))?;
        let journal = Journal::create(&journal)?;
        folder.settle();
        return Ok((first(config.seed), journal));
    };
    checkpoint.check(fingerprint)?;
    if let Some(difference) = checkpoint.fingerprint.setting_difference(fingerprint) {
        return Err(Error::RunFile {
            path: path.join("config.toml"),
            why: format!("it is of another run: {difference}"),
        });
    }
    if config.epochs < checkpoint.state.epoch {
        let expected = format!("at least {}, which are done", checkpoint.state.epoch);
        return Err(Error::Setting { field: "epochs", value: config.epochs.to_string(), expected });
    }
    let (state, buffers) = checkpoint.restore(&mut network.parameters, optimiser)?;
    network.restore_buffers(buffers)?;
    keep(config, &path.join("config.toml"))?;
    let journal = Journal::resume(&journal, state.journal_bytes, state.journal_sum.as_deref())?;
    checkpoints.tidy_after_kill(&state);
    folder.settle();
    Ok((state, journal))
}

fn first(seed: u64) -> State {
    State {
        epoch: 0,
        batch: 0,
        step: 0,
        seed,
        best: None,
        early_stop: EarlyStop::default(),
        loss_stop: EarlyStop::default(),
        journal_bytes: 0,
        journal_sum: None,
        losses: 0.0,
    }
}

/// A run that is to go on and has no checkpoint. One that was stopped before its first begins again, also where that was due:
/// the line of its epoch is written before it. Where there must have been some, its history stays as it is.
fn begin_again(config: &RunConfig, path: &Path) -> Result<()> {
    let epochs = journal::read(&path.join(JOURNAL)).map_or(0, |lines| lines.len());
    let every = config.checkpoint_every;
    let had_some = every > 0 && epochs as u64 > every;
    if had_some || path.join("summary.json").exists() {
        return Err(Error::LostCheckpoints { folder: path.to_owned(), epochs });
    }
    log::warn!("{} has no checkpoint yet: the run begins again with its first epoch", path.display());
    Ok(())
}

/// Writes what changed since the run was described.
fn keep(config: &RunConfig, path: &Path) -> Result<()> {
    let before = RunFile::read(path).and_then(RunConfig::kept).ok();
    match before {
        Some(before) if before == *config => return Ok(()),
        Some(before) if before.epochs != config.epochs && config.schedule == Course::Cosine => {
            log::warn!(
                "the rate's cosine ends after {} epochs from here on, not after {}",
                config.epochs,
                before.epochs
            );
        }
        _ => {}
    }
    config.write(path)
}
