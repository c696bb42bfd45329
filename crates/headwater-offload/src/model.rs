//! What a transformer saves and how long it computes, by formulas: SSDTrain's model of performance.

use serde::Serialize;

use crate::plan::{SavedBlock, StepTrace};

/// A transformer, and the machine that trains it. One GPU holds all of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Transformer {
    /// Width of a token.
    pub hidden: u64,
    /// Transformer layers, each attention and a perceptron.
    pub layers: u64,
    /// Attention heads.
    pub heads: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Sequences of a micro-batch.
    pub batch: u64,
    /// Words that the last layer scores; 0 for none.
    pub vocabulary: u64,
    /// Whether tokens see those before them alone, which halves the work of attention.
    pub is_causal: bool,
    /// Whether layers are computed again in the backward pass, so that their inputs alone are saved.
    pub is_checkpointed: bool,
    /// Floating-point operations a second that the GPU reaches.
    pub flops: f64,
}

/// Bytes of a number in 16 bits.
const HALF: u64 = 2;

impl Transformer {
    /// Operations of the forward pass of one layer.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far from exact anyway")]
    pub fn layer_flops(&self) -> f64 {
        let (hidden, tokens) = (self.hidden as f64, (self.sequence * self.batch) as f64);
        let attention = if self.is_causal { 2.0 } else { 4.0 } * self.sequence as f64 * hidden;
        tokens * (24.0 * hidden * hidden + attention)
    }

    /// Bytes that one layer saves, in the order in which it does: norm and attention, norm and perceptron.
    #[must_use]
    pub fn layer_bytes(&self) -> [u64; 2] {
        let tokens = self.sequence * self.batch;
        let row = tokens * self.hidden;
        if self.is_checkpointed {
            return [row * HALF, 0];
        }
        // Input, query, key, value and output; scores' sums and what else flash attention keeps; a mask of dropout; the norm in 32 bits.
        let attention = 5 * row * HALF + (2 * row + 4 * self.heads * tokens) * HALF + row + 4 * row;
        // Input, and the inner layer before and after its activation; the norm.
        let perceptron = row * HALF + 8 * row * HALF + 4 * row;
        [attention, perceptron]
    }

    /// Bytes that are saved beside the layers: the embedding, the last norm, and the scores of words.
    #[must_use]
    pub fn other_bytes(&self) -> u64 {
        let tokens = self.sequence * self.batch;
        tokens * self.hidden * (HALF + 4) + self.vocabulary * tokens * HALF
    }

    /// Bytes that a step saves.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        self.layers * self.layer_bytes().iter().sum::<u64>() + self.other_bytes()
    }

    /// Operations of a step by the model alone: what is computed again does not count.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far from exact anyway")]
    pub fn model_flops(&self) -> f64 {
        3.0 * self.layers as f64 * self.layer_flops()
    }

    /// What a step saves, and when. The backward pass takes twice as long as the forward pass, and a third time where layers are computed
    /// again.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far from exact anyway")]
    pub fn trace(&self) -> StepTrace {
        let part_s = self.layer_flops() / self.flops / 2.0;
        let back = if self.is_checkpointed { 3.0 } else { 2.0 };
        let parts = 2 * self.layers;
        let forward_s = parts as f64 * part_s;
        let step_s = forward_s * (1.0 + back);
        let sizes = (0..parts).map(|part| self.layer_bytes()[usize::from(part % 2 == 1)]);
        let block = |(part, bytes): (u64, u64)| {
            let last = if self.is_checkpointed { part | 1 } else { part };
            SavedBlock {
                bytes,
                saved_s: (part + 1) as f64 * part_s,
                needed_s: forward_s + (parts - 1 - last) as f64 * part_s * back,
                freed_s: forward_s + (parts - part) as f64 * part_s * back,
            }
        };
        let blocks = (0..parts).zip(sizes).map(block).filter(|block| block.bytes > 0).collect();
        StepTrace { blocks, step_s, beside: Vec::new() }
    }

    /// Bytes a second that have to leave so that nothing waits: all that is saved, in half of the step.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far from exact anyway")]
    pub fn needed_bytes_per_s(&self) -> f64 {
        let trace = self.trace();
        let bytes: u64 = trace.blocks.iter().map(|block| block.bytes).sum();
        bytes as f64 / (trace.step_s / 2.0)
    }
}

/// Years until so many bytes a step have worn out disks that take `endurance_bytes`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "far from exact anyway")]
pub fn years_until_worn_out(endurance_bytes: f64, bytes_per_step: u64, step_s: f64) -> f64 {
    const YEAR_S: f64 = 365.0 * 24.0 * 3600.0;
    endurance_bytes / bytes_per_step as f64 * step_s / YEAR_S
}
