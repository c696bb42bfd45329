//! Kernels written down: registers for what stays inside, buffers for what others read, loads as far out as they may be.

use super::group::{Group, Groups, Kind};
use super::product::Product;
use super::{Source, is_map, nests, source};
use crate::error::{Error, Result};
use crate::inter::{Domain, Op, Path, Program, ValueId};
use crate::intra::{
    self, Body, Buffer, BufferId, Gemm, Hop, Kernel, Library, Outer, Read, Register, Role, RowProduct, StepOp, Traverse,
};

/// The kernels of all groups, in order.
pub(super) fn emit(program: &Program, groups: &Groups) -> Result<intra::Program> {
    let mut emitter = Emitter::new(program, groups);
    for (at, group) in groups.groups.iter().enumerate() {
        let kernel = emitter.kernel(at, group)?;
        emitter.kernels.push(kernel);
    }
    emitter.copies()?;
    Ok(intra::Program {
        name: program.name.clone(),
        buffers: emitter.buffers,
        kernels: emitter.kernels,
        schedules: Vec::new(),
    })
}

struct Emitter<'a> {
    program: &'a Program,
    groups: &'a Groups,
    buffers: Vec<Buffer>,
    kernels: Vec<Kernel>,
    /// Where each value lies, for those that lie anywhere.
    place: Vec<Option<BufferId>>,
    /// Outputs that another output or the caller has the buffer of.
    copied: Vec<(ValueId, BufferId)>,
}

impl<'a> Emitter<'a> {
    fn new(program: &'a Program, groups: &'a Groups) -> Self {
        let (buffers, kernels, place, copied) = (Vec::new(), Vec::new(), vec![None; program.values.len()], Vec::new());
        let mut found = Self { program, groups, buffers, kernels, place, copied };
        for (id, value) in program.iter() {
            match &value.op {
                Op::Input { name, .. } => found.add(id, name.clone(), Role::Input),
                Op::Parameter { name } => found.add(id, name.clone(), Role::Parameter),
                _ => {}
            }
        }
        for output in &program.outputs {
            let is_made = found.groups.home[output.value.at()].is_some();
            if is_made && found.place[output.value.at()].is_none() {
                found.add(output.value, output.name.clone(), Role::Output);
            } else {
                let buffer = found.buffer(output.value, output.name.clone(), Role::Output);
                found.copied.push((output.value, buffer));
            }
        }
        for id in found.read_elsewhere() {
            if found.place[id.at()].is_none() {
                let name = program[id].label.clone().unwrap_or_else(|| format!("%{}", id.at()));
                found.add(id, name, Role::Temporary);
            }
        }
        found
    }

    /// Values that a kernel other than their own reads, or one that reads buffers alone.
    fn read_elsewhere(&self) -> Vec<ValueId> {
        let mut found = Vec::new();
        for (id, value) in self.program.iter() {
            for operand in value.op.operands() {
                let base = source(self.program, operand).base;
                let needs_buffer = matches!(value.op, Op::Linear { .. } | Op::Outer { .. } | Op::Product { .. });
                let home = self.groups.home[base.at()];
                let is_lift = is_map(self.program, id);
                if home.is_some() && !is_lift && (needs_buffer || home != self.groups.home[id.at()]) {
                    found.push(base);
                }
            }
        }
        found.extend(self.copied.iter().map(|(id, _)| source(self.program, *id).base));
        found.retain(|id| self.groups.home[id.at()].is_some());
        found
    }

    fn add(&mut self, id: ValueId, name: String, role: Role) {
        let buffer = self.buffer(id, name, role);
        self.place[id.at()] = Some(buffer);
    }

    fn buffer(&mut self, id: ValueId, name: String, role: Role) -> BufferId {
        let (domain, shape) = (self.program[id].domain, self.program[id].shape);
        self.buffers.push(Buffer { name, domain, shape, role });
        BufferId::new(self.buffers.len() - 1)
    }

