//! `headwater bench sample`: how fast neighbourhoods are drawn.
//!
//! Two figures of the CPU sampler, because people use it in two ways: one batch on all threads (`ms_per_batch`), and as a
//! loader does it, many batches at once, each on one thread (`seeds_per_s`, `edges_per_s`).

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use headwater::cuda::{Gpu, Stream};
use headwater::graph::dataset::Split;
use headwater::graph::sample::{
    EdgeIds, GpuNeighbourSampler, NeighbourSampler, Sample, SampleOptions, Seeds, Visit, batch_key,
};
use headwater::graph::{Dataset, Graph, PlacedGraph, Storage, Wish};
use headwater::memory::{Buffer, Host, host_bytes_available};
use headwater::tensor::gather::{IdSlice, gather_host};
use headwater::train::threads::bounded;
use rayon::prelude::*;
use serde::Serialize;

use super::gather_gpu::median_and_spread;
use crate::args::{GraphStorage, RowVisits, SampleArgs, SampleDevice};
use crate::given::Given;
use crate::report;

/// What is printed: one object.
#[derive(Debug, Serialize)]
struct Figures {
    system: &'static str,
    dataset: String,
    fanout: Vec<i64>,
    batch: usize,
    batches: usize,
    /// Median time of one batch.
    ms_per_batch: f64,
    /// The range over the median.
    spread: f64,
    seeds_per_s: f64,
    edges_per_s: f64,
    /// Of a batch, on average.
    unique_nodes: f64,
    /// Of a batch, on average.
    edges: f64,
    /// Ids of edges of a batch, on average, where they are asked for.
    ids_of_edges: f64,
    /// Bytes of features of a batch, on average, where they are fetched.
    feature_bytes: f64,
    features: bool,
    threads: usize,
    device: &'static str,
    graph: String,
    /// In which order a GPU was told to visit the rows of a hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<String>,
    peak_bytes: u64,
}

/// What a run found.
struct Measured {
    /// Of each batch that was timed by itself.
    seconds: Vec<f64>,
    /// Of all batches together.
    all_s: f64,
    nodes: usize,
    edges: usize,
    edge_ids: usize,
    feature_bytes: usize,
    threads: usize,
    device: &'static str,
    graph: String,
    peak_bytes: u64,
}

/// As the command line calls it.
fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Figures {
    fn new(args: &SampleArgs, dataset: &Dataset, mut found: Measured) -> Self {
        let (median_s, spread) = median_and_spread(&mut found.seconds);
        let batches = args.batches as f64;
        Self {
            system: "headwater",
            dataset: dataset.manifest().name.clone(),
            fanout: args.fanout.clone(),
            batch: args.batch,
            batches: args.batches,
            ms_per_batch: median_s * 1e3,
            spread,
            seeds_per_s: batches * args.batch as f64 / found.all_s,
            edges_per_s: found.edges as f64 / found.all_s,
            unique_nodes: found.nodes as f64 / batches,
            edges: found.edges as f64 / batches,
            ids_of_edges: found.edge_ids as f64 / batches,
            feature_bytes: found.feature_bytes as f64 / batches,
            features: args.features,
            threads: found.threads,
            device: found.device,
            graph: found.graph,
            order: (args.device == SampleDevice::Cuda).then(|| value_name(&args.order)),
            peak_bytes: found.peak_bytes,
        }
    }
}

/// Measures and prints.
pub fn run(args: &SampleArgs, given: &Given) -> anyhow::Result<()> {
    match args.device {
        SampleDevice::Cpu => given.refuse(&["gpu", "order"], "CPU threads draw; --device cuda has a GPU do it")?,
        SampleDevice::Cuda => given.refuse(&["threads"], "a GPU draws; --device cpu has threads do it")?,
    }
    check_counts(args)?;
    let dataset = Dataset::open(&args.dataset).with_context(|| format!("opening {}", args.dataset.display()))?;
    let seeds = seeds(&dataset, args)?;
    let figures = match args.device {
        SampleDevice::Cuda => on_gpu(args, &dataset, &seeds)?,
        SampleDevice::Cpu => {
            let has_storage = args.graph.is_some_and(|storage| storage != GraphStorage::Cpu);
            ensure!(!has_storage, "CPU threads sample a graph in host memory: --graph cpu");
            let pool = rayon::ThreadPoolBuilder::new().num_threads(bounded(args.threads.unwrap_or(0))).build()?;
            pool.install(|| on_cpu(args, &dataset, &seeds))?
        }
    };
    if args.json { report::json(&figures) } else { show(&figures) }
}

