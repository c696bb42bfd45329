//! Graphs that are made, not found: R-MAT, planted communities, and shapes of published datasets.
//!
//! | the question | the room |
//! | --- | --- |
//! | What can be asked for? | [`Rmat`], [`Planted`], [`Like`] |
//! | What will be made? | [`Recipe`] |
//! | Who are the nodes of a type? | [`Population`] |
//! | How do edges crowd? | [`Skew`] |
//!
//! Whatever is asked for becomes a [`Recipe`], and there is one way to make a recipe into a graph. Every edge, label and
//! feature is a pure function of the seed and its own number, so the result is the same for any number of threads, and
//! no feature need be in memory before it is written.
//!
//! ```
//! use headwater_graph::Silent;
//! use headwater_graph::generate::Planted;
//! let recipe = Planted { nodes: 1000, classes: 4, ..Default::default() }.recipe()?;
//! let graph = recipe.graph(&Silent)?;
//! assert_eq!((graph.nodes(), recipe.population(0).label(17) < 4), (1000, true));
//! # Ok::<(), headwater_graph::Error>(())
//! ```

mod bijection;
mod catalogue;
mod edges;
mod like;
mod planted;
mod population;
mod rmat;
mod skew;
#[cfg(test)]
mod tests;
mod write;

pub use bijection::Bijection;
pub use edges::{EdgeRecipe, Ways};
pub use like::Like;
pub use planted::Planted;
pub use population::{Names, NodeRecipe, Population};
pub use rmat::Rmat;
pub use skew::Skew;
pub use write::GeneratePlan;

use self::edges::Drawing;
use crate::build::{BuildOptions, Coo, EdgeIds};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::order::LeaveOut;
use crate::progress::Progress;
use crate::random::Key;
use crate::schema::Schema;
use crate::topology::{Layout, Topology};

/// Everything there is to know about a graph before it is made.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// What it is called.
    pub name: String,
    /// How it was asked for, in words.
    pub origin: String,
    /// What makes it different from another of the same recipe.
    pub seed: u64,
    /// Its types and their sizes.
    pub schema: Schema,
    /// Classes of nodes, the same for every type; 0 for none.
    pub classes: u64,
    /// What the nodes of each type are like.
    pub nodes: Vec<NodeRecipe>,
    /// How the edges of each relation are drawn.
    pub relations: Vec<EdgeRecipe>,
}

const NODES: u64 = 1;
const EDGES: u64 = 2;

impl Recipe {
    /// Whether it can be made.
    pub fn check(&self) -> Result<()> {
        let lengths = [
            ("node recipes", self.nodes.len(), self.schema.node_types().len()),
            ("edge recipes", self.relations.len(), self.schema.relations().len()),
        ];
        for (name, found, expected) in lengths {
            if found != expected {
                let (found, expected) = (found as u64, expected as u64);
                return Err(Error::Length { name, found, expected, of: "the schema" });
            }
        }
        for (node_type, recipe) in self.schema.node_types().iter().zip(&self.nodes) {
            setting("nodes", node_type.count, node_type.count <= 1 << 48, "at most 2^48")?;
            let values = recipe.features.saturating_mul(node_type.count.max(1));
            setting("features", recipe.features, values <= 1 << 48, "at most 2^48 for all nodes together")?;
            setting("separation", recipe.separation, recipe.separation.is_finite(), "a finite number")?;
        }
        let values = self.classes.saturating_mul(self.nodes.iter().map(|node| node.features.max(1)).max().unwrap_or(1));
        setting("classes", self.classes, values <= 1 << 24, "at most 2^24 together with features")?;
        self.relations.iter().enumerate().try_for_each(|(at, recipe)| self.check_edges(at, recipe))
    }

    fn check_edges(&self, at: usize, recipe: &EdgeRecipe) -> Result<()> {
        let relation = &self.schema.relations()[at];
        let [sources, targets] = [relation.source, relation.target].map(|end| self.schema.node_types()[end].count);
        let possible = recipe.edges == 0 || (sources > 0 && targets > 0);
        setting("edges", recipe.edges, possible && recipe.edges <= 1 << 48, "at most 2^48, and none without nodes")?;
        setting("homophily", recipe.homophily, (0.0..=1.0).contains(&recipe.homophily), "from 0 to 1")?;
        setting("skew", recipe.skew.a, recipe.skew.is_valid(), "four chances that add up to 1")?;
        let ways = match recipe.ways {
            Ways::One => true,
            Ways::Both => relation.source == relation.target,
            Ways::ReverseOf(other) => self
                .schema
                .relations()
                .get(other)
                .is_some_and(|other| (other.source, other.target) == (relation.target, relation.source)),
        };
        setting("ways", format!("{:?}", recipe.ways), ways, "both ends of one type, or a relation to reverse")
    }

    /// The nodes of a type.
    #[must_use]
    pub fn population(&self, node_type: usize) -> Population {
        let count = self.schema.node_types()[node_type].count;
        let key = Key::new(self.seed).of(NODES).of(node_type as u64);
        Population::new(key, count, self.classes, self.nodes[node_type])
    }

    /// The edges of a relation as they are drawn.
    pub fn edges(&self, at: usize, progress: &dyn Progress) -> Result<Coo> {
        self.check()?;
        let (relation, recipe) = (&self.schema.relations()[at], self.relations[at]);
        let drawn_as = if let Ways::ReverseOf(other) = recipe.ways { other } else { at };
        let key = Key::new(self.seed).of(EDGES).of(drawn_as as u64);
        let (sources, targets) = (self.population(relation.source), self.population(relation.target));
        Ok(Drawing { key, recipe, sources: &sources, targets: &targets }.draw(progress))
    }

    /// The neighbour lists of a relation, by target.
    pub fn topology(&self, at: usize, progress: &dyn Progress) -> Result<Topology> {
        let options = BuildOptions { layout: Layout::Csc, edge_ids: EdgeIds::Dropped };
        let built = self.edges(at, progress)?.build(options, progress)?;
        match self.relations[at].leave_out {
            LeaveOut { self_loops: false, repeats: false } => Ok(built),
            what => built.without(what, EdgeIds::Dropped),
        }
    }

    /// The whole graph, in memory.
    pub fn graph(&self, progress: &dyn Progress) -> Result<Graph> {
        let relations = (0..self.relations.len()).map(|at| self.topology(at, progress));
        Graph::new(self.schema.clone(), relations.collect::<Result<_>>()?)
    }
}

/// Refuses a setting with its name, its value and what would be right.
fn setting(name: &'static str, value: impl ToString, holds: bool, expected: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Setting { name, value: value.to_string(), expected: expected.into() }) }
}

/// Parts of the nodes in proportion, for learning, choosing and reporting.
fn split_by_tenths(nodes: u64, tenths: [u64; 3]) -> [u64; 3] {
    tenths.map(|part| nodes / 10 * part + nodes % 10 * part / 10)
}
