//! Arrays that a thread uses again and again: fresh memory costs more than most steps.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

thread_local! {
    /// Arrays of this thread that are not in use. They never get shorter: what was written once need not be cleared again.
    static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Some numbers, whatever they are; they go back when nobody needs them any more.
pub(super) struct Spare {
    array: Vec<f32>,
    len: usize,
}

impl Spare {
    /// `len` numbers.
    pub fn new(len: usize) -> Self {
        let mut array = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
        if array.len() < len {
            array.resize(len, 0.0);
        }
        Self { array, len }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let array = std::mem::take(&mut self.array);
        // A thread that ends has no list any more; the array then ends with it.
        let _ = FREE.try_with(|free| free.borrow_mut().push(array));
    }
}

impl Deref for Spare {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.array[..self.len]
    }
}

impl DerefMut for Spare {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.array[..self.len]
    }
}