/// Refuses batches whose seeds do not fit in memory.
fn check_counts(args: &SampleArgs) -> anyhow::Result<()> {
    let most = host_bytes_available() / 4 / size_of::<u64>();
    let SampleArgs { batch, batches, .. } = *args;
    ensure!((1..=most).contains(&batch), "--batch is {batch}; expected 1 to {most}, whose seeds fit in memory");
    let most = most / batch;
    ensure!((1..=most).contains(&batches), "--batches is {batches}; expected 1 to {most}, whose seeds fit in memory");
    Ok(())
}

/// The first type's training nodes, or all nodes, repeated until there are enough batches.
fn seeds(dataset: &Dataset, args: &SampleArgs) -> anyhow::Result<Vec<u64>> {
    let nodes: Vec<u64> = match dataset.split(0, Split::Train)? {
        Some(train) if !train.is_empty() => train.iter().collect(),
        _ => (0..dataset.schema().node_types().first().context("a dataset without node types")?.count).collect(),
    };
    ensure!(!nodes.is_empty(), "the first node type has no nodes to start from");
    Ok(nodes.iter().copied().cycle().take(args.batch * args.batches).collect())
}

fn on_cpu(args: &SampleArgs, dataset: &Dataset, seeds: &[u64]) -> anyhow::Result<Figures> {
    let graph: Graph = dataset.graph()?.in_memory()?;
    let sampler = NeighbourSampler::new(graph, options(args)?)?;
    let table = if args.features { Some(Table::new(dataset)?) } else { None };
    let fetch = |sample: &Sample| table.as_ref().map_or(Ok(0), |table| table.rows(&sample.nodes[0].ids));
    let batches: Vec<&[u64]> = seeds.chunks(args.batch).collect();
    let key = |at: usize| batch_key(args.seed, 0, at as u64);
    // Caches, pages and working memory as they are in the middle of an epoch.
    batches
        .par_iter()
        .take(8)
        .try_for_each(|batch| fetch(&sampler.sample_alone(Seeds::of(batch), key(0))?).map(drop))?;

    let mut seconds = Vec::new();
    for (at, batch) in batches.iter().enumerate().take(args.batches.min(32)) {
        let begun = Instant::now();
        fetch(&sampler.sample(Seeds::of(batch), key(at))?)?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    let begun = Instant::now();
    let one = |(at, batch): (usize, &&[u64])| -> anyhow::Result<[usize; 4]> {
        let sample = sampler.sample_alone(Seeds::of(batch), key(at))?;
        let feature_bytes = fetch(&sample)?;
        let edge_ids = sample.edges.iter().filter_map(|edges| edges.ids.as_ref()).map(Vec::len).sum();
        Ok([sample.node_count(), sample.edge_count(), edge_ids, feature_bytes])
    };
    let counts = batches.par_iter().enumerate().map(one).collect::<anyhow::Result<Vec<_>>>()?;
    let all_s = begun.elapsed().as_secs_f64();
    let all = |what: usize| counts.iter().map(|counts| counts[what]).sum();
    let measured = Measured {
        seconds,
        all_s,
        nodes: all(0),
        edges: all(1),
        edge_ids: all(2),
        feature_bytes: all(3),
        threads: rayon::current_num_threads(),
        device: "cpu",
        graph: "cpu".into(),
        peak_bytes: peak_bytes(),
    };
    Ok(Figures::new(args, dataset, measured))
}

/// Batches one after the other on one stream; a batch's time ends when the host knows its sizes.
fn on_gpu(args: &SampleArgs, dataset: &Dataset, seeds: &[u64]) -> anyhow::Result<Figures> {
    ensure!(!args.features, "--features is measured on the CPU only so far");
    let gpu = Gpu::open(args.on.gpu)?;
    let storage = match args.graph.unwrap_or(GraphStorage::ZeroCopy) {
        GraphStorage::Cpu => bail!("a GPU samples graphs in cuda or zero-copy storage"),
        GraphStorage::ZeroCopy => Storage::ZeroCopy,
        GraphStorage::Cuda => Storage::Cuda,
    };
    let graph = dataset.graph()?.in_memory()?;
    let options = options(args)?;
    let placed = PlacedGraph::new(&graph, Wish::In(storage), Some(&gpu))?;
    let storage = placed.storage().to_string();
    let visit = match args.order {
        RowVisits::Auto => Visit::Auto,
        RowVisits::AsFound => Visit::AsFound,
        RowVisits::ByAddress => Visit::ByAddress,
    };
    let sampler = GpuNeighbourSampler::new(placed, options.clone())?.visiting(visit);
    let stream = Stream::new(&gpu)?;
    let batches: Vec<&[u64]> = seeds.chunks(args.batch).collect();
    let key = |at: usize| batch_key(args.seed, 0, at as u64);
    let expected = NeighbourSampler::new(graph, options)?.sample(Seeds::of(batches[0]), key(0))?;
    let found = sampler.sample(&stream, Seeds::of(batches[0]), key(0))?.to_host()?;
    ensure!(found == expected, "the GPU drew another sample than the CPU");
    let (mut seconds, mut nodes, mut edges, mut peak) = (Vec::new(), 0, 0, 0);
    for (at, batch) in batches.iter().enumerate() {
        let begun = Instant::now();
        let sample = sampler.sample(&stream, Seeds::of(batch), key(at))?;
        seconds.push(begun.elapsed().as_secs_f64());
        nodes += sample.nodes.iter().flat_map(|nodes| &nodes.per_hop).sum::<usize>();
        edges += sample.row.bytes() / 4;
        let memory = gpu.memory()?;
        peak = peak.max(memory.total_bytes - memory.free_bytes);
    }
    let all_s: f64 = seconds.iter().sum();
    let peak_bytes = peak as u64;
    let edge_ids = if args.edge_ids { edges } else { 0 };
    let measured = Measured {
        seconds,
        all_s,
        nodes,
        edges,
        edge_ids,
        feature_bytes: 0,
        threads: 1,
        device: "cuda",
        graph: storage,
        peak_bytes,
    };
    Ok(Figures::new(args, dataset, measured))
}

fn options(args: &SampleArgs) -> anyhow::Result<SampleOptions> {
    let edge_ids = if args.edge_ids { EdgeIds::Kept } else { EdgeIds::Dropped };
    Ok(SampleOptions { edge_ids, ..SampleOptions::fanouts(&args.fanout)? })
}

/// The features of the first node type, in memory of large pages.
struct Table {
    bytes: headwater::graph::Column<u8>,
    width_bytes: usize,
    /// Outputs between batches, as a loader keeps them: fresh memory would cost more than the rows in it.
    kept: Mutex<Vec<Buffer<u8, Host>>>,
}

impl Table {
    fn new(dataset: &Dataset) -> anyhow::Result<Self> {
        let features = dataset.features(0).context("the first node type has no features")?;
        let rows = features.shape().first().copied().unwrap_or(0);
        let bytes = headwater::graph::Column::<u8>::over(features.data().clone(), "features")?.in_memory()?;
        let width_bytes = bytes.len() / rows.max(1);
        Ok(Self { bytes, width_bytes, kept: Mutex::default() })
    }

    /// Fetches rows, and says how many bytes they have.
    fn rows(&self, ids: &[u64]) -> anyhow::Result<usize> {
        let wanted = ids.len() * self.width_bytes;
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let last = kept().pop().filter(|out| out.len() >= wanted);
        let mut out = match last {
            Some(out) => out,
            None => Buffer::<u8, Host>::new(wanted.next_power_of_two())?,
        };
        gather_host(&self.bytes, self.width_bytes, IdSlice::U64(ids), &mut out.as_mut_slice()[..wanted])?;
        kept().push(out);
        Ok(wanted)
    }
}

/// The most memory this process has had.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) * 1024
}

fn show(figures: &Figures) -> anyhow::Result<()> {
    let fanout: Vec<String> = figures.fanout.iter().map(ToString::to_string).collect();
    report::line(format!(
        "{}: fan-out ({}), batch {}, {} on {} threads, graph in {}{}",
        figures.dataset,
        fanout.join(", "),
        figures.batch,
        figures.device,
        figures.threads,
        figures.graph,
        if figures.features { ", features fetched" } else { "" }
    ));
    report::line(format!(
        "{:.2} ms a batch; {:.1} k seeds/s, {:.1} M edges/s with batches side by side",
        figures.ms_per_batch,
        figures.seeds_per_s / 1e3,
        figures.edges_per_s / 1e6
    ));
    report::line(format!(
        "{:.0} nodes and {:.0} edges a batch; peak {:.2} GiB",
        figures.unique_nodes,
        figures.edges,
        figures.peak_bytes as f64 / (1u64 << 30) as f64
    ));
    Ok(())
}
