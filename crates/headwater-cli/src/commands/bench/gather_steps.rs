//! Which gathers `bench gather` runs: sizes only, decided before anything is allocated.

use anyhow::{bail, ensure};
use headwater::cuda::Gpu;
use headwater::memory::host_bytes_available;
use headwater::tensor::gather::Variant;

use crate::args::{GatherArgs, Suite};

const GIB: f64 = (1u64 << 30) as f64;
const MICRO_TABLE_ROWS: u64 = 4 << 20;
const TABLE_WIDTHS: [u64; 11] = [128, 256, 400, 512, 1024, 1028, 2048, 2052, 2408, 4096, 16384];
const SM_COUNTS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 132];

/// One table size, one width, one number of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The suite it belongs to.
    pub suite: &'static str,
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Bytes a row.
    pub width_bytes: u64,
    /// Rows gathered.
    pub rows: u64,
    /// A cap on SMs, `None` for the whole GPU.
    pub sms: Option<u32>,
}

/// Everything that was asked for, grouped by table size so that each table is made once.
pub fn steps(args: &GatherArgs, gpu: Option<&Gpu>) -> anyhow::Result<Vec<Step>> {
    if args.width.contains(&0) {
        bail!("--width 0: a row has at least one byte");
    }
    let room_bytes = host_bytes_available() as u64 / 10 * 8;
    let (most, gathered) = (room_bytes >> 20, args.gathered_mib.unwrap_or(1));
    ensure!((1..=most).contains(&gathered), "--gathered-mib is {gathered}; expected 1 to {most}, which fit in memory");
    let mut steps = Vec::new();
    for suite in &args.suite {
        steps.extend(match suite {
            Suite::Micro => micro(),
            Suite::Alignment => alignment(),
            Suite::Table => table(args, room_bytes, gpu),
            Suite::Sms => sms(args, room_bytes, gpu),
        });
    }
    if !args.width.is_empty() {
        steps.retain(|step| args.width.contains(&step.width_bytes));
    }
    for step in steps.iter_mut().filter(|step| step.sms.is_none()) {
        step.sms = args.sms;
    }
    if let Some(Step { table_bytes, width_bytes, .. }) = steps.iter().find(|step| step.width_bytes > step.table_bytes) {
        bail!(
            "--width is {width_bytes}; expected at most the {table_bytes} bytes of the table, which --table-gib says"
        );
    }
    steps.retain(|step| {
        let fits = step.table_bytes <= room_bytes;
        if !fits {
            crate::report::note(format!(
                "leaving out a table of {:.1} GiB: {:.1} GiB of host memory are available",
                step.table_bytes as f64 / GIB,
                room_bytes as f64 / GIB
            ));
        }
        fits
    });
    if steps.is_empty() {
        bail!(
            "nothing to run: no step of --suite has a --width that was asked for, or no --table-gib fits in host memory"
        );
    }
    // The largest table first: smaller ones are its beginning.
    steps.sort_by_key(|step| std::cmp::Reverse(step.table_bytes));
    Ok(steps)
}

/// Refuses what only a GPU can run.
pub fn check_without_gpu(args: &GatherArgs) -> anyhow::Result<()> {
    let other = args.variant.iter().find(|variant| **variant != Variant::Cpu);
    ensure!(other.is_none(), "--variant {}: without a GPU only cpu can run", other.map_or("", |other| other.name()));
    ensure!(!args.suite.contains(&Suite::Sms), "--suite sms: without a GPU there are no SMs to share");
    Ok(())
}

/// The variants asked for, all by default.
pub fn variants(args: &GatherArgs) -> Vec<Variant> {
    if args.variant.is_empty() { Variant::ALL.to_vec() } else { args.variant.clone() }
}

fn micro() -> Vec<Step> {
    let rows = [8u64, 16, 32, 64, 128, 256].map(|thousands| thousands << 10);
    let widths = [256u64, 512, 1024, 2048, 4096, 8192, 16384];
    widths
        .iter()
        .flat_map(|width| rows.iter().map(move |rows| (*width, *rows)))
        .map(|(width_bytes, rows)| Step {
            suite: "micro",
            table_bytes: MICRO_TABLE_ROWS * width_bytes,
            width_bytes,
            rows,
            sms: None,
        })
        .collect()
}

fn alignment() -> Vec<Step> {
    let step = |width_bytes| Step {
        suite: "alignment",
        table_bytes: MICRO_TABLE_ROWS * width_bytes,
        width_bytes,
        rows: 128 << 10,
        sms: None,
    };
    (2048..=2076).step_by(4).map(step).collect()
}

fn table(args: &GatherArgs, room_bytes: u64, gpu: Option<&Gpu>) -> Vec<Step> {
    let widths = if args.width.is_empty() { TABLE_WIDTHS.to_vec() } else { args.width.clone() };
    let sizes = table_sizes(args, room_bytes, gpu);
    let gathered_bytes = gathered_bytes(args, gpu);
    sizes
        .iter()
        .flat_map(|bytes| widths.iter().map(move |width| (*bytes, *width)))
        .map(|(table_bytes, width_bytes)| Step {
            suite: "table",
            table_bytes,
            width_bytes,
            rows: (gathered_bytes / width_bytes.max(1)).max(1),
            sms: None,
        })
        .collect()
}

fn sms(args: &GatherArgs, room_bytes: u64, gpu: Option<&Gpu>) -> Vec<Step> {
    let most = gpu.map_or(1, |gpu| gpu.facts().sms);
    let counts: Vec<u32> = SM_COUNTS.into_iter().filter(|sms| *sms <= most).collect();
    let widths = if args.width.is_empty() { vec![128, 512, 1024] } else { args.width.clone() };
    let base: Vec<Step> = table(&GatherArgs { width: widths, ..args.clone() }, room_bytes, gpu);
    base.iter().flat_map(|step| counts.iter().map(|sms| Step { suite: "sms", sms: Some(*sms), ..*step })).collect()
}

fn table_sizes(args: &GatherArgs, room_bytes: u64, gpu: Option<&Gpu>) -> Vec<u64> {
    if !args.table_gib.is_empty() {
        return args.table_gib.iter().map(|gib| to_bytes(*gib)).collect();
    }
    // Without a GPU the default shows the CPU at work in seconds.
    let wanted = if gpu.is_some() { to_bytes(16.0) } else { to_bytes(1.0) };
    vec![wanted.min(room_bytes / 2)]
}

fn gathered_bytes(args: &GatherArgs, gpu: Option<&Gpu>) -> u64 {
    args.gathered_mib.unwrap_or(if gpu.is_some() { 512 } else { 64 }).saturating_mul(1 << 20)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in GiB, rounded to whole bytes")]
fn to_bytes(gib: f64) -> u64 {
    (gib.max(0.0) * GIB) as u64
}
