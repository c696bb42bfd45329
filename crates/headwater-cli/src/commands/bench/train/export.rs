//! Batches and graphs as arrays, so that another program can work on the same ones.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use headwater::graph::Ids;
use headwater::graph::generate::Bijection;
use headwater::graph::random::Key;
use headwater::graph::sample::{NeighbourSampler, SampleOptions, Seeds};
use headwater::tensor::DType;
use headwater::tensor::npy::{NpyType, header_bytes};
use headwater::train::task::Task;
use headwater::train::whole_file::write_whole;
use serde::Serialize;

use crate::args::BenchTrainArgs;

/// What the arrays are of.
#[derive(Debug, Serialize)]
struct About {
    nodes: u64,
    width: usize,
    classes: usize,
    fanout: Vec<i64>,
    /// Of each batch: nodes that each hop added, seeds first, and edges.
    batches: Vec<Hops>,
}

#[derive(Debug, Serialize)]
struct Hops {
    nodes: Vec<usize>,
    edges: Vec<usize>,
}

/// Writes `N.nodes.npy`, `N.row.npy`, `N.col.npy` and `N.labels.npy` for each batch, and `batches.json`.
pub fn write(args: &BenchTrainArgs, task: &Task, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let sampler = NeighbourSampler::new(task.graph.clone(), SampleOptions::fanouts(&args.fanout)?)?;
    let mut batches = Vec::new();
    // Seeds are shuffled, as in training: those that lie together are alike.
    let shuffle = Bijection::new(Key::new(args.seed), task.train.len() as u64);
    let seed = |at: u64| task.train[usize::try_from(shuffle.forward(at)).unwrap_or(usize::MAX)];
    let (count, batch) = (task.train.len() as u64, args.batch as u64);
    let whole = count / batch.max(1);
    let exported = args.exported.unwrap_or(whole.min(8));
    ensure!(exported <= whole, "--exported is {exported}, and an epoch has {whole} whole batches of {batch} nodes");
    for at in 0..exported {
        let seeds: Vec<u64> = (at * batch..(at + 1) * batch).map(seed).collect();
        let key = Key::new(args.seed).of(at);
        let sample = sampler.sample(Seeds { node_type: 0, nodes: &seeds, times: None }, key)?;
        let (nodes, edges) = (&sample.nodes[0], &sample.edges[0]);
        let labels: Vec<i64> = match task.labels.of(&seeds) {
            headwater::train::Labels::Classes(labels) => labels,
            headwater::train::Labels::Values { .. } => Vec::new(),
        };
        let save = |name: &str, kind: NpyType, bytes: &[u8], count: usize| {
            let path = folder.join(format!("{at}.{name}.npy"));
            write_whole(&path, &[&header_bytes(kind, &[count]), bytes].concat())
                .with_context(|| format!("writing {}", path.display()))
        };
        save("nodes", NpyType::U64, bytemuck::cast_slice(&nodes.ids), nodes.ids.len())?;
        save("row", NpyType::U32, bytemuck::cast_slice(&edges.row), edges.row.len())?;
        save("col", NpyType::U32, bytemuck::cast_slice(&edges.col), edges.col.len())?;
        save("labels", NpyType::Tensor(DType::I64), bytemuck::cast_slice(&labels), labels.len())?;
        batches.push(Hops { nodes: nodes.per_hop.clone(), edges: edges.per_hop.clone() });
    }
    let width = task.widths().first().copied().flatten().unwrap_or(0);
    let about = About { nodes: task.graph.nodes(), width, classes: task.classes, fanout: args.fanout.clone(), batches };
    let path = folder.join("batches.json");
    write_whole(&path, &serde_json::to_vec_pretty(&about)?).with_context(|| format!("writing {}", path.display()))
}

/// Writes `offsets.npy` and `neighbours.npy`, the lists of targets, and `train.npy`.
pub fn write_graph(task: &Task, folder: &Path) -> anyhow::Result<()> {
    let lists = task.graph.relation(0);
    let save = |name: &str, kind: NpyType, bytes: &[u8], count: usize| -> anyhow::Result<()> {
        let path = folder.join(format!("{name}.npy"));
        // Too large to be put together in memory first.
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(&header_bytes(kind, &[count]))?;
            file.write_all(bytes)
        });
        written.with_context(|| format!("writing {}", path.display()))
    };
    save("offsets", NpyType::U64, bytemuck::cast_slice(lists.offsets()), lists.offsets().len())?;
    match lists.neighbours() {
        Ids::U32(ids) => save("neighbours", NpyType::U32, bytemuck::cast_slice(ids), ids.len())?,
        Ids::U64(ids) => save("neighbours", NpyType::U64, bytemuck::cast_slice(ids), ids.len())?,
    }
    save("train", NpyType::U64, bytemuck::cast_slice(&task.train), task.train.len())
}
