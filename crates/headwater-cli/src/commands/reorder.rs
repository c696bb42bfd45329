//! `headwater reorder`: a dataset with its nodes in another order.

use std::time::Instant;

use anyhow::{Context, ensure};
use headwater::graph::Dataset;
use headwater::graph::dataset::{Array, Split, reorder};
use headwater::graph::random::Key;
use headwater::graph::reorder::Permutation;
use headwater::graph::score::{End, NodeScores, Outgoing, RankOptions, degrees, reverse_pagerank};
use serde::Serialize;

use crate::args::{NodeOrder, ReorderDatasetArgs};
use crate::progress::Bar;
use crate::report;

/// What was done.
#[derive(Serialize)]
struct Summary {
    directory: String,
    nodes: u64,
    edges: u64,
    order: String,
    /// For the new order, and for writing everything in it.
    order_s: f64,
    write_s: f64,
}

/// Writes the new dataset.
pub fn run(args: &ReorderDatasetArgs) -> anyhow::Result<()> {
    let is_random = args.by == NodeOrder::Random && args.order.is_none();
    ensure!(args.seed.is_none() || is_random, "--seed is of the random order; say --by random, or leave it out");
    let dataset = Dataset::open(&args.dataset).with_context(|| format!("opening {}", args.dataset.display()))?;
    let bar = Bar::new();
    // Before an order is made out of it.
    dataset.verify(&bar).with_context(|| format!("verifying {}", args.dataset.display()))?;
    let begun = Instant::now();
    let (nodes, order) = match &args.order {
        Some(file) => (vec![given(&dataset, file)?], format!("as {} says", file.display())),
        None => (by_score(&dataset, args, &bar)?, name(args.by).to_owned()),
    };
    let order_s = begun.elapsed().as_secs_f64();
    reorder(&dataset, &nodes, &args.output, &order, &bar)
        .with_context(|| format!("making {}", args.output.display()))?;
    let write_s = begun.elapsed().as_secs_f64() - order_s;
    let edges = dataset.manifest().relations.iter().map(|relation| relation.edges).sum();
    let nodes = nodes.iter().map(Permutation::len).sum();
    let directory = args.output.display().to_string();
    let summary = Summary { directory, nodes, edges, order, order_s, write_s };
    if args.json {
        return report::json(&summary);
    }
    report::line(format!(
        "wrote {}: {nodes} nodes and {edges} edges, {}; {order_s:.1} s for the order, {write_s:.1} s to write",
        summary.directory, summary.order
    ));
    Ok(())
}

fn name(order: NodeOrder) -> &'static str {
    match order {
        NodeOrder::OutDegree => "by out-degree",
        NodeOrder::InDegree => "by in-degree",
        NodeOrder::Pagerank => "by reverse PageRank",
        NodeOrder::WeightedPagerank => "by weighted reverse PageRank",
        NodeOrder::Random => "at random",
    }
}

fn by_score(dataset: &Dataset, args: &ReorderDatasetArgs, bar: &Bar) -> anyhow::Result<Vec<Permutation>> {
    let graph = dataset.graph()?;
    let counts = || graph.schema().node_types().iter().map(|node_type| node_type.count);
    let scores: NodeScores = match args.by {
        NodeOrder::OutDegree => degrees(&graph, End::Source),
        NodeOrder::InDegree => degrees(&graph, End::Target),
        NodeOrder::Pagerank => reverse_pagerank(&Outgoing::of(&graph, bar)?, &RankOptions::converged())?,
        NodeOrder::WeightedPagerank => {
            let train = train(dataset)?;
            let train: Vec<&[u64]> = train.iter().map(Vec::as_slice).collect();
            ensure!(train.iter().any(|ids| !ids.is_empty()), "the dataset has no training nodes to put weight on");
            reverse_pagerank(&Outgoing::of(&graph, bar)?, &RankOptions::weighted(&train))?
        }
        NodeOrder::Random => {
            let key = Key::new(args.seed.unwrap_or(1));
            counts().enumerate().map(|(at, count)| (0..count).map(|id| key.of(at as u64).draw(id)).collect()).collect()
        }
    };
    scores.iter().map(|scores| Ok(Permutation::by_degree(scores)?)).collect()
}

/// The training nodes of every type.
pub(super) fn train(dataset: &Dataset) -> anyhow::Result<Vec<Vec<u64>>> {
    let of = |at| Ok(dataset.split(at, Split::Train)?.map(|ids| ids.iter().collect()).unwrap_or_default());
    (0..dataset.schema().node_types().len()).map(of).collect()
}

fn given(dataset: &Dataset, file: &std::path::Path) -> anyhow::Result<Permutation> {
    ensure!(dataset.schema().node_types().len() == 1, "--order is for datasets of one node type");
    let array = Array::map(file)?;
    ensure!(array.shape().len() == 1, "{} has {} dimensions; expected a list", file.display(), array.shape().len());
    let (found, nodes) = (array.shape()[0] as u64, dataset.schema().node_types()[0].count);
    ensure!(found == nodes, "{} has {found} numbers; the dataset has {nodes} nodes", file.display());
    let ids = array.ids();
    let order = ids.and_then(Permutation::from_old_of_new);
    order.with_context(|| format!("taking the order from {}", file.display()))
}
