//! Graphs that layers run on, made in memory.

use anyhow::{Context, ensure};
use headwater::compile::adjacency::{Adjacency, SelfLoops};
use headwater::graph::generate::{Like, Recipe, Skew};
use headwater::graph::random::Key;
use headwater::graph::{Graph, Layout, Topology};
use headwater::memory::host_bytes_available;
use headwater::train::blocks::whole;
use rayon::prelude::*;

use crate::args::BenchLayerArgs;
use crate::progress::Bar;

/// Nodes of the shape `hub`.
const HUB_NODES: f64 = 200_000.0;
/// Edges into its first node.
const HUB_EDGES: f64 = 100_000.0;
/// Edges into node k are those into the first, over this power of k + 1.
const HUB_POWER: f64 = 0.75;

/// A graph, and how layers see it.
pub struct Shape {
    /// Its name.
    pub like: String,
    pub graph: Graph,
    seen: Vec<(SelfLoops, Adjacency)>,
}

impl Shape {
    /// Makes a graph.
    pub fn new(args: &BenchLayerArgs, like: &str) -> anyhow::Result<Self> {
        let graph = match recipe(args, like)? {
            Some(recipe) => recipe.graph(&Bar::new()),
            None => return Ok(Self { like: like.to_owned(), graph: hub(args.scale, args.seed)?, seen: Vec::new() }),
        };
        let graph = graph.with_context(|| format!("making a graph like {like}"))?;
        Ok(Self { like: like.to_owned(), graph, seen: Vec::new() })
    }

    /// The graph as a layer sees it that does this with edges from nodes to themselves. Made when it is first asked for.
    pub fn seen(&mut self, loops: SelfLoops) -> anyhow::Result<&Adjacency> {
        let at = match self.seen.iter().position(|(own, _)| *own == loops) {
            Some(at) => at,
            None => {
                self.seen.push((loops, whole(&self.graph, loops)?));
                self.seen.len() - 1
            }
        };
        Ok(&self.seen[at].1)
    }
}

/// How many relations a shape has; the error is about the scale.
pub fn relations(args: &BenchLayerArgs, like: &str) -> anyhow::Result<usize> {
    Ok(recipe(args, like)?.map_or(1, |recipe| recipe.schema.relations().len()))
}

/// What a published shape is made by.
fn recipe(args: &BenchLayerArgs, like: &str) -> anyhow::Result<Option<Recipe>> {
    if like == BenchLayerArgs::HUB {
        ensure!(!args.even, "--even is for published shapes; the degrees of `hub` follow a power law");
        let is_scale = args.scale > 0.0 && args.scale <= 1000.0;
        ensure!(is_scale, "--scale is {}; expected above 0 and at most 1000", args.scale);
        return Ok(None);
    }
    let mut recipe = Like { name: like.to_owned(), scale: args.scale, seed: args.seed }.recipe()?;
    if args.even {
        recipe.relations.iter_mut().for_each(|edges| edges.skew = Skew::EVEN);
    }
    Ok(Some(recipe))
}

/// One relation whose degrees follow a power law: of edges into nodes from `HUB_EDGES` down to one, and of edges out of them,
/// whose sources are drawn with a density that falls as one over a root.
fn hub(scale: f64, seed: u64) -> anyhow::Result<Graph> {
    let nodes = count(HUB_NODES * scale);
    let degree = |node: u64| count(HUB_EDGES * scale / ((node + 1) as f64).powf(HUB_POWER));
    let mut offsets = vec![0];
    let mut edges = 0;
    for node in 0..nodes {
        edges += degree(node);
        offsets.push(edges);
    }
    // Lists, and the same as layers see them.
    let bytes = 16 * edges + 24 * nodes;
    let has_room = bytes < host_bytes_available() as u64;
    ensure!(has_room, "--scale is {scale}: {edges} edges need {bytes} bytes of host memory, which are not free");
    let key = Key::new(seed);
    let source = |edge: u64| {
        let drawn = key.unit(edge);
        u32::try_from(count(drawn * drawn * nodes as f64 + 1.0) - 1).unwrap_or(u32::MAX)
    };
    let sources: Vec<u32> = (0..edges).into_par_iter().map(source).collect();
    Ok(Graph::homogeneous(Topology::new(Layout::Csc, nodes, offsets.into(), sources.into())?)?)
}

/// A number without what is behind its point, and at least 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are positive and far below 2^53")]
fn count(number: f64) -> u64 {
    number.max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_has_the_edges_it_is_known_for() {
        let graph = hub(1.0, 1).unwrap();
        let lists = graph.relation(0);
        assert_eq!((graph.nodes(), lists.degree(0)), (200_000, 100_000));
        assert!((8_000_000..9_000_000).contains(&graph.edges()), "{}", graph.edges());
        assert!((0..graph.nodes()).all(|node| lists.degree(node) > 0));
        let small = hub(0.001, 2).unwrap();
        assert_eq!((small.nodes(), small.relation(0).degree(0)), (200, 100));
    }
}