    fn kernel(&self, at: usize, group: &Group) -> Result<Kernel> {
        let first = group.members[0];
        match (group.kind, &self.program[first].op) {
            (Kind::Outer, &Op::Outer { x, y, path }) => {
                let (x, y, to) = (self.read(x)?, self.read(y)?, self.place_of(first)?);
                Ok(Kernel::Outer(Outer { rows: group.nest[0], x, y, path, to }))
            }
            (Kind::Product, &Op::Product { a, b, transpose_a, transpose_b }) => {
                let (a, b) = ((self.read(a)?, transpose_a), (self.read(b)?, transpose_b));
                Ok(Kernel::Library(Library::Product { a, b, to: self.place_of(first)? }))
            }
            (Kind::Gemm, &Op::Linear { x, w, transposed, path }) => {
                let inner = self.groups.products.get(&first).copied().unwrap_or(Product::of(first, x));
                let mut writer = Writer::new(self, at, group);
                let product = writer.body.push(0, self.program[first].shape, StepOp::Product);
                writer.made(inner.value, product, 0);
                let rest = group.members.iter().skip_while(|id| **id != inner.value).skip(1);
                rest.into_iter().try_for_each(|id| writer.value(*id))?;
                let (rows, body) = (self.program[first].domain, writer.body);
                let scatter = (rows != group.nest[0]).then_some(group.nest[0]);
                let (x, w) = (self.read(inner.x)?, self.place_of(w)?);
                let scale = inner.scale.map(|scale| self.read(scale)).transpose()?;
                let product = RowProduct { rows, x, scale, w, transposed, path };
                Ok(Kernel::Gemm(Gemm { product, scatter, body }))
            }
            _ => {
                let mut writer = Writer::new(self, at, group);
                group.members.iter().try_for_each(|id| writer.value(*id))?;
                Ok(traverse(group, writer.body))
            }
        }
    }

    /// Kernels that copy what an output shares with others.
    fn copies(&mut self) -> Result<()> {
        for (id, to) in std::mem::take(&mut self.copied) {
            let (domain, shape) = (self.program[id].domain, self.program[id].shape);
            let mut body = Body::default();
            let from = source(self.program, id);
            let op = match self.program[from.base].op {
                Op::Constant(number) => StepOp::Constant(number),
                _ => StepOp::Load(self.read(id)?),
            };
            let x = body.push(0, shape, op);
            body.push(0, shape, StepOp::Store(x, to));
            self.kernels.push(Kernel::Traverse(Traverse { nest: vec![domain], path: Path::Only, body }));
        }
        Ok(())
    }

    fn read(&self, id: ValueId) -> Result<Read> {
        let Source { base, hops } = source(self.program, id);
        Ok(Read { from: self.place_of(base)?, hops })
    }

    fn place_of(&self, id: ValueId) -> Result<BufferId> {
        self.place[id.at()].ok_or_else(|| self.wrong(id, "has no buffer"))
    }

    fn wrong(&self, id: ValueId, why: &str) -> Error {
        Error::Malformed { program: self.program.name.clone(), at: format!("%{}", id.at()), why: why.to_owned() }
    }
}

fn traverse(group: &Group, body: Body) -> Kernel {
    Kernel::Traverse(Traverse { nest: group.nest.clone(), path: group.path, body })
}

/// The body of one kernel while it is written.
struct Writer<'a> {
    emitter: &'a Emitter<'a>,
    at: usize,
    nest: &'a [Domain],
    body: Body,
    /// Registers of values of this kernel, and of what was loaded or spread, by level.
    registers: Vec<(Key, usize, Register)>,
}

/// What a register holds for each row of its level.
#[derive(Debug, Clone, PartialEq)]
enum Key {
    /// A value of this kernel: that of the row, or of the row that it belongs to in the nest.
    Value(ValueId),
    /// A row of a buffer, and all hops to it from the register's own level, whether the row was loaded there or further out.
    Loaded(ValueId, Vec<Hop>),
}

impl<'a> Writer<'a> {
    fn new(emitter: &'a Emitter<'a>, at: usize, group: &'a Group) -> Self {
        Self { emitter, at, nest: &group.nest, body: Body::default(), registers: Vec::new() }
    }

