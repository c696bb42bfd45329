//! The figures in words and as a picture.

use clap::ValueEnum;
use indicatif::{HumanBytes, HumanCount};

use super::Summary;
use super::disk::Fetched;
use super::figures::Case;
use super::scores::SHARES;
use super::timing::Timed;
use crate::args::{ColdOrder, stored_name};
use crate::picture::Chart;
use crate::report;

/// Prints them.
pub fn show(summary: &Summary) -> anyhow::Result<()> {
    show_about(summary);
    show_baselines(summary);
    show_cases(summary);
    show_claims(summary);
    show_scores(summary);
    show_disk(summary);
    Ok(())
}

fn show_about(summary: &Summary) {
    let about = &summary.about;
    let fanout: Vec<String> = about.fanout.iter().map(ToString::to_string).collect();
    report::line(format!(
        "{}: {} rows of {} bytes as {}, {}; order by {}",
        about.dataset,
        HumanCount(about.rows),
        about.row_bytes,
        stored_name(about.file_type),
        HumanBytes(about.rows.saturating_mul(about.row_bytes)),
        about.score.name()
    ));
    report::line(format!("table    {}", about.table));
    report::line(format!(
        "batches  {} of {} seeds, fan-out ({}), {} rows each, drawn by {}",
        about.batches,
        about.batch,
        fanout.join(", "),
        in_count(about.rows_per_batch),
        about.drawn_by
    ));
    let gpu = about.gpu.as_deref().unwrap_or("none: rows are gathered in host memory");
    let caches = about.caches.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    report::line(format!(
        "GPU      {gpu}, {caches} caches; {} CPU threads; {} rounds\n",
        about.cpu_threads, about.rounds
    ));
}

fn show_baselines(summary: &Summary) {
    let baselines = &summary.gathers.baselines;
    report::line(format!("{:<28} {:>10} {:>8} {:>9}", "without tiers", "ms", "spread", "GB/s"));
    let line = |name: &str, timed: Option<Timed>| {
        if let Some(timed) = timed {
            report::line(format!("{name:<28} {}", in_columns(Some(timed))));
        }
    };
    line("cpu", baselines.cpu);
    line("zero-copy", baselines.zero_copy);
    if let Some(hbm) = baselines.hbm {
        let what = if hbm.is_whole { "plain, all in GPU memory" } else { "plain, hottest in GPU memory" };
        line(what, Some(hbm.timed));
    }
}

fn show_cases(summary: &Summary) {
    report::line(format!(
        "\n{:>6} {:<8} {:>6} {:>8} {:>10} {:>10} {:>7} {:>10} {:>8} {:>9} {:>7}",
        "stored", "order", "hot", "hit rate", "over link", "predicted", "off", "ms", "spread", "GB/s", "bound"
    ));
    for case in &summary.gathers.cases {
        let bound = case.bound.map_or("-".to_owned(), |bound| format!("{:.3}x", bound.ratio));
        report::line(format!(
            "{:>6} {:<8} {:>5}% {:>7.2}% {:>10} {:>10} {:>6.2}% {} {bound:>7}",
            stored_name(case.stored),
            order(case.order),
            case.share_percent,
            100.0 * case.hit_rate,
            in_bytes(case.host_link_bytes),
            in_bytes(case.predicted_host_link_bytes),
            case.off_by_percent,
            in_columns(case.timed),
        ));
    }
    for skipped in &summary.gathers.skipped {
        report::line(format!("left out {}: {}", skipped.what, skipped.why));
    }
    report::line("all a batch; bound: time over (cold rows gathered alone + hot rows at the plain rate of GPU memory)");
}

fn show_claims(summary: &Summary) {
    let claims = &summary.claims;
    report::line(format!("\nforecast traffic is off by at most {:.2}%", claims.most_off_by_percent));
    let line = |what: &str, ratio: Option<f64>| {
        if let Some(ratio) = ratio {
            report::line(format!("{what} {ratio:.3}"));
        }
    };
    line("10% hot: time over its bound", claims.over_bound_at_10);
    line("10% hot: random over hotness order", claims.random_over_hotness_at_10);
    line("all in GPU memory: time over the plain gather", claims.all_in_gpu_over_hbm);
    line("int8: bytes over the link, of the file's type", claims.int8_bytes_of_file_type);
}

