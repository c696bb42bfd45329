//! Measurements as they come, what they say beside each other, and a picture.

use anyhow::bail;
use headwater::cuda::Gpu;
use serde::Serialize;

use super::Plan;
use super::measure::{GpuFigures, Measured};
use crate::args::BenchTrainArgs;
use crate::picture::{self, Chart};
use crate::report;

/// How modes compare on one shape with one model.
#[derive(Debug, Serialize)]
pub struct Ratios {
    pub shape: String,
    pub model: String,
    /// Throughput of `tiered` as a part of `all-gpu`'s.
    pub tiered_of_all_gpu: Option<f64>,
    pub zero_copy_of_all_gpu: Option<f64>,
    pub zero_copy_over_dma: Option<f64>,
    pub zero_copy_over_naive: Option<f64>,
    pub tiered_over_zero_copy: Option<f64>,
}

/// The last line for programs.
#[derive(Debug, Serialize)]
struct Closing {
    gpu: String,
    ratios: Vec<Ratios>,
    skipped: Vec<Skipped>,
}

#[derive(Debug, Serialize)]
struct Skipped {
    what: String,
    why: String,
}

/// Shows what is measured.
pub struct View<'a> {
    args: &'a BenchTrainArgs,
    gpu: String,
    all: Vec<Measured>,
    skipped: Vec<Skipped>,
}

impl<'a> View<'a> {
    pub fn new(args: &'a BenchTrainArgs, gpu: Option<&Gpu>) -> Self {
        let gpu = gpu.map_or_else(|| "no GPU".to_owned(), |gpu| gpu.facts().name.clone());
        if !args.json {
            report::line(format!("{gpu}; fan-out {:?}, batch {}, hidden {}", args.fanout, args.batch, args.hidden));
            report::line(
                "suite shape       width model  features   hot rows   ms/batch (median)  sample  blocks  gather   train   alone   busy  link MB  cores  watts",
            );
        }
        Self { args, gpu, all: Vec::new(), skipped: Vec::new() }
    }

    pub fn add(&mut self, found: Measured) -> anyhow::Result<()> {
        if self.args.json {
            report::json(&found)?;
        } else {
            let on_gpu = found.on_gpu.as_ref();
            let shown = |value: &dyn Fn(&GpuFigures) -> Option<String>| {
                on_gpu.and_then(value).unwrap_or_else(|| "-".to_owned())
            };
            let ms = |value: &dyn Fn(&GpuFigures) -> Option<f64>| shown(&|own| value(own).map(|ms| format!("{ms:.3}")));
            report::line(format!(
                "{:<5} {:<11} {:>5} {:<6} {:<9} {:>10} {:>10.3} {:>8.3} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>8} {:>6.2} {:>6}",
                found.suite,
                found.shape,
                found.width,
                found.model,
                found.features,
                shown(&|own| Some(own.hot_rows.to_string())),
                found.batch_ms,
                found.median_ms,
                ms(&|own| Some(own.sample_ms)),
                ms(&|own| Some(own.blocks_ms)),
                ms(&|own| Some(own.gather_ms)),
                ms(&|own| Some(own.train_ms)),
                ms(&|own| own.step_alone_ms),
                shown(&|own| Some(format!("{:.0}%", 100.0 * own.busy))),
                shown(&|own| Some(format!("{:.1}", own.link_mb))),
                found.cores,
                found.watts.map_or_else(|| "-".to_owned(), |watts| format!("{watts:.0}")),
            ));
        }
        if !self.args.json {
            found.kernels.iter().for_each(|(name, ms)| report::line(format!("{ms:>9.4} ms  {name}")));
        }
        self.all.push(found);
        Ok(())
    }

    /// Notes what could not be measured.
    pub fn skip(&mut self, plan: &Plan, why: &anyhow::Error) {
        let what = format!("{} {} {} {}", plan.shape, plan.model, plan.features.name(), plan.hot_share);
        report::note(format!("{what}: {why:#}"));
        self.skipped.push(Skipped { what, why: format!("{why:#}") });
    }

