//! Cases as they come, and all of them as bars.

use anyhow::bail;
use clap::ValueEnum;

use super::figures::{Figures, KernelFigures};
use super::page::{self, page};
use super::peers::Peer;
use super::record::Outcome;
use super::{optimisations_of, suite};
use crate::args::{BenchLayerArgs, LayerSuite};
use crate::picture::{self, Bar, Bars};
use crate::report;

/// Shows what is measured.
pub struct View<'a> {
    args: &'a BenchLayerArgs,
    peers: Vec<Peer>,
    outcomes: Vec<Outcome>,
}

/// A suite as it is typed.
pub fn name(suite: LayerSuite) -> String {
    suite.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl<'a> View<'a> {
    /// One that has shown nothing.
    pub fn new(args: &'a BenchLayerArgs, peers: Vec<Peer>) -> Self {
        Self { args, peers, outcomes: Vec::new() }
    }

    /// Prints a row for a case, and keeps it for tables.
    pub fn add(&mut self, outcome: Outcome) -> anyhow::Result<()> {
        match (outcome.figures(), outcome.failure()) {
            _ if self.args.json => report::json(&outcome)?,
            (_, Some(why)) if self.args.suite.is_some() => {
                report::line(format!("{}: failed: {why}", outcome.case.words()));
            }
            (_, Some(why)) => report::note(format!("{}: {why}", outcome.case.words())),
            (Some(found), None) if self.args.suite.is_some() => show_briefly(&outcome, found),
            (Some(found), None) => show(&outcome, found),
            (None, None) => {}
        }
        self.outcomes.push(outcome);
        Ok(())
    }

    /// Shows what can be said when all cases are known: the tables of a suite, and a picture.
    pub fn finish(self) -> anyhow::Result<()> {
        let Some(first) = self.outcomes.iter().find(|outcome| outcome.figures().is_some()) else {
            let why = self.outcomes.first().and_then(|own| Some(format!("{}: {}", own.case.words(), own.failure()?)));
            bail!("nothing was measured; {}", why.unwrap_or_else(|| "there are no such cases".to_owned()));
        };
        let bars = match self.args.suite {
            Some(suite) => {
                let (grid, plans) = (suite::grid(suite), suite::plans(optimisations_of(first)));
                let found = page::Found { grid, plans, outcomes: &self.outcomes, peers: &self.peers };
                let page = page(suite, &found);
                if !self.args.json {
                    report::line(format!("\n# bench layer --suite {}\n\n{}", name(suite), page::setting(first)));
                    page.tables.iter().for_each(|table| report::line(format!("\n{table}").trim_end()));
                    self.failures();
                }
                page.bars
            }
            None => {
                let measured = self.outcomes.iter().filter_map(|own| Some((own.case.words(), own.figures()?.total_ms)));
                let bar = |(name, ms)| Bar { name, lengths: vec![ms], figure: format!("{ms:.4} ms") };
                Bars { title: "Layers".to_owned(), parts: Vec::new(), bars: measured.map(bar).collect() }
            }
        };
        self.args.plot.as_ref().map_or(Ok(()), |path| picture::draw_bars(path, &bars))
    }

    /// Lists what did not run, below the tables.
    fn failures(&self) {
        let failed = self.outcomes.iter().filter_map(|own| Some((own.case.words(), own.failure()?)));
        for (at, (words, why)) in failed.enumerate() {
            report::line(format!("{}- {words}: {why}", if at == 0 { "\nNot measured:\n\n" } else { "" }));
        }
    }
}

/// A line of a suite.
fn show_briefly(outcome: &Outcome, found: &Figures) {
    let same = found.same_kernels_as.as_deref().map(|without| format!(", the kernels of {}", suite::label(without)));
    report::line(format!(
        "{}: {:.4} ms (spread {:.0}%), {} launches, peak {:.1} MB, moves {:.0} GB/s{}",
        outcome.case.words(),
        found.total_ms,
        100.0 * found.spread,
        found.launches,
        found.peak_bytes as f64 / 1e6,
        found.moved_gb_per_s,
        same.unwrap_or_default()
    ));
}

/// A case with its kernels.
fn show(outcome: &Outcome, found: &Figures) {
    let mb = |bytes: f64| bytes / 1e6;
    let machine = &outcome.setting.machine;
    let who = match (&machine.gpu_name, machine.threads) {
        (Some(name), _) => name.clone(),
        (None, threads) => format!("{} CPU threads", threads.unwrap_or(1)),
    };
    report::line(format!(
        "{}: {} nodes of {} types, {} edges of {}; {who}, copies at {:.0} GB/s",
        outcome.case.words(),
        found.nodes,
        found.node_types,
        found.edges,
        found.edge_types,
        machine.copy_gb_per_s
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
