//! Functions of single numbers, as text.

use headwater_graph::random::Key;

use crate::cpu::dropout::Dropout;
use crate::inter::{Binary, Unary};

/// A number as the text has it.
pub(super) fn single(number: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
    let single = number as f32;
    format!("hw_float({:#010x}u)", single.to_bits())
}

/// An element where a dropout keeps it, scaled. `place` counts elements over all rows.
pub(super) fn dropout(x: &str, key: u64, place: &str, probability: f64) -> String {
    let dropout = Dropout::new(Key::new(0), 0, probability);
    let (threshold, scale) = (dropout.threshold(), single(dropout.scale()));
    format!("{x} * hw_kept(hw_key_of(*step, {key}ull), {place}, {threshold}u, {scale})")
}

pub(super) fn unary(f: Unary, x: &str) -> String {
    match f {
        Unary::Neg => format!("-({x})"),
        Unary::Exp => format!("expf({x})"),
        Unary::Log => format!("logf({x})"),
        Unary::Relu => format!("hw_relu({x})"),
        Unary::LeakyRelu(slope) => format!("hw_leaky({x}, {})", single(slope)),
        Unary::Elu(a) => format!("hw_elu({x}, {})", single(a)),
        Unary::Sigmoid => format!("1.0f / (1.0f + expf(-({x})))"),
        Unary::Tanh => format!("tanhf({x})"),
        Unary::Gelu => format!("hw_gelu({x})"),
        Unary::Sqrt => format!("sqrtf({x})"),
        Unary::Rsqrt => format!("1.0f / sqrtf({x})"),
        Unary::Recip => format!("1.0f / ({x})"),
        Unary::Abs => format!("fabsf({x})"),
        Unary::Step => format!("hw_step({x})"),
        Unary::LeakyStep(slope) => format!("hw_leaky_step({x}, {})", single(slope)),
        Unary::EluSlope(a) => format!("hw_elu_slope({x}, {})", single(a)),
        Unary::GeluSlope => format!("hw_gelu_slope({x})"),
        Unary::Sign => format!("hw_sign({x})"),
    }
}

pub(super) fn binary(f: Binary, x: &str, y: &str) -> String {
    match f {
        Binary::Add => format!("{x} + {y}"),
        Binary::Sub => format!("{x} - {y}"),
        Binary::Mul => format!("{x} * {y}"),
        Binary::Div => format!("{x} / {y}"),
        Binary::Max => format!("hw_max({x}, {y})"),
        Binary::Min => format!("-hw_max(-({x}), -({y}))"),
        Binary::Equal => format!("({x} == {y} ? 1.0f : 0.0f)"),
        Binary::Greater => format!("({x} > {y} ? 1.0f : 0.0f)"),
    }
}
