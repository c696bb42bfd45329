//! A program as text.

use std::fmt::Write;

use crate::inter::{Binary, Op, Path, Program, Reduce, Side, Unary, Value, ValueId};

/// The program, one value a line.
#[must_use]
pub fn print(program: &Program) -> String {
    let mut text = format!("program {}\n", program.name);
    for (id, value) in program.iter() {
        let Value { domain, shape, .. } = value;
        let label = value.label.as_ref().map_or_else(String::new, |label| format!(" ; {label}"));
        let _ = writeln!(text, "%{} : {domain} {shape} = {}{label}", id.at(), op(&value.op));
    }
    for output in &program.outputs {
        let _ = writeln!(text, "output {} = %{}", output.name, output.value.at());
    }
    text
}

/// An operator with its operands.
pub(crate) fn op(op: &Op) -> String {
    let v = |id: ValueId| format!("%{}", id.at());
    match op {
        Op::Input { name, wants_gradient: false } => format!("input {name}"),
        Op::Input { name, wants_gradient: true } => format!("input {name} gradient"),
        Op::Parameter { name } => format!("parameter {name}"),
        Op::Constant(number) => format!("constant {number:?}"),
        Op::Linear { x, w, transposed, path: by } => {
            format!("linear {} {}{}{}", v(*x), v(*w), if *transposed { " transposed" } else { "" }, path(*by))
        }
        Op::Outer { x, y, path: by } => format!("outer {} {}{}", v(*x), v(*y), path(*by)),
        Op::Product { a, b, transpose_a, transpose_b } => {
            let side = |id: ValueId, transposed: bool| format!("{}{}", v(id), if transposed { "'" } else { "" });
            format!("product {} {}", side(*a, *transpose_a), side(*b, *transpose_b))
        }
        Op::Dot { x, y } => format!("dot {} {}", v(*x), v(*y)),
        Op::Unary { f, x } => format!("{} {}", unary(*f), v(*x)),
        Op::Binary { f, x, y } => format!("{} {} {}", binary(*f), v(*x), v(*y)),
        Op::Concat { x, y } => format!("concat {} {}", v(*x), v(*y)),
        Op::Slice { x, from } => format!("slice {} from {from}", v(*x)),
        Op::Pad { x, from } => format!("pad {} from {from}", v(*x)),
        Op::Reshape { x } => format!("reshape {}", v(*x)),
        Op::Expand { x } => format!("expand {}", v(*x)),
        Op::SumHeads { x } => format!("sum_heads {}", v(*x)),
        Op::SumWidth { x } => format!("sum_width {}", v(*x)),
        Op::Lift { x, path: by } => format!("lift {}{}", v(*x), path(*by)),
        Op::Reduce { x, how, path: by } => format!("reduce {} {}{}", reduce(*how), v(*x), path(*by)),
        Op::Softmax { x, by } => format!("softmax {} by {by}", v(*x)),
        Op::Dropout { x, probability, key } => format!("dropout {} {probability:?} key {key}", v(*x)),
    }
}

fn path(path: Path) -> &'static str {
    match path {
        Path::Only => "",
        Path::By(Side::Src) => " via src",
        Path::By(Side::Dst) => " via dst",
    }
}

/// The name of a function of one element, with its number in brackets.
pub(crate) fn unary(f: Unary) -> String {
    let name = match f {
        Unary::Neg => "neg",
        Unary::Exp => "exp",
        Unary::Log => "log",
        Unary::Relu => "relu",
        Unary::LeakyRelu(a) => return format!("leaky_relu({a:?})"),
        Unary::Elu(a) => return format!("elu({a:?})"),
        Unary::Sigmoid => "sigmoid",
        Unary::Tanh => "tanh",
        Unary::Gelu => "gelu",
        Unary::Sqrt => "sqrt",
        Unary::Rsqrt => "rsqrt",
        Unary::Recip => "recip",
        Unary::Abs => "abs",
        Unary::Step => "step",
        Unary::LeakyStep(a) => return format!("leaky_step({a:?})"),
        Unary::EluSlope(a) => return format!("elu_slope({a:?})"),
        Unary::GeluSlope => "gelu_slope",
        Unary::Sign => "sign",
    };
    name.to_owned()
}

/// The name of a function of two elements.
pub(crate) fn binary(f: Binary) -> &'static str {
    match f {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
        Binary::Max => "max",
        Binary::Min => "min",
        Binary::Equal => "equal",
        Binary::Greater => "greater",
    }
}

/// The name of a reduction.
pub(crate) fn reduce(how: Reduce) -> &'static str {
    match how {
        Reduce::Sum => "sum",
        Reduce::Mean => "mean",
        Reduce::Max => "max",
    }
}
