//! Fields that are one of a few words.

use std::fmt;
use std::str::FromStr;

use headwater_compile::cuda::Tuning;
use serde::{Deserialize, Serialize};

/// How steps are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimiserName {
    /// Stochastic gradient descent.
    Sgd,
    /// Adam.
    Adam,
    /// Adam with decoupled decay.
    AdamW,
}

/// What stands between layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// Nothing.
    None,
    /// What is positive.
    Relu,
    /// A little of what is negative too.
    LeakyRelu,
    /// What is negative, bent.
    Elu,
    /// The Gaussian's.
    Gelu,
    /// The hyperbolic tangent.
    Tanh,
}

/// What normalises between layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// Nothing.
    None,
    /// Each row by itself.
    Layer,
    /// Each column over the batch.
    Batch,
}

/// What becomes of the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Course {
    /// It stays.
    Constant,
    /// It falls in steps.
    Step,
    /// It falls along a cosine.
    Cosine,
}

/// What should get better for a run to go on, and what makes an epoch the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Watch {
    /// The metric on the validation nodes.
    Metric,
    /// The loss there.
    Loss,
    /// One of the two; the best epoch is that of the metric.
    Either,
}

/// What may become of activations between forward and backward, where every step sees the whole graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OffloadTo {
    /// All of the others; `disk` where there is a folder for it.
    Auto,
    /// They leave for pinned host memory.
    Host,
    /// They leave for a file without a name.
    Disk,
    /// The forward pass of some layers is computed twice.
    Recompute,
}

impl OffloadTo {
    /// What it stands for.
    #[must_use]
    pub fn all(self, has_folder: bool) -> Vec<Self> {
        match self {
            Self::Auto if has_folder => vec![Self::Host, Self::Disk, Self::Recompute],
            Self::Auto => vec![Self::Host, Self::Recompute],
            own => vec![own],
        }
    }
}

/// How schedules of kernels are chosen: `fixed`, `model`, `measure`, or parts of schedules such as `lanes=8,ahead=4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tune(pub Tuning);

impl From<Tune> for String {
    fn from(Tune(tuning): Tune) -> Self {
        tuning.to_string()
    }
}

impl TryFrom<String> for Tune {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|why: headwater_compile::Error| why.to_string())
    }
}

/// Which machine computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceName {
    /// A GPU where there is one that can, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl From<DeviceName> for String {
    fn from(device: DeviceName) -> Self {
        device.to_string()
    }
}

impl TryFrom<String> for DeviceName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" | "gpu" => Ok(Self::Cuda(0)),
            other => {
                let ordinal = other.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                ordinal
                    .map(Self::Cuda)
                    .ok_or_else(|| format!("{other:?} is no device; expected auto, cpu, cuda or cuda:N"))
            }
        }
    }
}

/// Who draws neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SamplerName {
    /// Whoever computes.
    Auto,
    /// CPU threads.
    Cpu,
    /// The GPU.
    Gpu,
}

/// Where batches are made for a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProducerName {
    /// In the trainer's process, on streams of their own.
    Thread,
    /// In a process beside it, where CUDA's Multi-Process Service runs.
    Process,
}

/// How exact products are on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrecisionName {
    /// Single precision, without tensor cores.
    F32,
    /// Tensor cores, with 10 bits behind the point.
    Tf32,
    /// Tensor cores, three products for one: as exact as single precision.
    Tf32x3,
    /// Tensor cores, with 7 bits behind the point.
    Bf16,
}

/// Where features lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Features {
    /// In memory where they fit, else tiered.
    Auto,
    /// In host memory, as the dataset is mapped.
    #[serde(alias = "cpu")]
    Memory,
    /// In their file, read through a cache.
    Disk,
    /// The most read rows in the fastest memory, the others in the next.
    Tiered,
    /// In host memory, collected by the CPU and copied to a GPU batch by batch.
    Dma,
    /// In host memory, read by a GPU in the plainest way.
    Naive,
    /// In host memory, read by a GPU.
    ZeroCopy,
    /// In a GPU's memory.
    AllGpu,
}

impl Features {
    /// Whether a GPU must read them.
    #[must_use]
    pub fn needs_gpu(self) -> bool {
        matches!(self, Self::Dma | Self::Naive | Self::ZeroCopy | Self::AllGpu)
    }

    /// Its name in files and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Tiered => "tiered",
            Self::Dma => "dma",
            Self::Naive => "naive",
            Self::ZeroCopy => "zero-copy",
            Self::AllGpu => "all-gpu",
        }
    }
}
