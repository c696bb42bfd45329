//! What a product takes in: a factor of the rows that it reads, a factor of the rows that it makes, and where those go.
//!
//! - `(s x) W`: rows are multiplied by their factor while they are read, where `x` lies in memory anyway, or their factors are
//!   known only when all of them are made. Else whoever makes `x` multiplies it for nothing.
//! - `s (x W)`: stays behind the product, where rows are at hand. Rows that are gathered are copied first; where they are
//!   narrower than the product, the factor is cheaper there.
//! - a sum over rows of which no two belong together: only says where rows go.

use std::collections::BTreeMap;

use super::source;
use crate::inter::{Binary, Op, Program, Reduce, Shape, ValueId};

/// A product with what it takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Product {
    /// The rows that are multiplied.
    pub x: ValueId,
    /// A factor of each.
    pub scale: Option<ValueId>,
    /// What it stands for: the product, or what it is scaled or scattered to.
    pub value: ValueId,
}

impl Product {
    /// A product alone.
    pub fn of(linear: ValueId, x: ValueId) -> Self {
        Self { x, scale: None, value: linear }
    }
}

/// Products that take something in.
pub(super) fn products(program: &Program) -> BTreeMap<ValueId, Product> {
    let readers = readers(program);
    let each = program.iter().filter_map(|(id, value)| {
        let Op::Linear { x, .. } = value.op else { return None };
        let plain = Product::of(id, x);
        let found = scattered(program, &readers, scaled_before(program, &readers, plain));
        let found = if found == plain { scaled_behind(program, &readers, plain) } else { found };
        (found != plain).then_some((id, found))
    });
    each.collect()
}

/// Values that products compute while they read their rows.
pub(super) fn taken_in(program: &Program, products: &BTreeMap<ValueId, Product>) -> Vec<bool> {
    let mut found = vec![false; program.values.len()];
    for (linear, product) in products {
        let Op::Linear { x: mut id, .. } = program[*linear].op else { continue };
        while id != product.x {
            found[id.at()] = true;
            id = match program[id].op {
                Op::Reshape { x } => x,
                _ => product.x,
            };
        }
    }
    found
}

/// Who reads each value. An output has one reader more than there are.
fn readers(program: &Program) -> Vec<Vec<Option<ValueId>>> {
    let mut found = vec![Vec::new(); program.values.len()];
    for (id, value) in program.iter() {
        value.op.operands().into_iter().for_each(|operand| found[operand.at()].push(Some(id)));
    }
    program.outputs.iter().for_each(|output| found[output.value.at()].push(None));
    found
}

type Readers = [Vec<Option<ValueId>>];

/// The only reader of a value.
fn only_reader(readers: &Readers, id: ValueId) -> Option<ValueId> {
    match readers[id.at()][..] {
        [reader] => reader,
        _ => None,
    }
}

fn scaled_before(program: &Program, readers: &Readers, plain: Product) -> Product {
    let mut factored = plain.x;
    while let (Op::Reshape { x }, Some(_)) = (&program[factored].op, only_reader(readers, factored)) {
        factored = *x;
    }
    let Some((scale, x)) = scaled_row(program, factored) else { return plain };
    let from = source(program, x);
    let is_given = matches!(program[from.base].op, Op::Input { .. } | Op::Parameter { .. });
    let needs_memory = |reader: &Option<ValueId>| {
        reader.is_none_or(|id| matches!(program[id].op, Op::Linear { .. } | Op::Outer { .. }))
    };
    let lies_there = is_given || !from.hops.is_empty() || readers[from.base.at()].iter().any(needs_memory);
    let may_scale = || lies_there || waits_for_rows(program, scale, plain.x);
    if only_reader(readers, factored).is_none() || !may_scale() {
        return plain;
    }
    Product { x, scale: Some(scale), ..plain }
}

/// Whether a value is made of what other rows of the domain of `rows` add up to.
fn waits_for_rows(program: &Program, value: ValueId, rows: ValueId) -> bool {
    let (mut open, mut is_seen) = (vec![value], vec![false; program.values.len()]);
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut is_seen[id.at()], true) {
            continue;
        }
        match program[id].op {
            Op::Reduce { x, .. } if program[x].domain == program[rows].domain => return true,
            _ => open.extend(program[id].op.operands()),
        }
    }
    false
}

fn scaled_behind(program: &Program, readers: &Readers, plain: Product) -> Product {
    let Some(value) = only_reader(readers, plain.value) else { return plain };
    let is_gathered = !source(program, plain.x).hops.is_empty();
    let is_narrow = program[plain.x].shape.len() < program[plain.value].shape.len();
    match scaled_row(program, value) {
        Some((scale, row)) if row == plain.value && is_gathered && is_narrow => {
            Product { scale: Some(scale), value, ..plain }
        }
        _ => plain,
    }
}

fn scattered(program: &Program, readers: &Readers, product: Product) -> Product {
    let own = program[product.value].domain;
    match only_reader(readers, product.value) {
        Some(value) if matches!(program[value].op, Op::Reduce { how: Reduce::Sum, .. }) => {
            if own.is_injective(program[value].domain) { Product { value, ..product } } else { product }
        }
        _ => product,
    }
}

/// A row's factor and the row, where a value is one times the other. A number is neither: it lies in no buffer.
fn scaled_row(program: &Program, id: ValueId) -> Option<(ValueId, ValueId)> {
    let Op::Binary { f: Binary::Mul, x, y } = program[id].op else { return None };
    let is_number = |id: ValueId| matches!(program[source(program, id).base].op, Op::Constant(_));
    let is_pair = |(factor, row): &(ValueId, ValueId)| {
        let is_scaled = program[*factor].shape == Shape::SCALAR && program[*row].shape == program[id].shape;
        is_scaled && !is_number(*factor) && !is_number(*row)
    };
    [(x, y), (y, x)].into_iter().find(is_pair)
}
