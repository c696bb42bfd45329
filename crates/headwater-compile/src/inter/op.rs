//! What a value is computed from.
//!
//! The list is closed: every pass and every back end matches all of it. Operators are small on purpose; what belongs together
//! is put together when kernels are selected.

use super::{Path, ValueId};

/// An operator and its operands. Domain and shape of the result stand beside it in [`Value`](super::Value).
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Given by the caller at every run.
    Input {
        /// Its name.
        name: String,
        /// Whether the caller may ask for its gradient.
        wants_gradient: bool,
    },
    /// Learnt. Has a gradient.
    Parameter {
        /// Its name.
        name: String,
    },
    /// A number.
    Constant(f64),
    /// Every row times the matrix of its type.
    Linear {
        /// Rows.
        x: ValueId,
        /// Matrices of a type domain.
        w: ValueId,
        /// Whether columns of the matrix meet the row's elements.
        transposed: bool,
        /// How a row finds its type.
        path: Path,
    },
    /// For every type, the sum over its rows of the outer product of both: the gradient of `Linear` by its weight.
    Outer {
        /// Gives rows of the matrix.
        x: ValueId,
        /// Gives columns.
        y: ValueId,
        /// How a row finds its type.
        path: Path,
    },
    /// The product of two matrices a type.
    Product {
        /// The left one.
        a: ValueId,
        /// The right one.
        b: ValueId,
        /// Whether the left one is transposed first.
        transpose_a: bool,
        /// Whether the right one is.
        transpose_b: bool,
    },
    /// The inner product, a head at a time.
    Dot {
        /// One vector.
        x: ValueId,
        /// The other.
        y: ValueId,
    },
    /// A function of every element.
    Unary {
        /// Which.
        f: Unary,
        /// Of what.
        x: ValueId,
    },
    /// A function of every two elements; heads and widths of 1 are repeated.
    Binary {
        /// Which.
        f: Binary,
        /// The left operand.
        x: ValueId,
        /// The right one.
        y: ValueId,
    },
    /// Both vectors of a head in one.
    Concat {
        /// In front.
        x: ValueId,
        /// Behind.
        y: ValueId,
    },
    /// A part of every head's vector; its width is the value's.
    Slice {
        /// Of what.
        x: ValueId,
        /// The first element.
        from: usize,
    },
    /// Zeros around every head's vector: the gradient of `Slice`. The width is the value's.
    Pad {
        /// What is inside.
        x: ValueId,
        /// Where it begins.
        from: usize,
    },
    /// The same numbers with other heads and widths.
    Reshape {
        /// Of what.
        x: ValueId,
    },
    /// Heads or widths of 1 repeated: the gradient of both sums. How often, the value's shape says.
    Expand {
        /// Of what.
        x: ValueId,
    },
    /// The sum over heads.
    SumHeads {
        /// Of what.
        x: ValueId,
    },
    /// The sum over a head's vector.
    SumWidth {
        /// Of what.
        x: ValueId,
    },
    /// The row of the coarser domain that a row belongs to.
    Lift {
        /// A value of the coarser domain.
        x: ValueId,
        /// The way there.
        path: Path,
    },
    /// All rows of the finer domain that belong to a row, combined. No rows give 0.
    Reduce {
        /// A value of the finer domain.
        x: ValueId,
        /// How.
        how: Reduce,
        /// The way back.
        path: Path,
    },
    /// Exponentials that add up to 1 over all rows that belong to the same row of `by`.
    Softmax {
        /// Of what.
        x: ValueId,
        /// A coarser domain, which the value's maps to in one way.
        by: super::Domain,
    },
    /// Elements set to 0 at random, the others scaled up. The same key and step give the same elements: the gradient is the
    /// same operator.
    Dropout {
        /// Of what.
        x: ValueId,
        /// How likely an element becomes 0.
        probability: f64,
        /// What tells this dropout from others of the same step.
        key: u64,
    },
}

