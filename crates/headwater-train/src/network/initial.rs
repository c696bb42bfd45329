//! How the parameters of each model begin: as PyG's layers do.

use headwater_compile::inter::{Op, Program, Shape};

use crate::init::Init;

/// How a parameter of a layer begins.
pub(super) fn initial(model: &str, name: &str, program: &Program) -> Init {
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
