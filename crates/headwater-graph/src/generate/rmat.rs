//! R-MAT as Graph500 draws it.

use super::skew::Skew;
use super::{EdgeRecipe, Names, NodeRecipe, Recipe, Ways, setting, split_by_tenths};
use crate::error::Result;
use crate::order::LeaveOut;
use crate::schema::Schema;

/// A power-law graph of a power of two nodes.
#[derive(Debug, Clone)]
pub struct Rmat {
    /// Nodes are 2 to this power.
    pub nodes_log2: u32,
    /// Edges drawn, a node.
    pub edges_per_node: u64,
    /// Features a node; 0 for none.
    pub features: u64,
    /// Classes; 0 for none.
    pub classes: u64,
    /// How edges crowd.
    pub skew: Skew,
    /// Whether hubs come first or are anywhere.
    pub names: Names,
    /// What is left out again.
    pub leave_out: LeaveOut,
    /// What makes it different from another.
    pub seed: u64,
}

impl Default for Rmat {
    fn default() -> Self {
        Self {
            nodes_log2: 20,
            edges_per_node: 16,
            features: 0,
            classes: 0,
            skew: Skew::GRAPH500,
            names: Names::Shuffled,
            leave_out: LeaveOut::default(),
            seed: 1,
        }
    }
}

impl Rmat {
    /// What will be made.
    pub fn recipe(&self) -> Result<Recipe> {
        setting("nodes-log2", self.nodes_log2, self.nodes_log2 <= 40, "at most 40")?;
        setting("edges-per-node", self.edges_per_node, self.edges_per_node <= 1 << 20, "at most 2^20")?;
        let nodes = 1 << self.nodes_log2;
        let (skew, leave_out) = (self.skew, self.leave_out);
        let edges = EdgeRecipe { edges: nodes * self.edges_per_node, skew, homophily: 0.0, ways: Ways::One, leave_out };
        let labelled = self.classes > 0;
        let splits = if labelled { split_by_tenths(nodes, [1, 1, 1]) } else { [0; 3] };
        let node = NodeRecipe { features: self.features, labelled, splits, names: self.names, ..Default::default() };
        let recipe = Recipe {
            name: format!("{}-{}", self.kind().join("-"), self.nodes_log2),
            origin: format!("{}, 2^{} nodes, {} edges a node", self.in_words(), self.nodes_log2, self.edges_per_node),
            seed: self.seed,
            schema: Schema::homogeneous(nodes),
            classes: self.classes,
            nodes: vec![node],
            relations: vec![edges],
        };
        recipe.check().map(|()| recipe)
    }

    /// What tells it from others, so that two kinds do not share a name.
    fn kind(&self) -> Vec<&'static str> {
        let even = (self.skew == Skew::EVEN).then_some("even");
        let skewed = (![Skew::EVEN, Skew::GRAPH500].contains(&self.skew)).then_some("skewed");
        let ranked = (self.names == Names::ByRank).then_some("ranked");
        let simple = (self.leave_out != LeaveOut::default()).then_some("simple");
        [Some("rmat"), even, skewed, ranked, simple].into_iter().flatten().collect()
    }

    fn in_words(&self) -> String {
        match self.kind()[1..].join(", ") {
            plain if plain.is_empty() => "R-MAT".into(),
            kind => format!("R-MAT ({kind})"),
        }
    }
}
