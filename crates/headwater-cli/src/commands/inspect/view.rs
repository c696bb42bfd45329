//! The figures of a dataset in words and as a picture.

use std::collections::BTreeMap;

use headwater::graph::{Degrees, Layout};
use indicatif::{HumanBytes, HumanCount};

use super::summary::{Edges, Nodes, Stored, Summary};
use crate::picture::Chart;
use crate::report;

/// The longest bar of a histogram.
const BAR: u64 = 40;
/// A picture with more lines than this shows nothing.
const MOST_LINES: usize = 12;

/// Prints them.
pub fn show(summary: &Summary) {
    let Summary { name, origin, version, layout, files, bytes, verified, .. } = summary;
    report::line(format!("{name}: {origin}"));
    let stored = match layout {
        Layout::Csc => "by target (CSC)",
        Layout::Csr => "by source (CSR)",
    };
    report::line(format!("format {version}, {files} files, {}, edges stored {stored}", HumanBytes(*bytes)));
    report::line(if *verified {
        "checksums: every file is as it was written"
    } else {
        "checksums: not looked at, but of small files"
    });
    summary.nodes.iter().for_each(show_nodes);
    summary.relations.iter().for_each(|relation| show_edges(relation, *layout));
    if !summary.links.is_empty() {
        report::line(format!("\nedges to predict: {}", in_words(&summary.links)));
    }
}

fn show_nodes(nodes: &Nodes) {
    let isolated = nodes.isolated.map_or(String::new(), |count| format!(", {} without any edge", HumanCount(count)));
    report::line(format!("\nnodes {}: {}{isolated}", nodes.name, HumanCount(nodes.count)));
    let labels = nodes.classes.map_or("labels".into(), |classes| format!("labels ({classes} classes)"));
    for (what, stored) in [
        ("features", &nodes.features),
        (labels.as_str(), &nodes.labels),
        ("times", &nodes.times),
        ("original ids", &nodes.original_ids),
    ] {
        if let Some(Stored { file, dtype, shape, bytes }) = stored {
            report::line(format!("  {what}: {dtype} {shape:?}, {}, {file}", HumanBytes(*bytes as u64)));
        }
    }
    if !nodes.splits.is_empty() {
        report::line(format!("  splits: {}", in_words(&nodes.splits)));
    }
}

fn show_edges(relation: &Edges, layout: Layout) {
    let Edges { source, name, target, edges, id_bits, with, bytes, degrees } = relation;
    let mut line = format!("\nedges {source} -{name}-> {target}: {}", HumanCount(*edges));
    line += &format!(", {id_bits}-bit ids, {}", HumanBytes(*bytes));
    if !with.is_empty() {
        line += &format!(", with {}", with.join(", "));
    }
    report::line(line);
    let direction = match layout {
        Layout::Csc => "in-degree",
        Layout::Csr => "out-degree",
    };
    let Degrees { min, mean, max, empty, histogram, .. } = degrees;
    report::line(format!(
        "  {direction}: min {min}, mean {mean:.2}, max {}; {} without neighbours",
        HumanCount(*max),
        HumanCount(*empty)
    ));
    let most = histogram.iter().copied().max().unwrap_or(0).max(1);
    for (at, rows) in histogram.iter().enumerate() {
        // A bucket that is not empty shows at least a mark.
        let length = (u128::from(*rows) * u128::from(BAR)).div_ceil(u128::from(most));
        let bar = "#".repeat(usize::try_from(length).unwrap_or(0));
        report::line(format!("  {:>23} {:>15} {bar}", bucket(at), HumanCount(*rows).to_string()));
    }
}

/// The share of nodes of each degree; one line a relation, those with most edges.
pub fn chart(summary: &Summary) -> Chart {
    let mut relations: Vec<&Edges> = summary.relations.iter().filter(|relation| relation.edges > 0).collect();
    relations.sort_by_key(|relation| std::cmp::Reverse(relation.edges));
    let line = |relation: &&Edges| {
        let rows = relation.degrees.rows as f64;
        let buckets = relation.degrees.histogram.iter().enumerate().skip(1);
        let points = buckets.map(|(at, count)| (Degrees::bucket(at).0 as f64, 100.0 * *count as f64 / rows));
        (format!("{} {} {}", relation.source, relation.name, relation.target), points.collect())
    };
    Chart {
        title: format!("degrees of {}", summary.name),
        x_label: "degree, from this to the next power of two".into(),
        y_label: "% of nodes".into(),
        lines: relations.iter().take(MOST_LINES).map(line).collect(),
    }
}

fn bucket(at: usize) -> String {
    match Degrees::bucket(at) {
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low} to {high}"),
    }
}

fn in_words(counts: &BTreeMap<&'static str, usize>) -> String {
    let words: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {}", HumanCount(*count as u64))).collect();
    words.join(", ")
}