/// Functions of one element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unary {
    /// `-x`
    Neg,
    /// `e^x`
    Exp,
    /// The natural logarithm.
    Log,
    /// `x` where it is positive, else 0.
    Relu,
    /// `x` where it is positive, else a part of it.
    LeakyRelu(f64),
    /// `x` where it is positive, else `a (e^x - 1)`.
    Elu(f64),
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `x` times the normal distribution's function, exactly.
    Gelu,
    /// The square root.
    Sqrt,
    /// `1 / sqrt(x)`
    Rsqrt,
    /// `1 / x`
    Recip,
    /// Without its sign.
    Abs,
    /// 1 where it is positive, else 0: the slope of `Relu`.
    Step,
    /// 1 where it is positive, else the number: the slope of `LeakyRelu`.
    LeakyStep(f64),
    /// 1 where it is positive, else `a e^x`: the slope of `Elu`.
    EluSlope(f64),
    /// The slope of `Gelu`.
    GeluSlope,
    /// 1, -1, or 0 for 0: the slope of `Abs`.
    Sign,
}

/// Functions of two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `x + y`
    Add,
    /// `x - y`
    Sub,
    /// `x * y`
    Mul,
    /// `x / y`
    Div,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// 1 where they are the same, else 0.
    Equal,
    /// 1 where `x` is larger, else 0.
    Greater,
}

/// How rows are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// Their sum over their number.
    Mean,
    /// The largest of each element.
    Max,
}

impl Op {
    /// Operands, in order.
    #[must_use]
    pub fn operands(&self) -> Vec<ValueId> {
        match *self {
            Self::Input { .. } | Self::Parameter { .. } | Self::Constant(_) => vec![],
            Self::Linear { x, w, .. } => vec![x, w],
            Self::Product { a, b, .. } => vec![a, b],
            Self::Outer { x, y, .. } | Self::Dot { x, y } | Self::Binary { x, y, .. } | Self::Concat { x, y } => {
                vec![x, y]
            }
            Self::Unary { x, .. }
            | Self::Slice { x, .. }
            | Self::Pad { x, .. }
            | Self::Reshape { x }
            | Self::Expand { x }
            | Self::SumHeads { x }
            | Self::SumWidth { x }
            | Self::Lift { x, .. }
            | Self::Reduce { x, .. }
            | Self::Softmax { x, .. }
            | Self::Dropout { x, .. } => vec![x],
        }
    }

    /// The same operator with its operands replaced.
    #[must_use]
    pub fn with_operands(&self, mut replace: impl FnMut(ValueId) -> ValueId) -> Self {
        let mut op = self.clone();
        match &mut op {
            Self::Input { .. } | Self::Parameter { .. } | Self::Constant(_) => {}
            Self::Linear { x: a, w: b, .. }
            | Self::Product { a, b, .. }
            | Self::Outer { x: a, y: b, .. }
            | Self::Dot { x: a, y: b }
            | Self::Binary { x: a, y: b, .. }
            | Self::Concat { x: a, y: b } => {
                *a = replace(*a);
                *b = replace(*b);
            }
            Self::Unary { x, .. }
            | Self::Slice { x, .. }
            | Self::Pad { x, .. }
            | Self::Reshape { x }
            | Self::Expand { x }
            | Self::SumHeads { x }
            | Self::SumWidth { x }
            | Self::Lift { x, .. }
            | Self::Reduce { x, .. }
            | Self::Softmax { x, .. }
            | Self::Dropout { x, .. } => *x = replace(*x),
        }
        op
    }

    /// Whether a row of the result depends on the same row of the operands alone.
    #[must_use]
    pub fn is_row_wise(&self) -> bool {
        !matches!(
            self,
            Self::Input { .. }
                | Self::Parameter { .. }
                | Self::Constant(_)
                | Self::Linear { .. }
                | Self::Outer { .. }
                | Self::Product { .. }
                | Self::Lift { .. }
                | Self::Reduce { .. }
                | Self::Softmax { .. }
        )
    }
}
