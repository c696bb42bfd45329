//! Nests whose outermost rows are types: all rows of a type would be walked by one group of lanes, so they are split into sums
//! over the rows of every type, what is done with each row, and what is done once a type.
//!
//! A sum that depends on another is a stage behind it: a variance on a mean. What a stage reads of those before it lies in
//! buffers; rows make anew what they need of their own, which is cheaper than to keep it.

use std::collections::BTreeMap;

use super::element::is_flat;
use super::lower::{Chunks, Lowered, Work};
use super::table::{Cut, Tiling};
use crate::inter::{Domain, Path, Reduce, Shape};
use crate::intra::{Body, BufferId, Hop, Read, Register, Step, StepOp, Traverse};

/// Chunks that rows are cut into, each added up by one thread block at a time: what runs on 132 SMs at once.
const CHUNKS: usize = 8 * 132;
/// So many more where there are several types: their last chunks are shorter.
const TYPED: usize = 4;

/// Sums of vectors over the rows of every type.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sums {
    pub rows: Domain,
    /// Makes what is added up, an element at a time.
    pub body: Body,
    pub all: Vec<Sum>,
    /// The sums of every chunk.
    pub chunks: Chunks,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sum {
    pub how: Reduce,
    pub of: Register,
    pub to: BufferId,
    pub len: usize,
    /// Where it lies in a chunk's row.
    pub first: usize,
}

/// Adds the launches of a nest over types and the rows below them; `false` where it must stay one.
pub(super) fn split(traverse: &Traverse, found: &mut Lowered) -> bool {
    let over_all = |op: &StepOp| matches!(op, StepOp::Softmax { over: 0, .. });
    let [types, below @ ..] = &traverse.nest[..] else { return false };
    let is_typed = types.is_type() && !below.is_empty() && below.iter().all(|rows| way(traverse, *rows).is_some());
    if !is_typed || traverse.body.steps.iter().any(|step| over_all(&step.op)) {
        return false;
    }
    let (stages, kept) = (stages(&traverse.body), loaded(&traverse.body));
    let mut split = Split { traverse, stages, found, kept };
    for stage in 0..=split.stages.iter().copied().max().unwrap_or(0) {
        split.once(stage);
        split.rows(stage);
        split.sums(stage);
    }
    true
}

/// The way from rows below to their types.
fn way(traverse: &Traverse, rows: Domain) -> Option<Path> {
    let types = traverse.nest[0];
    [traverse.path, Path::Only].into_iter().find(|path| rows.maps_to(types, *path))
}

/// How many sums over all rows have to be complete before each step.
fn stages(body: &Body) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for step in &body.steps {
        let before = step.op.operands().iter().map(|register| found[register.at()]).max().unwrap_or(0);
        found.push(before + usize::from(is_sum(body, found.len())));
    }
    found
}

/// Registers of types that lie in a buffer anyhow.
fn loaded(body: &Body) -> BTreeMap<Register, BufferId> {
    let load = |(at, step): (usize, &Step)| match &step.op {
        StepOp::Load(read) if step.level == 0 && read.hops.is_empty() => Some((Register::new(at), read.from)),
        _ => None,
    };
    body.steps.iter().enumerate().filter_map(load).collect()
}

/// Whether a step adds up all rows of a type.
fn is_sum(body: &Body, at: usize) -> bool {
    body.steps[at].level == 0 && matches!(body.steps[at].op, StepOp::Reduce(..))
}

struct Split<'a> {
    traverse: &'a Traverse,
    stages: Vec<usize>,
    found: &'a mut Lowered,
    /// Where registers of types lie, for those that lie anywhere.
    kept: BTreeMap<Register, BufferId>,
}

