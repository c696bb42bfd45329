//! Shapes and strides: how a position in an array becomes a position in its storage.
//!
//! A `Layout` is checked when it is made: its element count and its largest index fit in `usize`, so the arithmetic in
//! the loops below it never overflows. Strides are counted in elements and never negative; zero means broadcast. The
//! dimensions are held inline, so a layout is copied like a number and goes to a kernel by value.

use std::fmt;
use std::ops::Deref;

use crate::error::{Error, Result};

/// The most dimensions an array may have; the CUDA twins hold this many in their arguments.
pub const MAX_DIMS: usize = 8;

/// The shape, strides and offset of a view into a storage of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: [usize; MAX_DIMS],
    offset: usize,
    count: usize,
}

impl Layout {
    /// A view with these strides, counted in elements. Fails when its largest index does not fit in `usize`.
    pub fn new(shape: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
        let shape = Shape::new(shape)?;
        if strides.len() != shape.len() {
            return Err(Error::Length { what: "strides", expected: shape.len(), found: strides.len() });
        }
        let mut padded = [0; MAX_DIMS];
        padded[..strides.len()].copy_from_slice(strides);
        let layout = Layout { shape, strides: padded, offset, count: shape.count()? };
        layout.checked_end().ok_or_else(|| Error::TooLarge { dims: shape.to_vec() })?;
        Ok(layout)
    }

    /// The row-major view of a storage that holds exactly this shape.
    pub fn contiguous(shape: &[usize]) -> Result<Layout> {
        let checked = Shape::new(shape)?;
        checked.count()?;
        Layout::new(shape, &row_major(&checked)[..checked.len()], 0)
    }

    /// Sizes of the dimensions.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Distance in elements between neighbours along each dimension.
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.rank()]
    }

    /// The index of the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many dimensions there are.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// How many elements the view has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether walking the view row by row walks the storage one element at a time.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.count == 0
            || (0..self.rank()).rev().all(|axis| {
                let packed = self.shape[axis] == 1 || self.strides[axis] == expected;
                expected *= self.shape[axis];
                packed
            })
    }

    /// One past the largest storage index the view reaches; zero when it has no elements.
    pub fn end(&self) -> usize {
        self.checked_end().unwrap_or(usize::MAX)
    }

    /// Proves that every index of the view lies inside a storage of this many elements.
    pub fn check_within(&self, storage: usize) -> Result<()> {
        if self.end() <= storage { Ok(()) } else { Err(Error::OutOfStorage { end: self.end(), storage }) }
    }

    /// The storage index of a position, or nothing when the position is not in the view.
    pub fn index_of(&self, position: &[usize]) -> Option<usize> {
        let inside = position.len() == self.rank() && position.iter().zip(self.shape.iter()).all(|(p, s)| p < s);
        inside.then(|| self.offset + position.iter().zip(self.strides()).map(|(p, s)| p * s).sum::<usize>())
    }

    /// The view seen as a larger shape, with size-one and missing dimensions repeated.
    pub fn broadcast_to(&self, target: &Shape) -> Result<Layout> {
        let mismatch = |axis: usize, size: usize| Error::Broadcast {
            left: self.shape.to_vec(),
            right: target.to_vec(),
            axis,
            left_size: size,
            right_size: target.get(axis).copied().unwrap_or(0),
        };
        let missing = target.len().checked_sub(self.rank()).ok_or_else(|| mismatch(0, self.shape[0]))?;
        let mut strides = [0; MAX_DIMS];
        for axis in 0..self.rank() {
            let size = self.shape[axis];
            if size == target[missing + axis] {
                strides[missing + axis] = self.strides[axis];
            } else if size != 1 {
                return Err(mismatch(missing + axis, size));
            }
        }
        Layout::new(target, &strides[..target.len()], self.offset)
    }

    /// Every `step`-th position of an axis from `start` up to `end`.
    pub fn slice(&self, axis: usize, slice: Slice) -> Result<Layout> {
        let length = self.size_of(axis)?;
        let Slice { start, end, step } = slice;
        if step == 0 || start > end || end > length {
            return Err(Error::BadSlice { start, end, step, length });
        }
        let mut result = *self;
        let kept = (end - start).div_ceil(step);
        result.shape.dims[axis] = kept;
        result.count = result.shape.count()?;
        // A stride over fewer than two positions is never used, and may be too large to multiply.
        result.strides[axis] =
            if kept > 1 && result.count > 0 { self.strides[axis] * step } else { self.strides[axis] };
        result.offset = if result.count == 0 { self.offset } else { self.offset + start * self.strides[axis] };
        Ok(result)
    }

    /// The view with its axes in another order: axis `i` of the result is axis `axes[i]` of this view.
    pub fn permute(&self, axes: &[usize]) -> Result<Layout> {
        let mut seen = [false; MAX_DIMS];
        let known = axes.len() == self.rank()
            && axes.iter().all(|&a| a < self.rank() && !std::mem::replace(&mut seen[a], true));
        if !known {
            return Err(Error::NotAPermutation { axes: axes.to_vec(), rank: self.rank() });
        }
        let mut result = *self;
        for (to, &from) in axes.iter().enumerate() {
            result.shape.dims[to] = self.shape[from];
            result.strides[to] = self.strides[from];
        }
        Ok(result)
    }

    /// The view with two axes exchanged.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Layout> {
        self.size_of(a)?;
        self.size_of(b)?;
        let mut result = *self;
        result.shape.dims.swap(a, b);
        result.strides.swap(a, b);
        Ok(result)
    }

    /// The view with a new axis of size one at this place.
    pub fn insert_axis(&self, axis: usize) -> Result<Layout> {
        if axis > self.rank() {
            return Err(Error::NoSuchAxis { axis, rank: self.rank() });
        }
        let (mut shape, mut strides) = (self.shape.to_vec(), self.strides().to_vec());
        shape.insert(axis, 1);
        strides.insert(axis, 0);
        Layout::new(&shape, &strides, self.offset)
    }

    /// The view at position zero of an axis, without that axis.
    pub fn remove_axis(&self, axis: usize) -> Result<Layout> {
        self.size_of(axis)?;
        let (mut shape, mut strides) = (self.shape.to_vec(), self.strides().to_vec());
        shape.remove(axis);
        strides.remove(axis);
        Layout::new(&shape, &strides, self.offset)
    }

    /// The same elements in the same order under another shape, or nothing when that needs a copy.
    pub fn reshape(&self, target: &[usize]) -> Result<Option<Layout>> {
        let target = Shape::new(target)?;
        let to_count = target.count()?;
        if to_count != self.count {
            return Err(Error::Reshape {
                from: self.shape.to_vec(),
                from_count: self.count,
                to: target.to_vec(),
                to_count,
            });
        }
        if self.count == 0 || self.is_contiguous() {
            return Layout::new(&target, &row_major(&target)[..target.len()], self.offset).map(Some);
        }
        match split_groups(self, &target) {
            Some(strides) => Layout::new(&target, &strides[..target.len()], self.offset).map(Some),
            None => Ok(None),
        }
    }

    /// The size of an axis, or an error when there is no such axis.
    pub fn size_of(&self, axis: usize) -> Result<usize> {
        self.shape.get(axis).copied().ok_or(Error::NoSuchAxis { axis, rank: self.rank() })
    }

    fn checked_end(&self) -> Option<usize> {
        if self.count == 0 {
            return Some(0);
        }
        let mut last = self.offset;
        for (&size, &stride) in self.shape.iter().zip(self.strides()) {
            last = last.checked_add((size - 1).checked_mul(stride)?)?;
        }
        last.checked_add(1)
    }
}

