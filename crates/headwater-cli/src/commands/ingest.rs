//! `headwater ingest`: a dataset out of what others wrote.

use std::time::Instant;

use anyhow::Context;
use headwater::graph::Layout;
use headwater::graph::ingest::text::{Asked, Delimiter};
use headwater::graph::ingest::{
    IdKind, Ingest, IngestOptions, IngestPlan, LabelKind, LinkCounts, Reverse, SparseFeatures, Summary,
};
use serde::Serialize;

use crate::args::{IngestArgs, IngestIds, IngestLayout, LabelsAre, SparseAs};
use crate::progress::Bar;
use crate::report;

const GIB: f64 = (1u64 << 30) as f64;

#[derive(Serialize)]
struct Done {
    #[serde(flatten)]
    summary: Summary,
    read_seconds: f64,
    build_seconds: f64,
}

/// Reads, says what building takes, builds.
pub fn run(args: &IngestArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    let bar = Bar::new();
    let ingest = Ingest::read(args.source.as_deref(), &args.output, options(args)?, &bar);
    let ingest = match args.format {
        Some(format) => ingest.with_context(|| format!("reading it with --format {}", format.name()))?,
        None => ingest?,
    };
    let read_seconds = started.elapsed().as_secs_f64();
    drop(bar);
    report::note(prediction(&ingest.plan()));
    let bar = Bar::new();
    let started = Instant::now();
    let summary = ingest.build(&bar)?;
    drop(bar);
    let done = Done { summary, read_seconds, build_seconds: started.elapsed().as_secs_f64() };
    if args.json {
        return report::json(&done);
    }
    let Done { summary, read_seconds, build_seconds } = &done;
    report::line(format!(
        "{} ({}): {} nodes of {} types, {} edges of {} relations; read in {read_seconds:.1} s, built in {build_seconds:.1} s",
        args.output.display(),
        summary.format,
        summary.nodes,
        summary.node_types,
        summary.edges,
        summary.relations
    ));
    if let Some(LinkCounts { train, valid, test }) = summary.links {
        report::line(format!(
            "edges to predict are kept beside the graph: {train} to train on, which are its edges, {valid} to validate and \
             {test} to test, which are not"
        ));
    }
    Ok(())
}

fn prediction(plan: &IngestPlan) -> String {
    let gib = plan.peak_bytes as f64 / GIB;
    format!("building lists of {} edges will take up to {gib:.2} GiB of memory", plan.edges)
}

/// What was typed, in the library's words.
fn options(args: &IngestArgs) -> anyhow::Result<IngestOptions> {
    let delimiter = args.delimiter.as_deref().map(delimiter).transpose()?;
    let header = match (args.header, args.no_header) {
        (false, false) => None,
        (header, _) => Some(header),
    };
    let text = Asked {
        delimiter,
        header,
        source: args.source_column.clone(),
        target: args.target_column.clone(),
        weight: args.weight_column.clone(),
        time: args.time_column.clone(),
        source_type: args.source_type_column.clone(),
        relation: args.relation_column.clone(),
        target_type: args.target_type_column.clone(),
    };
    Ok(IngestOptions {
        format: args.format,
        name: args.name.clone(),
        layout: match args.layout {
            IngestLayout::Csc => Layout::Csc,
            IngestLayout::Csr => Layout::Csr,
        },
        text,
        ids: match args.ids {
            IngestIds::Auto => IdKind::Auto,
            IngestIds::Dense => IdKind::Dense,
            IngestIds::Integer => IdKind::Integer,
            IngestIds::String => IdKind::String,
        },
        edges: args.edges.clone(),
        nodes: args.nodes.clone(),
        reverse: if args.reverse { Reverse::Add } else { Reverse::None },
        sparse_features: match args.sparse_features {
            SparseAs::Dense => SparseFeatures::Dense,
            SparseAs::Half => SparseFeatures::Half,
            SparseAs::Skip => SparseFeatures::Skip,
        },
        labels: match args.labels {
            LabelsAre::Auto => LabelKind::Auto,
            LabelsAre::Classes => LabelKind::Classes,
            LabelsAre::Values => LabelKind::Values,
        },
    })
}

fn delimiter(text: &str) -> anyhow::Result<Delimiter> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(Delimiter::Byte(b'\t')),
        ("comma", _) => Ok(Delimiter::Byte(b',')),
        ("spaces" | " ", _) => Ok(Delimiter::Spaces),
        (_, [byte]) if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(Delimiter::Byte(*byte)),
        _ => anyhow::bail!("--delimiter {text:?}: one character, or one of tab, comma, spaces"),
    }
}
