//! A run of the core's trainer. It works on threads of its own while the caller's thread stays with Python: there callbacks are
//! called, and there Ctrl-C is heard.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use headwater::train::gpu::choose::{Choice, choose, steps_down};
use headwater::train::run_config::{DeviceName, RunConfig, RunFile};
use headwater::train::run_folder::Place;
use headwater::train::trainer::{Ending, EpochReport, Listener, Summary, Trainer as Core};
use headwater::train::{Origin, Result, RunFolder, task};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::dataset::RawDataset;
use crate::error::of_train;
use crate::run::{epoch, object};
use crate::threads::{self, Threads};
use crate::value::{fields, to_dict};
use crate::warnings;

/// How often the caller's thread looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);
/// Batches are told no more often than this.
const BATCH_PAUSE: Duration = Duration::from_millis(50);

/// A run in its folder; `headwater.Trainer` is what users see.
#[pyclass(frozen, module = "headwater")]
pub struct RawTrainer {
    trainer: Mutex<Core>,
    path: PathBuf,
    config: RunConfig,
    threads: Threads,
    /// What is done by the CPU and why, where a GPU might have done it.
    note: Option<String>,
}

#[pymethods]
impl RawTrainer {
    /// A new run in `folder`, or in a fresh one below `runs` that is called after `stem`; or with `resume` the run that is
    /// there, which `given` may change as the command line does.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        dataset: &RawDataset,
        folder: Option<PathBuf>,
        stem: &str,
        given: &Bound<'_, PyDict>,
        resume: bool,
    ) -> PyResult<Self> {
        dataset.check_lenders(py)?;
        let given = RunFile::of_fields(fields(given)?).map_err(of_train)?;
        let kept = folder.as_deref().filter(|_| resume);
        let config = describe(given.clone().anchored(), dataset, kept).map_err(of_train)?;
        let threads = Threads::new(config.threads)?;
        let claimed = match &folder {
            Some(folder) if resume => RunFolder::resume(folder),
            Some(folder) => RunFolder::begin(folder),
            None => RunFolder::fresh(&std::path::absolute("runs")?, stem),
        };
        let folder = claimed.map_err(of_train)?;
        let path = folder.path().to_owned();
        let config = RunConfig { out: Some(path.clone()), ..config };
        let opened = threads.run(py, || open(config, &given, dataset, folder, resume));
        let (mut trainer, config, note) = opened.map_err(of_train)?;
        // Whoever forgets this one may open the run again.
        trainer.rest();
        Ok(Self { trainer: Mutex::new(trainer), path, config, threads, note })
    }

    /// Its folder.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// All fields of the run.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        to_dict(py, &object(&serde_json::to_value(&self.config).unwrap_or_default()))
    }

    #[getter]
    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// What was decided for the run where somebody might think otherwise, a sentence each.
    #[getter]
    fn remarks(&self) -> PyResult<Vec<String>> {
        Ok(self.lock()?.remarks().to_vec())
    }

    /// Epochs that are done.
    #[getter]
    fn epoch(&self) -> PyResult<u64> {
        Ok(self.lock()?.state().epoch)
    }

    /// Runs until it ends or is asked to stop. `on_epoch` is given a dictionary and stops the run by returning False or by
    /// raising; `on_batch` is given batches done, batches of the epoch and the loss, now and then.
    fn run<'py>(
        &self,
        py: Python<'py>,
        on_epoch: &Bound<'py, PyAny>,
        on_batch: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyDict>, bool)> {
        let mut trainer = self.lock()?;
        let trainer = &mut *trainer;
        let stop = AtomicBool::new(false);
        let (events, heard) = channel();
        let (answers, answered) = channel();
        let teller = Teller { events, answered, stop: &stop, tells_batches: on_batch.is_some(), told: Cell::new(None) };
        let caller = Caller { heard: Mutex::new(heard), answers, stop: &stop, on_epoch, on_batch };
        let (ended, failure) = self.threads.beside(py, move || trainer.run(&teller), |py| caller.attend(py))?;
        if let Some(why) = failure {
            return Err(why);
        }
        let (summary, ending): (Summary, Ending) = ended.map_err(of_train)?;
        if !summary.lost.is_empty() {
            let words = format!("results of the run could not be written: {}", summary.lost.join("; "));
            return Err(PyOSError::new_err(words));
        }
        let summary = object(&serde_json::to_value(summary).unwrap_or_default());
        Ok((to_dict(py, &summary)?, ending == Ending::Done))
    }
}

impl RawTrainer {
    fn lock(&self) -> PyResult<std::sync::MutexGuard<'_, Core>> {
        match self.trainer.try_lock() {
            Ok(trainer) => Ok(trainer),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err("the run is under way")),
            Err(TryLockError::Poisoned(_)) => {
                Err(PyRuntimeError::new_err("the run broke off; open it again with Trainer.resume"))
            }
        }
    }
}