/// The positions `start`, `start + step`, ... below `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// First position.
    pub start: usize,
    /// Bound, not included.
    pub end: usize,
    /// Distance between positions, not zero.
    pub step: usize,
}

/// Sizes of up to `MAX_DIMS` dimensions, held inline.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_DIMS],
    rank: usize,
}

impl Shape {
    /// These sizes. Fails on too many of them.
    pub fn new(dims: &[usize]) -> Result<Shape> {
        if dims.len() > MAX_DIMS {
            return Err(Error::TooManyDims { rank: dims.len() });
        }
        let mut shape = Shape { dims: [0; MAX_DIMS], rank: dims.len() };
        shape.dims[..dims.len()].copy_from_slice(dims);
        Ok(shape)
    }

    /// How many elements the shape has. A zero anywhere makes it zero, however large the rest.
    pub fn count(&self) -> Result<usize> {
        if self.contains(&0) {
            return Ok(0);
        }
        let product = self.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        product.ok_or_else(|| Error::TooLarge { dims: self.to_vec() })
    }

    /// The shape that all of these broadcast to: aligned at the last axis, size one stretches.
    pub fn broadcast(shapes: &[&Shape]) -> Result<Shape> {
        let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
        let mut result = Shape { dims: [1; MAX_DIMS], rank };
        result.dims[rank..].fill(0);
        for shape in shapes {
            let so_far = result;
            for (axis, &size) in (rank - shape.len()..rank).zip(shape.iter()) {
                let present = result.dims[axis];
                if present == 1 {
                    result.dims[axis] = size;
                } else if size != 1 && size != present {
                    return Err(Error::Broadcast {
                        left: so_far.to_vec(),
                        right: shape.to_vec(),
                        axis,
                        left_size: present,
                        right_size: size,
                    });
                }
            }
        }
        Ok(result)
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Strides of a packed array. An empty array may have sizes whose product overflows, hence the saturation.
fn row_major(shape: &Shape) -> [usize; MAX_DIMS] {
    let mut strides = [0; MAX_DIMS];
    let mut stride = 1usize;
    for axis in (0..shape.len()).rev() {
        strides[axis] = stride;
        stride = stride.saturating_mul(shape[axis].max(1));
    }
    strides
}

/// Strides for a new shape over the same elements. Old axes that lie one after the other in storage form a group, and
/// the new axes must split along the same borders.
fn split_groups(layout: &Layout, target: &Shape) -> Option<[usize; MAX_DIMS]> {
    let mut strides = [0; MAX_DIMS];
    let mut next = target.len();
    let mut group = 1;
    let mut stride = layout.strides.get(layout.rank().checked_sub(1)?).copied()?;
    for axis in (0..layout.rank()).rev() {
        group *= layout.shape[axis];
        let joins =
            axis > 0 && (layout.shape[axis - 1] == 1 || layout.strides[axis - 1] == group.checked_mul(stride)?);
        if joins {
            continue;
        }
        let mut filled = 1;
        while next > 0 && (filled < group || target[next - 1] == 1) {
            next -= 1;
            strides[next] = filled.checked_mul(stride)?;
            filled *= target[next];
        }
        if filled != group {
            return None;
        }
        if axis > 0 {
            stride = layout.strides[axis - 1];
            group = 1;
        }
    }
    (next == 0).then_some(strides)
}

#[cfg(test)]
mod tests;
