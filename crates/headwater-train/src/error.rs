//! What can go wrong in a training run.

use std::path::PathBuf;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The GPU could not be used.
    #[error(transparent)]
    Cuda(#[from] headwater_cuda::Error),
    /// A layer could not be read, compiled or run.
    #[error(transparent)]
    Compile(#[from] headwater_compile::Error),
    /// The graph or its dataset could not be read.
    #[error(transparent)]
    Graph(#[from] headwater_graph::Error),
    /// Features could not be read.
    #[error(transparent)]
    Feature(#[from] headwater_feature::Error),
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] headwater_memory::Error),
    /// An activation could not leave the GPU, or could not come back.
    #[error(transparent)]
    Offload(#[from] headwater_offload::Error),
    /// An array could not be handled.
    #[error(transparent)]
    Tensor(#[from] headwater_tensor::Error),
    /// A loss or a gradient that is not a number: features, labels or the rate are not what they should be.
    #[error("epoch {epoch}, batch {batch}: the {what} is {value}; the last checkpoint is from before")]
    NotFinite {
        /// From 1.
        epoch: u64,
        /// From 0.
        batch: u64,
        /// What is not.
        what: &'static str,
        /// What it is.
        value: f64,
    },
    /// A run that only the CPU can do.
    #[error("a GPU cannot train this: {why}")]
    NotOnGpu {
        /// What it cannot do.
        why: &'static str,
    },
    /// Batches that find no room although nothing else is in GPU memory that could be given up.
    #[error(
        "a batch does not fit into GPU memory beside features that are {mode}; a smaller batch or fan-out does: {why}"
    )]
    NoRoom {
        /// Where features lie.
        mode: String,
        /// What was asked for.
        why: String,
    },
    /// A step over the whole graph that does not fit, even where activations leave or are recomputed.
    #[error(
        "a step over the whole graph needs {needed_bytes} bytes of GPU memory for activations at least, and there are {most_bytes}; a smaller \
         hidden width, more of offload's host, disk and recompute, or batches (full_graph = false) need less"
    )]
    NoRoomForStep {
        /// What it needs at least.
        needed_bytes: u64,
        /// What there is, or what the run allows.
        most_bytes: u64,
    },
    /// A stage of a pipeline that failed or fell silent.
    #[error("the {stage} failed: {why}")]
    Stage {
        /// Which.
        stage: &'static str,
        /// What is known.
        why: String,
    },
    /// A feature that is not a number.
    #[error("node {node} of type {node_type:?} has {value} as feature {column}; features are finite numbers")]
    BadFeature {
        /// The type.
        node_type: String,
        /// Which of its nodes.
        node: u64,
        /// Which of its features.
        column: usize,
        /// What it is.
        value: f32,
    },
    /// A model that does not fit the data.
    #[error("the model does not fit: {why}")]
    Model {
        /// What does not fit, and what would.
        why: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {why}", path.display())]
    Io {
        /// What was tried: `write`, `read`, `create`.
        action: &'static str,
        /// With which one.
        path: PathBuf,
        /// What the system said. Not a source: the message has it already.
        why: std::io::Error,
    },
    /// A parameter that cannot be one.
    #[error("parameter {name:?} {why}")]
    Parameter {
        /// Which.
        name: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// Arrays that belong together and do not fit.
    #[error("{what} has {found} elements; expected {expected}")]
    Length {
        /// Which array.
        what: String,
        /// Its length.
        found: usize,
        /// What it should be.
        expected: usize,
    },
    /// Labels that nothing can be learnt from.
    #[error("{}: {why}", path.display())]
    Labels {
        /// Their file.
        path: PathBuf,
        /// Which node has what, and what would be right.
        why: String,
    },
    /// A label that names no class.
    #[error("row {row} has label {label}; labels are below {classes}, or -1 for rows without one")]
    Label {
        /// Where.
        row: usize,
        /// The label.
        label: i64,
        /// Number of classes.
        classes: usize,
    },
    /// A target that cannot be aimed at.
    #[error("row {row}, column {column} has target {value}; expected {expected}")]
    Target {
        /// Row of it.
        row: usize,
        /// Column of it.
        column: usize,
        /// The target.
        value: f32,
        /// What would be right.
        expected: &'static str,
    },
    /// A score that cannot be ranked.
    #[error("the score at row {row}, column {column} is not a number")]
    Score {
        /// Row of it.
        row: usize,
        /// Column of it.
        column: usize,
    },
    /// A loss or metric that is asked for with targets of the other kind.
    #[error("{what} takes {expected}; the dataset has {found}")]
    TargetKind {
        /// Which loss or metric.
        what: &'static str,
        /// What it can work with.
        expected: &'static str,
        /// What it was given.
        found: String,
    },
    /// A state that belongs to another optimiser.
    #[error("the state of the optimiser {why}")]
    OptimiserState {
        /// What does not fit.
        why: String,
    },
    /// A setting that cannot be followed.
    #[error("{field} is {value}; expected {expected}")]
    Setting {
        /// Which.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// A field that no run has.
    #[error("{}: there is no field {field:?}{}", path.display(), hint(nearest.as_deref()))]
    UnknownField {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The known name that looks most like it.
        nearest: Option<String>,
    },
    /// A field that no run has, given by a program.
    #[error("there is no field {field:?}{}", hint(nearest.as_deref()))]
    NoField {
        /// The field.
        field: String,
        /// The known name that looks most like it.
        nearest: Option<String>,
    },
    /// A field with a value of another kind.
    #[error("{field}: {why}")]
    Field {
        /// Which.
        field: String,
        /// What it is, and what would be right.
        why: String,
    },
    /// A file that describes no run.
    #[error("{}: {why}", path.display())]
    RunFile {
        /// The file.
        path: PathBuf,
        /// Where in it, and what is wrong.
        why: String,
    },
    /// A file that is no checkpoint, or no longer one.
    #[error("{}: damaged checkpoint: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A checkpoint of a later format.
    #[error("{}: format version {found} is not read here; this program reads up to {known}", path.display())]
    CheckpointVersion {
        /// The file.
        path: PathBuf,
        /// The version it names.
        found: u64,
        /// The newest that is read.
        known: u64,
    },
    /// A checkpoint of a model that is not the one at hand.
    #[error("the checkpoint is of another model: {difference}")]
    OtherModel {
        /// The first difference.
        difference: String,
    },
    /// A run that has saved nothing yet.
    #[error("{} has no checkpoint yet", folder.display())]
    NoCheckpoint {
        /// Its folder.
        folder: PathBuf,
    },
    /// A folder that another run is written into.
    #[error("{} is in use by {by}; wait until it ends, or name another folder", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// Who has it.
        by: String,
    },
    /// A run that somebody else opened after this one let go of it.
    #[error("the run in {} was opened by {by} since; open it again", folder.display())]
    TakenOver {
        /// Its folder.
        folder: PathBuf,
        /// Who has it, or had it.
        by: String,
    },
    /// A folder that a new run cannot have.
    #[error(
        "{} holds a run already; go on with it (--resume, or Trainer.resume in Python), or name another folder",
        folder.display()
    )]
    UsedFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder without a run.
    #[error("{} is no run that can be gone on with: it has no config.toml", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// A run whose checkpoints were taken away.
    #[error(
        "{} has no checkpoint, though {epochs} epochs were trained: what was learnt is gone; begin again in another folder",
        folder.display()
    )]
    LostCheckpoints {
        /// Its folder.
        folder: PathBuf,
        /// Epochs in its journal.
        epochs: usize,
    },
    /// A field that a run keeps as it began.
    #[error("{field} cannot change in a run: it is {was}, not {given}; what can change is {changeable}")]
    Unchangeable {
        /// Which.
        field: String,
        /// What the run has.
        was: String,
        /// What was given.
        given: String,
        /// Names of the fields that can.
        changeable: String,
    },
    /// A dataset that is not the one of a run.
    #[error("{} is not the dataset of the run: {why}", path.display())]
    OtherDataset {
        /// Its folder.
        path: PathBuf,
        /// The first difference.
        why: String,
    },
    /// A list of nodes that is none, or names what is not there.
    #[error("{}:{place}: {why}", path.display())]
    NodeList {
        /// The file.
        path: PathBuf,
        /// The line or the position in it, counted from 1; 0 for the file as a whole.
        place: u64,
        /// What is wrong there, and what would be right.
        why: String,
    },
    /// A line of a journal that is no JSON.
    #[error("{}:{line}: {why}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// Which line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    /// Whether GPU memory ran out, so that less of it might do.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self.refusal() {
            Some(Refusal::Gpu(why)) => why.is_out_of_memory() && !why.is_out_of_host_memory(),
            Some(Refusal::Memory(why)) => why.is_out_of_memory() && !why.is_out_of_host_memory(),
            None => matches!(
                self,
                Self::NoRoom { .. } | Self::Feature(headwater_feature::Error::Budget { memory: "GPU memory", .. })
            ),
        }
    }

    /// Whether host memory could not be had or not be pinned, so that rows must come by copy.
    #[must_use]
    pub fn is_unpinned(&self) -> bool {
        match self.refusal() {
            Some(Refusal::Gpu(why)) => why.is_out_of_host_memory(),
            Some(Refusal::Memory(why)) => why.is_out_of_host_memory(),
            None => matches!(self, Self::Feature(headwater_feature::Error::Budget { memory: "host memory", .. })),
        }
    }

    /// What the GPU or the memories said, whichever crate passed it on.
    fn refusal(&self) -> Option<Refusal<'_>> {
        use headwater_tensor::Error as Tensor;
        use {
            headwater_compile::Error as Compile, headwater_feature::Error as Feature, headwater_graph::Error as Graph,
        };
        match self {
            Self::Cuda(why)
            | Self::Compile(Compile::Cuda(why) | Compile::Tensor(Tensor::Cuda(why)))
            | Self::Graph(Graph::Cuda(why) | Graph::Tensor(Tensor::Cuda(why)))
            | Self::Feature(Feature::Cuda(why) | Feature::Tensor(Tensor::Cuda(why)))
            | Self::Tensor(Tensor::Cuda(why)) => Some(Refusal::Gpu(why)),
            Self::Memory(why)
            | Self::Compile(Compile::Tensor(Tensor::Memory(why)))
            | Self::Graph(Graph::Memory(why) | Graph::Tensor(Tensor::Memory(why)))
            | Self::Feature(Feature::Memory(why) | Feature::Tensor(Tensor::Memory(why)))
            | Self::Tensor(Tensor::Memory(why)) => Some(Refusal::Memory(why)),
            _ => None,
        }
    }

    /// Turns what the system said into an error that names the file; for `map_err`.
    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        move |why| Self::Io { action, path: path.to_owned(), why }
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

/// Who refused.
enum Refusal<'a> {
    Gpu(&'a headwater_cuda::Error),
    Memory(&'a headwater_memory::Error),
}
