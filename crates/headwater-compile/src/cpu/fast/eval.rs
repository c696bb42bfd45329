//! The body of a kernel for one block: each step for all rows of its level at once.

use headwater_graph::random::Key;

use super::ahead::Ahead;
use super::block::{Block, Rows};
use super::fuse::Action;
use super::index::Index;
use super::registers::{Held, Memory, Registers};
use super::vector::{self, Operand, combine, single, sizes, widest};
use crate::cpu::dropout::Dropout;
use crate::inter::Reduce;
use crate::intra::{Body, BufferId, Register, Step, StepOp};

/// What does not change from block to block.
pub(super) struct Code<'a> {
    pub body: &'a Body,
    pub actions: &'a [Action],
    /// For every step that loads, where from.
    pub loads: Vec<Option<Source<'a>>>,
    pub step: Key,
}

/// The rows of a buffer, and which one each row reads.
pub(super) type Source<'a> = (&'a [f32], &'a Index<'a>);

/// For every step of a body that loads, where from.
pub(super) type Loads<'a> = Vec<Option<(&'a [f32], Index<'a>)>>;

/// Numbers that the steps of a level have in hand for a row.
pub(super) fn held(body: &Body, actions: &[Action], level: usize) -> usize {
    let is_made = |op: &StepOp| {
        !matches!(op, StepOp::Store(..) | StepOp::Reshape(_) | StepOp::Constant(_))
            && !matches!(op, StepOp::Load(read) if read.hops.is_empty())
    };
    let own = body.steps.iter().zip(actions).filter(|(step, action)| step.level == level && **action != Action::Skip);
    own.filter(|(step, _)| is_made(&step.op)).map(|(step, _)| step.shape.len()).sum::<usize>()
}

impl<'a> Code<'a> {
    /// A body that reads what was found for it.
    pub fn new(body: &'a Body, actions: &'a [Action], loads: &'a Loads<'_>, step: Key) -> Self {
        let loads = loads.iter().map(|load| load.as_ref().map(|(table, index)| (*table, index))).collect();
        Self { body, actions, loads, step }
    }

    /// The same where some buffers are read elsewhere.
    pub fn with(mut self, elsewhere: impl Fn(BufferId) -> Option<Source<'a>>) -> Self {
        for (step, load) in self.body.steps.iter().zip(&mut self.loads) {
            if let StepOp::Load(read) = &step.op {
                *load = elsewhere(read.from).or(*load);
            }
        }
        self
    }

