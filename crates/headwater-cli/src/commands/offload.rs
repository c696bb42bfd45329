//! `headwater offload plan`: what a transformer saves, how much of it should leave the GPU, and what that costs.

use anyhow::ensure;
use headwater::cuda::{Bandwidths, Gpu};
use headwater::offload::model::{Transformer, years_until_worn_out};
use headwater::offload::plan::{
    Destination, LinkRates, OffloadPlan, OffloadRoom, PauseForm, PlanLimit, forecast, pause_point, plan,
};
use serde::Serialize;

use crate::args::OffloadPlanArgs;
use crate::picture::{self, Chart};
use crate::report;

const GB: f64 = 1e9;
/// Copies each way that are under way at once.
const WINDOW_BYTES: u64 = 256 << 20;

#[derive(Serialize)]
struct Everything {
    model: Transformer,
    rates: LinkRates,
    room: OffloadRoom,
    slack: f64,
    /// Whether the link's rates were measured here.
    is_link_measured: bool,
    saved_bytes: u64,
    /// Bytes a second that would have to leave so that nothing waits.
    needed_bytes_per_s: f64,
    step_s: f64,
    plan: OffloadPlan,
    /// Bytes that go to host memory, to disk, and nowhere.
    to_host_bytes: u64,
    to_disk_bytes: u64,
    kept_bytes: u64,
    /// Half layers after which SSDTrain's authors would stop, by their text and by their program, with the slower of link and disk.
    pause_point: [usize; 2],
    disk_years: Option<f64>,
    curves: Vec<Point>,
}

/// A micro-batch, done in one of three ways.
#[derive(Serialize)]
struct Point {
    batch: u64,
    way: &'static str,
    peak_bytes: u64,
    model_flops_per_s: f64,
}

/// Shows it.
pub fn plan_transformer(args: &OffloadPlanArgs) -> anyhow::Result<()> {
    check(args)?;
    if let Some(path) = &args.plot {
        picture::format_of(path)?;
    }
    let everything = computed(args);
    if let Some(path) = &args.plot {
        picture::draw(path, &[chart(&everything)])?;
    }
    if args.json {
        return report::json(&everything);
    }
    show(&everything);
    Ok(())
}

fn check(args: &OffloadPlanArgs) -> anyhow::Result<()> {
    for (name, value) in [("hidden", args.hidden), ("layers", args.layers), ("sequence", args.sequence)] {
        ensure!((1..=1 << 24).contains(&value), "--{name} is {value}; it should be from 1 to {}", 1u64 << 24);
    }
    ensure!(!args.batches.is_empty(), "--batches names none");
    for batch in args.batches.iter().chain([&args.batch]) {
        ensure!((1..=1 << 20).contains(batch), "a batch of {batch} sequences; it should have from 1 to {}", 1u64 << 20);
    }
    ensure!(
        args.vocabulary <= 1 << 24 && args.heads.is_none_or(|heads| (1..=1 << 16).contains(&heads)),
        "more heads or words than any model has, or none"
    );
    let rates =
        [("tflops", Some(args.tflops), 1e-6), ("link", args.link, 1e-6), ("disk-write", Some(args.disk_write), 0.0)];
    let rooms =
        [("host-gb", Some(args.host_gb), 0.0), ("disk-gb", Some(args.disk_gb), 0.0), ("gpu-gb", args.gpu_gb, 0.0)];
    let others =
        [("disk-read", args.disk_read, 0.0), ("endurance", args.endurance, 0.0), ("slack", Some(args.slack), 0.0)];
    for (name, value, least) in rates.into_iter().chain(rooms).chain(others) {
        if let Some(value) = value {
            ensure!((least..=1e9).contains(&value), "--{name} is {value}; it should be from {least} to 1e9");
        }
    }
    Ok(())
}

fn computed(args: &OffloadPlanArgs) -> Everything {
    let model = model(args, args.batch, args.checkpoint);
    let (rates, is_link_measured) = rates(args);
    let room = OffloadRoom {
        host_bytes: bytes(args.host_gb),
        disk_bytes: bytes(args.disk_gb),
        gpu_bytes: args.gpu_gb.map(bytes),
        window_bytes: WINDOW_BYTES,
    };
    let trace = model.trace();
    let made = plan(&trace, &rates, &room, args.slack);
    let sum = |wanted: Destination| {
        let goes = made.goes.iter().zip(&trace.blocks).filter(|(goes, _)| **goes == wanted);
        goes.map(|(_, block)| block.bytes).sum::<u64>()
    };
    let narrow = if rates.write > 0.0 { rates.write.min(rates.down) } else { rates.down };
    let half = |bytes| (bytes, model.layer_flops() / model.flops / 2.0);
    let modules: Vec<(u64, f64)> = trace.blocks.iter().map(|block| half(block.bytes)).collect();
    let written = made.forecast.written_bytes;
    let disk_years = args.endurance.filter(|_| written > 0);
    Everything {
        model,
        rates,
        room,
        slack: args.slack,
        is_link_measured,
        saved_bytes: model.saved_bytes(),
        needed_bytes_per_s: model.needed_bytes_per_s(),
        step_s: trace.step_s,
        to_host_bytes: sum(Destination::Host),
        to_disk_bytes: sum(Destination::Disk),
        kept_bytes: sum(Destination::Nowhere),
        pause_point: [PauseForm::Text, PauseForm::Code].map(|form| pause_point(&modules, narrow, form)),
        disk_years: disk_years.map(|pb| years_until_worn_out(pb * 1e15, written, made.forecast.step_s)),
        curves: curves(args, &rates, &room),
        plan: made,
    }
}

