//! The plan and the curves in words and as pictures.

use indicatif::{HumanBytes, HumanCount};

use super::Summary;
use super::tables::{Point, Table};
use crate::picture::Chart;
use crate::report;

/// The columns of the paper's figure.
const COLUMNS: [f64; 5] = [0.01, 0.05, 0.1, 0.25, 0.5];

/// Prints them.
pub fn show(summary: &Summary) -> anyhow::Result<()> {
    let fanout: Vec<String> = summary.about.fanout.iter().map(ToString::to_string).collect();
    report::line(format!(
        "{}: {} nodes, {} edges; fan-out ({}), {} batches of {} an epoch",
        summary.about.dataset,
        HumanCount(summary.about.nodes),
        HumanCount(summary.about.edges),
        fanout.join(", "),
        HumanCount(summary.about.batches_per_epoch),
        summary.about.batch
    ));
    for Table { node_type, rows, row_bytes, .. } in &summary.tables {
        let all = HumanBytes(rows.saturating_mul(*row_bytes));
        report::line(format!("rows     {node_type}: {} of {row_bytes} bytes, {all}", HumanCount(*rows)));
    }
    for (table, stride) in summary.tables.iter().zip(&summary.stride_bytes) {
        if *stride as u64 > table.row_bytes {
            report::line(format!("         {} rows had better lie {stride} bytes apart, on lines", table.node_type));
        }
    }
    report::line(format!("machine  {}", summary.machine.in_words()));
    show_plan(summary);
    show_scores(summary);
    show_depths(summary);
    if let Some(written) = &summary.written {
        report::line(format!("\nwrote    {} in {:.1} s", written.directory, written.seconds));
    }
    Ok(())
}

fn show_plan(summary: &Summary) {
    let why = if summary.about.is_chosen { ", the best on batches that none has seen" } else { "" };
    report::line(format!("order    by {}{why}\n", summary.score.name()));
    report::line(format!("{:<12} {:>14} {:>10} {:>12} {:>10}", "tier", "rows", "hit rate", "an epoch", "takes"));
    for tier in &summary.plan.forecast {
        report::line(format!(
            "{:<12} {:>14} {:>9.2}% {:>12} {:>10}",
            format!("{:?}", tier.tier).to_lowercase(),
            HumanCount(tier.rows).to_string(),
            100.0 * tier.hit_rate,
            in_bytes(tier.bytes_per_epoch),
            in_time(tier.seconds_per_epoch)
        ));
    }
    report::line(format!("an epoch's rows take {}: the busiest link", in_time(summary.plan.seconds_per_epoch)));
    if summary.tables.len() > 1 {
        for (table, plan) in summary.tables.iter().zip(&summary.plan.tables) {
            let [gpu, host] = [plan.interleaved_end, plan.host_end - plan.interleaved_end];
            report::line(format!(
                "  {}: {} rows in GPU memory, {} in host memory, {} on disk",
                table.node_type,
                HumanCount(gpu),
                HumanCount(host),
                HumanCount(table.rows - plan.host_end)
            ));
        }
    }
    if let Some(prediction) = &summary.prediction {
        let [told, found] = [prediction.predicted_bytes, prediction.counted_bytes].map(|bytes| bytes[2] + bytes[3]);
        report::line(format!(
            "over the link to host memory: {} an epoch predicted, {} counted, {:+.2}%",
            in_bytes(told),
            in_bytes(found),
            prediction.off_by_percent
        ));
    }
}

fn show_scores(summary: &Summary) {
    let (what, is_measured) = match &summary.oracle {
        Some(_) => ("measured", true),
        None => ("forecast", false),
    };
    let head: Vec<String> = COLUMNS.map(|share| format!("{:>7.0}%", 100.0 * share)).to_vec();
    report::line(format!("\n{:<20} {}  {:>9}", format!("hit rates, {what}"), head.join(" "), "scored in"));
    for entry in &summary.scores {
        let points = entry.measured.as_ref().filter(|_| is_measured).unwrap_or(&entry.forecast);
        let time = format!("{:>6.0} ms", 1e3 * entry.seconds);
        report::line(format!("{:<20} {}  {time:>9}", entry.score.name(), columns(points)));
    }
    if let Some(points) = &summary.oracle {
        report::line(format!("{:<20} {}", "their own counts", columns(points)));
    }
    report::line(format!(
        "{} batches each; {} for presampled; lists turned round in {:.0} ms",
        summary.about.batches,
        summary.about.presample,
        1e3 * summary.transpose_s
    ));
}

fn show_depths(summary: &Summary) {
    if summary.depths.is_empty() {
        return;
    }
    report::line(format!("\n{:<28} {:>10}", "with hops of fan-out 10", "of nodes"));
    for depth in &summary.depths {
        let name = format!("{} hops, {}", depth.hops, depth.score.name());
        report::line(format!("{name:<28} {:>9.2}% {}", 100.0 * depth.batch_share, columns(&depth.measured)));
    }
}

fn columns(points: &[Point]) -> String {
    let at = |share: f64| points.iter().find(|point| point.share == share).map_or(0.0, |point| point.hit_rate);
    COLUMNS.map(|share| format!("{:>7.2}%", 100.0 * at(share))).join(" ")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes to be shown")]
fn in_bytes(bytes: f64) -> String {
    HumanBytes(bytes as u64).to_string()
}

fn in_time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.3} ms", 1e3 * seconds) } else { format!("{seconds:.2} s") }
}

/// Reads against rows, one line a score; and one chart more for the hops.
pub fn charts(summary: &Summary) -> Vec<Chart> {
    let what = if summary.oracle.is_some() { "measured" } else { "forecast" };
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = summary
        .scores
        .iter()
        .map(|entry| line(entry.score.name().to_owned(), entry.measured.as_ref().unwrap_or(&entry.forecast)))
        .collect();
    lines.extend(summary.oracle.as_ref().map(|points| line("their own counts".to_owned(), points)));
    let chart = |title: String, lines| Chart {
        title,
        x_label: "part of the rows held, percent".to_owned(),
        y_label: "reads served, percent".to_owned(),
        lines,
    };
    let mut charts = vec![chart(format!("{}: reads of the hottest rows, {what}", summary.about.dataset), lines)];
    if !summary.depths.is_empty() {
        let of = |depth: &super::Depth| line(format!("{} hops, {}", depth.hops, depth.score.name()), &depth.measured);
        let lines = summary.depths.iter().map(of).collect();
        charts.push(chart(format!("{}: with hops of fan-out 10", summary.about.dataset), lines));
    }
    charts
}

fn line(name: String, points: &[Point]) -> (String, Vec<(f64, f64)>) {
    (name, points.iter().map(|point| (100.0 * point.share, 100.0 * point.hit_rate)).collect())
}
