//! Graphs in the shape of published datasets, whole or scaled down.

use super::catalogue::{Edges, Nodes, SHAPES, Shape};
use super::skew::Skew;
use super::{EdgeRecipe, NodeRecipe, Recipe, Ways, setting};
use crate::error::{Error, Result};
use crate::order::LeaveOut;
use crate::random::Key;
use crate::schema::{NodeType, Relation, Schema};

/// The part of the edges between nodes of one class, as citation networks have it.
const HOMOPHILY: f64 = 0.5;

/// A graph with the counts of a dataset.
#[derive(Debug, Clone)]
pub struct Like {
    /// Which dataset.
    pub name: String,
    /// Nodes, edges and splits are multiplied by this.
    pub scale: f64,
    /// What makes it different from another.
    pub seed: u64,
}

impl Like {
    /// The datasets whose shapes are known.
    pub const NAMES: [&'static str; SHAPES.len()] = {
        let mut names = [""; SHAPES.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = SHAPES[at].name;
            at += 1;
        }
        names
    };

    /// What will be made.
    pub fn recipe(&self) -> Result<Recipe> {
        let unknown = || Error::Unknown { kind: "shape", name: self.name.clone(), known: Self::NAMES.join(", ") };
        let shape = SHAPES.iter().find(|shape| shape.name == self.name).ok_or_else(unknown)?;
        setting("scale", self.scale, self.scale > 0.0 && self.scale <= 1000.0, "above 0 and at most 1000")?;
        let node_types = self.node_types(shape);
        let (relations, edges) = self.relations(shape, &node_types).into_iter().unzip();
        let mut nodes = vec![NodeRecipe::default(); node_types.len()];
        nodes[shape.main_type] = NodeRecipe {
            features: shape.features,
            labelled: shape.classes > 0,
            splits: shape.splits.map(|count| self.scaled(count)),
            ..Default::default()
        };
        let recipe = Recipe {
            name: self.name.clone(),
            origin: format!("in the shape of {}, scaled by {}", self.name, self.scale),
            seed: self.seed,
            schema: Schema::new(node_types, relations)?,
            classes: shape.classes,
            nodes,
            relations: edges,
        };
        recipe.check().map(|()| recipe)
    }

    fn node_types(&self, shape: &Shape) -> Vec<NodeType> {
        match shape.nodes {
            Nodes::Named(all) => {
                let scaled = |(name, count): &(&str, u64)| (String::from(*name), self.scaled(*count).max(1));
                all.iter().map(scaled).map(|(name, count)| NodeType { name, count }).collect()
            }
            Nodes::Types(1, count) => vec![NodeType { name: "entity".into(), count: self.scaled(count).max(1) }],
            Nodes::Types(types, count) => {
                let sizes = zipf(self.scaled(count), types).into_iter().enumerate();
                sizes.map(|(at, count)| NodeType { name: format!("type{at}"), count }).collect()
            }
        }
    }