impl Split<'_> {
    fn body(&self) -> &Body {
        &self.traverse.body
    }

    fn at_stage(&self, stage: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.stages.len()).filter(move |at| self.stages[*at] == stage)
    }

    fn types(&self) -> Domain {
        self.traverse.nest[0]
    }

    fn buffer(&mut self, domain: Domain, shape: Shape) -> BufferId {
        self.found.buffer("between", domain, shape)
    }

    /// What is done with a type: what it stores, and what rows below it read.
    fn once(&mut self, stage: usize) {
        let is_complete = |at: usize| self.kept.contains_key(&Register::new(at));
        let spread = |at: usize| {
            let is_spread = |op: &StepOp| *op == StepOp::Spread(Register::new(at));
            self.body().steps[at].level == 0 && self.body().steps.iter().any(|step| is_spread(&step.op))
        };
        let kept: Vec<usize> = self.at_stage(stage).filter(|at| spread(*at) && !is_complete(*at)).collect();
        let is_left = |at: &usize| match self.body().steps[*at].op {
            StepOp::Store(x, to) => self.body().steps[*at].level == 0 && self.kept.get(&x) != Some(&to),
            _ => false,
        };
        let stores: Vec<usize> = self.at_stage(stage).filter(is_left).collect();
        let mut piece = self.piece(0);
        stores.iter().for_each(|at| _ = piece.take(Register::new(*at)));
        let registers: Vec<Register> = kept.iter().map(|at| piece.take(Register::new(*at))).collect();
        let mut body = piece.body;
        for (at, register) in kept.into_iter().zip(registers) {
            let shape = self.body().steps[at].shape;
            let to = self.buffer(self.types(), shape);
            body.push(0, shape, StepOp::Store(register, to));
            self.kept.insert(Register::new(at), to);
        }
        self.nest(&[self.types()], body);
    }

    /// What every row stores.
    fn rows(&mut self, stage: usize) {
        let mut piece = self.piece(1);
        for at in self.at_stage(stage) {
            if self.body().steps[at].level > 0 && matches!(self.body().steps[at].op, StepOp::Store(..)) {
                piece.take(Register::new(at));
            }
        }
        let body = piece.body;
        self.nest(&self.traverse.nest[1..], body);
    }

    /// Sums of what is there at this stage, those over rows of one domain together.
    fn sums(&mut self, stage: usize) {
        let all: Vec<usize> = self.at_stage(stage + 1).filter(|at| is_sum(self.body(), *at)).collect();
        for level in 1..self.traverse.nest.len() {
            let is_of_level = |at: &usize| match self.body().steps[*at].op {
                StepOp::Reduce(_, x) => self.body().steps[x.at()].level == level,
                _ => false,
            };
            let own: Vec<usize> = all.iter().copied().filter(is_of_level).collect();
            if !own.is_empty() {
                self.sums_of(level, &own);
            }
        }
    }

    fn sums_of(&mut self, level: usize, own: &[usize]) {
        let mut piece = self.piece(level);
        let mut all: Vec<Sum> = Vec::new();
        for at in own {
            let step = &self.body().steps[*at];
            let StepOp::Reduce(how, x) = step.op else { continue };
            let (of, len) = (piece.take(x), step.shape.len());
            let first = all.last().map_or(0, |sum| sum.first + sum.len);
            all.push(Sum { how, of, to: BufferId::new(0), len, first });
        }
        let (mut body, is_alone, rows) = (piece.body, piece.is_alone, self.traverse.nest[level]);
        if !is_alone || !is_flat(&body) {
            body = self.stored_first(level, own, &mut all);
        }
        for (sum, at) in all.iter_mut().zip(own) {
            sum.to = self.place_of(*at);
        }
        let len = all.last().map_or(0, |sum| sum.first + sum.len);
        let path = way(self.traverse, rows).unwrap_or(self.traverse.path);
        let most = if self.types() == Domain::Const { CHUNKS } else { TYPED * CHUNKS };
        let tiling = Tiling { rows, types: self.types(), path, cut: Cut::Chunks(most) };
        let sums = Sums { rows, body, all, chunks: self.found.chunks(tiling, len) };
        self.found.work.extend([Work::Sums(sums.clone()), Work::Total(sums)]);
    }

    /// Where a sum goes: to the buffer it is stored in, or one of its own.
    fn place_of(&mut self, at: usize) -> BufferId {
        let stored = self.body().steps.iter().find_map(|step| match step.op {
            StepOp::Store(x, to) if x.at() == at => Some(to),
            _ => None,
        });
        let to = stored.unwrap_or_else(|| self.buffer(self.types(), self.traverse.body.steps[at].shape));
        self.kept.insert(Register::new(at), to);
        to
    }

    /// Rows that take more than their own elements are made by a nest, and then added up.
    fn stored_first(&mut self, level: usize, own: &[usize], all: &mut [Sum]) -> Body {
        let rows = self.traverse.nest[level];
        let mut loads = Body::default();
        let mut piece = self.piece(1);
        let mut stores = Vec::new();
        for (at, sum) in own.iter().zip(all) {
            let StepOp::Reduce(_, x) = self.traverse.body.steps[*at].op else { continue };
            let shape = self.traverse.body.steps[*at].shape;
            stores.push((piece.take(x), shape));
            sum.of = Register::new(loads.steps.len());
            loads.push(0, shape, StepOp::Constant(0.0));
        }
        let mut body = piece.body;
        for ((register, shape), load) in stores.into_iter().zip(&mut loads.steps) {
            let to = self.buffer(rows, shape);
            body.push(level - 1, shape, StepOp::Store(register, to));
            load.op = StepOp::Load(Read { from: to, hops: Vec::new() });
        }
        self.nest(&self.traverse.nest[1..=level], body);
        loads
    }

    fn nest(&mut self, nest: &[Domain], body: Body) {
        if !body.steps.is_empty() {
            self.found.nest(Traverse { nest: nest.to_vec(), path: Path::Only, body });
        }
    }

    fn piece(&self, level: usize) -> Piece<'_> {
        let kept = self.kept.clone();
        Piece { traverse: self.traverse, kept, level, body: Body::default(), is_alone: true, taken: BTreeMap::new() }
    }
}