    /// Runs the body for a block. `product` is what the rows of a GEMM gave, and the step it stands for; `store` takes what is
    /// stored: the step, and rows of its level.
    pub fn run<'r>(
        &'r self,
        block: &Block<'_>,
        registers: &mut Registers<'r>,
        product: Option<(usize, Memory<'r>)>,
        store: &mut dyn FnMut(usize, Operand<'_>),
    ) {
        let mut product = product;
        for (at, step) in self.body.steps.iter().enumerate() {
            let held = match &step.op {
                _ if product.as_ref().is_some_and(|(of, _)| *of == at) => {
                    product.take().map_or(Held::Nothing, |(_, rows)| Held::Own(rows))
                }
                StepOp::Store(x, _) => {
                    store(at, registers.get(*x));
                    Held::Nothing
                }
                _ => self.step(at, step, block, registers),
            };
            registers.push(held);
        }
    }

    /// The step that makes what a step stores, where that has a row of its own for every row.
    pub fn maker(&self, store: usize) -> Option<usize> {
        let StepOp::Store(mut x, _) = self.body.steps[store].op else { return None };
        while let StepOp::Reshape(other) = self.body.steps[x.at()].op {
            x = other;
        }
        let is_made = !matches!(self.body.steps[x.at()].op, StepOp::Load(_) | StepOp::Constant(_));
        is_made.then_some(x.at())
    }

    fn step<'r>(&'r self, at: usize, step: &'r Step, block: &Block<'_>, registers: &mut Registers<'r>) -> Held<'r> {
        let rows = &block.levels[step.level];
        match (&self.actions[at], &step.op) {
            (Action::Skip, _) => return Held::Nothing,
            (Action::Plain, StepOp::Load(_)) => return self.load(at, step, rows, registers),
            (Action::Plain, StepOp::Constant(number)) if step.shape.len() == 1 => return Held::Number(single(*number)),
            (Action::Plain, StepOp::Constant(number)) => return Held::OwnSame(vec![single(*number); step.shape.len()]),
            (Action::Plain, StepOp::Reshape(x)) => return Held::Alias(*x),
            _ => {}
        }
        let mut out = registers.memory(at, rows.len() * step.shape.len());
        match (&self.actions[at], &step.op) {
            (Action::GatherReduce { load, how }, _) => self.gather_reduce(*load, *how, step, block, &mut out),
            (Action::ScaledGatherReduce { load, scale }, _) => {
                let scales = (registers.get(*scale), sizes(self.body.steps[scale.at()].shape).0);
                self.scaled_gather_reduce(*load, scales, step, block, &mut out);
            }
            (Action::GatherDot { load, spread }, _) => {
                self.gather_dot(*load, registers.get(*spread), *spread, step, block, &mut out);
            }
            (_, StepOp::Spread(x)) => {
                let from = self.body.steps[x.at()].level;
                spread(registers.get(*x), &block.starts(from, step.level), step.shape.len(), &mut out);
            }
            (_, StepOp::Reduce(how, x)) => {
                let from = self.body.steps[x.at()].level;
                reduce(*how, registers.get(*x), &block.starts(step.level, from), step.shape.len(), &mut out);
            }
            (_, StepOp::Softmax { x, over }) => {
                softmax(registers.get(*x), &block.starts(*over, step.level), step.shape.len(), &mut out);
            }
            (_, StepOp::Dropout { x, probability, key }) => {
                let dropout = Dropout::new(self.step, *key, *probability);
                drop_out(dropout, registers.get(*x), rows, step.shape.len(), &mut out);
            }
            (_, op) => self.row_wise(op, step, registers, &mut out),
        }
        Held::Own(out)
    }

    fn load<'r>(&'r self, at: usize, step: &Step, rows: &Rows<'_>, registers: &mut Registers<'r>) -> Held<'r> {
        let Some((table, index)) = &self.loads[at] else { return Held::Nothing };
        let len = step.shape.len();
        match (index, rows) {
            (Index::One(row), _) => Held::Same(&table[row * len..][..len]),
            (Index::Same | Index::After(_), Rows::Range(range)) => {
                Held::Rows(&table[index.get(range.start) * len..][..range.len() * len])
            }
            _ => {
                let mut out = registers.memory(at, rows.len() * len);
                vector::copy_rows(table, len, &mut out, |at| index.get(rows.get(at)));
                Held::Own(out)
            }
        }
    }

    fn row_wise(&self, op: &StepOp, step: &Step, registers: &Registers<'_>, out: &mut [f32]) {
        let shape = |register: &Register| self.body.steps[register.at()].shape;
        let get = |register: &Register| (registers.get(*register), shape(register));
        let mut holds = [[0.0f32]; 2];
        let [hold, other_hold] = &mut holds;
        let (heads, width) = sizes(step.shape);
        match op {
            StepOp::Unary(f, x) => vector::unary(*f, registers.get(*x), out),
            StepOp::Binary(f, x, y) => vector::binary(*f, get(x), get(y), out, step.shape),
            StepOp::Expand(x) => {
                let zero = (Operand::Number(0.0), crate::inter::Shape::SCALAR);
                vector::binary(crate::inter::Binary::Add, get(x), zero, out, step.shape);
            }
            StepOp::Dot(x, y) => {
                let width = sizes(shape(x)).1;
                let (x, y) = (as_row(registers.get(*x), hold), as_row(registers.get(*y), other_hold));
                widest!(for (row, out) in out.chunks_exact_mut(heads).enumerate() {
                    vector::dots(vector_of(x, row, 1, heads * width), vector_of(y, row, 1, heads * width), width, out);
                });
            }
            StepOp::SumWidth(x) => {
                let (x, width) = (as_row(registers.get(*x), hold), sizes(shape(x)).1);
                widest!(for (at, out) in out.iter_mut().enumerate() {
                    *out = vector_of(x, at, heads, width).iter().sum();
                });
            }
            StepOp::SumHeads(x) => {
                let (x, from) = (as_row(registers.get(*x), hold), sizes(shape(x)).0);
                widest!(for (row, out) in out.chunks_exact_mut(width).enumerate() {
                    for head in 0..from {
                        combine(Reduce::Sum, head == 0, vector_of(x, row * from + head, from, width), out);
                    }
                });
            }
            StepOp::Concat(x, y) => {
                let (first, second) = (sizes(shape(x)).1, sizes(shape(y)).1);
                let (x, y) = (as_row(registers.get(*x), hold), as_row(registers.get(*y), other_hold));
                for (at, out) in out.chunks_exact_mut(width).enumerate() {
                    out[..first].copy_from_slice(vector_of(x, at, heads, first));
                    out[first..].copy_from_slice(vector_of(y, at, heads, second));
                }
            }
            StepOp::Slice(x, from) => {
                let (x, all) = (as_row(registers.get(*x), hold), sizes(shape(x)).1);
                for (at, out) in out.chunks_exact_mut(width).enumerate() {
                    out.copy_from_slice(&vector_of(x, at, heads, all)[*from..from + width]);
                }
            }
            StepOp::Pad(x, from) => {
                let (x, inner) = (as_row(registers.get(*x), hold), sizes(shape(x)).1);
                for (at, out) in out.chunks_exact_mut(width).enumerate() {
                    out.fill(0.0);
                    out[*from..from + inner].copy_from_slice(vector_of(x, at, heads, inner));
                }
            }
            _ => {}
        }
    }

    /// Rows that are read and added up at once.
    fn gather_reduce(&self, load: usize, how: Reduce, step: &Step, block: &Block<'_>, out: &mut [f32]) {
        let Some((table, index)) = &self.loads[load] else { return };
        let from = self.body.steps[load].level;
        let (starts, rows, len) = (block.starts(step.level, from), &block.levels[from], step.shape.len());
        let ahead = Ahead::new(table, len);
        widest!(for (at, out) in out.chunks_exact_mut(len).enumerate() {
            let own = starts[at]..starts[at + 1];
            if own.is_empty() {
                out.fill(0.0);
            }
            vector::combine_rows(
                how,
                own.clone(),
                #[inline(always)]
                |item| {
                    ahead.ask(item, rows.len(), |at| index.get(rows.get(at)));
                    &table[index.get(rows.get(item)) * len..][..len]
                },
                out,
            );
            if how == Reduce::Mean && own.len() > 1 {
                let factor = 1.0 / own.len() as f32;
                out.iter_mut().for_each(|out| *out *= factor);
            }
        });
    }

    /// Rows that are read, scaled a head at a time, and added up.
    fn scaled_gather_reduce(
        &self,
        load: usize,
        (scales, scale_heads): (Operand<'_>, usize),
        step: &Step,
        block: &Block<'_>,
        out: &mut [f32],
    ) {
        let Some((table, index)) = &self.loads[load] else { return };
        let from = self.body.steps[load].level;
        let (starts, rows, len) = (block.starts(step.level, from), &block.levels[from], step.shape.len());
        let width = len / scale_heads;
        let ahead = Ahead::new(table, len);
        let one = [match scales {
            Operand::Number(scale) => scale,
            _ => 0.0,
        }];
        widest!(for (at, out) in out.chunks_exact_mut(len).enumerate() {
            out.fill(0.0);
            for item in starts[at]..starts[at + 1] {
                ahead.ask(item, rows.len(), |at| index.get(rows.get(at)));
                let row = &table[index.get(rows.get(item)) * len..][..len];
                let scales = match scales {
                    Operand::Rows(scales) => &scales[item * scale_heads..][..scale_heads],
                    Operand::Same(scales) => scales,
                    Operand::Number(_) => &one,
                };
                vector::add_scaled(scales, width, row, out);
            }
        });
    }

    /// Inner products of rows that are read with a coarser level's.
    fn gather_dot(
        &self,
        load: usize,
        coarse: Operand<'_>,
        spread: Register,
        step: &Step,
        block: &Block<'_>,
        out: &mut [f32],
    ) {
        let Some((table, index)) = &self.loads[load] else { return };
        let (heads, width) = sizes(self.body.steps[load].shape);
        let (starts, rows) = (block.starts(self.body.steps[spread.at()].level, step.level), &block.levels[step.level]);
        let ahead = Ahead::new(table, heads * width);
        widest!(for at in 0..starts.len() - 1 {
            for item in starts[at]..starts[at + 1] {
                ahead.ask(item, rows.len(), |at| index.get(rows.get(at)));
                let row = &table[index.get(rows.get(item)) * heads * width..][..heads * width];
                let out = &mut out[item * heads..][..heads];
                match coarse {
                    Operand::Rows(rows) => vector::dots(row, &rows[at * heads * width..][..heads * width], width, out),
                    Operand::Same(other) => vector::dots(row, other, width, out),
                    Operand::Number(number) => {
                        let sums = row.chunks_exact(width).map(|row| number * row.iter().sum::<f32>());
                        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum);
                    }
                }
            }
        });
    }
}