fn model(args: &OffloadPlanArgs, batch: u64, is_checkpointed: bool) -> Transformer {
    Transformer {
        hidden: args.hidden,
        layers: args.layers,
        heads: args.heads.unwrap_or((args.hidden / 128).max(1)),
        sequence: args.sequence,
        batch,
        vocabulary: args.vocabulary,
        is_causal: !args.bidirectional,
        is_checkpointed,
        flops: args.tflops * 1e12,
    }
}

/// Rates, and whether those of the link were measured on this machine's GPU.
fn rates(args: &OffloadPlanArgs) -> (LinkRates, bool) {
    const ASSUMED: f64 = 50.0;
    let measured = || Bandwidths::of(&Gpu::open(0).ok()?).ok();
    let (down, up, is_measured) = match (args.link, if args.link.is_none() { measured() } else { None }) {
        (Some(link), _) => (link, link, false),
        (None, Some(found)) => (found.device_to_host_gb_per_s, found.host_to_device_gb_per_s, true),
        (None, None) => (ASSUMED, ASSUMED, false),
    };
    let read = args.disk_read.unwrap_or(args.disk_write);
    (LinkRates { down: down * GB, up: up * GB, write: args.disk_write * GB, read: read * GB }, is_measured)
}

/// Each micro-batch kept, offloaded and computed again.
fn curves(args: &OffloadPlanArgs, rates: &LinkRates, room: &OffloadRoom) -> Vec<Point> {
    let mut points = Vec::new();
    for batch in &args.batches {
        for (way, is_checkpointed, leaves) in
            [("keep", false, false), ("offload", args.checkpoint, true), ("recompute", true, false)]
        {
            let model = model(args, *batch, is_checkpointed);
            let trace = model.trace();
            let nowhere = vec![Destination::Nowhere; trace.blocks.len()];
            let found = match leaves {
                true => plan(&trace, rates, room, args.slack).forecast,
                false => forecast(&trace, &nowhere, rates, room),
            };
            // While a layer is computed again, all that it saves is there.
            let again = if is_checkpointed { self::model(args, *batch, false).layer_bytes().iter().sum() } else { 0 };
            let peak_bytes = found.peak_bytes + again + model.other_bytes();
            points.push(Point {
                batch: *batch,
                way,
                peak_bytes,
                model_flops_per_s: model.model_flops() / found.step_s,
            });
        }
    }
    points
}

fn show(all: &Everything) {
    let Everything { model, plan, rates, .. } = all;
    let saved = gb(all.to_host_bytes + all.to_disk_bytes + all.kept_bytes);
    report::line(format!(
        "saved        {saved:.2} GB by {} layers, {:.2} GB beside them; a step takes {:.1} ms",
        model.layers,
        gb(model.other_bytes()),
        1e3 * all.step_s
    ));
    let source = if all.is_link_measured { "measured here" } else { "not measured" };
    report::line(format!(
        "rate         {:.1} GB/s would have to leave for nothing to wait; the link has {:.1} ({source}), disks {:.1}",
        all.needed_bytes_per_s / GB,
        rates.down / GB,
        rates.write / GB
    ));
    report::line(format!(
        "plan         {:.2} GB to host memory, {:.2} GB to disk, {:.2} GB stay: {}",
        gb(all.to_host_bytes),
        gb(all.to_disk_bytes),
        gb(all.kept_bytes),
        reason(plan.limit)
    ));
    let (peak, kept) = (gb(plan.forecast.peak_bytes), gb(plan.kept.peak_bytes));
    report::line(format!(
        "forecast     peak {peak:.2} GB instead of {kept:.2} ({:.0} % less), {:.1} ms of waiting ({:.1} % of the step)",
        100.0 * (1.0 - peak / kept.max(f64::MIN_POSITIVE)),
        1e3 * plan.forecast.stall_s,
        100.0 * plan.forecast.stall_s / all.step_s
    ));
    let [text, code] = all.pause_point;
    report::line(format!(
        "SSDTrain     would keep from half layer {text} of {} on by its text, from {code} on by its program",
        plan.goes.len()
    ));
    if let Some(years) = all.disk_years {
        report::line(format!("disks        last {years:.2} years of such steps"));
    }
    report::line("batch  way        peak GB  TFLOP/s of the model");
    for point in &all.curves {
        report::line(format!(
            "{:>5}  {:<9} {:>8.2} {:>8.1}",
            point.batch,
            point.way,
            gb(point.peak_bytes),
            point.model_flops_per_s / 1e12
        ));
    }
}

fn reason(limit: PlanLimit) -> &'static str {
    match limit {
        PlanLimit::Nothing => "all leaves",
        PlanLimit::Time => "more would be late",
        PlanLimit::Peak => "more would not have left by the time of the peak",
        PlanLimit::Space => "there is no room for more",
        PlanLimit::Enough => "that is little enough",
        PlanLimit::Rate => "so little would leave in time that all is kept",
    }
}

fn chart(all: &Everything) -> Chart {
    let line = |way: &str| {
        let points = all.curves.iter().filter(|point| point.way == way);
        (way.to_owned(), points.map(|point| (gb(point.peak_bytes), point.model_flops_per_s / 1e12)).collect())
    };
    Chart {
        title: format!(
            "hidden {}, {} layers, {} tokens: one point a micro-batch",
            all.model.hidden, all.model.layers, all.model.sequence
        ),
        x_label: "GB of activations at most".to_owned(),
        y_label: "TFLOP/s of the model".to_owned(),
        lines: ["keep", "offload", "recompute"].map(line).into(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown to people")]
fn gb(bytes: u64) -> f64 {
    bytes as f64 / GB
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be from 0 to 1e9 GB")]
fn bytes(gb: f64) -> u64 {
    (gb * GB) as u64
}
