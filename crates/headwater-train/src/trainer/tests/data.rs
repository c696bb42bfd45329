//! Small datasets of several node types, written into a folder.

use std::path::Path;

use headwater_graph::dataset::{Dataset, DatasetWriter, Description, NodeFiles, Splits};
use headwater_graph::random::Key;
use headwater_graph::{Layout, NodeType, Relation, Schema, Topology};

/// Communities: node `i` of every type is of community `i % COMMUNITIES`.
pub(super) const COMMUNITIES: usize = 4;
/// Papers, authors and venues.
pub(super) const COUNTS: [usize; 3] = [240, 160, 12];

const NAMES: [&str; 3] = ["paper", "author", "venue"];
/// Relations, with how many neighbours a target has.
const RELATIONS: [(usize, &str, usize, usize); 5] =
    [(1, "writes", 0, 3), (0, "cites", 0, 4), (2, "publishes", 0, 1), (0, "written_by", 1, 4), (0, "appears_in", 2, 8)];

/// Papers whose community is to be found. `widths` are those of features; `spoil` may change them.
pub(super) fn write(path: &Path, widths: [Option<usize>; 3], spoil: impl Fn(usize, &mut [f32])) -> Dataset {
    let labels: Vec<i64> = (0..COUNTS[0]).map(community).map(|label| i64::try_from(label).unwrap()).collect();
    write_with(path, widths, spoil, |writer| {
        writer.array("labels", &[COUNTS[0] as u64], &labels).unwrap();
        Some(COMMUNITIES as u64)
    })
}

/// As [`write`], with labels that the caller writes as `labels`; it returns how many classes there are.
pub(super) fn write_with(
    path: &Path,
    widths: [Option<usize>; 3],
    spoil: impl Fn(usize, &mut [f32]),
    labels: impl FnOnce(&DatasetWriter) -> Option<u64>,
) -> Dataset {
    let writer = DatasetWriter::create(path).unwrap();
    let mut nodes = Vec::new();
    for (at, width) in widths.into_iter().enumerate() {
        let name = width.map(|width| {
            let mut rows = features(at, width);
            spoil(at, &mut rows);
            let name = format!("{}.features", NAMES[at]);
            writer.array(&name, &[COUNTS[at] as u64, width as u64], &rows).unwrap();
            name
        });
        nodes.push(NodeFiles { features: name, ..NodeFiles::default() });
    }
    RELATIONS.iter().enumerate().for_each(|(at, _)| writer.relation(at, &lists(at)).unwrap());
    nodes[0].classes = labels(&writer);
    nodes[0].labels = Some("labels".to_owned());
    nodes[0].splits = splits(&writer);
    writer.finish(Description { nodes, ..Description::new("typed", schema(), Layout::Csc, "made by a test") }).unwrap();
    Dataset::open(path).unwrap()
}

pub(super) fn community(node: usize) -> usize {
    node % COMMUNITIES
}

fn schema() -> Schema {
    let types = NAMES.into_iter().zip(COUNTS).map(|(name, count)| NodeType { name: name.into(), count: count as u64 });
    let relation =
        |(source, name, target, _): (usize, &str, usize, usize)| Relation { source, name: name.to_owned(), target };
    Schema::new(types.collect(), RELATIONS.into_iter().map(relation).collect()).unwrap()
}

/// Every target has a few neighbours, three of four in its community.
fn lists(at: usize) -> Topology {
    let (source, _, target, degree) = RELATIONS[at];
    let key = Key::new(17).of(at as u64);
    let neighbour = |target: usize, number: usize| {
        let draw = key.of(target as u64).of(number as u64);
        let own = if draw.below(0, 4) > 0 { community(target) as u64 } else { draw.below(1, COMMUNITIES as u64) };
        let member = draw.below(2, (COUNTS[source] / COMMUNITIES) as u64);
        u32::try_from(own + member * COMMUNITIES as u64).unwrap()
    };
    let offsets: Vec<u64> = (0..=COUNTS[target]).map(|target| (target * degree) as u64).collect();
    let all: Vec<u32> =
        (0..COUNTS[target]).flat_map(|target| (0..degree).map(move |number| neighbour(target, number))).collect();
    Topology::new(Layout::Csc, COUNTS[source] as u64, offsets.into(), all.into()).unwrap()
}

/// Noise, with a hint of the community.
fn features(at: usize, width: usize) -> Vec<f32> {
    let key = Key::new(23).of(at as u64);
    let element = |node: usize, column: usize| {
        let noise = key.below((node * width + column) as u64, 1000) as f32 / 1000.0 - 0.5;
        if column == community(node) { noise + 0.4 } else { noise }
    };
    (0..COUNTS[at]).flat_map(|node| (0..width).map(move |column| element(node, column))).collect()
}

/// Half of the papers to learn from, a quarter each to choose by and to measure with.
fn splits(writer: &DatasetWriter) -> Splits {
    let of = |name: &str, parts: std::ops::Range<usize>| {
        let ids: Vec<u32> = (0..COUNTS[0])
            .filter(|node| parts.contains(&(node / COMMUNITIES % 4)))
            .map(|node| u32::try_from(node).unwrap())
            .collect();
        writer.array(name, &[ids.len() as u64], &ids).unwrap();
        Some(name.to_owned())
    };
    Splits { train: of("train", 0..2), valid: of("valid", 2..3), test: of("test", 3..4) }
}