    pub fn finish(self) -> anyhow::Result<()> {
        if let Some(path) = &self.args.plot {
            picture::draw(path, &charts(&self.all))?;
        }
        let nothing =
            self.skipped.first().filter(|_| self.all.is_empty()).map(|first| format!("{}: {}", first.what, first.why));
        self.close()?;
        match nothing {
            Some(why) => bail!("nothing was measured; {why}"),
            None => Ok(()),
        }
    }

    fn close(self) -> anyhow::Result<()> {
        let ratios = ratios(&self.all);
        if self.args.json {
            return report::json(&Closing { gpu: self.gpu, ratios, skipped: self.skipped });
        }
        for own in ratios {
            let shown = |name: &str, ratio: Option<f64>| ratio.map(|ratio| format!("{name} {ratio:.2}"));
            let all = [
                shown("tiered of all-gpu", own.tiered_of_all_gpu),
                shown("zero-copy of all-gpu", own.zero_copy_of_all_gpu),
                shown("zero-copy over dma", own.zero_copy_over_dma),
                shown("zero-copy over naive", own.zero_copy_over_naive),
                shown("tiered over zero-copy", own.tiered_over_zero_copy),
            ];
            let all: Vec<String> = all.into_iter().flatten().collect();
            if !all.is_empty() {
                report::line(format!("{} {}: {}", own.shape, own.model, all.join(", ")));
            }
        }
        Ok(())
    }
}

/// Throughputs beside each other, for every shape and model whose modes were measured.
fn ratios(all: &[Measured]) -> Vec<Ratios> {
    let modes: Vec<&Measured> = all.iter().filter(|own| own.suite == "modes").collect();
    let mut found: Vec<Ratios> = Vec::new();
    for own in &modes {
        if found.iter().any(|ratios| ratios.shape == own.shape && ratios.model == own.model) {
            continue;
        }
        let ms = |features: &str| {
            let same =
                |other: &&&Measured| other.shape == own.shape && other.model == own.model && other.features == features;
            modes.iter().find(same).map(|other| other.batch_ms)
        };
        let faster = |one: &str, than: &str| Some(ms(than)? / ms(one)?);
        found.push(Ratios {
            shape: own.shape.clone(),
            model: own.model.clone(),
            tiered_of_all_gpu: faster("tiered", "all-gpu"),
            zero_copy_of_all_gpu: faster("zero-copy", "all-gpu"),
            zero_copy_over_dma: faster("zero-copy", "dma"),
            zero_copy_over_naive: faster("zero-copy", "naive"),
            tiered_over_zero_copy: faster("tiered", "zero-copy"),
        });
    }
    found
}

/// A chart a suite: milliseconds a batch over what was varied.
fn charts(all: &[Measured]) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    for own in all {
        let on_gpu = own.on_gpu.as_ref();
        let hot_rows = on_gpu.map_or(0, |own| own.hot_rows);
        let (x_label, x) = match own.suite.as_str() {
            "width" => ("elements of a row", own.width as f64),
            "hot" => ("share of rows in GPU memory", hot_rows as f64 / own.nodes.max(1) as f64),
            "sms" => ("SMs that gather", f64::from(on_gpu.map_or(0, |own| own.gather_sms))),
            _ => ("all-gpu, tiered, zero-copy, naive, dma", place(&own.features)),
        };
        let line = match own.suite.as_str() {
            "width" => format!("{} {} {}", own.shape, own.model, own.features),
            _ => format!("{} {}", own.shape, own.model),
        };
        let title = format!("Training: {}", own.suite);
        let at = charts.iter().position(|chart| chart.title == title).unwrap_or_else(|| {
            let (x_label, y_label) = (x_label.to_owned(), "ms a batch".to_owned());
            charts.push(Chart { title, x_label, y_label, lines: Vec::new() });
            charts.len() - 1
        });
        let lines = &mut charts[at].lines;
        match lines.iter_mut().find(|(name, _)| *name == line) {
            Some((_, points)) => points.push((x, own.batch_ms)),
            None => lines.push((line, vec![(x, own.batch_ms)])),
        }
    }
    charts
}

fn place(features: &str) -> f64 {
    let known = ["all-gpu", "tiered", "zero-copy", "naive", "dma"];
    known.iter().position(|name| *name == features).unwrap_or(known.len()) as f64
}
