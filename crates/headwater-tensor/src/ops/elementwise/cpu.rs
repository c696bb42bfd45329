//! Elementwise operators on the CPU.
//!
//! One match picks the operator, outside the loops, so that each loop is compiled for its operation and its type. The
//! loops themselves are in `ops/map.rs`.

use half::{bf16, f16};

use super::{BinaryOp, CompareOp, Operation, UnaryOp};
use crate::dtype::{Bool, DType, Element};
use crate::error::{Error, Result};
use crate::layout::Shape;
use crate::ops::map::{map1, map2, map3};
use crate::read::{HostOperand, typed_mut};
use crate::view::{View, check_output};

/// Computes on operands brought to their types, of any count an operation has.
pub(crate) fn run(operation: Operation, operands: &[HostOperand<'_>], result: DType, out: &mut [u8]) -> Result<()> {
    match (operation, operands) {
        (Operation::Unary(op), [a]) => crate::dispatch!(result, T => unary(op, a.view::<T>()?, typed_mut(out)?)),
        (Operation::Binary(op), [a, b]) => {
            crate::dispatch!(result, T => binary(op, a.view::<T>()?, b.view::<T>()?, typed_mut(out)?))
        }
        (Operation::Compare(op), [a, b]) => {
            crate::dispatch!(a.dtype(), T => compare(op, a.view::<T>()?, b.view::<T>()?, typed_mut(out)?))
        }
        (Operation::Where, [condition, a, b]) => crate::dispatch!(result, T => {
            select(condition.view::<Bool>()?, a.view::<T>()?, b.view::<T>()?, typed_mut(out)?)
        }),
        (Operation::Cast, [a]) => crate::dispatch!(a.dtype(), S => {
            let from = a.view::<S>()?;
            crate::dispatch!(result, D => cast(from, typed_mut::<D>(out)?))
        }),
        _ => Err(Error::Length { what: "operands", expected: 1, found: operands.len() }),
    }
}

/// `out = op(a)`.
pub fn unary<T: Elementwise>(op: UnaryOp, a: View<'_, T>, out: &mut [T]) -> Result<()> {
    check_output(out, a.count())?;
    T::unary(op, a, out)
}

/// `out = a op b`, broadcast.
pub fn binary<T: Elementwise>(op: BinaryOp, a: View<'_, T>, b: View<'_, T>, out: &mut [T]) -> Result<()> {
    let shape = Shape::broadcast(&[a.shape(), b.shape()])?;
    check_output(out, shape.count()?)?;
    T::binary(op, a.broadcast_to(&shape)?, b.broadcast_to(&shape)?, out)
}

/// `out = a op b` as truth values, broadcast.
pub fn compare<T: Element>(op: CompareOp, a: View<'_, T>, b: View<'_, T>, out: &mut [Bool]) -> Result<()> {
    let shape = Shape::broadcast(&[a.shape(), b.shape()])?;
    check_output(out, shape.count()?)?;
    let (a, b) = (a.broadcast_to(&shape)?, b.broadcast_to(&shape)?);
    match op {
        CompareOp::Eq => map2(a, b, out, |x, y| Bool::from(x == y)),
        CompareOp::Ne => map2(a, b, out, |x, y| Bool::from(x != y)),
        CompareOp::Lt => map2(a, b, out, |x, y| Bool::from(x < y)),
        CompareOp::Le => map2(a, b, out, |x, y| Bool::from(x <= y)),
        CompareOp::Gt => map2(a, b, out, |x, y| Bool::from(x > y)),
        CompareOp::Ge => map2(a, b, out, |x, y| Bool::from(x >= y)),
    }
    Ok(())
}

/// `out = condition ? a : b`, broadcast. Called `where` by users, which is a keyword here.
pub fn select<T: Element>(condition: View<'_, Bool>, a: View<'_, T>, b: View<'_, T>, out: &mut [T]) -> Result<()> {
    let shape = Shape::broadcast(&[condition.shape(), a.shape(), b.shape()])?;
    check_output(out, shape.count()?)?;
    let condition = condition.broadcast_to(&shape)?;
    map3(condition, a.broadcast_to(&shape)?, b.broadcast_to(&shape)?, out, |c, x, y| if c.get() { x } else { y });
    Ok(())
}

/// `out = a` in another type.
pub fn cast<S: Element, D: Element>(a: View<'_, S>, out: &mut [D]) -> Result<()> {
    check_output(out, a.count())?;
    map1(a, out, |x| D::narrow(x.widen()));
    Ok(())
}

/// The arithmetic of a type. Operands have one shape and the output is as long as they are.
pub trait Elementwise: Element {
    /// Applies an operator, or says that this type does not have it.
    fn unary(op: UnaryOp, a: View<'_, Self>, out: &mut [Self]) -> Result<()>;

    /// Applies an operator, or says that this type does not have it.
    fn binary(op: BinaryOp, a: View<'_, Self>, b: View<'_, Self>, out: &mut [Self]) -> Result<()>;
}

macro_rules! float_arithmetic {
    ($type:ty, $up:expr, $down:expr) => {
        impl Elementwise for $type {
            fn unary(op: UnaryOp, a: View<'_, Self>, out: &mut [Self]) -> Result<()> {
                match op {
                    UnaryOp::Neg => map1(a, out, |x| -x),
                    UnaryOp::Exp => map1(a, out, |x| $down($up(x).exp())),
                    UnaryOp::Log => map1(a, out, |x| $down($up(x).ln())),
                    UnaryOp::Sqrt => map1(a, out, |x| $down($up(x).sqrt())),
                    // The comparison is this way round so that NaN passes.
                    UnaryOp::Relu => map1(a, out, |x| if $up(x) <= 0.0 { <$type>::default() } else { x }),
                    UnaryOp::Sigmoid => map1(a, out, |x| $down(1.0 / (1.0 + (-$up(x)).exp()))),
                    UnaryOp::Tanh => map1(a, out, |x| $down($up(x).tanh())),
                }
                Ok(())
            }

            fn binary(op: BinaryOp, a: View<'_, Self>, b: View<'_, Self>, out: &mut [Self]) -> Result<()> {
                match op {
                    BinaryOp::Add => map2(a, b, out, |x, y| $down($up(x) + $up(y))),
                    BinaryOp::Sub => map2(a, b, out, |x, y| $down($up(x) - $up(y))),
                    BinaryOp::Mul => map2(a, b, out, |x, y| $down($up(x) * $up(y))),
                    BinaryOp::Div => map2(a, b, out, |x, y| $down($up(x) / $up(y))),
                }
                Ok(())
            }
        }
    };
}

float_arithmetic!(f32, |x: f32| x, |x: f32| x);
float_arithmetic!(f64, |x: f64| x, |x: f64| x);
float_arithmetic!(f16, f16::to_f32, f16::from_f32);
float_arithmetic!(bf16, bf16::to_f32, bf16::from_f32);

macro_rules! integer_arithmetic {
    ($($type:ty),*) => {$(
        impl Elementwise for $type {
            fn unary(op: UnaryOp, a: View<'_, Self>, out: &mut [Self]) -> Result<()> {
                match op {
                    UnaryOp::Neg => map1(a, out, |x| x.wrapping_neg()),
                    UnaryOp::Relu => map1(a, out, |x| x.max(0)),
                    _ => return Err(Error::Unsupported { op: op.name(), dtype: Self::DTYPE }),
                }
                Ok(())
            }

            fn binary(op: BinaryOp, a: View<'_, Self>, b: View<'_, Self>, out: &mut [Self]) -> Result<()> {
                match op {
                    BinaryOp::Add => map2(a, b, out, |x, y| x.wrapping_add(y)),
                    BinaryOp::Sub => map2(a, b, out, |x, y| x.wrapping_sub(y)),
                    BinaryOp::Mul => map2(a, b, out, |x, y| x.wrapping_mul(y)),
                    BinaryOp::Div => return Err(Error::Unsupported { op: op.name(), dtype: Self::DTYPE }),
                }
                Ok(())
            }
        }
    )*};
}

integer_arithmetic!(i8, i32, i64, u8);

impl Elementwise for Bool {
    fn unary(op: UnaryOp, _: View<'_, Self>, _: &mut [Self]) -> Result<()> {
        Err(Error::Unsupported { op: op.name(), dtype: Self::DTYPE })
    }

    fn binary(op: BinaryOp, a: View<'_, Self>, b: View<'_, Self>, out: &mut [Self]) -> Result<()> {
        match op {
            BinaryOp::Add => map2(a, b, out, |x, y| Bool::from(x.get() | y.get())),
            BinaryOp::Mul => map2(a, b, out, |x, y| Bool::from(x.get() & y.get())),
            BinaryOp::Sub | BinaryOp::Div => return Err(Error::Unsupported { op: op.name(), dtype: Self::DTYPE }),
        }
        Ok(())
    }
}
