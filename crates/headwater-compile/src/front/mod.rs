//! Layers as short texts: a part of Python in which a layer says what it computes for every edge and every node.
//!
//! ```python
//! @layer(self_loops=True)
//! def gat(g, x: node[d_in], W: matrix[d_in, heads * d_out], al: vector[heads, d_out], ar: vector[heads, d_out],
//!         slope: float = 0.2):
//!     for n in g.nodes():
//!         n["z"] = reshape(linear(n.x, W), heads, d_out)
//!     for e in g.edges():
//!         e["a"] = edge_softmax(leaky_relu(dot(e.src["z"], al) + dot(e.dst["z"], ar), slope))
//!     for n in g.dst_nodes():
//!         for e in n.incoming_edges():
//!             n["h"] += e["a"] * e.src["z"]
//!         n["out"] = flatten(n["h"])
//! ```
//!
//! - The last `def` is the layer; others are functions that it uses. Its first parameter is the graph.
//! - Inputs are `node[..]`, `dst_node[..]` and `edge[..]`, read as `n.x` and `e.src.x`. Their gradients may be asked
//!   for unless they are `= constant`.
//! - Weights are `matrix[..]` and `vector[..]`, one for all or, with `etype` or `ntype` in front, one a type:
//!   `W[e.etype]`. Vectors may be learnt for every `node` (`n.E`) or `src_pair` (`E[e.src, e.etype]`).
//! - Sizes are names that the caller binds, and whole numbers. Options have a kind and a default: `float`, `int`,
//!   `bool`, `str`, `Literal["mean", "sum"]`. `if` decides by options and sizes, when the text is read. A parameter
//!   with `= when(condition)` is there only if that holds; `when(lambda: condition)` says the same.
//! - `n["z"] = ...` names a value of every element of the loop; each statement is done for all of them before the
//!   next. In a loop over a node's edges, `n["h"] += ...` adds up over them; `sum`, `mean`, `max` and `relation_mean`
//!   do it in one line.
//! - `nodes()` are all nodes that are read, `dst_nodes()` those of them that are written. The result is `n["out"]`.
//!
//! Loops vanish here: a value of a loop over edges is a value of [`Domain::Edge`](crate::inter::Domain). Where it could
//! be computed for fewer rows is a question for later. `python.rs` is the only file that knows the parser.

mod builtin;
mod declare;
mod expand;
mod fault;
mod infer;
mod known;
mod python;
mod signature;
mod surface;

#[cfg(test)]
mod tests;

pub use builtin::{BUILTIN, builtin};
pub use infer::infer;
pub use known::OptionValue;
pub use signature::{Declared, DeclaredOption, Signature, signature};

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::adjacency::SelfLoops;
use crate::error::Result;
use crate::inter::{Program, verify};
use fault::{Outcome, Source, Span};
use surface::Function;

/// What a caller gives a layer text.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Arguments {
    /// What the text's sizes are. Those that it does not name are not looked at.
    pub sizes: BTreeMap<String, usize>,
    /// Options that differ from their defaults.
    pub options: BTreeMap<String, OptionValue>,
}

/// What a layer text means.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// What it computes. The result is the output `out`.
    pub program: Program,
    /// What becomes of edges from nodes to themselves.
    pub self_loops: SelfLoops,
    /// All options as they are in force.
    pub options: BTreeMap<String, OptionValue>,
}

/// Reads a layer text. `name` is what errors call it.
pub fn read(name: &str, text: &str, arguments: &Arguments) -> Result<Layer> {
    let source = Source { name, text };
    let layer = mean(&source, arguments).map_err(|fault| source.error(fault))?;
    verify(&layer.program)?;
    Ok(layer)
}

fn mean(source: &Source, arguments: &Arguments) -> Outcome<Layer> {
    let functions = python::parse(source.text)?;
    let layer = layer_of(&functions)?;
    expand::expand(source, &functions, layer, arguments)
}

/// The last function, which is the layer.
fn layer_of(functions: &[Function]) -> Outcome<&Function> {
    let Some((layer, others)) = functions.split_last() else {
        return Err(Span::default().fault("expected a layer: `def name(g, x: node[d_in], ...):`"));
    };
    let mut names = BTreeSet::new();
    for function in functions {
        if !names.insert(function.name.text.as_str()) {
            let why = format!("there is a function `{}` already; expected another name", function.name.text);
            return Err(function.name.at.fault(why));
        }
    }
    match others.iter().find_map(|other| other.decorator.as_ref()) {
        Some(decorator) => Err(decorator.at.fault("the last function is the layer; expected no decorator here")),
        None => Ok(layer),
    }
}
