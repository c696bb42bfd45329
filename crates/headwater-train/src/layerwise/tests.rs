//! Chunks of any size give what the whole graph gives, to the bit.

use std::path::Path;

use headwater_compile::pass::Statistics;
use headwater_feature::{HostTable, RowFormat, Source, Stored};
use headwater_graph::random::Key;
use headwater_graph::topology::Layout;
use headwater_graph::{Column, Graph, NodeType, Relation, Schema, Topology};

use super::{Limits, statistics};
use crate::blocks::{SelfLoops, whole};
use crate::labels::Labels;
use crate::run_config::{Architecture, Model, RunConfig, RunFile};
use crate::task::Task;
use crate::trainer::Trainer;

const WIDTH: usize = 7;
const CLASSES: usize = 3;
/// Nodes of each type, and the types that relations are between.
const ONE: &[u64] = &[200];
const OWN: &[(usize, usize)] = &[(0, 0)];
const SEVERAL: &[u64] = &[40, 1, 170];
const MIXED: &[(usize, usize)] = &[(0, 2), (2, 2), (2, 0), (1, 2), (2, 1)];

/// Lists of random sources; some targets have none, one has very many, some have an edge to themselves.
fn lists(key: Key, sources: u64, targets: u64) -> Topology {
    let (mut offsets, mut neighbours) = (vec![0u64], Vec::new());
    for target in 0..targets {
        let degree = if target == 3 { 200 } else { key.below(target, 9) };
        neighbours.extend((0..degree).map(|at| key.of(target).below(at, sources)));
        if target % 5 == 0 && target < sources {
            neighbours.push(target);
        }
        offsets.push(neighbours.len() as u64);
    }
    Topology::new(Layout::Csc, sources, offsets.into(), neighbours.into()).unwrap()
}

fn graph(counts: &[u64], ends: &[(usize, usize)]) -> Graph {
    let types = counts.iter().enumerate().map(|(at, count)| NodeType { name: format!("type{at}"), count: *count });
    let name = |at: usize| format!("relation{at}");
    let relations = ends.iter().enumerate();
    let relations =
        relations.map(|(at, (source, target))| Relation { source: *source, name: name(at), target: *target });
    let schema = Schema::new(types.collect(), relations.collect()).unwrap();
    let made = ends.iter().zip(0u64..);
    let made = made.map(|((source, target), at)| lists(Key::new(at), counts[*source], counts[*target]));
    Graph::new(schema, made.collect()).unwrap()
}

/// `filled` of a thousand features are not zero.
fn task(counts: &[u64], ends: &[(usize, usize)], filled: u64) -> Task {
    let feature = |count: &u64| {
        let drawn = |at: u64| Key::new(9).of(*count).below(at, 1000);
        let value = |at: u64| if drawn(at) < filled { Key::new(8).below(at, 1000) as f32 / 1000.0 - 0.4 } else { 0.0 };
        let values = (0..count * WIDTH as u64).map(value);
        let values: Column<f32> = values.collect::<Vec<_>>().into();
        let format = RowFormat::packed(WIDTH, Stored::F32);
        HostTable::of(Source::memory(values.foreign().clone(), Vec::new(), format).unwrap())
    };
    let node_type = counts.len() - 1;
    Task {
        graph: graph(counts, ends),
        features: counts.iter().map(|count| Some(feature(count))).collect(),
        node_type,
        labels: Labels::Classes(
            (0..counts[node_type]).map(|node| Key::new(5).below(node, CLASSES as u64).cast_signed()).collect(),
        ),
        classes: CLASSES,
        train: vec![0, 1],
        valid: vec![2],
        test: vec![3],
        remarks: Vec::new(),
    }
}

fn trainer(task: Task, model: Architecture, full_graph: bool, folder: &Path) -> Trainer {
    let flags = RunFile {
        model: Some(Model::Named(model)),
        hidden: Some(8),
        heads: Some(2),
        layers: Some(3),
        full_graph: Some(full_graph),
        inverse_relations: Some(false),
        ..RunFile::default()
    };
    let config = RunConfig::resolve(RunFile::default(), flags).unwrap();
    Trainer::open(config, task, &folder.join(format!("{model:?}-{full_graph}"))).unwrap()
}

/// Outputs of nodes, as bits.
fn rows(trainer: &mut Trainer, limits: Limits, nodes: &[u64], node_type: usize) -> (Vec<u32>, bool) {
    trainer.set_limits(limits);
    let outputs = trainer.outputs(nodes).unwrap();
    let mut rows = vec![0.0; nodes.len() * CLASSES];
    outputs.gather(node_type, nodes, &mut rows).unwrap();
    (rows.iter().map(|x| x.to_bits()).collect(), outputs.is_on_disk())
}

#[test]
fn chunks_give_what_the_whole_graph_gives() {
    let folder = tempfile::tempdir().unwrap();
    for (model, counts, ends, filled) in [
        (Architecture::Sage, ONE, OWN, 1000),
        (Architecture::Gcn, ONE, OWN, 1000),
        (Architecture::Gat, ONE, OWN, 1000),
        (Architecture::Gin, ONE, OWN, 1000),
        (Architecture::Sage, ONE, OWN, 100),
        (Architecture::Gat, ONE, OWN, 100),
        (Architecture::Rgat, SEVERAL, MIXED, 1000),
        (Architecture::Hgt, SEVERAL, MIXED, 150),
    ] {
        let folder = folder.path().join(format!("{}-{filled}", counts.len()));
        let node_type = counts.len() - 1;
        let all: Vec<u64> = (0..counts[node_type]).collect();
        let wanted =
            rows(&mut trainer(task(counts, ends, filled), model, true, &folder), Limits::default(), &all, node_type);
        let mut sampled = trainer(task(counts, ends, filled), model, false, &folder);
        for (chunk_bytes, outputs_bytes) in [(1 << 20, 1 << 20), (1 << 13, 1 << 20), (1 << 12, 0), (0, 0)] {
            let limits = Limits { chunk_bytes, outputs_bytes };
            let found = rows(&mut sampled, limits, &all, node_type);
            assert_eq!(found.1, outputs_bytes == 0);
            assert!(found.0 == wanted.0, "{model:?} in chunks of {chunk_bytes} bytes");
            let some: Vec<u64> = [3, 7, 8, 150].to_vec();
            let of_some: Vec<u32> = some
                .iter()
                .flat_map(|node| &wanted.0[CLASSES * usize::try_from(*node).unwrap()..][..CLASSES])
                .copied()
                .collect();
            assert_eq!(rows(&mut sampled, limits, &some, node_type).0, of_some, "{model:?}, only some nodes");
        }
    }
}

#[test]
fn statistics_are_those_of_the_whole_graph() {
    for (counts, ends) in [(ONE, OWN), (SEVERAL, MIXED), (&[5], &[])] {
        let graph = graph(counts, ends);
        for loops in SelfLoops::ALL {
            let of_whole = Statistics::of(&whole(&graph, loops).unwrap());
            // Runs are what a GPU is asked for, and are not looked for here.
            let (source_runs, destination_runs) = (of_whole.source_pairs, of_whole.destination_pairs);
            let wanted = Statistics { source_runs, destination_runs, ..of_whole };
            assert_eq!(statistics(&graph, loops), wanted, "{counts:?} {loops:?}");
        }
    }
}
