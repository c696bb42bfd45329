//! A named array in memory: what checkpoints are made of.

use crate::error::{Error, Result};

/// Numbers with a name and a shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// Its extents, outermost first.
    pub shape: Vec<usize>,
    /// The numbers, row by row.
    pub values: Vec<f32>,
}

impl Array {
    /// An array of zeros.
    #[must_use]
    pub fn zeros(name: String, shape: &[usize]) -> Self {
        Self { name, shape: shape.to_owned(), values: vec![0.0; shape.iter().product()] }
    }
}

/// Refuses an array whose length is not what it should be.
pub(crate) fn check_length(what: impl Into<String>, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Length { what: what.into(), found, expected }) }
}
