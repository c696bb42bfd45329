//! What stands around a layer: dropout of what it reads, and norm, activation and residual behind it.
//!
//! They become values of the layer's own program, so that they share its kernels.

use crate::error::Result;
use crate::inter::{Binary, Builder, Domain, Op, Output, Program, Reduce, Shape, Unary, Value, ValueId};

/// What stands around a layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Around {
    /// How likely an element of the input `x` is dropped.
    pub input_dropout: f64,
    /// What normalises the output.
    pub norm: Norm,
    /// What is applied to it.
    pub activation: Option<Unary>,
    /// Whether the layer's input is added, where it is as wide as the output.
    pub residual: bool,
    /// Whether the gradient of the input `x` is needed.
    pub wants_input_gradient: bool,
}

/// What normalises rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Norm {
    /// Nothing.
    #[default]
    None,
    /// Each row by its own mean and deviation; `norm_scale` and `norm_shift` are learnt.
    Layer,
    /// Each column by the batch's mean and deviation; `norm_scale` and `norm_shift` are learnt. The program has the outputs
    /// `batch_mean` and `batch_variance`.
    Batch,
    /// Each column by the inputs `running_mean` and `running_variance`: what batches had, in inference.
    Running,
}

/// What is added to variances.
const EPSILON: f64 = 1e-5;
/// The key of the input's dropout. Those of a text are counted from 0.
const INPUT_KEY: u64 = 1 << 32;

/// The layer with what stands around it. Its output is `out`.
pub fn decorate(layer: &Program, around: Around) -> Result<Program> {
    let (program, x) = with_input_dropout(layer, around);
    let Some(out) = program.output("out") else { return Ok(program) };
    let mut b = Builder::on(Program { outputs: Vec::new(), ..program });
    let mut found = normalise(&mut b, out, around.norm)?;
    if let Some(f) = around.activation {
        found = b.unary(f, found);
    }
    if let (true, Some(x)) = (around.residual, x) {
        let own = b.lift(x, b.value(found).domain)?;
        if b.value(own).shape.len() == b.value(found).shape.len() {
            let own = b.reshape(own, b.value(found).shape)?;
            found = b.binary(Binary::Add, found, own)?;
        }
    }
    b.output("out", found);
    Ok(b.finish())
}

/// The program with a dropout behind its input `x`, and where that input is.
fn with_input_dropout(layer: &Program, around: Around) -> (Program, Option<ValueId>) {
    let mut program = Program { name: layer.name.clone(), ..Program::default() };
    let (mut place, mut input) = (Vec::new(), None);
    for value in &layer.values {
        let mut value = Value { op: value.op.with_operands(|operand: ValueId| place[operand.at()]), ..value.clone() };
        let is_x = matches!(&value.op, Op::Input { name, .. } if name == "x");
        if let (true, Op::Input { wants_gradient, .. }) = (is_x, &mut value.op) {
            *wants_gradient = around.wants_input_gradient;
        }
        let (domain, shape) = (value.domain, value.shape);
        let mut at = ValueId::new(program.values.len());
        program.values.push(value);
        if is_x {
            input = Some(at);
        }
        if is_x && around.input_dropout > 0.0 {
            let op = Op::Dropout { x: at, probability: around.input_dropout, key: INPUT_KEY };
            at = ValueId::new(program.values.len());
            program.values.push(Value { op, domain, shape, label: None });
        }
        place.push(at);
    }
    let moved = |output: &Output| Output { name: output.name.clone(), value: place[output.value.at()] };
    program.outputs = layer.outputs.iter().map(moved).collect();
    (program, input)
}

fn normalise(b: &mut Builder, x: ValueId, norm: Norm) -> Result<ValueId> {
    if norm == Norm::None {
        return Ok(x);
    }
    let shape = Shape::vector(b.value(x).shape.len());
    let x = b.reshape(x, shape)?;
    let (mean, variance) = match norm {
        Norm::Layer => row_moments(b, x)?,
        Norm::Batch => {
            let (mean, variance) = column_moments(b, x)?;
            b.output("batch_mean", mean);
            b.output("batch_variance", variance);
            (mean, variance)
        }
        Norm::Running | Norm::None => {
            (b.input("running_mean", Domain::Const, shape), b.input("running_variance", Domain::Const, shape))
        }
    };
    let epsilon = b.constant(EPSILON);
    let safe = b.binary(Binary::Add, variance, epsilon)?;
    let (factor, centred) = (b.unary(Unary::Rsqrt, safe), b.binary(Binary::Sub, x, mean)?);
    let normal = b.binary(Binary::Mul, centred, factor)?;
    let (scale, shift) =
        (b.parameter("norm_scale", Domain::Const, shape), b.parameter("norm_shift", Domain::Const, shape));
    let scaled = b.binary(Binary::Mul, normal, scale)?;
    b.binary(Binary::Add, scaled, shift)
}

/// Mean and variance of every row.
fn row_moments(b: &mut Builder, x: ValueId) -> Result<(ValueId, ValueId)> {
    let part = b.constant(1.0 / b.value(x).shape.len() as f64);
    let sum = b.sum_width(x)?;
    let mean = b.binary(Binary::Mul, sum, part)?;
    let centred = b.binary(Binary::Sub, x, mean)?;
    let square = b.dot(centred, centred)?;
    Ok((mean, b.binary(Binary::Mul, square, part)?))
}

/// Mean and variance of every column.
fn column_moments(b: &mut Builder, x: ValueId) -> Result<(ValueId, ValueId)> {
    let mean = b.reduce(x, Domain::Const, Reduce::Mean)?;
    let centred = b.binary(Binary::Sub, x, mean)?;
    let square = b.binary(Binary::Mul, centred, centred)?;
    Ok((mean, b.reduce(square, Domain::Const, Reduce::Mean)?))
}
