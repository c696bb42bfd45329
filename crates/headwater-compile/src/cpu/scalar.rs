//! Functions of one and two elements, as every back end has them.

use crate::inter::{Binary, Unary};

/// `f(x)` in double precision.
pub(crate) fn unary(f: Unary, x: f64) -> f64 {
    let is_positive = x > 0.0;
    match f {
        Unary::Neg => -x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Relu => x.max(0.0),
        Unary::LeakyRelu(slope) => {
            if is_positive {
                x
            } else {
                slope * x
            }
        }
        Unary::Elu(a) => {
            if is_positive {
                x
            } else {
                a * x.exp_m1()
            }
        }
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Gelu => x * normal(x),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Abs => x.abs(),
        Unary::Step => f64::from(u8::from(is_positive)),
        Unary::LeakyStep(slope) => {
            if is_positive {
                1.0
            } else {
                slope
            }
        }
        Unary::EluSlope(a) => {
            if is_positive {
                1.0
            } else {
                a * x.exp()
            }
        }
        Unary::GeluSlope => normal(x) + x * density(x),
        Unary::Sign => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
    }
}

/// `f(x, y)`.
pub(crate) fn binary(f: Binary, x: f64, y: f64) -> f64 {
    match f {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Max => x.max(y),
        Binary::Min => x.min(y),
        Binary::Equal => f64::from(u8::from(x == y)),
        Binary::Greater => f64::from(u8::from(x > y)),
    }
}

/// The normal distribution's function.
fn normal(x: f64) -> f64 {
    0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// Its density.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() * 0.5 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2
}