/// The run that is meant. One that is gone on with takes its fields from its folder.
fn describe(given: RunFile, dataset: &RawDataset, kept: Option<&Path>) -> Result<RunConfig> {
    let core = &dataset.core;
    // A name that no folder has, so that nobody takes another graph for one that was in memory.
    let path = if core.is_held() { "(in memory)".into() } else { core.folder().to_owned() };
    let given = RunFile { dataset: Some(path), ..given }.anchored();
    match kept {
        Some(folder) => RunConfig::resume(given, RunFile::read(&folder.join("config.toml"))?),
        None => RunConfig::resolve(given, RunFile::default()),
    }
}

/// Opens a run where it can be: on the GPU that was asked for, or on the CPU where nobody insisted.
fn open(
    config: RunConfig,
    given: &RunFile,
    dataset: &RawDataset,
    folder: RunFolder,
    resume: bool,
) -> Result<(Core, RunConfig, Option<String>)> {
    let run = folder.path().to_owned();
    let core = &dataset.core;
    let is_free = config.device == DeviceName::Auto;
    let Choice { config, gpu, why } = choose(config, given)?;
    let task = task::open(&config, core)?;
    let found = Origin::of(core).asking(&task);
    let known = Origin::read(&run)?.filter(|_| resume);
    match &known {
        // Arrays in memory have no checksums.
        Some(known) if core.is_held() || known.is_held() => known.check_kind(&found)?,
        Some(known) => known.check_same(&found)?,
        None => {}
    }
    let on_cpu = |task, place: Place| {
        let config = RunConfig { device: DeviceName::Cpu, ..config.clone() };
        config.check_given(given)?;
        Core::open(config, task, place)
    };
    let by_cpu = config.batches_by_cpu(task.has_types()).filter(|_| !config.full_graph);
    let opened = match gpu {
        None => (on_cpu(task, folder.into())?, DeviceName::Cpu, why.map(|why| format!("on the CPU: {why}"))),
        Some(gpu) => match Core::open_on(&gpu, config.clone(), task, folder) {
            Ok(trainer) => (trainer, config.device, by_cpu.map(str::to_owned)),
            Err(why) if is_free && steps_down(&config, &why) => {
                let trainer = on_cpu(task::open(&config, core)?, run.as_path().into())?;
                (trainer, DeviceName::Cpu, Some(format!("on the CPU: {why}")))
            }
            Err(why) => return Err(why),
        },
    };
    let (trainer, device, note) = opened;
    if known.is_none_or(|known| known.folder != found.folder) {
        found.write(&run)?;
    }
    let config = RunConfig { device, ..trainer.config().clone() };
    Ok((trainer, config, note))
}

/// What happens in a run.
enum Event {
    Batch(u64, u64, f64),
    Epoch(EpochReport),
}

/// Sits with the run and tells the caller.
struct Teller<'a> {
    events: Sender<Event>,
    answered: Receiver<()>,
    stop: &'a AtomicBool,
    tells_batches: bool,
    /// When a batch was told last.
    told: Cell<Option<Instant>>,
}

impl Listener for Teller<'_> {
    fn batch(&self, done: u64, of: u64, loss: f64) {
        let is_due = self.told.get().is_none_or(|told| told.elapsed() >= BATCH_PAUSE);
        if self.tells_batches && (is_due || done == of) {
            self.told.set(Some(Instant::now()));
            let _ = self.events.send(Event::Batch(done, of, loss));
        }
    }

    /// Waits until callbacks were called: what they say counts before the next batch.
    fn epoch(&self, report: &EpochReport) {
        if self.events.send(Event::Epoch(*report)).is_ok() {
            let _ = self.answered.recv();
        }
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// The thread that called, with Python.
struct Caller<'a, 'py> {
    heard: Mutex<Receiver<Event>>,
    answers: Sender<()>,
    stop: &'a AtomicBool,
    on_epoch: &'a Bound<'py, PyAny>,
    on_batch: Option<&'a Bound<'py, PyAny>>,
}

impl Caller<'_, '_> {
    /// Until the run is over. What a callback or Ctrl-C raised; the run has then stopped, and has saved where it stands.
    fn attend(&self, py: Python<'_>) -> Option<PyErr> {
        let mut failure = None;
        loop {
            match threads::wait(py, &self.heard, TICK) {
                Ok(Event::Batch(done, of, loss)) => {
                    if let (Some(told), None) = (self.on_batch, &failure) {
                        failure = told.call1((done, of, loss)).err();
                    }
                }
                Ok(Event::Epoch(report)) => {
                    if failure.is_none() {
                        failure = self.tell(py, &report).err();
                    }
                    self.note(failure.is_some());
                    let _ = self.answers.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return failure.or_else(|| warnings::pass_on(py).err()),
            }
            if failure.is_none() {
                failure = py.check_signals().and_then(|()| warnings::pass_on(py)).err();
            }
            self.note(failure.is_some());
        }
    }

    fn note(&self, should_stop: bool) {
        if should_stop {
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    fn tell(&self, py: Python<'_>, report: &EpochReport) -> PyResult<()> {
        let said = self.on_epoch.call1((to_dict(py, &epoch(report))?,))?;
        // Nothing is no answer; only False stops.
        let is_no = said.cast::<PyBool>().is_ok_and(|said| !said.is_true());
        self.note(is_no);
        Ok(())
    }
}