    fn relations(&self, shape: &Shape, node_types: &[NodeType]) -> Vec<(Relation, EdgeRecipe)> {
        let alone = |edges, ways| vec![(relation(0, "to", 0), recipe(self.scaled(edges), ways))];
        match shape.edges {
            Edges::Directed(edges) => alone(edges, Ways::One),
            // Both directions of an edge are there.
            Edges::Undirected(edges) => vec![(relation(0, "to", 0), recipe(self.scaled(edges) / 2 * 2, Ways::Both))],
            Edges::Named(all) => {
                let one = |&(source, name, target, edges): &(usize, &str, usize, u64)| {
                    (relation(source, name, target), recipe(self.scaled(edges), Ways::One))
                };
                all.iter().map(one).collect()
            }
            Edges::Relations(count, edges) => {
                let sizes = zipf(self.scaled(edges), count).into_iter().enumerate();
                sizes.map(|(at, edges)| (between(node_types, at), recipe(edges, Ways::One))).collect()
            }
            Edges::Reversed(count, edges) => {
                let sizes = zipf(self.scaled(edges) / 2, count / 2).into_iter().enumerate();
                sizes.flat_map(|(at, edges)| with_reverse(between(node_types, at), at, edges)).collect()
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "counts are far below 2^53")]
    fn scaled(&self, count: u64) -> u64 {
        // A scale of one is exact.
        (count as f64 * self.scale).round().abs() as u64
    }
}

fn relation(source: usize, name: &str, target: usize) -> Relation {
    Relation { source, name: name.into(), target }
}

fn recipe(edges: u64, ways: Ways) -> EdgeRecipe {
    EdgeRecipe { edges, skew: Skew::GRAPH500, homophily: HOMOPHILY, ways, leave_out: LeaveOut::default() }
}

fn with_reverse(forth: Relation, at: usize, edges: u64) -> [(Relation, EdgeRecipe); 2] {
    let back = relation(forth.target, &format!("{}_reversed", forth.name), forth.source);
    [(forth, recipe(edges, Ways::One)), (back, recipe(edges, Ways::ReverseOf(2 * at)))]
}

/// Ends for a relation: types with many nodes have many relations. The same for any seed.
fn between(node_types: &[NodeType], at: usize) -> Relation {
    let nodes: u64 = node_types.iter().map(|node_type| node_type.count).sum();
    let end = |salt: u64| {
        let mut node = Key::new(salt).below(at as u64, nodes.max(1));
        let found = node_types.iter().position(|node_type| {
            let inside = node < node_type.count;
            node = node.saturating_sub(node_type.count);
            inside
        });
        found.unwrap_or(0)
    };
    relation(end(1), &format!("relation{at}"), end(2))
}

/// A total in parts that fall as one over their rank. No part is empty unless there is too little.
#[expect(clippy::cast_possible_truncation, reason = "parts of a total are no larger than it")]
fn zipf(total: u64, parts: u64) -> Vec<u64> {
    let all: f64 = (1..=parts).map(|rank| 1.0 / rank as f64).sum();
    let rest = total.max(parts) - parts;
    let (mut share, mut before) = (0.0, 0);
    let mut part = |rank: u64| {
        share += 1.0 / rank as f64;
        let up_to = if rank == parts { rest } else { (rest as f64 * share / all).abs() as u64 };
        let own = up_to.max(before) - before;
        before = up_to.max(before);
        own + 1
    };
    (1..=parts).map(&mut part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(name: &str, scale: f64) -> Result<Recipe> {
        Like { name: name.into(), scale, seed: 1 }.recipe()
    }

    #[test]
    fn counts_are_the_published_ones() {
        let cases = [
            ("products", 2_449_029, 123_718_280, 1, 1),
            ("arxiv", 169_343, 1_166_243, 1, 1),
            ("papers100m", 111_059_956, 1_615_685_872, 1, 1),
            ("mag240m", 244_160_499, 1_728_364_232, 3, 3),
            ("wikikg90m", 87_143_637, 504_220_369, 1, 1),
            ("reddit", 232_965, 114_615_892, 1, 1),
            ("wikipedia", 13_593_032, 437_217_424, 1, 1),
            ("aifb", 7_262, 48_810, 7, 104),
            ("mutag", 27_163, 148_100, 5, 50),
            ("bgs", 94_806, 672_884, 27, 122),
            ("am", 1_885_136, 5_668_682, 7, 108),
            ("mag", 1_939_743, 21_111_007, 4, 4),
            ("wikikg2", 2_500_604, 16_109_182, 1, 535),
            ("fb15k", 14_541, 620_232, 1, 474),
            ("biokg", 93_773, 4_762_678, 5, 51),
        ];
        assert_eq!(cases.map(|case| case.0), Like::NAMES);
        for (name, nodes, edges, types, relations) in cases {
            let recipe = like(name, 1.0).unwrap();
            let found: u64 = recipe.schema.node_types().iter().map(|node_type| node_type.count).sum();
            let drawn: u64 = recipe.relations.iter().map(|relation| relation.edges).sum();
            assert_eq!((found, drawn), (nodes, edges), "{name}");
            let counts = (recipe.schema.node_types().len(), recipe.schema.relations().len());
            assert_eq!(counts, (types, relations), "{name}");
        }
    }

    #[test]
    fn any_shape_can_be_small() {
        for name in Like::NAMES {
            let graph = like(name, 0.0001).unwrap().graph(&crate::Silent).unwrap();
            assert!(graph.nodes() > 0 && graph.edges() > 0, "{name}");
        }
    }

    #[test]
    fn reverses_have_the_same_edges() {
        let graph = like("aifb", 0.2).unwrap().graph(&crate::Silent).unwrap();
        for pair in graph.relations().chunks(2) {
            let mut edges: Vec<(u64, u64)> = ends(&pair[0]);
            let mut reversed: Vec<(u64, u64)> = ends(&pair[1]).into_iter().map(|(a, b)| (b, a)).collect();
            edges.sort_unstable();
            reversed.sort_unstable();
            assert_eq!(edges, reversed);
        }
    }

    fn ends(topology: &crate::Topology) -> Vec<(u64, u64)> {
        let coo = topology.to_coo();
        coo.sources.iter().zip(coo.targets.iter()).collect()
    }

    #[test]
    fn parts_add_up() {
        assert_eq!(zipf(10, 1), [10]);
        for (total, parts) in [(100, 7), (7, 7), (1_000_003, 535)] {
            let sizes = zipf(total, parts);
            assert!(sizes.iter().sum::<u64>() == total && sizes.iter().all(|size| *size > 0), "{sizes:?}");
        }
    }

    #[test]
    fn refusals_say_what_there_is() {
        assert!(like("cora", 1.0).unwrap_err().to_string().contains("papers100m"));
        assert!(like("aifb", -1.0).unwrap_err().to_string().contains("scale"));
        assert!(like("aifb", f64::NAN).is_err());
    }
}
