//! What a program means, in double precision: every value in full, one after the other, by the formula of its operator.
//!
//! Nothing is fused, moved or chosen here, and no pass and no kernel is involved. Whatever a program is rewritten and compiled to
//! has to give these numbers.

use std::collections::BTreeMap;

use headwater_graph::random::Key;

use super::{Binary, Domain, Op, Path, Program, Reduce, Shape, Value, ValueId};
use crate::adjacency::{Adjacency, Map};
use crate::cpu::dropout::Dropout;
use crate::cpu::scalar;
use crate::error::{Error, Result};

/// The outputs of a program by name, row after row. `given` has every input and parameter by name; `step` decides dropouts.
pub fn evaluate(
    program: &Program,
    graph: &Adjacency,
    step: Key,
    given: &BTreeMap<String, Vec<f64>>,
) -> Result<BTreeMap<String, Vec<f64>>> {
    let mut run = Evaluation { program, graph, step, given, values: Vec::with_capacity(program.values.len()) };
    for value in &program.values {
        let numbers = run.value(value)?;
        run.values.push(numbers);
    }
    Ok(program.outputs.iter().map(|output| (output.name.clone(), run.values[output.value.at()].clone())).collect())
}

/// All values so far.
struct Evaluation<'a> {
    program: &'a Program,
    graph: &'a Adjacency,
    step: Key,
    given: &'a BTreeMap<String, Vec<f64>>,
    values: Vec<Vec<f64>>,
}

/// Heads, and elements of each.
fn sizes(shape: Shape) -> (usize, usize) {
    (shape.heads(), shape.len() / shape.heads().max(1))
}