/// A part of a body, for rows of a level and of those below it.
struct Piece<'a> {
    traverse: &'a Traverse,
    kept: BTreeMap<Register, BufferId>,
    level: usize,
    body: Body,
    /// Whether all that was taken is of the one level.
    is_alone: bool,
    taken: BTreeMap<Register, Register>,
}

impl Piece<'_> {
    /// Takes a register and what it needs. What its type has is loaded.
    fn take(&mut self, register: Register) -> Register {
        if let Some(taken) = self.taken.get(&register) {
            return *taken;
        }
        let step = self.traverse.body.steps[register.at()].clone();
        let op = match (self.kept.get(&register), &step.op) {
            (Some(from), _) => StepOp::Load(Read { from: *from, hops: Vec::new() }),
            (None, StepOp::Spread(x)) if self.kept.contains_key(x) => {
                let nest = &self.traverse.nest;
                let path = way(self.traverse, nest[step.level]).unwrap_or(self.traverse.path);
                let hops = vec![Hop { to: nest[0], path }];
                StepOp::Load(Read { from: self.kept[x], hops })
            }
            (None, op) => {
                let operands: Vec<Register> = op.operands();
                let taken: BTreeMap<Register, Register> = operands.iter().map(|x| (*x, self.take(*x))).collect();
                let op = step.op.clone().with_registers(|x| taken[&x]);
                match op {
                    StepOp::Softmax { x, over } => StepOp::Softmax { x, over: over.saturating_sub(self.level) },
                    op => op,
                }
            }
        };
        self.is_alone &= step.level == self.level;
        let taken = self.body.push(step.level.saturating_sub(self.level), step.shape, op);
        self.taken.insert(register, taken);
        taken
    }
}
