//! What the steps of a body have made for one block.

use std::ops::{Deref, DerefMut};

use super::spare::Spare;
use super::vector::Operand;
use crate::intra::Register;

/// Registers of one block.
#[derive(Default)]
pub(super) struct Registers<'a> {
    held: Vec<Held<'a>>,
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
    Spare(Spare),
    /// To where its result is stored.
    Out(&'a mut [f32]),
}

impl Memory<'_> {
    /// The array, if it is one.
    pub fn into_spare(self) -> Option<Spare> {
        match self {
            Self::Spare(spare) => Some(spare),
            Self::Out(_) => None,
        }
    }
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
            None => Memory::Spare(Spare::new(len)),
        }
    }

    /// The `len` numbers that a step starts from: `begun` itself, or what `fill` writes.
    pub fn begin(
        &mut self,
        step: usize,
        len: usize,
        begun: Option<Spare>,
        fill: impl FnOnce(&mut [f32]),
    ) -> Memory<'a> {
        match (self.memory(step, len), begun) {
            (Memory::Spare(_), Some(begun)) => Memory::Spare(begun),
            (mut memory, Some(begun)) => {
                memory.copy_from_slice(&begun);
                memory
            }
            (mut memory, None) => {
                fill(&mut memory);
                memory
            }
        }
    }

    /// Zeros that a step makes.
    pub fn zeros(&mut self, step: usize, len: usize) -> Memory<'a> {
        let mut memory = self.memory(step, len);
        memory.fill(0.0);
        memory
    }
}
