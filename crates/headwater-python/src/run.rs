//! What runs leave in their folders, and what their networks say.

use std::path::{Path, PathBuf};

use headwater::graph::Silent;
use headwater::train::predictions::{Form, Predictions, Said};
use headwater::train::run_config::{RunConfig, RunFile};
use headwater::train::trainer::{EpochReport, Places, Predictor, Which};
use headwater::train::{Checkpoints, Origin, Result, journal, task};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value};

use crate::array::Array;
use crate::column::wide;
use crate::dataset::RawDataset;
use crate::dtype::Dtype;
use crate::error::of_train;
use crate::source::chosen;
use crate::threads;
use crate::value::to_dict;

/// Every epoch of a run, as far as it was written down.
#[pyfunction]
pub fn run_history(py: Python<'_>, run: PathBuf) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let lines = journal::read(&run.join("metrics.jsonl")).map_err(of_train)?;
    let reports = lines.into_iter().filter_map(|line| serde_json::from_value::<EpochReport>(line).ok());
    reports.map(|report| to_dict(py, &epoch(&report))).collect()
}

/// All fields of a run.
#[pyfunction]
pub fn run_config(py: Python<'_>, run: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let config = read_config(&run).map_err(of_train)?;
    to_dict(py, &object(&serde_json::to_value(config).unwrap_or_default()))
}

/// Where the dataset of a run is, the same as then; nothing where it was in memory.
#[pyfunction]
pub fn run_dataset(run: PathBuf) -> PyResult<Option<PathBuf>> {
    let known = Origin::read(&run).map_err(of_train)?.filter(|origin| !origin.is_held());
    let found = known.map(|origin| origin.open(&run)).transpose().map_err(of_train)?;
    Ok(found.map(|dataset| dataset.folder().to_owned()))
}

/// The files of its checkpoints, the newest last.
#[pyfunction]
pub fn run_checkpoints(run: PathBuf) -> PyResult<Vec<PathBuf>> {
    let found = Checkpoints::new(&run.join("checkpoints"), 1).list().map_err(of_train)?;
    Ok(found.into_iter().map(|entry| entry.path).collect())
}

/// What the network of a run says of nodes of a dataset, all of them where none are named.
#[pyfunction]
pub fn run_predict(
    py: Python<'_>,
    run: PathBuf,
    dataset: &RawDataset,
    nodes: Option<&Bound<'_, PyAny>>,
    form: &str,
    checkpoint: &str,
) -> PyResult<Array> {
    dataset.check_lenders(py)?;
    let forms = [("answers", Form::Answers), ("logits", Form::Logits), ("probabilities", Form::Probabilities)];
    let form = chosen("form", form, &forms)?;
    let which = chosen("checkpoint", checkpoint, &[("best", Which::Best), ("last", Which::Last)])?;
    let nodes = nodes.map(ids).transpose()?;
    let (said, shape) = threads::run(py, || predict(&run, dataset, nodes, form, which))?.map_err(of_train)?;
    Ok(match said {
        Said::Whole(all) => Array::new(all, Dtype::I64),
        Said::Real(all) => Array::new(all, Dtype::F32),
    }
    .shaped(shape))
}

/// Ids in an array, or in a list of Python's: somebody may ask about two nodes.
fn ids(nodes: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    match nodes.cast::<PyList>() {
        // Negative ones are out of every range.
        Ok(list) => Ok(list.extract::<Vec<i64>>()?.into_iter().map(i64::cast_unsigned).collect()),
        Err(_) => Ok(wide(nodes, "nodes")?.to_vec()),
    }
}

fn predict(
    run: &Path,
    dataset: &RawDataset,
    nodes: Option<Vec<u64>>,
    form: Form,
    which: Which,
) -> Result<(Said, Vec<usize>)> {
    let config = read_config(run)?;
    let origin = Origin::read(run)?;
    if let Some(origin) = &origin {
        origin.check_kind(&Origin::of(&dataset.core))?;
    }
    if let (Form::Probabilities, Some(loss)) = (form, config.loss) {
        // Nobody should wait for what cannot be said.
        loss.probabilities(&mut [], 1)?;
    }
    let task = task::open_to_ask(&config, &dataset.core, origin.as_ref().and_then(|origin| origin.asked.as_ref()))?;
    // What does not fit in memory goes into files without a name.
    let mut predictor = Predictor::open(config, task, Places { run, scratch: run }, which)?;
    let nodes = nodes.unwrap_or_else(|| (0..predictor.task().labels.nodes() as u64).collect());
    let outputs = predictor.outputs(&nodes, &Silent)?;
    let (node_type, loss) = (predictor.task().node_type, predictor.loss());
    Predictions { outputs: &outputs, node_type, nodes: &nodes, form, loss }.collect()
}

fn read_config(run: &Path) -> Result<RunConfig> {
    RunConfig::kept(RunFile::read(&run.join("config.toml"))?)
}

/// An epoch as one flat object; what was not measured is null.
pub fn epoch(report: &EpochReport) -> Map<String, Value> {
    let EpochReport { epoch, loss, valid, valid_loss, test, rate, epoch_seconds, seconds, evaluate_seconds } = *report;
    let fields = [
        ("epoch", Value::from(epoch)),
        ("loss", Value::from(loss)),
        ("valid", Value::from(valid)),
        ("valid_loss", Value::from(valid_loss)),
        ("test", Value::from(test)),
        ("rate", Value::from(rate)),
        ("epoch_seconds", Value::from(epoch_seconds)),
        ("sample_seconds", Value::from(seconds.sample)),
        ("gather_seconds", Value::from(seconds.gather)),
        ("compute_seconds", Value::from(seconds.compute)),
        ("evaluate_seconds", Value::from(evaluate_seconds)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The fields of a value that is an object.
pub fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