/// The vector numbered `at`, counted over rows and their heads.
#[inline(always)]
fn vector_of(operand: Operand<'_>, at: usize, heads: usize, width: usize) -> &[f32] {
    match operand {
        Operand::Rows(rows) => &rows[at * width..][..width],
        Operand::Same(row) => &row[at % heads * width..][..width],
        Operand::Number(_) => &[],
    }
}

/// A number as a row.
fn as_row<'a>(operand: Operand<'a>, hold: &'a mut [f32; 1]) -> Operand<'a> {
    if let Operand::Number(number) = operand {
        *hold = [number];
        return Operand::Same(hold);
    }
    operand
}

fn spread(x: Operand<'_>, starts: &[usize], len: usize, out: &mut [f32]) {
    for (at, own) in starts.windows(2).enumerate() {
        let out = &mut out[own[0] * len..own[1] * len];
        match x {
            Operand::Rows(rows) if len == 1 => out.fill(rows[at]),
            Operand::Rows(rows) => vector::copy_rows(rows, len, out, |_| at),
            Operand::Same(row) => vector::copy_rows(row, len, out, |_| 0),
            Operand::Number(number) => out.fill(number),
        }
    }
}

fn reduce(how: Reduce, x: Operand<'_>, starts: &[usize], len: usize, out: &mut [f32]) {
    widest!(for (at, out) in out.chunks_exact_mut(len).enumerate() {
        let own = starts[at]..starts[at + 1];
        let count = own.len() as f32;
        if own.is_empty() {
            out.fill(0.0);
            continue;
        }
        match x {
            Operand::Rows(rows) => {
                for item in own.clone() {
                    combine(how, item == own.start, &rows[item * len..][..len], out);
                }
            }
            Operand::Same(row) => out.copy_from_slice(row),
            Operand::Number(number) => out.fill(number),
        }
        let is_repeated = !matches!(x, Operand::Rows(_));
        let factor = match how {
            Reduce::Sum if is_repeated => count,
            Reduce::Mean if !is_repeated => 1.0 / count,
            _ => 1.0,
        };
        if factor != 1.0 {
            out.iter_mut().for_each(|out| *out *= factor);
        }
    });
}

