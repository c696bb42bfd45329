//! Operators that compute each element of the result from the elements at the same position.
//!
//! **Inputs.** Views of one element type; the caller brings operands to `compute_dtype` with `cast` first. Operands
//! broadcast: aligned at the last axis, size one stretches, by zero strides and without a copy.
//!
//! **Outputs.** A packed row-major slice with as many elements as the broadcast shape. Comparisons give `Bool`, the
//! others the type of their operands.
//!
//! **Types.** As torch has them. The functions that leave the integers (`exp`, `log`, `sqrt`, `sigmoid`, `tanh`, `div`)
//! turn integers into `float32` first. Integers wrap. On truth values `add` is or, `mul` is and; `neg`, `sub` and
//! `relu` are refused. The 16-bit floats are computed in f32 and rounded once. `relu` keeps NaN.
//!
//! **Casts.** Floats round to nearest even and keep NaN; wide values reach the 16-bit types through f32. Floats become
//! integers by truncation toward zero, and saturate where C++ leaves the result open; NaN becomes 0. Integers become
//! narrower integers by wrapping. Anything not zero, NaN included, becomes true.
//!
//! **Determinism.** Each element is computed alone, so the result does not depend on threads. `add`, `sub`, `mul`, `div`,
//! `sqrt`, `neg`, `relu`, `where`, comparisons and casts agree with the CUDA twin to the bit (NaN payloads aside). `exp`,
//! `log`, `tanh` and `sigmoid` come from each side's mathematical library and agree to 4 units in the last place.
//!
//! **Limits.** Eight dimensions. Nothing is written when an error is returned.

pub mod cpu;
mod cuda;

use headwater_cuda::{Span, Stream};

pub use cuda::kernel_builds;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{GpuOperand, Placed, Side};
use crate::layout::Shape;
use crate::tensor::Tensor;

/// One elementwise computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Compare(CompareOp),
    /// Takes a condition and two values.
    Where,
    /// From the operand's type to the result's.
    Cast,
}

/// Operands together with the types they are brought to.
pub(crate) type Operands<'a> = &'a [(&'a Tensor, DType)];

/// Computes on broadcast operands.
pub(crate) fn run(operation: Operation, operands: Operands<'_>, result: DType) -> Result<Tensor> {
    let shapes: Vec<&Shape> = operands.iter().map(|(tensor, _)| tensor.shape()).collect();
    let shape = Shape::broadcast(&shapes)?;
    let tensors: Vec<&Tensor> = operands.iter().map(|(tensor, _)| *tensor).collect();
    let placed = Placed::of(&tensors)?;
    match &placed.side {
        Side::Cpu => placed.on_host(result, &shape, |out| {
            let brought = operands.iter().map(|(tensor, dtype)| tensor.host_operand(*dtype));
            cpu::run(operation, &brought.collect::<Result<Vec<_>>>()?, result, out)
        }),
        Side::Gpu(gpu) => placed.on_gpu(gpu, result, &shape, |stream, out| {
            let brought =
                operands.iter().map(|(tensor, dtype)| tensor.gpu_operand(stream, *dtype)?.broadcast_to(&shape));
            cuda::run(stream, operation, &brought.collect::<Result<Vec<_>>>()?, result, out)
        }),
    }
}

/// Casts an operand that is already on the GPU.
pub(crate) fn cast_on_gpu(stream: &Stream, from: &GpuOperand, to: DType, out: &Span) -> Result<()> {
    cuda::run(stream, Operation::Cast, std::slice::from_ref(from), to, out)
}

/// The type two operands meet in. As in torch, a tensor without dimensions only counts when its kind of number (truth
/// value, integer, float) is above the other's.
pub(crate) fn meeting_dtype(a: &Tensor, b: &Tensor) -> DType {
    let kind = |dtype: DType| if dtype.is_float() { 2 } else { i32::from(dtype != DType::Bool) };
    let (left, right) = (a.dtype(), b.dtype());
    match (a.shape().is_empty(), b.shape().is_empty()) {
        (false, true) if kind(left) >= kind(right) => left,
        (true, false) if kind(right) >= kind(left) => right,
        _ => left.promote(right),
    }
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `e^x`
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// `max(x, 0)`, with NaN kept.
    Relu,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

impl UnaryOp {
    /// Every operator.
    pub const ALL: [UnaryOp; 7] =
        [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Log, UnaryOp::Sqrt, UnaryOp::Relu, UnaryOp::Sigmoid, UnaryOp::Tanh];

    /// The name users and the kernel's `OP` define have for it.
    pub const fn name(self) -> &'static str {
        match self {
            UnaryOp::Neg => "neg",
            UnaryOp::Exp => "exp",
            UnaryOp::Log => "log",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Relu => "relu",
            UnaryOp::Sigmoid => "sigmoid",
            UnaryOp::Tanh => "tanh",
        }
    }

    /// The type the operand is brought to, which is also the type of the result.
    pub fn compute_dtype(self, operand: DType) -> Result<DType> {
        match (self, operand) {
            (UnaryOp::Neg | UnaryOp::Relu, DType::Bool) => Err(Error::Unsupported { op: self.name(), dtype: operand }),
            (UnaryOp::Neg | UnaryOp::Relu, _) => Ok(operand),
            _ => Ok(operand.to_float()),
        }
    }
}

/// Arithmetic with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, never an integer division.
    Div,
}

impl BinaryOp {
    /// Every operator.
    pub const ALL: [BinaryOp; 4] = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div];

    /// The name users and the kernel's `OP` define have for it.
    pub const fn name(self) -> &'static str {
        match self {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::Div => "div",
        }
    }

    /// The type both operands are brought to, which is also the type of the result.
    pub fn compute_dtype(self, left: DType, right: DType) -> Result<DType> {
        let dtype = left.promote(right);
        match (self, dtype) {
            (BinaryOp::Sub, DType::Bool) => Err(Error::Unsupported { op: self.name(), dtype }),
            (BinaryOp::Div, _) => Ok(dtype.to_float()),
            _ => Ok(dtype),
        }
    }
}

/// Comparisons. With NaN on either side all are false, but `Ne`, which is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

impl CompareOp {
    /// Every operator.
    pub const ALL: [CompareOp; 6] =
        [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

    /// The name users and the kernel's `OP` define have for it.
    pub const fn name(self) -> &'static str {
        match self {
            CompareOp::Eq => "eq",
            CompareOp::Ne => "ne",
            CompareOp::Lt => "lt",
            CompareOp::Le => "le",
            CompareOp::Gt => "gt",
            CompareOp::Ge => "ge",
        }
    }
}

#[cfg(test)]
mod tests;
