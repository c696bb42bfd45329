//! What became of the activations of a run whose steps see the whole graph.

use headwater_offload::OffloadCounts;
use serde::{Deserialize, Serialize};

use super::plan::{LayerActivations, StepPlan};
use super::shape::LayerShape;

/// What was expected, and what was measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepOffload {
    /// What becomes of each layer's activations.
    pub layers: Vec<LayerActivations>,
    /// GPU memory for activations, their gradients and temporary buffers, in bytes.
    pub peak_bytes: u64,
    /// The same where everything stays.
    pub kept_peak_bytes: u64,
    /// Milliseconds that a step's layers were expected to take, before the first step.
    pub expected_ms: f64,
    /// Of these, those that the GPU waits for copies.
    pub expected_stall_ms: f64,
    /// Milliseconds where everything stays.
    pub kept_ms: f64,
    /// Steps so far.
    pub steps: u64,
    /// Milliseconds a step that they took, the first one left out; loss and optimiser are among them.
    pub measured_ms: f64,
    /// Milliseconds a step that the GPU waited for copies.
    pub stall_ms: f64,
    /// Bytes a step that left the GPU.
    pub left_bytes: u64,
    /// Bytes written to disk, all steps together.
    pub written_bytes: u64,
    /// Pinned host memory, in bytes.
    pub host_bytes: u64,
    /// Why the plan is not the first one: a disk that failed, as a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replanned: Option<String>,
}

impl StepOffload {
    /// What is expected of a plan.
    pub(crate) fn expected(plan: &StepPlan, kept: &StepPlan, shapes: &[LayerShape]) -> Self {
        let (own, other) = (&plan.fixed.forecast, &kept.fixed.forecast);
        Self {
            layers: plan.layers(shapes),
            peak_bytes: own.peak_bytes,
            kept_peak_bytes: other.peak_bytes,
            expected_ms: 1e3 * own.step_s,
            expected_stall_ms: 1e3 * own.stall_s,
            kept_ms: 1e3 * other.step_s,
            ..Self::default()
        }
    }

    /// The same with what was moved since.
    #[expect(clippy::cast_precision_loss, reason = "counts of a run")]
    pub(crate) fn measured(self, counts: &OffloadCounts) -> Self {
        let steps = self.steps.max(1);
        Self {
            stall_ms: counts.stalled_ns as f64 / 1e6 / steps as f64,
            left_bytes: counts.down / steps,
            written_bytes: counts.written,
            host_bytes: counts.host,
            ..self
        }
    }
}

impl std::fmt::Display for StepOffload {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = |bytes: u64| match bytes as f64 {
            bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
            bytes => format!("{:.2} GB", bytes / 1e9),
        };
        let sum = |of: fn(&LayerActivations) -> u64| self.layers.iter().map(of).sum::<u64>();
        let (host, disk) = (sum(|own| own.host_bytes), sum(|own| own.disk_bytes));
        let again: Vec<String> =
            self.layers.iter().filter(|own| own.is_recomputed).map(|own| own.layer.to_string()).collect();
        let mut parts = Vec::new();
        if host > 0 {
            parts.push(format!("{} go to host memory", length(host)));
        }
        if disk > 0 {
            parts.push(format!("{} go to disk", length(disk)));
        }
        if !again.is_empty() {
            parts.push(format!("layers {} are recomputed", again.join(", ")));
        }
        if parts.is_empty() {
            parts.push("all stay on the GPU".to_owned());
        }
        write!(
            out,
            "activations: {}; {} of GPU memory instead of {}; a step is expected to take {:.1} ms instead of {:.1}, waiting {:.1}",
            parts.join(", "),
            length(self.peak_bytes),
            length(self.kept_peak_bytes),
            self.expected_ms,
            self.kept_ms,
            self.expected_stall_ms
        )
    }
}