fn softmax(x: Operand<'_>, starts: &[usize], len: usize, out: &mut [f32]) {
    match x {
        Operand::Rows(rows) => out.copy_from_slice(rows),
        Operand::Same(row) => out.chunks_exact_mut(len).for_each(|out| out.copy_from_slice(row)),
        Operand::Number(number) => out.fill(number),
    }
    // The exponentials of all rows at once: a row alone is shorter than a vector.
    widest!(for own in starts.windows(2) {
        vector::subtract_largest(&mut out[own[0] * len..own[1] * len], len);
    });
    vector::exp_all(out);
    widest!(for own in starts.windows(2) {
        vector::divide_by_sum(&mut out[own[0] * len..own[1] * len], len);
    });
}

fn drop_out(dropout: Dropout, x: Operand<'_>, rows: &Rows<'_>, len: usize, out: &mut [f32]) {
    let scale = single(dropout.scale());
    // Neighbouring rows are one long row.
    let pieces = if matches!(rows, Rows::Range(_)) { 1 } else { rows.len() };
    let width = out.len() / pieces.max(1);
    widest!(for (at, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
        dropout.factors(rows.get(at) * len, scale, out);
        match x {
            Operand::Rows(rows) => out.iter_mut().zip(&rows[at * width..]).for_each(|(out, x)| *out *= x),
            Operand::Same(row) => {
                out.chunks_exact_mut(len).for_each(|out| out.iter_mut().zip(row).for_each(|(out, x)| *out *= x));
            }
            Operand::Number(number) => out.iter_mut().for_each(|out| *out *= number),
        }
    });
}
