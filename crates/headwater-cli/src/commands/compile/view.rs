//! A compiled layer as text.

use super::summary::{DirectionCost, Figures, Plan, Rows, Summary, Totals};
use crate::report;

/// Shows what there is.
pub fn show(summary: &Summary) {
    if let Some(source) = &summary.source {
        section("source");
        report::line(source.trim_end());
    }
    for direction in &summary.directions {
        if let Some(values) = &direction.values {
            section(&format!("values, {}", direction.name));
            report::line(values.trim_end());
        }
    }
    for direction in &summary.directions {
        if let Some(kernels) = &direction.kernels {
            section(&format!("kernels, {}", direction.name));
            report::line(kernels.trim_end());
        }
    }
    if let Some(plan) = &summary.plan {
        show_plan(summary, plan);
    }
}

fn section(name: &str) {
    report::line(format!("== {name}"));
}

fn show_plan(summary: &Summary, plan: &Plan) {
    section("plan");
    show_graph(&summary.graph);
    if plan.plan.is_empty() {
        report::line("no change of order pays");
    }
    for change in &plan.plan {
        let (before, after) = (change.before, change.after);
        report::line(format!(
            "{}: training moves {} instead of {} and computes {} instead of {}",
            change.rule,
            bytes(after.bytes()),
            bytes(before.bytes()),
            flops(after.flops),
            flops(before.flops)
        ));
    }
    for direction in &summary.directions {
        direction.cost.iter().for_each(|cost| show_direction(direction.name, cost));
    }
    show_savings(plan);
}

fn show_graph(rows: &Rows) {
    report::line(format!(
        "for {}: {} edges of {} types, {} source and {} destination pairs, {} nodes of {} types",
        rows.name,
        rows.edges,
        rows.edge_types,
        rows.source_pairs,
        rows.destination_pairs,
        rows.sources,
        rows.node_types
    ));
}

fn show_direction(name: &str, direction: &DirectionCost) {
    section(&format!("cost, {name}"));
    report::line(format!("{:>10} {:>10} {:>10} {:>12}  kernel", "read", "written", "computed", "rows found"));
    for kernel in &direction.costs {
        let (cost, writes) = (kernel.cost, kernel.writes.join(", "));
        let schedule = kernel.schedule.as_deref().filter(|schedule| *schedule != "-");
        let schedule = schedule.map_or_else(String::new, |schedule| format!("  [{schedule}]"));
        report::line(format!("{}  {} -> {writes}{schedule}", figures(&cost), kernel.kernel));
    }
    let kept = bytes(direction.temporary_bytes);
    let count = direction.costs.len();
    report::line(format!("{}  {count} kernels, {kept} of temporaries", figures(&direction.total)));
}

fn figures(cost: &Figures) -> String {
    let (read, written) = (bytes(cost.read_bytes), bytes(cost.written_bytes));
    format!("{read:>10} {written:>10} {:>10} {:>12.0}", flops(cost.flops), cost.gathered_rows)
}

fn show_savings(plan: &Plan) {
    section("what each optimisation is worth: training without it, and with it alone");
    let head = ["moves", "computes", "keeps", "kernels"].map(|head| format!("{head:>10}")).join(" ");
    report::line(format!("{:<16} {head} | {head}", ""));
    report::line(format!("{:<16} {}", "as compiled", totals(&plan.training)));
    for saving in &plan.savings {
        let (without, alone) = (totals(&saving.without), totals(&saving.alone));
        report::line(format!("{:<16} {without} | {alone}", saving.switch));
    }
}

fn totals(totals: &Totals) -> String {
    let Totals { kernels, .. } = totals;
    let [moved, kept] = [totals.bytes, totals.saved_bytes].map(bytes);
    format!("{moved:>10} {:>10} {kept:>10} {kernels:>10}", flops(totals.flops))
}

fn bytes(count: f64) -> String {
    scaled(count, ["B", "KB", "MB", "GB", "TB"])
}

fn flops(count: f64) -> String {
    scaled(count, ["op", "Kop", "Mop", "Gop", "Top"])
}

/// Three figures and a unit.
fn scaled(mut count: f64, units: [&str; 5]) -> String {
    let mut at = 0;
    while count >= 999.5 && at + 1 < units.len() {
        count /= 1000.0;
        at += 1;
    }
    let places = if count >= 100.0 || at == 0 { 0 } else { 2 };
    format!("{count:.places$} {}", units[at])
}
