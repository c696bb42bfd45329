//! The launches of a step, and the promises about their reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, KernelStruct, Param, Scalar, Source, Span, Stream};

use super::{Arrays, Tables};
use crate::device::{ONE_BLOCK, SUM, defines, grid, parts_grid};
use crate::error::Result;
use crate::optimiser::{Rule, Step};

static TEXT: Source = Source { name: "step.cu", text: include_str!("step.cu"), headers: &[SUM] };

// SAFETY: one struct of NOW_BYTES is written.
static TELL: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "tell",
        &[
            Param::Value("rate", Scalar::F64),
            Param::Value("mean_rate", Scalar::F64),
            Param::Value("root", Scalar::F64),
            Param::Write("now", Element::Bytes, &["NOW_BYTES"]),
        ],
    )
};
// SAFETY: elements below `count` are read, and sums below PARTS written.
static SQUARES: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "squares",
        &[
            Param::Read("gradient", Element::F32, &["count"]),
            Param::Value("count", Scalar::U64),
            Param::Write("parts", Element::Bytes, &["PARTS_BYTES"]),
        ],
    )
};
// SAFETY: elements below `count` are touched, of the state only where the rule has it; segments are searched below
// `segments`, sums below PARTS.
static STEP: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "step",
        &[
            Param::Write("values", Element::F32, &["count"]),
            Param::Read("gradient", Element::F32, &["count"]),
            Param::Write("first", Element::F32, &["count", "HAS_FIRST"]),
            Param::Write("second", Element::F32, &["count", "HAS_SECOND"]),
            Param::Value("count", Scalar::U64),
            Param::Read("starts", Element::U64, &["segments"]),
            Param::Read("decays", Element::U64, &["segments"]),
            Param::Value("segments", Scalar::U32),
            Param::Struct("with", size_of::<Constants>()),
            Param::Read("numbers", Element::Bytes, &["NOW_BYTES"]),
            Param::Read("parts", Element::Bytes, &["PARTS_BYTES"]),
            Param::Value("blocks", Scalar::U32),
            Param::Value("most", Scalar::F64),
            Param::Write("norm_out", Element::U64, &[]),
        ],
    )
};

/// Bytes of the numbers that change from step to step: three f64.
pub(super) const NOW_BYTES: usize = 24;

/// Numbers that are the same in every step.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Constants {
    momentum: f32,
    fresh_mean: f32,
    beta2: f32,
    fresh_square: f32,
    epsilon: f32,
}

// SAFETY: five floats as in the text, which forms no index from them.
unsafe impl KernelStruct for Constants {
    fn extents(&self) -> Vec<u64> {
        Vec::new()
    }
}

impl Constants {
    fn of(step: Step) -> Self {
        match step {
            Step::Plain(_) => Self::default(),
            Step::Momentum(step) => Self { momentum: step.momentum, ..Self::default() },
            Step::Adam(step) => Self {
                fresh_mean: step.fresh_mean,
                beta2: step.beta2,
                fresh_square: step.fresh_square,
                epsilon: step.epsilon,
                ..Self::default()
            },
        }
    }
}

/// Queues the numbers of a step.
pub(super) fn tell(stream: &Stream, rule: Rule, step: Step, rate: f64, now: &Span) -> Result<()> {
    let (mean_rate, root) = match step {
        Step::Adam(step) => (step.rate, step.root),
        Step::Plain(_) | Step::Momentum(_) => (0.0, 1.0),
    };
    TELL.on(stream, &rule_defines(rule), ONE_BLOCK)
        .f64(rate)
        .f64(f64::from(mean_rate))
        .f64(f64::from(root))
        .bytes(now)
        .go()?;
    Ok(())
}

/// Queues a step.
pub(super) fn step(stream: &Stream, rule: Rule, step: Step, tables: &Tables, arrays: &Arrays<'_>) -> Result<()> {
    let (defines, count, summing) = (rule_defines(rule), tables.count as u64, parts_grid(tables.count));
    SQUARES.on(stream, &defines, summing).buffer(arrays.gradient, Element::F32).u64(count).bytes(&tables.parts).go()?;
    STEP.on(stream, &defines, grid(stream, tables.count))
        .buffer(arrays.values, Element::F32)
        .buffer(arrays.gradient, Element::F32)
        .buffer(&tables.state[0], Element::F32)
        .buffer(&tables.state[1], Element::F32)
        .u64(count)
        .buffer(&tables.starts, Element::U64)
        .buffer(&tables.decays, Element::U64)
        .u32(tables.segments)
        .structure(&Constants::of(step))
        .bytes(&tables.now)
        .bytes(&tables.parts)
        .u32(summing.blocks)
        .f64(tables.most_norm)
        .buffer(&tables.norm, Element::U64)
        .go()?;
    Ok(())
}

fn rule_defines(rule: Rule) -> Defines {
    let number = match rule {
        Rule::Sgd(sgd) if sgd.momentum == 0.0 => 0,
        Rule::Sgd(sgd) if !sgd.nesterov => 1,
        Rule::Sgd(_) => 2,
        Rule::Adam(_) => 3,
        Rule::AdamW(_) => 4,
    };
    let slots = rule.slots().len();
    let state = defines().with("HAS_FIRST", u32::from(slots > 0)).with("HAS_SECOND", u32::from(slots > 1));
    state.with("RULE", number).with("NOW_BYTES", NOW_BYTES)
}

/// The text with every rule.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    use crate::optimiser::{Adam, Sgd};
    let (adam, plain) = (Adam::default(), Sgd::default());
    let (momentum, nesterov) = (Sgd { momentum: 0.9, nesterov: false }, Sgd { momentum: 0.9, nesterov: true });
    let rules = [Rule::Sgd(plain), Rule::Sgd(momentum), Rule::Sgd(nesterov), Rule::Adam(adam), Rule::AdamW(adam)];
    rules.map(|rule| (&TEXT, rule_defines(rule))).into()
}
