//! A program out of its text. What it reads is verified, so any text gives a program that makes sense or an error.

use super::print;
use crate::error::{Error, Result};
use crate::inter::{Binary, Domain, Op, Output, Path, Program, Reduce, Shape, Side, Unary, Value, ValueId, verify};

/// The program a text says.
pub fn read(text: &str) -> Result<Program> {
    let mut program = Program::default();
    for (at, line) in text.lines().enumerate() {
        let in_line = |why: String| Error::Unreadable { line: at + 1, why };
        read_line(&mut program, line.trim()).map_err(in_line)?;
    }
    verify(&program)?;
    Ok(program)
}

fn read_line(program: &mut Program, line: &str) -> Result<(), String> {
    if line.is_empty() {
        return Ok(());
    }
    if let Some(name) = line.strip_prefix("program ") {
        name.clone_into(&mut program.name);
        return Ok(());
    }
    if let Some(output) = line.strip_prefix("output ") {
        let (name, value) = output.split_once(" = ").ok_or("expected `output NAME = %VALUE`")?;
        program.outputs.push(Output { name: name.to_owned(), value: value_id(value)? });
        return Ok(());
    }
    let (line, label) = match line.split_once(" ; ") {
        Some((line, label)) => (line, Some(label.to_owned())),
        None => (line, None),
    };
    let (head, body) = line.split_once(" = ").ok_or("expected `%VALUE : DOMAIN SHAPE = OPERATOR`")?;
    let (id, kind) = head.split_once(" : ").ok_or("expected ` : ` behind the value")?;
    let (domain_name, shape_text) = kind.split_once(' ').ok_or("expected a domain and a shape")?;
    let id = value_id(id)?;
    if id.at() != program.values.len() {
        return Err(format!("expected %{}: values are counted in order", program.values.len()));
    }
    let words: Vec<&str> = body.split_whitespace().collect();
    let value = Value { op: op(&words)?, domain: domain(domain_name)?, shape: shape(shape_text)?, label };
    program.values.push(value);
    Ok(())
}

fn op(words: &[&str]) -> Result<Op, String> {
    let v = |word: &str| value_id(word);
    Ok(match *words {
        ["input", name] => Op::Input { name: name.to_owned(), wants_gradient: false },
        ["input", name, "gradient"] => Op::Input { name: name.to_owned(), wants_gradient: true },
        ["parameter", name] => Op::Parameter { name: name.to_owned() },
        ["constant", number] => Op::Constant(float(number)?),
        ["linear", x, w, "transposed", ref by @ ..] => {
            Op::Linear { x: v(x)?, w: v(w)?, transposed: true, path: path(by)? }
        }
        ["linear", x, w, ref by @ ..] => Op::Linear { x: v(x)?, w: v(w)?, transposed: false, path: path(by)? },
        ["outer", x, y, ref by @ ..] => Op::Outer { x: v(x)?, y: v(y)?, path: path(by)? },
        ["product", a, b] => Op::Product {
            a: v(a.trim_end_matches('\''))?,
            b: v(b.trim_end_matches('\''))?,
            transpose_a: a.ends_with('\''),
            transpose_b: b.ends_with('\''),
        },
        ["dot", x, y] => Op::Dot { x: v(x)?, y: v(y)? },
        ["concat", x, y] => Op::Concat { x: v(x)?, y: v(y)? },
        ["slice", x, "from", from] => Op::Slice { x: v(x)?, from: count(from)? },
        ["pad", x, "from", from] => Op::Pad { x: v(x)?, from: count(from)? },
        ["reshape", x] => Op::Reshape { x: v(x)? },
        ["expand", x] => Op::Expand { x: v(x)? },
        ["sum_heads", x] => Op::SumHeads { x: v(x)? },
        ["sum_width", x] => Op::SumWidth { x: v(x)? },
        ["lift", x, ref by @ ..] => Op::Lift { x: v(x)?, path: path(by)? },
        ["reduce", how, x, ref by @ ..] => Op::Reduce { x: v(x)?, how: reduce(how)?, path: path(by)? },
        ["softmax", x, "by", by] => Op::Softmax { x: v(x)?, by: domain(by)? },
        ["dropout", x, probability, "key", key] => {
            let key = key.parse().map_err(|_| format!("expected a key, found `{key}`"))?;
            Op::Dropout { x: v(x)?, probability: float(probability)?, key }
        }
        [f, x, y] => Op::Binary { f: binary(f)?, x: v(x)?, y: v(y)? },
        [f, x] => Op::Unary { f: unary(f)?, x: v(x)? },
        _ => return Err(format!("there is no operator `{}`", words.join(" "))),
    })
}

fn value_id(word: &str) -> Result<ValueId, String> {
    let number = word.strip_prefix('%').and_then(|number| number.parse::<u32>().ok());
    number.map(|number| ValueId::new(number as usize)).ok_or(format!("expected a value such as %3, found `{word}`"))
}

fn domain(word: &str) -> Result<Domain, String> {
    let found = Domain::ALL.into_iter().find(|domain| domain.to_string() == word);
    found.ok_or_else(|| format!("there is no domain `{word}`"))
}

fn shape(text: &str) -> Result<Shape, String> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).ok_or("expected a shape in brackets")?;
    let sizes = inner.split(", ").map(count).collect::<Result<Vec<_>, _>>()?;
    match sizes[..] {
        [heads, width] => Ok(Shape::Row { heads, width }),
        [heads, rows, cols] => Ok(Shape::Matrix { heads, rows, cols }),
        _ => Err(format!("expected two or three sizes, found `{text}`")),
    }
}

fn path(words: &[&str]) -> Result<Path, String> {
    match words {
        [] => Ok(Path::Only),
        ["via", "src"] => Ok(Path::By(Side::Src)),
        ["via", "dst"] => Ok(Path::By(Side::Dst)),
        _ => Err(format!("expected `via src` or `via dst`, found `{}`", words.join(" "))),
    }
}

fn unary(word: &str) -> Result<Unary, String> {
    let (name, number) = match word.split_once('(') {
        Some((name, number)) => (name, float(number.trim_end_matches(')'))?),
        None => (word, 0.0),
    };
    let all = [
        Unary::Neg,
        Unary::Exp,
        Unary::Log,
        Unary::Relu,
        Unary::LeakyRelu(number),
        Unary::Elu(number),
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Gelu,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Recip,
        Unary::Abs,
        Unary::Step,
        Unary::LeakyStep(number),
        Unary::EluSlope(number),
        Unary::GeluSlope,
        Unary::Sign,
    ];
    let is_it = |f: &Unary| print::unary(*f).split('(').next() == Some(name);
    all.into_iter().find(is_it).ok_or_else(|| format!("there is no function `{word}`"))
}

fn binary(word: &str) -> Result<Binary, String> {
    use Binary::{Add, Div, Equal, Greater, Max, Min, Mul, Sub};
    let found = [Add, Sub, Mul, Div, Max, Min, Equal, Greater].into_iter().find(|f| print::binary(*f) == word);
    found.ok_or_else(|| format!("there is no function `{word}` of two values"))
}

fn reduce(word: &str) -> Result<Reduce, String> {
    let found = [Reduce::Sum, Reduce::Mean, Reduce::Max].into_iter().find(|how| print::reduce(*how) == word);
    found.ok_or_else(|| format!("there is no reduction `{word}`"))
}

fn count(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| format!("expected a size, found `{word}`"))
}

fn float(word: &str) -> Result<f64, String> {
    word.parse().map_err(|_| format!("expected a number, found `{word}`"))
}
