//! `headwater bench score`: how fast nodes are scored, a pass over the edges at a time, and which part of memory's speed
//! that is.
//!
//! Scores that count sampled batches make no passes; `bench sample` says how fast those are drawn.

use std::time::Instant;

use anyhow::{Context, bail, ensure};
use headwater::cuda::{Bandwidths, Gpu, Stream};
use headwater::graph::sample::SampleOptions;
use headwater::graph::score::{
    End, Expected, NodeScores, Outgoing, RankOptions, Stop, degrees, expected_reads, reverse_pagerank,
};
use headwater::graph::{Dataset, Graph, Layout, PlacedGraph, Silent, Storage, Topology, Wish};
use headwater::train::threads::bounded;
use rayon::prelude::*;
use serde::Serialize;

use super::gather_gpu::median_and_spread;
use crate::args::{GraphStorage, SampleDevice, ScoreArgs};
use crate::given::Given;
use crate::report;

/// Iterations that plain reverse PageRank is timed over: about as many as it takes to settle.
const PAGERANK_PASSES: u32 = 20;
/// Iterations of the weighted one.
const WEIGHTED_PASSES: u32 = 5;

/// Bytes that a copy is timed with.
const COPY_BYTES: usize = 256 << 20;

/// What is printed: one object.
#[derive(Debug, Serialize)]
struct Figures {
    dataset: String,
    nodes: u64,
    edges: u64,
    device: &'static str,
    graph: String,
    threads: usize,
    /// Lists turned round, or checked where a GPU reads them as they are.
    prepare_s: f64,
    /// What a plain copy in the memory that holds the graph moves, read and written.
    copy_gb_per_s: f64,
    scores: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    score: &'static str,
    /// Median of all rounds, everything but `prepare_s`.
    seconds: f64,
    /// The range over the median.
    spread: f64,
    /// All scores together, as they are counted.
    total: f64,
    passes: u32,
    ms_per_pass: f64,
    edges_per_s: f64,
    /// Ids, what is read or added to for each, and the sums.
    bytes_per_pass: u64,
    gb_per_s: f64,
    of_copy: f64,
}

/// A score, and how many passes over so many bytes it makes.
struct Timed<'a> {
    score: &'static str,
    passes: u32,
    bytes_per_pass: u64,
    run: Box<dyn Fn() -> anyhow::Result<NodeScores> + 'a>,
}

/// Measures and prints.
pub fn run(args: &ScoreArgs, given: &Given) -> anyhow::Result<()> {
    if args.device == SampleDevice::Cpu {
        given.refuse(&["gpu"], "CPU threads score; --device cuda has a GPU do it")?;
        let has_storage = args.graph.is_some_and(|storage| storage != GraphStorage::Cpu);
        ensure!(!has_storage, "CPU threads score a graph in host memory: --graph cpu");
    }
    ensure!(args.rounds > 0, "--rounds is at least 1");
    ensure!(args.batch > 0, "--batch is 0; expected at least 1");
    let dataset = Dataset::open(&args.dataset).with_context(|| format!("opening {}", args.dataset.display()))?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(bounded(args.threads.unwrap_or(0))).build()?;
    let figures = pool.install(|| measure(args, &dataset))?;
    if args.json { report::json(&figures) } else { show(&figures) }
}

fn measure(args: &ScoreArgs, dataset: &Dataset) -> anyhow::Result<Figures> {
    let graph = dataset.graph()?.in_memory()?;
    let place = place(args, &graph)?;
    let train = crate::commands::reorder::train(dataset)?;
    let train: Vec<&[u64]> = train.iter().map(Vec::as_slice).collect();
    let options = SampleOptions::fanouts(&args.fanout)?;
    let mut scores = Vec::new();
    for timed in timed(args, &graph, &place.outgoing, &train, &options) {
        scores.push(row(args, &graph, &timed, place.copy_gb_per_s)?);
    }
    let Place { device, storage, prepare_s, copy_gb_per_s, .. } = place;
    Ok(Figures {
        dataset: dataset.manifest().name.clone(),
        nodes: graph.nodes(),
        edges: graph.edges(),
        device,
        graph: storage,
        threads: rayon::current_num_threads(),
        prepare_s,
        copy_gb_per_s,
        scores,
    })
}

/// The graph where passes read it.
struct Place {
    outgoing: Outgoing,
    device: &'static str,
    storage: String,
    prepare_s: f64,
    copy_gb_per_s: f64,
}

fn place(args: &ScoreArgs, graph: &Graph) -> anyhow::Result<Place> {
    if args.device == SampleDevice::Cpu {
        let begun = Instant::now();
        let outgoing = Outgoing::of_sampling(graph, &Silent)?;
        let (device, storage, prepare_s) = ("cpu", Storage::Cpu.to_string(), begun.elapsed().as_secs_f64());
        return Ok(Place { outgoing, device, storage, prepare_s, copy_gb_per_s: host_copy_gb_per_s(COPY_BYTES) });
    }
    let wish = match args.graph.unwrap_or(GraphStorage::Cuda) {
        GraphStorage::Cpu => bail!("a GPU scores graphs in cuda or zero-copy storage"),
        GraphStorage::ZeroCopy => Wish::In(Storage::ZeroCopy),
        GraphStorage::Cuda => Wish::In(Storage::Cuda),
    };
    let gpu = Gpu::open(args.on.gpu)?;
    let placed = PlacedGraph::new(graph, wish, Some(&gpu))?;
    let bandwidths = Bandwidths::measure(&gpu)?;
    let is_in_gpu = placed.storage() == Storage::Cuda;
    let copy_gb_per_s = if is_in_gpu { bandwidths.device_gb_per_s } else { bandwidths.zero_copy_gb_per_s };
    let begun = Instant::now();
    let outgoing = Outgoing::of_placed(&placed, &Stream::new(&gpu)?)?;
    let (storage, prepare_s) = (placed.storage().to_string(), begun.elapsed().as_secs_f64());
    Ok(Place { outgoing, device: "cuda", storage, prepare_s, copy_gb_per_s })
}

