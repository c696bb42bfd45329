//! The small real graphs, where they are at hand: `HEADWATER_SHARED_DATA`, or `../shared/data` beside the workspace.

use super::*;
use crate::dataset::Split;

fn data() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("HEADWATER_SHARED_DATA").map_or(beside, PathBuf::from);
    path.is_dir().then_some(path)
}

/// Ingests without the features, which are large when written out.
fn ingested(bench: &Bench, name: &str, sparse_features: SparseFeatures) -> Option<Dataset> {
    let source = data()?.join(name).join(format!("{name}.npz"));
    let options = IngestOptions { sparse_features, ..IngestOptions::default() };
    Some(bench.ingest(&source, options))
}

#[test]
fn node_classification() {
    let bench = Bench::new();
    // Nodes, edges, classes, and how many are in each split.
    for (name, nodes, edges, classes, splits) in [
        ("cora", 2708, 10_556, 7, [140, 500, 1000]),
        ("pubmed", 19_717, 88_648, 3, [60, 500, 1000]),
        ("coauthor_physics", 34_493, 495_924, 5, [100, 150, 34_243]),
        ("amazon_computers", 13_752, 491_722, 10, [200, 300, 13_252]),
        ("twitch", 34_120, 858_226, 2, [9498, 7126, 17_496]),
    ] {
        let Some(dataset) = ingested(&bench, name, SparseFeatures::Skip) else { return };
        let graph = dataset.graph().unwrap();
        assert_eq!((graph.nodes(), graph.edges()), (nodes, edges), "{name}");
        assert_eq!(dataset.manifest().nodes[0].files.classes, Some(classes), "{name}");
        let found = Split::ALL.map(|split| dataset.split(0, split).unwrap().unwrap().len());
        assert_eq!(found, splits, "{name}");
    }
}

#[test]
fn sparse_features_are_written_out() {
    let bench = Bench::new();
    let Some(dataset) = ingested(&bench, "cora", SparseFeatures::Dense) else { return };
    let features = dataset.features(0).unwrap();
    assert_eq!(features.shape(), [2708, 1433]);
    let values = features.column::<f32>().unwrap();
    assert!(values.iter().all(|value| *value == 0.0 || *value == 1.0));
    assert_eq!(values.iter().filter(|value| **value != 0.0).count(), 49_216);
    let half = ingested(&bench, "cora", SparseFeatures::Half).unwrap();
    assert_eq!(half.features(0).unwrap().column::<half::f16>().unwrap().len(), values.len());
}

#[test]
fn knowledge_graphs() {
    let bench = Bench::new();
    let Some(dataset) = ingested(&bench, "aifb", SparseFeatures::Dense) else { return };
    assert_eq!((dataset.graph().unwrap().nodes(), dataset.graph().unwrap().edges()), (8285, 29_043));
    assert_eq!((dataset.schema().relations().len(), dataset.manifest().nodes[0].files.classes), (45, Some(4)));
    for (name, nodes, relations, splits) in
        [("fb15k237", 14_541, 237, [272_115, 17_535, 20_466]), ("wn18rr", 40_943, 11, [86_835, 3034, 3134])]
    {
        let dataset = ingested(&bench, name, SparseFeatures::Dense).unwrap();
        assert_eq!((dataset.graph().unwrap().nodes(), dataset.schema().relations().len()), (nodes, relations));
        assert_eq!(dataset.graph().unwrap().edges(), splits[0], "the graph has the training statements");
        for (split, expected) in Split::ALL.into_iter().zip(splits) {
            let triples = &dataset.manifest().links.get(split).unwrap().triples;
            assert_eq!(dataset.array(triples).unwrap().shape()[0] as u64, expected, "{name}");
        }
    }
}
