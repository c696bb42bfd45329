//! Cases as they come, and all of them as bars.

use anyhow::bail;

use super::case::Case;
use super::figures::{Figures, KernelFigures};
use crate::args::BenchLayerArgs;
use crate::picture::{self, Bars};
use crate::report;

/// Shows what is measured.
pub struct View<'a> {
    args: &'a BenchLayerArgs,
    bars: Vec<(String, f64)>,
    /// The first that could not be measured, and why.
    skipped: Option<String>,
}

impl<'a> View<'a> {
    pub fn new(args: &'a BenchLayerArgs) -> Self {
        Self { args, bars: Vec::new(), skipped: None }
    }

    pub fn add(&mut self, found: &Figures) -> anyhow::Result<()> {
        if self.args.json {
            report::json(found)?;
        } else {
            show(found);
        }
        self.bars.push((found.case.words(), found.total_ms));
        Ok(())
    }

    /// Notes what could not be measured.
    pub fn skip(&mut self, case: &Case, why: &anyhow::Error) {
        let said = format!("{}: {why:#}", case.words());
        report::note(&said);
        self.skipped.get_or_insert(said);
    }

    pub fn finish(self) -> anyhow::Result<()> {
        if self.bars.is_empty() {
            bail!("nothing was measured; {}", self.skipped.unwrap_or_default());
        }
        let Some(path) = &self.args.plot else { return Ok(()) };
        picture::draw_bars(path, &Bars { title: "Layers".into(), unit: "ms".into(), bars: self.bars })
    }
}

fn show(found: &Figures) {
    let mb = |bytes: f64| bytes / 1e6;
    let who = match (&found.machine.gpu_name, found.machine.threads) {
        (Some(name), _) => name.clone(),
        (None, threads) => format!("{} CPU threads", threads.unwrap_or(1)),
    };
    report::line(format!(
        "{}: {} nodes of {} types, {} edges of {}; {who}, copies at {:.0} GB/s",
        found.case.words(),
        found.nodes,
        found.node_types,
        found.edges,
        found.edge_types,
        found.machine.copy_gb_per_s
    ));
    report::line(format!(
        "  {:.4} ms (spread {:.0}%), {} launches, peak {:.1} MB; moves {:.1} MB at {:.0} GB/s, computes at {:.3} TFLOP/s",
        found.total_ms,
        100.0 * found.spread,
        found.launches,
        mb(found.peak_bytes as f64),
        mb(found.moved_bytes),
        found.moved_gb_per_s,
        found.tflop_per_s
    ));
    report::line(format!(
        "  compulsory {:.1} MB: {:.4} ms, {:.1}% reached; one gather {:.1} MB: {:.4} ms, {:.1}% reached",
        mb(found.compulsory_bytes as f64),
        found.compulsory_ms,
        100.0 * found.of_compulsory,
        mb(found.gather_bytes as f64),
        found.gather_ms,
        100.0 * found.of_gather
    ));
    found.kernels.iter().for_each(show_kernel);
}

fn show_kernel(found: &KernelFigures) {
    report::line(format!(
        "  {:>9.4} ms {:>9.1} MB {:>7.0} GB/s {:>8.3} TFLOP/s  {} {}",
        found.ms,
        found.bytes / 1e6,
        found.gb_per_s,
        found.tflop_per_s,
        found.pass,
        found.kernel
    ));
    for launch in found.launches.iter().filter(|_| found.launches.len() > 1) {
        report::line(format!("  {:>9.4} ms {:>46}  {}", launch.ms, "", launch.what));
    }
}
