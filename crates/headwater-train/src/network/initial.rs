//! How the parameters of each model begin: as PyG's layers do.

use std::collections::BTreeMap;

use headwater_compile::front::OptionValue;
use headwater_compile::inter::{Domain, Op, Program, Shape};

use crate::array::Array;
use crate::init::Init;

/// A layer and whose parameters are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Beginning<'a> {
    /// The model by whose rules they begin.
    pub model: &'a str,
    /// What the layer computes.
    pub program: &'a Program,
    /// The text's options as they are in force.
    pub options: &'a BTreeMap<String, OptionValue>,
}

/// What the parameters of one layer begin with. `rows` says how many rows a domain has.
#[must_use]
pub fn first_values(layer: Beginning<'_>, rows: &dyn Fn(Domain) -> usize, seed: u64) -> Vec<Array> {
    let one = |value: &headwater_compile::inter::Value| {
        let Op::Parameter { name } = &value.op else { return None };
        let shape = shape(rows(value.domain), value.domain, value.shape);
        let values = layer.of(name).values(seed, name, &shape);
        Some(Array { name: name.clone(), shape, values })
    };
    layer.program.values.iter().filter_map(one).collect()
}

impl Beginning<'_> {
    /// How a parameter of the layer begins.
    pub(super) fn of(&self, name: &str) -> Init {
        match (self.model, name, self.options.get("eps")) {
            ("gin", "epsilon", Some(OptionValue::Float(eps))) => Init::Constant(*eps),
            (model, name, _) => initial(model, name, self.program),
        }
    }
}

fn initial(model: &str, name: &str, program: &Program) -> Init {
    match (model, name) {
        (_, "norm_scale" | "skip" | "mu") => Init::Ones,
        (_, "norm_shift" | "epsilon") => Init::Zeros,
        // `Linear` layers: SAGEConv has two, GIN's network is made of two, HGTConv and inputs are projected
        // with them.
        ("sage", "b") => Init::FanIn { fan_in: rows_of(program, "W_neigh") },
        ("gin", "b1") => Init::FanIn { fan_in: rows_of(program, "W1") },
        ("gin", "b2") => Init::FanIn { fan_in: rows_of(program, "W2") },
        ("hgt", "K_b" | "Q_b" | "V_b") => Init::FanIn { fan_in: rows_of(program, "K") },
        ("hgt", "A_b") => Init::FanIn { fan_in: rows_of(program, "A") },
        ("input", "b") => Init::FanIn { fan_in: rows_of(program, "W") },
        ("sage" | "gin" | "input", _) | ("hgt", "K" | "Q" | "V" | "A") => Init::Kaiming,
        (_, "b") => Init::Zeros,
        _ => Init::Glorot,
    }
}

/// Rows of a weight: inputs of the layer it belongs to.
fn rows_of(program: &Program, weight: &str) -> usize {
    let found = program.values.iter().find_map(|value| match (&value.op, value.shape) {
        (Op::Parameter { name }, Shape::Matrix { rows, .. }) if name == weight => Some(rows),
        _ => None,
    });
    found.unwrap_or(1)
}

/// Extents of a parameter: rows where there may be several, heads where there are, then what a head has.
pub(super) fn shape(rows: usize, domain: Domain, shape: Shape) -> Vec<usize> {
    let rows = Some(rows).filter(|_| domain != Domain::Const);
    let heads = Some(shape.heads()).filter(|heads| *heads > 1);
    let inner = match shape {
        Shape::Row { width, .. } => vec![width],
        Shape::Matrix { rows, cols, .. } => vec![rows, cols],
    };
    rows.into_iter().chain(heads).chain(inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_compile::front::{self, Arguments};

    #[test]
    fn a_layer_begins_by_its_model() {
        let text = "def sage(g, x: node[d], W_neigh: matrix[etype, d, k], b: vector[k]):\n    for n in g.dst_nodes():\n        \
                    n[\"out\"] = sum(linear(e.src.x, W_neigh[e.etype]) for e in n.incoming_edges()) + b\n";
        let sizes = [("d", 16), ("k", 300)].map(|(name, size)| (name.to_owned(), size));
        let read = front::read("f", text, &Arguments { sizes: sizes.into(), ..Arguments::default() }).unwrap();
        let rows = |domain: Domain| if domain == Domain::EdgeType { 3 } else { 1 };
        let most = |array: &Array| array.values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let begins = |model| {
            let layer = Beginning { model, program: &read.program, options: &read.options };
            first_values(layer, &rows, 1)
        };
        let named = begins("sage");
        assert_eq!(named.iter().map(|array| array.shape.clone()).collect::<Vec<_>>(), [vec![3, 16, 300], vec![300]]);
        assert!((0.24..=0.25).contains(&most(&named[0])) && (0.24..=0.25).contains(&most(&named[1])));
        let other = begins("f");
        assert!((0.13..0.14).contains(&most(&other[0])) && most(&other[1]) == 0.0, "Glorot, and zeros");
    }
}
