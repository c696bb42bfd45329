//! Planted communities: what a graph network can learn, with an answer that is known.

use super::skew::Skew;
use super::{EdgeRecipe, NodeRecipe, Recipe, Ways, setting, split_by_tenths};
use crate::error::Result;
use crate::order::LeaveOut;
use crate::schema::Schema;

/// Communities of one size, more edges within than between, features around a centroid a community.
#[derive(Debug, Clone)]
pub struct Planted {
    /// Nodes.
    pub nodes: u64,
    /// Edges that end at a node, on average; both directions are there.
    pub edges_per_node: u64,
    /// Communities, which are the classes.
    pub classes: u64,
    /// Features a node.
    pub features: u64,
    /// The part of the edges that is drawn within a community. The others end anywhere.
    pub homophily: f64,
    /// Half the distance of two centroids, in standard deviations of the noise.
    pub separation: f32,
    /// How edges crowd.
    pub skew: Skew,
    /// What makes it different from another.
    pub seed: u64,
}

impl Default for Planted {
    fn default() -> Self {
        Self {
            nodes: 10_000,
            edges_per_node: 10,
            classes: 8,
            features: 64,
            homophily: 0.7,
            separation: 1.0,
            skew: Skew::EVEN,
            seed: 1,
        }
    }
}

impl Planted {
    /// What will be made.
    pub fn recipe(&self) -> Result<Recipe> {
        let possible = (1..=self.nodes.max(1)).contains(&self.classes);
        setting("classes", self.classes, possible, "from 1 to the number of nodes")?;
        let drawn = self.nodes.checked_mul(self.edges_per_node).filter(|edges| *edges <= 1 << 48);
        setting("edges-per-node", self.edges_per_node, drawn.is_some(), "at most 2^48 edges in all")?;
        let edges = EdgeRecipe {
            edges: drawn.unwrap_or(0),
            skew: self.skew,
            homophily: self.homophily,
            ways: Ways::Both,
            leave_out: LeaveOut::default(),
        };
        let splits = split_by_tenths(self.nodes, [6, 2, 2]);
        let (features, separation) = (self.features, self.separation);
        let node = NodeRecipe { features, separation, labelled: true, splits, ..Default::default() };
        let recipe = Recipe {
            name: format!("planted-{}", self.nodes),
            origin: format!(
                "{} planted communities of {} nodes, {} edges a node, {} of them within",
                self.classes, self.nodes, self.edges_per_node, self.homophily
            ),
            seed: self.seed,
            schema: Schema::homogeneous(self.nodes),
            classes: self.classes,
            nodes: vec![node],
            relations: vec![edges],
        };
        recipe.check().map(|()| recipe)
    }
}
