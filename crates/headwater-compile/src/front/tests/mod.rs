//! Layer texts: what they mean, and how wrong ones are refused.

mod builtin;
mod language;
mod mutated;
mod wrong;

use super::{Arguments, Layer, OptionValue, read};
use crate::inter::text::print;

/// Sizes that every text here may use.
const SIZES: [(&str, usize); 6] =
    [("d_in", 6), ("d_hidden", 5), ("d_out", 4), ("heads", 2), ("zero", 0), ("huge", 1 << 20)];

fn arguments(options: &[(&str, OptionValue)]) -> Arguments {
    Arguments {
        sizes: SIZES.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect(),
        options: options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
    }
}

fn text(value: &str) -> OptionValue {
    OptionValue::Text(value.to_owned())
}

/// A layer over `x` with these statements.
fn layer(body: &str) -> String {
    let declared = "def f(g, x: node[d_in], y: edge[d_in], W: matrix[d_in, d_out], \
                    R: matrix[etype, d_in, d_out], T: matrix[ntype, d_in, d_out], b: vector[heads * 3], \
                    a: vector[etype, d_in], t: vector[ntype, d_in], \
                    E: vector[src_pair, d_in], N: vector[node, d_in], D: dst_node[1] = constant):\n";
    let lines: Vec<String> = body.lines().map(|line| format!("    {line}\n")).collect();
    format!("{declared}{}", lines.concat())
}

/// The program of a layer, without what it declares.
fn program(body: &str) -> String {
    let read: Layer = read("f.py", &layer(body), &arguments(&[])).unwrap_or_else(|error| panic!("{body}\n{error}"));
    let printed = print(&read.program);
    let computed = printed
        .lines()
        .filter(|line| !line.starts_with("program") && !line.contains(" = input ") && !line.contains(" = parameter "));
    computed.collect::<Vec<_>>().join("\n")
}