fn show_scores(summary: &Summary) {
    let found = &summary.hit_rates;
    let head = SHARES.map(|share| format!("{share:>7}% {:>8}", "to best")).join(" ");
    report::line(format!("\n{:<20} {head} {:>10}", "hit rates", "scored in"));
    for entry in &found.scores {
        let column =
            |at: usize| format!("{:>7.2}% {:>8.2}", 100.0 * entry.hit_rate[at], 100.0 * entry.below_oracle[at]);
        let columns: [String; 3] = std::array::from_fn(column);
        let ms = format!("{:.0} ms", 1e3 * entry.seconds);
        report::line(format!("{:<20} {} {ms:>10}", entry.score.name(), columns.join(" ")));
    }
    let best = found.oracle.map(|rate| format!("{:>7.2}% {:>8}", 100.0 * rate, "")).join(" ");
    report::line(format!("{:<20} {best}", "their own counts"));
}

fn show_disk(summary: &Summary) {
    let Some(disk) = &summary.disk else { return };
    let how = if disk.is_direct { "past the page cache" } else { "through the page cache" };
    report::line(format!(
        "\ndisk     {}, {how}, {} engine, {} in flight; cache of {} ({:.1}% of the rows)",
        disk.file,
        disk.engine,
        disk.depth,
        HumanBytes(disk.cache_bytes),
        100.0 * disk.cache_share
    ));
    let head = ["batches", "ms", "rows GB/s", "hit rate", "waiting", "reads", "disk GB/s", "of raw"];
    report::line(format!("{:<12} {}", "", head.map(|name| format!("{name:>10}")).join(" ")));
    show_fetched("plain", &disk.plain, disk.plain_of_raw);
    show_fetched("prefetching", &disk.prefetching, disk.prefetching_of_raw);
    if let Some(raw) = disk.raw {
        let empty = [""; 5].map(|name| format!("{name:>10}")).join(" ");
        report::line(format!("{:<12} {empty} {:>10} {:>10.3}", "raw", raw.reads, raw.gb_per_s()));
    }
}

fn show_fetched(name: &str, fetched: &Fetched, of_raw: Option<f64>) {
    report::line(format!(
        "{name:<12} {:>10} {:>10.2} {:>10.3} {:>9.2}% {:>9.0}% {:>10} {:>10.3} {:>10}",
        fetched.batches,
        fetched.ms_per_batch,
        fetched.gb_per_s,
        100.0 * fetched.hit_rate,
        100.0 * fetched.waiting_share,
        fetched.reads,
        fetched.disk_gb_per_s,
        of_raw.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
    ));
}

/// Time a batch against the share in GPU memory; what has no share is a level line.
pub fn chart(summary: &Summary) -> Chart {
    let (about, gathers) = (&summary.about, &summary.gathers);
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for case in &gathers.cases {
        let name = format!("{}, {} order", stored_name(case.stored), order(case.order));
        let Some(point) = point(case) else { continue };
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    let baselines = &gathers.baselines;
    let all_in_gpu = gathers.hotness(about.file_type).find(|case| case.share_percent == 100.0);
    let levels = [
        ("cpu", baselines.cpu),
        ("zero-copy", baselines.zero_copy),
        ("all in GPU memory", all_in_gpu.and_then(|case| case.timed)),
    ];
    for (name, timed) in levels {
        let level = |timed: Timed| vec![(0.0, timed.ms_per_batch), (100.0, timed.ms_per_batch)];
        lines.extend(timed.map(|timed| (name.to_owned(), level(timed))));
    }
    Chart {
        title: format!("{}: rows of a batch with the hottest in GPU memory", about.dataset),
        x_label: "part of the rows in GPU memory, percent".to_owned(),
        y_label: "ms a batch".to_owned(),
        lines,
    }
}

fn point(case: &Case) -> Option<(f64, f64)> {
    case.timed.map(|timed| (case.share_percent, timed.ms_per_batch))
}

fn in_columns(timed: Option<Timed>) -> String {
    match timed {
        Some(timed) => {
            format!("{:>10.3} {:>7.0}% {:>9.2}", timed.ms_per_batch, 100.0 * timed.spread, timed.gb_per_s)
        }
        None => format!("{:>10} {:>8} {:>9}", "-", "-", "-"),
    }
}

fn order(order: ColdOrder) -> &'static str {
    match order {
        ColdOrder::Hotness => "hotness",
        ColdOrder::Random => "random",
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes to be shown")]
fn in_bytes(bytes: f64) -> String {
    HumanBytes(bytes as u64).to_string()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of rows to be shown")]
fn in_count(rows: f64) -> String {
    HumanCount(rows as u64).to_string()
}
