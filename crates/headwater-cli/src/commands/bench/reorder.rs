//! `headwater bench reorder`: how fast a graph is renumbered, hubs first.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use headwater::graph::build::EdgeIds;
use headwater::graph::generate::{Like, Ways};
use headwater::graph::reorder::Permutation;
use headwater::graph::{Dataset, Graph, Silent};
use serde::Serialize;

use crate::args::ReorderArgs;
use crate::report;

#[derive(Debug, Serialize)]
struct Figures {
    graph: String,
    nodes: u64,
    edges: u64,
    /// Of the longest list.
    most_neighbours: u64,
    threads: usize,
    /// Drawing the edges and building the lists, or reading them.
    make_s: f64,
    /// Degrees, and nodes sorted by them.
    order_s: f64,
    /// Old numbers to new ones, new offsets, lists moved and relabelled.
    reorder_s: f64,
    edges_per_s: f64,
    /// Lists and offsets, read and written.
    gb_per_s: f64,
}

/// Measures and prints.
pub fn run(args: &ReorderArgs) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (name, graph) = match &args.dataset {
        Some(folder) => opened(folder)?,
        None => made(args)?,
    };
    let make_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let degrees = graph.relation(0).degrees();
    let order = Permutation::by_degree(&degrees)?;
    let order_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let moved = graph.reordered(std::slice::from_ref(&order), EdgeIds::Dropped, &Silent)?;
    let reorder_s = begun.elapsed().as_secs_f64();
    check(&graph, &moved, &order)?;
    let figures = Figures {
        graph: name,
        nodes: graph.nodes(),
        edges: graph.edges(),
        most_neighbours: degrees.iter().copied().max().unwrap_or(0),
        threads: rayon::current_num_threads(),
        make_s,
        order_s,
        reorder_s,
        edges_per_s: graph.edges() as f64 / reorder_s,
        gb_per_s: 2.0 * graph.bytes() as f64 / reorder_s / 1e9,
    };
    if args.json { report::json(&figures) } else { show(&figures) }
}

/// A graph of a published shape, and what it is.
fn made(args: &ReorderArgs) -> anyhow::Result<(String, Graph)> {
    let mut recipe = Like { name: args.like.clone(), scale: args.scale, seed: args.seed }.recipe()?;
    ensure!(recipe.schema.is_homogeneous(), "{} has several types; name a homogeneous shape", args.like);
    if args.both_ways {
        recipe.relations[0].edges *= 2;
        recipe.relations[0].ways = Ways::Both;
    }
    let graph = recipe.graph(&Silent)?;
    Ok((recipe.origin, graph))
}

/// The graph of a dataset, and its name.
fn opened(folder: &Path) -> anyhow::Result<(String, Graph)> {
    let dataset = Dataset::open(folder).with_context(|| format!("opening {}", folder.display()))?;
    ensure!(dataset.schema().is_homogeneous(), "{} has several types or relations", folder.display());
    Ok((dataset.manifest().name.clone(), dataset.graph()?.in_memory()?))
}

/// Compares some rows with where they came from.
fn check(graph: &Graph, moved: &Graph, order: &Permutation) -> anyhow::Result<()> {
    let (from, to) = (graph.relation(0), moved.relation(0));
    ensure!(from.edges() == to.edges(), "edges were lost");
    for row in (0..from.rows()).step_by(usize::try_from(from.rows() / 1000).unwrap_or(1).max(1)) {
        let new = |old: u64| order.new_of_old().at(usize::try_from(old).unwrap_or(usize::MAX));
        let expected = from.list(row).map(|at| new(from.neighbours().at(at)));
        let found = to.list(new(row)).map(|at| to.neighbours().at(at));
        ensure!(expected.eq(found), "row {row} did not arrive");
    }
    Ok(())
}

fn show(figures: &Figures) -> anyhow::Result<()> {
    report::line(format!("{}: {} nodes, {} edges", figures.graph, figures.nodes, figures.edges));
    report::line(format!("made in {:.1} s, ordered by degree in {:.1} s", figures.make_s, figures.order_s));
    report::line(format!(
        "reordered in {:.1} s on {} threads: {:.1} M edges/s, {:.1} GB/s",
        figures.reorder_s,
        figures.threads,
        figures.edges_per_s / 1e6,
        figures.gb_per_s
    ));
    Ok(())
}