    /// Writes down how a value is made.
    fn value(&mut self, id: ValueId) -> Result<()> {
        let value = &self.emitter.program[id];
        let level = self.level(value.domain);
        let op = match value.op {
            Op::Lift { x, path } => {
                let Source { base, hops } = source(self.emitter.program, x);
                let first = Hop { to: self.emitter.program[x].domain, path };
                let hops = std::iter::once(first).chain(hops).collect();
                StepOp::Load(Read { from: self.emitter.place_of(base)?, hops })
            }
            Op::Reduce { x, how, .. } => {
                let from = self.level(self.emitter.program[x].domain);
                StepOp::Reduce(how, self.operand(x, from)?)
            }
            Op::Softmax { x, by } => StepOp::Softmax { x: self.operand(x, level)?, over: self.level(by) },
            Op::Dot { x, y } => StepOp::Dot(self.operand(x, level)?, self.operand(y, level)?),
            Op::Unary { f, x } => StepOp::Unary(f, self.operand(x, level)?),
            Op::Binary { f, x, y } => StepOp::Binary(f, self.operand(x, level)?, self.operand(y, level)?),
            Op::Concat { x, y } => StepOp::Concat(self.operand(x, level)?, self.operand(y, level)?),
            Op::Slice { x, from } => StepOp::Slice(self.operand(x, level)?, from),
            Op::Pad { x, from } => StepOp::Pad(self.operand(x, level)?, from),
            Op::Reshape { x } => StepOp::Reshape(self.operand(x, level)?),
            Op::Expand { x } => StepOp::Expand(self.operand(x, level)?),
            Op::SumHeads { x } => StepOp::SumHeads(self.operand(x, level)?),
            Op::SumWidth { x } => StepOp::SumWidth(self.operand(x, level)?),
            Op::Dropout { x, probability, key } => StepOp::Dropout { x: self.operand(x, level)?, probability, key },
            _ => return Err(self.emitter.wrong(id, "is no step of a body")),
        };
        let register = self.body.push(level, value.shape, op);
        self.made(id, register, level);
        Ok(())
    }

    /// Notes the register of a value, and stores it where others read it.
    fn made(&mut self, id: ValueId, register: Register, level: usize) {
        self.registers.push((Key::Value(id), level, register));
        if let Some(to) = self.emitter.place[id.at()] {
            self.body.push(level, self.emitter.program[id].shape, StepOp::Store(register, to));
        }
    }

    /// The register of an operand at a level.
    fn operand(&mut self, id: ValueId, level: usize) -> Result<Register> {
        let shape = self.emitter.program[id].shape;
        let Source { base, hops } = source(self.emitter.program, id);
        if let Op::Constant(number) = self.emitter.program[base].op {
            return Ok(self.known(Key::Value(base), level, |body| body.push(level, shape, StepOp::Constant(number))));
        }
        if self.emitter.groups.home[base.at()] == Some(self.at) {
            let own = self.level(self.emitter.program[base].domain);
            let register =
                self.find(&Key::Value(base), own).ok_or_else(|| self.emitter.wrong(base, "is made later"))?;
            return Ok(self.spread(Key::Value(base), register, own, level));
        }
        // A row that only a coarser level decides is loaded there, once for all below it.
        let mut at = level;
        let mut rest = &hops[..];
        while let Some(hop) = rest.first() {
            let Some(outer) = self.nest[..at].iter().position(|domain| *domain == hop.to) else { break };
            if hop.path != Path::Only || !nests(self.nest[at], hop.to) {
                break;
            }
            (at, rest) = (outer, &rest[1..]);
        }
        let read = Read { from: self.emitter.place_of(base)?, hops: rest.to_vec() };
        let key = Key::Loaded(base, rest.to_vec());
        let register = self.known(key, at, |body| body.push(at, shape, StepOp::Load(read)));
        Ok(self.spread(Key::Loaded(base, hops), register, at, level))
    }

    /// A register at a finer level.
    fn spread(&mut self, key: Key, register: Register, from: usize, to: usize) -> Register {
        if from == to {
            return register;
        }
        let shape = self.body.steps[register.at()].shape;
        self.known(key, to, |body| body.push(to, shape, StepOp::Spread(register)))
    }

    fn known(&mut self, key: Key, level: usize, make: impl FnOnce(&mut Body) -> Register) -> Register {
        if let Some(register) = self.find(&key, level) {
            return register;
        }
        let register = make(&mut self.body);
        self.registers.push((key, level, register));
        register
    }

    fn find(&self, key: &Key, level: usize) -> Option<Register> {
        self.registers.iter().find(|(other, at, _)| other == key && *at == level).map(|(_, _, register)| *register)
    }

    fn level(&self, domain: Domain) -> usize {
        self.nest.iter().position(|level| *level == domain).unwrap_or(self.nest.len())
    }
}
