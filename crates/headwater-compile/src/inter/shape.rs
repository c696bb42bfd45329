//! What one row of a value holds.

use std::fmt;

/// One row: heads that are computed alike, and for each of them a vector or a matrix. Sizes are known when a layer is
/// compiled; how many rows there are is known when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A vector a head. A number is one of width 1.
    Row {
        /// Heads.
        heads: usize,
        /// Elements of each.
        width: usize,
    },
    /// A matrix a head. Only weights have these.
    Matrix {
        /// Heads.
        heads: usize,
        /// Rows of each: as many as what is multiplied by it has elements.
        rows: usize,
        /// Columns of each.
        cols: usize,
    },
}

impl Shape {
    /// One number.
    pub const SCALAR: Self = Self::Row { heads: 1, width: 1 };

    /// A vector with one head.
    #[must_use]
    pub fn vector(width: usize) -> Self {
        Self::Row { heads: 1, width }
    }

    /// A matrix with one head.
    #[must_use]
    pub fn matrix(rows: usize, cols: usize) -> Self {
        Self::Matrix { heads: 1, rows, cols }
    }

    /// Numbers in a row.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::Row { heads, width } => heads * width,
            Self::Matrix { heads, rows, cols } => heads * rows * cols,
        }
    }

    /// Whether there is nothing in a row.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Heads.
    #[must_use]
    pub fn heads(self) -> usize {
        match self {
            Self::Row { heads, .. } | Self::Matrix { heads, .. } => heads,
        }
    }

    /// Elements of a head's vector; `None` for matrices.
    #[must_use]
    pub fn width(self) -> Option<usize> {
        match self {
            Self::Row { width, .. } => Some(width),
            Self::Matrix { .. } => None,
        }
    }

    /// The shape of an elementwise operation: heads and widths are the same, or one of them is 1.
    #[must_use]
    pub fn broadcast(self, other: Self) -> Option<Self> {
        let fit = |a: usize, b: usize| (a == b || b == 1).then_some(a).or((a == 1).then_some(b));
        match (self, other) {
            (Self::Row { heads: h, width: w }, Self::Row { heads, width }) => {
                Some(Self::Row { heads: fit(h, heads)?, width: fit(w, width)? })
            }
            (a, b) => (a == b).then_some(a),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row { heads, width } => write!(f, "[{heads}, {width}]"),
            Self::Matrix { heads, rows, cols } => write!(f, "[{heads}, {rows}, {cols}]"),
        }
    }
}
