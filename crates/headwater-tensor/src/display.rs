//! How a tensor is shown: shape, type, place and its first elements.

use std::fmt;

use crate::dtype::{DType, Element, Scalar};
use crate::error::Result;
use crate::layout::Slice;
use crate::tensor::Tensor;

/// Elements that are shown.
const SHOWN: usize = 8;

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}, {}, {}: ", self.shape(), self.dtype(), self.device())?;
        match self.first_elements() {
            Ok(elements) => {
                let more = if elements.len() < self.count() { ", …" } else { "" };
                write!(f, "[{}{more}])", elements.join(", "))
            }
            Err(why) => write!(f, "unreadable: {why})"),
        }
    }
}

impl Tensor {
    fn first_elements(&self) -> Result<Vec<String>> {
        let mut first = self.clone();
        let mut left = SHOWN;
        for axis in (0..self.shape().len()).rev() {
            let end = self.shape()[axis].min(left);
            first = first.slice(axis, Slice { start: 0, end, step: 1 })?;
            left = (left / end.max(1)).max(1);
        }
        crate::dispatch!(self.dtype(), T => Ok(first.to_vec::<T>()?.into_iter().map(show).collect()))
    }
}

fn show<T: Element>(element: T) -> String {
    match element.widen() {
        Scalar::Int(value) if T::DTYPE == DType::Bool => (value != 0).to_string(),
        Scalar::Int(value) => value.to_string(),
        Scalar::Float(value) => value.to_string(),
    }
}
