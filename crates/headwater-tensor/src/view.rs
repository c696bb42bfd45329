//! A slice of elements together with a layout that is known to lie inside it.
//!
//! The check is made once, here, so that the kernels' loops need no test of their own and still never leave the slice.

use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::layout::{Layout, Shape};

/// Elements read through a layout.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    data: &'a [T],
    layout: Layout,
}

impl<'a, T: Element> View<'a, T> {
    /// A view of this slice. Fails when the layout leaves it.
    pub fn new(data: &'a [T], layout: Layout) -> Result<View<'a, T>> {
        layout.check_within(data.len())?;
        Ok(View { data, layout })
    }

    /// A whole slice in row-major order.
    pub fn contiguous(data: &'a [T], shape: &[usize]) -> Result<View<'a, T>> {
        let layout = Layout::contiguous(shape)?;
        if layout.count() != data.len() {
            return Err(Error::Length { what: "elements", expected: layout.count(), found: data.len() });
        }
        View::new(data, layout)
    }
}

impl<'a, T> View<'a, T> {
    /// The elements under the layout, and around it.
    pub fn data(&self) -> &'a [T] {
        self.data
    }

    /// Where the view's elements lie in `data`.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Sizes of the dimensions.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// How many elements the view has.
    pub fn count(&self) -> usize {
        self.layout.count()
    }

    /// The view stretched to a larger shape.
    pub fn broadcast_to(&self, shape: &Shape) -> Result<View<'a, T>> {
        Ok(View { data: self.data, layout: self.layout.broadcast_to(shape)? })
    }

    /// The elements in order, when they lie one after the other.
    pub fn as_slice(&self) -> Option<&'a [T]> {
        if !self.layout.is_contiguous() {
            return None;
        }
        self.data.get(self.layout.offset()..)?.get(..self.layout.count())
    }
}

/// Fails when an output slice has another length than the elements it is to receive.
pub fn check_output<T>(out: &[T], expected: usize) -> Result<()> {
    if out.len() == expected {
        Ok(())
    } else {
        Err(Error::Length { what: "output elements", expected, found: out.len() })
    }
}
