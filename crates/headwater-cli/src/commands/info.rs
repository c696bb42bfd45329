//! `headwater info`: what this machine offers, and what is missing and where it was looked for.

use headwater::cuda::{Bandwidths, Found, Gpu, GpuReport, Report};
use headwater::memory::{host_bytes_available, lockable_bytes};
use serde::Serialize;

use crate::args::InfoArgs;
use crate::report;

const GIB: f64 = (1u64 << 30) as f64;

#[derive(Serialize)]
struct Everything {
    #[serde(flatten)]
    gpu_layer: Report,
    host_available_bytes: usize,
    lockable_bytes: Option<usize>,
    bandwidths: Vec<Bandwidths>,
}

/// Shows it.
pub fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let gpu_layer = Report::new();
    let ordinals = 0..if args.bandwidth { gpu_layer.gpus.len() } else { 0 };
    if args.bandwidth && ordinals.is_empty() {
        report::note("there is no GPU whose links could be measured");
    }
    let bandwidths = ordinals.map(|i| Ok(Bandwidths::of(&Gpu::open(i)?)?)).collect::<anyhow::Result<Vec<_>>>()?;
    let everything = Everything {
        gpu_layer,
        host_available_bytes: host_bytes_available(),
        lockable_bytes: lockable_bytes(),
        bandwidths,
    };
    if args.json {
        return report::json(&everything);
    }
    show(&everything);
    Ok(())
}

fn show(all: &Everything) {
    report::line(format!("driver   {}", found(&all.gpu_layer.driver)));
    report::line(format!("NVRTC    {}", found(&all.gpu_layer.nvrtc)));
    report::line(format!("cuBLAS   {}", found_path(&all.gpu_layer.cublas)));
    report::line(format!("NVML     {}", found_path(&all.gpu_layer.nvml)));
    report::line(format!("GDS      {}", found(&all.gpu_layer.gpudirect_storage)));
    let lockable = all.lockable_bytes.map_or("no limit".into(), |bytes| format!("{:.1} GiB", as_gib(bytes)));
    report::line(format!("host     {:.1} GiB available, lockable: {lockable}", as_gib(all.host_available_bytes)));
    if all.gpu_layer.gpus.is_empty() {
        report::line("GPUs     none: everything runs on the CPU");
    }
    for (i, gpu) in all.gpu_layer.gpus.iter().enumerate() {
        show_gpu(i, gpu);
        if let Some(rates) = all.bandwidths.get(i) {
            report::line(format!(
                "         host to device {:.1}, device to host {:.1}, zero-copy read {:.1}, device memory {:.0} GB/s, {:.0} ns",
                rates.host_to_device_gb_per_s,
                rates.device_to_host_gb_per_s,
                rates.zero_copy_gb_per_s,
                rates.device_gb_per_s,
                rates.device_latency_ns
            ));
        }
    }
    if all.gpu_layer.gpus.len() > 1 {
        report::line("peers    (row reads column)");
        for row in &all.gpu_layer.peers {
            let marks: Vec<&str> = row.iter().map(|can| if *can { "yes" } else { "-" }).collect();
            report::line(format!("         {}", marks.join("\t")));
        }
    }
}

fn show_gpu(ordinal: usize, gpu: &GpuReport) {
    let facts = &gpu.facts;
    let (major, minor) = facts.compute_capability;
    let free = gpu.memory.map_or(0, |memory| memory.free_bytes);
    report::line(format!(
        "GPU {ordinal}    {}, sm_{major}{minor}, {} SMs, {:.1} of {:.1} GiB free, L2 {:.0} MiB",
        facts.name,
        facts.sms,
        as_gib(free),
        as_gib(facts.memory_bytes),
        as_gib(facts.l2_bytes) * 1024.0
    ));
    let link = facts.pcie.as_ref().map_or("unknown".into(), |link| format!("{} x{}", link.speed, link.width));
    report::line(format!("         PCI {}, link {link}", facts.pci_bus_id));
}

fn found(what: &Found<String>) -> String {
    match what {
        Found::Here(text) => text.clone(),
        Found::Missing { missing } => missing.replace('\n', "\n         "),
    }
}

fn found_path(what: &Found<std::path::PathBuf>) -> String {
    match what {
        Found::Here(path) => path.display().to_string(),
        Found::Missing { missing } => missing.replace('\n', "\n         "),
    }
}

fn as_gib(bytes: usize) -> f64 {
    bytes as f64 / GIB
}
