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

/// What should get better for a run to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Watch {
    /// The metric on the validation nodes.
    Metric,
    /// The loss there.
    Loss,
}

/// Where features lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Features {
    /// As they are, in host memory.
    Cpu,
    /// The most read rows in the fastest memory.
    Tiered,
}
