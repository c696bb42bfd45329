//! The operators as users call them.
//!
//! Operands broadcast, are brought to the type torch would bring them to, and may lie in different places as far as the
//! placement table allows. Each call returns a new tensor where the table says; on the GPU it returns before the work is
//! done. Reading the result waits.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gather::GatherOptions;
use crate::ops::elementwise::{self, BinaryOp, CompareOp, Operation, UnaryOp, meeting_dtype};
use crate::ops::reduce::{self, KeepAxis, ReduceOp};
use crate::ops::{copy, index, matmul, scatter_add};
use crate::tensor::Tensor;

/// Named methods for operators of one kind.
macro_rules! methods {
    ($(#[doc = $doc:literal] $name:ident($($other:ident)?) = $call:ident($op:expr);)*) => {
        impl Tensor {$(
            #[doc = $doc]
            pub fn $name(&self $(, $other: &Tensor)?) -> Result<Tensor> {
                self.$call($op $(, $other)?)
            }
        )*}
    };
}

methods! {
    #[doc = "`self + other`"] add(other) = binary(BinaryOp::Add);
    #[doc = "`self - other`"] sub(other) = binary(BinaryOp::Sub);
    #[doc = "`self * other`"] mul(other) = binary(BinaryOp::Mul);
    #[doc = "`self / other`, of floats."] div(other) = binary(BinaryOp::Div);
    #[doc = "Where both are equal."] eq(other) = compare(CompareOp::Eq);
    #[doc = "Where they differ; NaN differs from everything."] ne(other) = compare(CompareOp::Ne);
    #[doc = "`self < other`"] lt(other) = compare(CompareOp::Lt);
    #[doc = "`self <= other`"] le(other) = compare(CompareOp::Le);
    #[doc = "`self > other`"] gt(other) = compare(CompareOp::Gt);
    #[doc = "`self >= other`"] ge(other) = compare(CompareOp::Ge);
    #[doc = "`-self`"] neg() = unary(UnaryOp::Neg);
    #[doc = "The exponential."] exp() = unary(UnaryOp::Exp);
    #[doc = "The natural logarithm."] log() = unary(UnaryOp::Log);
    #[doc = "The square root."] sqrt() = unary(UnaryOp::Sqrt);
    #[doc = "`max(self, 0)`, with NaN kept."] relu() = unary(UnaryOp::Relu);
    #[doc = "`1 / (1 + exp(-self))`"] sigmoid() = unary(UnaryOp::Sigmoid);
    #[doc = "The hyperbolic tangent."] tanh() = unary(UnaryOp::Tanh);
}

impl Tensor {
    /// An operator with one operand.
    pub fn unary(&self, op: UnaryOp) -> Result<Tensor> {
        let dtype = op.compute_dtype(self.dtype())?;
        elementwise::run(Operation::Unary(op), &[(self, dtype)], dtype)
    }

    /// Arithmetic with two operands.
    pub fn binary(&self, op: BinaryOp, other: &Tensor) -> Result<Tensor> {
        let met = meeting_dtype(self, other);
        let dtype = op.compute_dtype(met, met)?;
        elementwise::run(Operation::Binary(op), &[(self, dtype), (other, dtype)], dtype)
    }

    /// A comparison, as truth values.
    pub fn compare(&self, op: CompareOp, other: &Tensor) -> Result<Tensor> {
        let dtype = meeting_dtype(self, other);
        elementwise::run(Operation::Compare(op), &[(self, dtype), (other, dtype)], DType::Bool)
    }

    /// Elements of `yes` where this tensor of truth values is true, of `no` elsewhere.
    pub fn where_(&self, yes: &Tensor, no: &Tensor) -> Result<Tensor> {
        if self.dtype() != DType::Bool {
            return Err(Error::WrongType { op: "where", expected: DType::Bool, found: self.dtype() });
        }
        let dtype = meeting_dtype(yes, no);
        elementwise::run(Operation::Where, &[(self, DType::Bool), (yes, dtype), (no, dtype)], dtype)
    }

    /// The elements in another type; the same tensor when it has that type.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        elementwise::run(Operation::Cast, &[(self, self.dtype())], dtype)
    }

    /// A reduction along an axis.
    pub fn reduce(&self, op: ReduceOp, axis: usize, keep: KeepAxis) -> Result<Tensor> {
        reduce::run(op, self, axis, keep)
    }

    /// Sums along an axis, which vanishes.
    pub fn sum(&self, axis: usize) -> Result<Tensor> {
        self.reduce(ReduceOp::Sum, axis, KeepAxis::No)
    }

    /// Means along an axis, which vanishes.
    pub fn mean(&self, axis: usize) -> Result<Tensor> {
        self.reduce(ReduceOp::Mean, axis, KeepAxis::No)
    }

    /// The largest elements along an axis, which vanishes.
    pub fn max(&self, axis: usize) -> Result<Tensor> {
        self.reduce(ReduceOp::Max, axis, KeepAxis::No)
    }

    /// The positions of the largest elements along an axis, which vanishes.
    pub fn argmax(&self, axis: usize) -> Result<Tensor> {
        self.reduce(ReduceOp::ArgMax, axis, KeepAxis::No)
    }

    /// The matrix product, alone or in batches.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        matmul::run(self, other)
    }

    /// The rows that `ids` name, in that order: `self[ids]`.
    pub fn index(&self, ids: &Tensor) -> Result<Tensor> {
        self.index_with(ids, GatherOptions::default())
    }

    /// The rows that `ids` name, gathered in a given way.
    pub fn index_with(&self, ids: &Tensor, options: GatherOptions) -> Result<Tensor> {
        index::run(self, ids, options)
    }

    /// This tensor with the rows of `source` added to the rows that `ids` name.
    pub fn scatter_add(&self, ids: &Tensor, source: &Tensor) -> Result<Tensor> {
        scatter_add::run(self, ids, source)
    }

    /// Tensors joined along an axis.
    pub fn concat(tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
        copy::concat(tensors, axis)
    }
}
