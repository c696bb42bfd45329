//! Functions of one and two elements, as every back end has them.
//!
//! NaN is torch's: a function of NaN is NaN, as is the larger or the smaller of NaN and anything. So are slopes at NaN: 1 of a
//! rectifier, the number of a leaky one, 0 of `Abs`, and NaN of the others.

use crate::inter::{Binary, Unary};

/// `f(x)` in double precision.
pub(crate) fn unary(f: Unary, x: f64) -> f64 {
    match f {
        Unary::Neg => -x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Relu => {
            if x <= 0.0 {
                0.0
            } else {
                x
            }
        }
        Unary::LeakyRelu(slope) => {
            if x > 0.0 {
                x
            } else {
                slope * x
            }
        }
        Unary::Elu(a) => {
            if x <= 0.0 {
                a * x.exp_m1()
            } else {
                x
            }
        }
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Gelu => x * normal(x),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Abs => x.abs(),
        Unary::Step => 1.0 - f64::from(u8::from(x <= 0.0)),
        Unary::LeakyStep(slope) => {
            if x > 0.0 {
                1.0
            } else {
                slope
            }
        }
        Unary::EluSlope(a) => {
            if x > 0.0 {
                1.0
            } else {
                a * x.exp()
            }
        }
        Unary::GeluSlope => normal(x) + x * density(x),
        Unary::Sign => f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
    }
}

/// `f(x, y)`.
pub(crate) fn binary(f: Binary, x: f64, y: f64) -> f64 {
    match f {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Max => larger(x, y),
        Binary::Min => -larger(-x, -y),
        Binary::Equal => f64::from(u8::from(x == y)),
        Binary::Greater => f64::from(u8::from(x > y)),
    }
}

/// The larger; NaN where either is, unlike `f64::max`.
pub(crate) fn larger(x: f64, y: f64) -> f64 {
    if x > y || x.is_nan() { x } else { y }
}

/// The normal distribution's function.
fn normal(x: f64) -> f64 {
    0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// Its density.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() * 0.5 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2
}