impl Evaluation<'_> {
    fn value(&self, value: &Value) -> Result<Vec<f64>> {
        let (rows, len) = (self.graph.rows(value.domain), value.shape.len());
        Ok(match value.op {
            Op::Input { ref name, .. } | Op::Parameter { ref name } => self.given(name, rows * len)?,
            Op::Constant(number) => vec![number; rows * len],
            Op::Linear { x, w, transposed, path } => {
                let types = self.way(value.domain, self.program[w].domain, path)?;
                self.linear(x, w, transposed, &types)
            }
            Op::Outer { x, y, path } => {
                let types = self.way(self.program[x].domain, value.domain, path)?;
                self.outer(x, y, value, &types)
            }
            Op::Product { a, b, transpose_a, transpose_b } => self.product((a, transpose_a), (b, transpose_b), value),
            Op::Lift { x, path } => {
                let to = self.way(value.domain, self.program[x].domain, path)?;
                (0..rows).flat_map(|row| self.row(x, to.get(row))).copied().collect()
            }
            Op::Reduce { x, how, path } => {
                let to = self.way(self.program[x].domain, value.domain, path)?;
                self.reduce(x, how, value, &to)
            }
            Op::Softmax { x, by } => {
                let to = self.way(value.domain, by, Path::Only)?;
                self.softmax(x, self.graph.rows(by), &to)
            }
            Op::Dropout { x, probability, key } => {
                let dropout = Dropout::new(self.step, key, probability);
                let kept = |at: usize| if dropout.keeps(at) { dropout.scale() } else { 0.0 };
                self.values[x.at()].iter().enumerate().map(|(at, x)| x * kept(at)).collect()
            }
            ref op => (0..rows).flat_map(|row| self.row_wise(op, value.shape, row)).collect(),
        })
    }

    fn given(&self, name: &str, expected: usize) -> Result<Vec<f64>> {
        let found = self.given.get(name).cloned().unwrap_or_default();
        if found.len() == expected {
            return Ok(found);
        }
        Err(Error::Binding { name: name.to_owned(), expected, found: found.len() })
    }

    fn way(&self, fine: Domain, coarse: Domain, path: Path) -> Result<Map<'_>> {
        self.graph.map(fine, coarse, path).ok_or_else(|| Error::Malformed {
            program: self.program.name.clone(),
            at: "a value".to_owned(),
            why: format!("rows of {fine} do not belong to rows of {coarse}"),
        })
    }

    fn row(&self, id: ValueId, row: usize) -> &[f64] {
        let len = self.program[id].shape.len();
        &self.values[id.at()][row * len..][..len]
    }

    fn linear(&self, x: ValueId, w: ValueId, transposed: bool, types: &Map<'_>) -> Vec<f64> {
        let Shape::Matrix { heads, rows, cols } = self.program[w].shape else { return Vec::new() };
        let (from, to) = if transposed { (cols, rows) } else { (rows, cols) };
        let mut found = Vec::new();
        for row in 0..self.graph.rows(self.program[x].domain) {
            let (x, w) = (self.row(x, row), self.row(w, types.get(row)));
            for (head, j) in (0..heads).flat_map(|head| (0..to).map(move |j| (head, j))) {
                let weight = |i: usize| w[head * rows * cols + if transposed { j * cols + i } else { i * cols + j }];
                found.push((0..from).map(|i| x[head * from + i] * weight(i)).sum());
            }
        }
        found
    }

    fn outer(&self, x: ValueId, y: ValueId, value: &Value, types: &Map<'_>) -> Vec<f64> {
        let Shape::Matrix { heads, rows, cols } = value.shape else { return Vec::new() };
        let mut found = vec![0.0; self.graph.rows(value.domain) * value.shape.len()];
        for row in 0..self.graph.rows(self.program[x].domain) {
            let (x, y) = (self.row(x, row), self.row(y, row));
            for at in 0..value.shape.len() {
                let (head, i, j) = (at / (rows * cols), at / cols % rows, at % cols);
                debug_assert!(head < heads);
                found[types.get(row) * value.shape.len() + at] += x[head * rows + i] * y[head * cols + j];
            }
        }
        found
    }

    fn product(&self, a: (ValueId, bool), b: (ValueId, bool), value: &Value) -> Vec<f64> {
        let Shape::Matrix { heads, rows, cols } = value.shape else { return Vec::new() };
        let inner = self.program[a.0].shape.len() / (heads * rows).max(1);
        let mut found = Vec::new();
        for row in 0..self.graph.rows(value.domain) {
            let (left, right) = (self.row(a.0, row), self.row(b.0, row));
            for at in 0..value.shape.len() {
                let (head, i, j) = (at / (rows * cols), at / cols % rows, at % cols);
                let one = |k: usize| left[head * rows * inner + if a.1 { k * rows + i } else { i * inner + k }];
                let two = |k: usize| right[head * inner * cols + if b.1 { j * inner + k } else { k * cols + j }];
                found.push((0..inner).map(|k| one(k) * two(k)).sum());
            }
        }
        found
    }

    /// No rows give 0.
    fn reduce(&self, x: ValueId, how: Reduce, value: &Value, to: &Map<'_>) -> Vec<f64> {
        let (rows, len) = (self.graph.rows(value.domain), value.shape.len());
        let (mut found, mut counts) = (vec![0.0; rows * len], vec![0usize; rows]);
        for fine in 0..self.graph.rows(self.program[x].domain) {
            let row = to.get(fine);
            counts[row] += 1;
            for (sum, number) in found[row * len..][..len].iter_mut().zip(self.row(x, fine)) {
                *sum = match how {
                    Reduce::Max if counts[row] == 1 => *number,
                    Reduce::Max => scalar::binary(Binary::Max, *sum, *number),
                    Reduce::Sum | Reduce::Mean => *sum + number,
                };
            }
        }
        if how == Reduce::Mean {
            let count = |row: usize| counts[row].max(1) as f64;
            found.iter_mut().enumerate().for_each(|(at, sum)| *sum /= count(at / len));
        }
        found
    }

    fn softmax(&self, x: ValueId, groups: usize, to: &Map<'_>) -> Vec<f64> {
        let (numbers, len) = (&self.values[x.at()], self.program[x].shape.len());
        let place = |at: usize| to.get(at / len) * len + at % len;
        let mut largest = vec![f64::NEG_INFINITY; groups * len];
        for (at, number) in numbers.iter().enumerate() {
            largest[place(at)] = largest[place(at)].max(*number);
        }
        let powers: Vec<f64> =
            numbers.iter().enumerate().map(|(at, number)| (number - largest[place(at)]).exp()).collect();
        let mut sums = vec![0.0; groups * len];
        powers.iter().enumerate().for_each(|(at, power)| sums[place(at)] += power);
        powers.iter().enumerate().map(|(at, power)| power / sums[place(at)]).collect()
    }

    /// Operators whose row depends on the same row of their operands alone.
    fn row_wise(&self, op: &Op, shape: Shape, row: usize) -> Vec<f64> {
        let (heads, width) = sizes(shape);
        let width_of = |id: ValueId| sizes(self.program[id].shape).1;
        let exact = |id: ValueId, head: usize, i: usize| self.row(id, row)[head * width_of(id) + i];
        // Heads and widths of 1 are repeated.
        let repeated = |id: ValueId, head: usize, i: usize| {
            let (heads, width) = sizes(self.program[id].shape);
            exact(id, if heads == 1 { 0 } else { head }, if width == 1 { 0 } else { i })
        };
        let element = |head: usize, i: usize| match *op {
            Op::Unary { f, x } => scalar::unary(f, exact(x, head, i)),
            Op::Binary { f, x, y } => scalar::binary(f, repeated(x, head, i), repeated(y, head, i)),
            Op::Expand { x } => repeated(x, head, i),
            Op::Dot { x, y } => (0..width_of(x)).map(|k| exact(x, head, k) * exact(y, head, k)).sum(),
            Op::Concat { x, .. } if i < width_of(x) => exact(x, head, i),
            Op::Concat { x, y } => exact(y, head, i - width_of(x)),
            Op::Slice { x, from } => exact(x, head, from + i),
            Op::Pad { x, from } if (from..from + width_of(x)).contains(&i) => exact(x, head, i - from),
            Op::Reshape { x } => self.row(x, row)[head * width + i],
            Op::SumHeads { x } => (0..self.program[x].shape.heads()).map(|head| exact(x, head, i)).sum(),
            Op::SumWidth { x } => (0..width_of(x)).map(|k| exact(x, head, k)).sum(),
            Op::Pad { .. } => 0.0,
            _ => f64::NAN,
        };
        (0..heads).flat_map(|head| (0..width).map(move |i| (head, i))).map(|(head, i)| element(head, i)).collect()
    }
}