fn timed<'a>(
    args: &ScoreArgs,
    graph: &'a Graph,
    outgoing: &'a Outgoing,
    train: &'a [&'a [u64]],
    options: &'a SampleOptions,
) -> Vec<Timed<'a>> {
    let rank = |options: RankOptions<'a>, passes: u32| -> Box<dyn Fn() -> anyhow::Result<NodeScores> + 'a> {
        let options = RankOptions { stop: Stop::After(passes), ..options };
        Box::new(move || Ok(reverse_pagerank(outgoing, &options)?))
    };
    let expected = Expected { train, batch: args.batch, options };
    // The CPU reads a contribution of 4 bytes; a GPU adds to a sum of 8.
    let bytes_per_pass = pass_bytes(graph, if args.device == SampleDevice::Cpu { 4 } else { 8 });
    // Who owns the lists has its degrees in the offsets; the other end is counted.
    let degree_bytes = |end: End| {
        let owner = |lists: &Topology| if lists.layout() == Layout::Csr { End::Source } else { End::Target };
        let is_owner = graph.relations().iter().all(|lists| owner(lists) == end);
        if is_owner { 16 * graph.nodes() } else { pass_bytes(graph, 8) }
    };
    let degree =
        |end| -> Box<dyn Fn() -> anyhow::Result<NodeScores> + 'a> { Box::new(move || Ok(degrees(graph, end))) };
    let hops = u32::try_from(options.fanouts.len()).unwrap_or(u32::MAX);
    let weighted = rank(RankOptions::weighted(train), WEIGHTED_PASSES);
    let mut all = vec![
        Timed { score: "out-degree", passes: 1, bytes_per_pass: degree_bytes(End::Source), run: degree(End::Source) },
        Timed { score: "in-degree", passes: 1, bytes_per_pass: degree_bytes(End::Target), run: degree(End::Target) },
        Timed { score: "weighted-pagerank", passes: WEIGHTED_PASSES, bytes_per_pass, run: weighted },
    ];
    let pagerank = rank(RankOptions::converged(), PAGERANK_PASSES);
    all.push(Timed { score: "pagerank", passes: PAGERANK_PASSES, bytes_per_pass, run: pagerank });
    let expected = Box::new(move || Ok(expected_reads(outgoing, &expected)?));
    all.push(Timed { score: "expected", passes: hops, bytes_per_pass, run: expected });
    all
}

fn row(args: &ScoreArgs, graph: &Graph, timed: &Timed<'_>, copy_gb_per_s: f64) -> anyhow::Result<Row> {
    // Pages and caches as they are when it is not the first.
    let found = (timed.run)()?;
    let mut seconds = Vec::new();
    for _ in 0..args.rounds {
        let begun = Instant::now();
        (timed.run)()?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    let (seconds, spread) = median_and_spread(&mut seconds);
    let bytes_per_pass = timed.bytes_per_pass;
    let pass_s = seconds / f64::from(timed.passes.max(1));
    let gb_per_s = bytes_per_pass as f64 / pass_s / 1e9;
    Ok(Row {
        score: timed.score,
        seconds,
        spread,
        total: found.iter().flatten().map(|score| *score as f64).sum(),
        passes: timed.passes,
        ms_per_pass: pass_s * 1e3,
        edges_per_s: graph.edges() as f64 / pass_s,
        bytes_per_pass,
        gb_per_s,
        of_copy: gb_per_s / copy_gb_per_s,
    })
}

/// Ids, what is read or added to for each, and the sums.
fn pass_bytes(graph: &Graph, beside_bytes: u64) -> u64 {
    let of = |lists: &Topology| lists.edges() * (lists.neighbours().id_bytes() as u64 + beside_bytes);
    graph.relations().iter().map(of).sum::<u64>() + 8 * graph.nodes()
}

/// What a copy of so many bytes on all threads reads and writes, in GB/s. It is memory's speed where these are far more than
/// caches hold.
pub(super) fn host_copy_gb_per_s(bytes: usize) -> f64 {
    const PIECE: usize = 1 << 20;
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let once = |to: &mut [u8]| {
        let begun = Instant::now();
        to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE)).for_each(|(to, from)| to.copy_from_slice(from));
        begun.elapsed().as_secs_f64()
    };
    once(&mut to);
    let mut seconds: Vec<f64> = (0..5).map(|_| once(&mut to)).collect();
    2.0 * bytes as f64 / median_and_spread(&mut seconds).0 / 1e9
}

fn show(figures: &Figures) -> anyhow::Result<()> {
    let Figures { dataset, nodes, edges, device, graph, threads, prepare_s, copy_gb_per_s, scores } = figures;
    report::line(format!(
        "{dataset}: {nodes} nodes, {edges} edges; {device}, graph in {graph} storage, {threads} threads"
    ));
    report::line(format!("prepared in {prepare_s:.3} s; a copy moves {copy_gb_per_s:.1} GB/s"));
    for row in scores {
        report::line(format!(
            "{:18} {:8.2} ms in {:2} passes: {:7.2} ms each, {:7.1} M edges/s, {:6.1} GB/s, {:3.0}% of a copy",
            row.score,
            row.seconds * 1e3,
            row.passes,
            row.ms_per_pass,
            row.edges_per_s / 1e6,
            row.gb_per_s,
            row.of_copy * 100.0
        ));
    }
    Ok(())
}
