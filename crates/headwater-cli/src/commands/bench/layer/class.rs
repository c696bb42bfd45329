//! What kind of work a kernel is.

use headwater::compile::inter::Domain;
use headwater::compile::intra::Kernel;
use serde::{Deserialize, Serialize};

/// Kinds of kernels. All launches of a kernel have its class: the sums that an outer product ends with are a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// For every node or pair, its edges.
    Walks,
    /// Typed matrix products: rows times the weights of their type.
    Products,
    /// Gradients of weights: sums of outer products of rows.
    OuterProducts,
    /// Sums of rows by their type.
    Sums,
    /// What has a row a type: products of weights, and gradients through them.
    Weights,
    /// Rows of nodes and pairs, without their edges.
    Other,
}

impl Class {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 6] =
        [Self::Walks, Self::Products, Self::OuterProducts, Self::Sums, Self::Weights, Self::Other];

    /// The class of a kernel.
    pub fn of(kernel: &Kernel) -> Self {
        let is_type = |domain: &Domain| matches!(domain, Domain::Const | Domain::NodeType | Domain::EdgeType);
        let nest = kernel.nest();
        match kernel {
            _ if nest.iter().all(is_type) => Self::Weights,
            Kernel::Gemm(_) | Kernel::GemmSum(_) => Self::Products,
            Kernel::Outer(_) => Self::OuterProducts,
            _ if nest.first().is_some_and(is_type) => Self::Sums,
            _ if nest.contains(&Domain::Edge) => Self::Walks,
            _ => Self::Other,
        }
    }

    /// Its name in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Walks => "walks over edges",
            Self::Products => "products",
            Self::OuterProducts => "outer products",
            Self::Sums => "sums",
            Self::Weights => "weights",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater::compile::front::{Arguments, builtin, read};
    use headwater::compile::intra::headline;
    use headwater::compile::pass::{Optimisations, Statistics, compile};

    use super::*;

    #[test]
    fn kernels_are_told_by_what_they_go_over() {
        let sizes = ["d_in", "d_out", "heads"].map(|name| (name.to_owned(), if name == "heads" { 1 } else { 64 }));
        let arguments = Arguments { sizes: sizes.into(), ..Arguments::default() };
        let text = builtin("rgat").unwrap();
        let layer = read("rgat", text, &arguments).unwrap().program;
        let compiled = compile(&layer, &Statistics::FB15K_237, Optimisations::GPU).unwrap();
        let kernels = compiled.forward.kernels.iter().chain(&compiled.backward.kernels);
        let named: Vec<(String, Class)> = kernels.map(|kernel| (headline(kernel), Class::of(kernel))).collect();
        let wanted = [
            ("node.dst > edge", Class::Walks),
            ("gemm over pair.", Class::Products),
            ("outer over pair.", Class::OuterProducts),
            ("traverse over etype > pair.", Class::Sums),
            ("gemm over etype", Class::Weights),
        ];
        for (words, class) in wanted {
            let found: Vec<_> = named.iter().filter(|(line, _)| line.contains(words)).collect();
            assert!(!found.is_empty() && found.iter().all(|(_, own)| *own == class), "{words}: {named:?}");
        }
        for class in Class::ALL {
            assert!(named.iter().any(|(_, own)| *own == class), "{class:?}: {named:?}");
        }
    }
}
