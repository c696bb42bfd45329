//! What the steps of a body have made for one block.

use std::ops::{Deref, DerefMut};

use super::vector::Operand;
use crate::intra::Register;

/// Registers of one block.
pub(super) struct Registers<'a> {
    held: Vec<Held<'a>>,
    /// Arrays that are not in use.
    spare: &'a mut Vec<Vec<f32>>,
    /// Steps whose result is stored as it is, and where.
    outs: Vec<(usize, &'a mut [f32])>,
}

/// What a register holds.
pub(super) enum Held<'a> {
    Nothing,
    Own(Memory<'a>),
    Rows(&'a [f32]),
    Same(&'a [f32]),
    /// The same row for all, which nobody else has.
    OwnSame(Vec<f32>),
    Number(f32),
    /// The rows of another one.
    Alias(Register),
}

/// Where a step writes.
pub(super) enum Memory<'a> {
    /// Into an array that is used again.
    Spare(Vec<f32>),
    /// To where its result is stored.
    Out(&'a mut [f32]),
}

impl Deref for Memory<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Spare(array) => array,
            Self::Out(rows) => rows,
        }
    }
}

impl DerefMut for Memory<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Spare(array) => array,
            Self::Out(rows) => rows,
        }
    }
}

impl<'a> Registers<'a> {
    /// None yet.
    pub fn new(spare: &'a mut Vec<Vec<f32>>) -> Self {
        Self { held: Vec::new(), spare, outs: Vec::new() }
    }

    /// Lets a step write its result to where it is stored.
    pub fn lend(&mut self, step: usize, out: &'a mut [f32]) {
        self.outs.push((step, out));
    }

    /// Notes what the next step made.
    pub fn push(&mut self, held: Held<'a>) {
        self.held.push(held);
    }

    /// What a register holds.
    pub fn get(&self, register: Register) -> Operand<'_> {
        match &self.held[register.at()] {
            Held::Own(rows) => Operand::Rows(rows),
            Held::Rows(rows) => Operand::Rows(rows),
            Held::Same(row) => Operand::Same(row),
            Held::OwnSame(row) => Operand::Same(row),
            Held::Number(number) => Operand::Number(*number),
            Held::Alias(other) => self.get(*other),
            Held::Nothing => Operand::Rows(&[]),
        }
    }

    /// Room for the `len` numbers that a step makes.
    pub fn memory(&mut self, step: usize, len: usize) -> Memory<'a> {
        match self.outs.iter().position(|(of, out)| *of == step && out.len() == len) {
            Some(at) => Memory::Out(self.outs.swap_remove(at).1),
            None => Memory::Spare(self.array(len)),
        }
    }

    /// An array of `len` numbers, whatever they are.
    pub fn array(&mut self, len: usize) -> Vec<f32> {
        let mut array = self.spare.pop().unwrap_or_default();
        array.resize(len, 0.0);
        array
    }

    /// Gives an array back.
    pub fn give(&mut self, array: Vec<f32>) {
        self.spare.push(array);
    }

    /// Gives all arrays back.
    pub fn finish(self) {
        let own = self.held.into_iter().filter_map(|held| match held {
            Held::Own(Memory::Spare(array)) => Some(array),
            _ => None,
        });
        self.spare.extend(own);
    }
}
