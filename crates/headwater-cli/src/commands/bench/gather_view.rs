//! How `bench gather` shows its figures: a table or JSON lines as they come, and a picture at the end.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::args::GatherArgs;
use crate::picture::{Chart, draw};
use crate::report;

/// One figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The part of the benchmark.
    pub suite: String,
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Bytes a row.
    pub width_bytes: u64,
    /// Rows gathered.
    pub rows: u64,
    /// How many of them are different rows.
    #[serde(default)]
    pub distinct_rows: Option<u64>,
    /// How they were gathered.
    pub variant: String,
    /// What `auto` chose; the variant itself otherwise.
    pub chosen: String,
    /// Median bandwidth of the gathered bytes.
    pub gb_per_s: f64,
    /// A plain copy of as many bytes from pinned memory.
    pub ideal_gb_per_s: Option<f64>,
    /// The first over the second.
    pub share_of_ideal: Option<f64>,
    /// Spread of the repeats: (slowest - fastest) over the median time.
    pub spread: f64,
    /// Repeats.
    pub repeats: usize,
    /// CPU time a gather.
    pub cpu_seconds: f64,
    /// CPU cores busy while gathering.
    pub cpu_cores: f64,
    /// GPU energy a gather, where NVML counts it.
    pub joules: Option<f64>,
    /// SMs the gather was allowed.
    pub sms: Option<u32>,
}

/// Collects rows and shows them.
pub struct View {
    json: bool,
    plot: Option<PathBuf>,
    rows: Vec<Row>,
    last: Option<(String, u64)>,
}

impl View {
    /// As the arguments want it.
    pub fn new(args: &GatherArgs) -> Self {
        Self { json: args.json, plot: args.plot.clone(), rows: Vec::new(), last: None }
    }

    /// Shows figures, most usefully every variant of one step.
    pub fn rows(&mut self, rows: Vec<Row>) -> anyhow::Result<()> {
        for row in &rows {
            if self.json {
                report::json(row)?;
            } else {
                self.header(row);
                report::line(text_row(row));
            }
        }
        self.rows.extend(rows);
        Ok(())
    }

    /// Shows what an earlier run printed as JSON lines.
    pub fn stored(&mut self, path: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let row = serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), at + 1))?;
            self.rows(vec![row])?;
        }
        Ok(())
    }

    /// Draws the picture, when one was asked for.
    pub fn finish(self) -> anyhow::Result<()> {
        let Some(path) = self.plot else { return Ok(()) };
        draw(&path, &charts(&self.rows))?;
        report::note(format!("wrote {}", path.display()));
        Ok(())
    }

    fn header(&mut self, row: &Row) {
        let part = Some((row.suite.clone(), row.table_bytes));
        if self.last == part {
            return;
        }
        self.last = part;
        report::line(format!("\n{}: table of {:.2} GiB", row.suite, row.table_bytes as f64 / (1u64 << 30) as f64));
        report::line("  width B      rows  SMs  variant  (chosen)    GB/s  ideal  share  spread  CPU cores  joules");
    }
}

fn text_row(row: &Row) -> String {
    let number = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    let sms = row.sms.map_or("all".into(), |sms| sms.to_string());
    let chosen = if row.chosen == row.variant { String::new() } else { format!("({})", row.chosen) };
    format!(
        "  {:>7} {:>9} {:>4}  {:<8} {:<10} {:>6.2} {:>6} {:>6} {:>6.0}% {:>10.3} {:>7}",
        row.width_bytes,
        row.rows,
        sms,
        row.variant,
        chosen,
        row.gb_per_s,
        number(row.ideal_gb_per_s, 1),
        number(row.share_of_ideal, 3),
        row.spread * 100.0,
        row.cpu_cores,
        number(row.joules, 2),
    )
}

/// One chart a suite and table size; the `sms` suite is drawn over SMs, the others over width.
fn charts(rows: &[Row]) -> Vec<Chart> {
    let mut keys: Vec<(&str, u64, u64)> = Vec::new();
    for key in rows.iter().map(chart_key) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.into_iter().map(|key| chart(rows, key)).collect()
}

/// Suites that vary the table's rows with the width share one chart; the SM sweep has one a width.
fn chart_key(row: &Row) -> (&str, u64, u64) {
    match row.suite.as_str() {
        "table" => ("table", row.table_bytes, 0),
        "sms" => ("sms", row.table_bytes, row.width_bytes),
        "micro" => ("micro", 0, row.rows),
        suite => (suite, 0, 0),
    }
}

fn chart(rows: &[Row], key: (&str, u64, u64)) -> Chart {
    let members: Vec<&Row> = rows.iter().filter(|row| chart_key(row) == key).collect();
    let by_sms = key.0 == "sms";
    let x = |row: &Row| if by_sms { f64::from(row.sms.unwrap_or(0)) } else { row.width_bytes as f64 };
    let mut names: Vec<&str> = Vec::new();
    for row in &members {
        if !names.contains(&row.variant.as_str()) {
            names.push(&row.variant);
        }
    }
    let line = |name: &str| {
        let mut points: Vec<(f64, f64)> =
            members.iter().filter(|row| row.variant == name).map(|row| (x(row), row.gb_per_s)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = names.iter().map(|name| ((*name).into(), line(name))).collect();
    let mut ideal: Vec<(f64, f64)> =
        members.iter().filter_map(|row| row.ideal_gb_per_s.map(|ideal| (x(row), ideal))).collect();
    ideal.sort_by(|a, b| a.0.total_cmp(&b.0));
    ideal.dedup_by(|a, b| a.0 == b.0);
    if !ideal.is_empty() {
        lines.push(("plain copy".into(), ideal));
    }
    let table = members.first().map_or(0.0, |row| row.table_bytes as f64 / (1u64 << 30) as f64);
    let title = match key.0 {
        "micro" => format!("{} rows out of 4M rows", key.2),
        "sms" => format!("share of the GPU, {} B rows out of {table:.0} GiB", key.2),
        _ => format!("rows out of {table:.0} GiB of host memory"),
    };
    Chart { title, x_label: if by_sms { "SMs" } else { "bytes a row" }.into(), y_label: "GB/s".into(), lines }
}
