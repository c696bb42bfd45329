//! Fields that are one of a few words.

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
    /// In host memory, copied to a GPU batch by batch.
    Dma,
    /// In host memory, read by a GPU.
    ZeroCopy,
    /// In a GPU's memory.
    AllGpu,
}

impl Features {
    /// Whether a GPU must read them.
    #[must_use]
    pub fn needs_gpu(self) -> bool {
        matches!(self, Self::Dma | Self::ZeroCopy | Self::AllGpu)
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
            Self::ZeroCopy => "zero-copy",
            Self::AllGpu => "all-gpu",
        }
    }
}
