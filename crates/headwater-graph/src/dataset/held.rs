//! A dataset in memory: arrays that others hold, under the names and the rules that a folder has.
//!
//! Whoever reads a dataset cannot tell one from the other, except that there is no file to read rows from. Checksums are
//! not made: nothing could be compared with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headwater_memory::Foreign;
use headwater_tensor::DType;
use headwater_tensor::npy::NpyType;

use super::array::Array;
use super::checksum::join;
use super::loader::Dataset;
use super::manifest::{
    EdgeFiles, FORMAT, FileEntry, Manifest, NodeEntry, NodeFiles, RelationEntry, Split, Splits, VERSION,
};
use super::writer::{DatasetWriter, Description};
use super::{names, roles};
use crate::column::Ids;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::progress::Progress;
use crate::schema::Schema;
use crate::topology::{Layout, Topology};

/// What belongs to the nodes of a type, in their order.
#[derive(Debug, Clone, Default)]
pub struct NodeArrays {
    /// One row a node.
    pub features: Option<Array>,
    /// One number or one row a node.
    pub labels: Option<Array>,
    /// Labels are below this when they are classes.
    pub classes: Option<u64>,
    /// When the node appeared, 64-bit signed.
    pub times: Option<Array>,
    /// Ids to learn from, to choose by and to report on.
    pub splits: [Option<Array>; 3],
}

/// What belongs to the edges of a relation beside its lists.
#[derive(Debug, Clone, Default)]
pub struct EdgeArrays {
    /// One row an edge, in the order of edge ids.
    pub features: Option<Array>,
    /// One number or one row an edge, in the order of the lists.
    pub labels: Option<Array>,
}

impl Dataset {
    /// A dataset over a graph and arrays that are in memory, one entry a node type and one a relation; both may be shorter.
    /// Nothing is copied. Shapes, kinds and the ids of splits are checked.
    pub fn in_memory(name: &str, graph: &Graph, nodes: Vec<NodeArrays>, edges: Vec<EdgeArrays>) -> Result<Self> {
        let schema = graph.schema();
        expect_at_most("arrays of nodes", nodes.len(), schema.node_types().len(), "the node types")?;
        expect_at_most("arrays of edges", edges.len(), schema.relations().len(), "the relations")?;
        let mut shelf = Shelf::default();
        let (mut nodes, mut edges) = (nodes.into_iter(), edges.into_iter());
        let node = |own: &crate::NodeType| {
            let files = shelf.nodes(&own.name, nodes.next().unwrap_or_default());
            NodeEntry { name: own.name.clone(), count: own.count, files }
        };
        let node_entries = schema.node_types().iter().map(node).collect();
        let mut relations = Vec::new();
        for (at, lists) in graph.relations().iter().enumerate() {
            let files = shelf.edges(&schema.relation_name(at), lists, edges.next().unwrap_or_default())?;
            relations.push(relation_entry(schema, at, lists.edges(), files));
        }
        let arrays = shelf.0;
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            version: VERSION.to_owned(),
            name: name.to_owned(),
            origin: "arrays in memory".to_owned(),
            layout: graph.relations().first().map_or(Layout::Csc, Topology::layout),
            nodes: node_entries,
            relations,
            links: Default::default(),
            files: arrays.iter().map(|(file, array)| (file.clone(), entry(array))).collect(),
            blake3: None,
        };
        roles::check(&manifest, Path::new(name))?;
        let verified = Default::default();
        let made = Self { folder: PathBuf::new(), manifest, schema: schema.clone(), arrays, verified };
        for at in 0..schema.node_types().len() {
            Split::ALL.into_iter().try_for_each(|split| made.split(at, split).map(|_| ()))?;
        }
        Ok(made)
    }

    /// Whether it is in memory alone, so that there is no folder to open again.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.folder.as_os_str().is_empty()
    }

    /// Writes all of it into a new folder, wherever it lies now. One that lies in a folder is verified first.
    pub fn save(&self, dir: &Path, progress: &dyn Progress) -> Result<()> {
        self.verify_once(progress)?;
        let writer = DatasetWriter::create(dir)?;
        for (file, array) in &self.arrays {
            let shape: Vec<u64> = array.shape().iter().map(|length| *length as u64).collect();
            writer.raw_array(stem(file), array.kind(), &shape, array.data().as_slice(), progress)?;
        }
        let manifest = &self.manifest;
        let mut to_stem = |file: &mut String| {
            *file = stem(file).to_owned();
            Ok(())
        };
        let mut nodes: Vec<NodeFiles> = manifest.nodes.iter().map(|node| node.files.clone()).collect();
        let mut relations: Vec<EdgeFiles> = manifest.relations.iter().map(|relation| relation.files.clone()).collect();
        let mut links = manifest.links.clone();
        nodes.iter_mut().try_for_each(|files| roles::rename_nodes(files, &mut to_stem))?;
        relations.iter_mut().try_for_each(|files| roles::rename_edges(files, &mut to_stem))?;
        for link in [&mut links.train, &mut links.valid, &mut links.test].into_iter().flatten() {
            roles::rename_links(link, &mut to_stem)?;
        }
        let described = Description::new(&manifest.name, self.schema.clone(), manifest.layout, manifest.origin.clone());
        writer.finish(Description { nodes, relations, links, ..described })
    }
}

/// Arrays under the names of their files.
#[derive(Default)]
struct Shelf(BTreeMap<String, Array>);

impl Shelf {
    /// Names that become the same file are told apart.
    fn put(&mut self, name: &str, array: Array) -> String {
        let candidates = (1u32..).map(|at| if at == 1 { name.to_owned() } else { format!("{name}-{at}") });
        let file = candidates.map(|name| names::file_name(&name)).find(|file| !self.0.contains_key(file));
        let file = file.unwrap_or_default();
        self.0.insert(file.clone(), array);
        file
    }

    fn nodes(&mut self, name: &str, own: NodeArrays) -> NodeFiles {
        let NodeArrays { features, labels, classes, times, splits: [train, valid, test] } = own;
        let mut put = |what: &str, array: Option<Array>| array.map(|array| self.put(&format!("{name}.{what}"), array));
        NodeFiles {
            features: put("features", features),
            labels: put("labels", labels),
            classes,
            times: put("times", times),
            splits: Splits { train: put("train", train), valid: put("valid", valid), test: put("test", test) },
            ..NodeFiles::default()
        }
    }

    fn edges(&mut self, name: &str, lists: &Topology, own: EdgeArrays) -> Result<EdgeFiles> {
        let mut put = |what: &str, array: Array| self.put(&format!("{name}.{what}"), array);
        let list = |kind: NpyType, data: Foreign| {
            let length = data.as_slice().len() / kind.size_bytes();
            Array::held(name, kind, &[length], data)
        };
        let ids = |ids: &Ids| {
            let kind = if ids.id_bytes() == 4 { NpyType::U32 } else { NpyType::U64 };
            list(kind, ids.clone().into_foreign())
        };
        let weights = lists.weights().map(|own| list(NpyType::Tensor(DType::F32), own.foreign().clone()));
        let times = lists.times().map(|own| list(NpyType::Tensor(DType::I64), own.foreign().clone()));
        Ok(EdgeFiles {
            offsets: put("offsets", list(NpyType::U64, lists.offsets().foreign().clone())?),
            neighbours: put("neighbours", ids(lists.neighbours())?),
            edge_ids: lists.edge_ids().map(ids).transpose()?.map(|array| put("edge_ids", array)),
            weights: weights.transpose()?.map(|array| put("weights", array)),
            times: times.transpose()?.map(|array| put("times", array)),
            labels: own.labels.map(|array| put("labels", array)),
            features: own.features.map(|array| put("features", array)),
            order: lists.order(),
        })
    }
}

fn expect_at_most(name: &'static str, found: usize, expected: usize, of: &'static str) -> Result<()> {
    let (found, expected) = (found as u64, expected as u64);
    if found > expected { Err(Error::Length { name, found, expected, of }) } else { Ok(()) }
}

fn relation_entry(schema: &Schema, at: usize, edges: u64, files: EdgeFiles) -> RelationEntry {
    let relation = &schema.relations()[at];
    let [source, target] = [relation.source, relation.target].map(|end| schema.node_types()[end].name.clone());
    RelationEntry { source, name: relation.name.clone(), target, edges, files }
}

fn entry(array: &Array) -> FileEntry {
    FileEntry {
        dtype: array.kind().name().to_owned(),
        shape: array.shape().iter().map(|length| *length as u64).collect(),
        bytes: array.data().as_slice().len() as u64,
        blake3: join(&[]),
    }
}

/// The name that an array's file was made of.
fn stem(file: &str) -> &str {
    file.strip_suffix(".npy").unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::progress::Silent;

    fn held(kind: NpyType, shape: &[usize], bytes: Vec<u8>) -> Array {
        Array::held("test", kind, shape, Foreign::new(Arc::new(bytes))).unwrap()
    }

    fn graph() -> Graph {
        let lists = Topology::new(Layout::Csc, 3, vec![0u64, 0, 2, 3].into(), vec![0u32, 2, 1].into()).unwrap();
        Graph::homogeneous(lists.with_weights(vec![0.5, 1.0, 2.0].into()).unwrap()).unwrap()
    }

    fn made(train: u8) -> Result<Dataset> {
        let nodes = NodeArrays {
            features: Some(held(NpyType::Tensor(DType::U8), &[3, 2], vec![1, 2, 3, 4, 5, 6])),
            splits: [Some(held(NpyType::U32, &[1], vec![train, 0, 0, 0])), None, None],
            ..NodeArrays::default()
        };
        Dataset::in_memory("three", &graph(), vec![nodes], Vec::new())
    }

    #[test]
    fn it_reads_as_the_folder_it_is_saved_to() {
        let dataset = made(2).unwrap();
        assert!(dataset.is_held() && dataset.verify(&Silent).is_ok());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("three");
        dataset.save(&path, &Silent).unwrap();
        let again = Dataset::open(&path).unwrap();
        again.verify(&Silent).unwrap();
        assert!(!again.is_held() && !again.features(0).unwrap().is_held());
        for dataset in [&dataset, &again] {
            let graph = dataset.graph().unwrap();
            assert_eq!(graph.relation(0).weights().unwrap()[..], [0.5, 1.0, 2.0]);
            assert_eq!(dataset.split(0, Split::Train).unwrap().unwrap().at(0), 2);
            assert_eq!(dataset.features(0).unwrap().for_writers().unwrap().as_slice(), [1, 2, 3, 4, 5, 6]);
        }
        let second = folder.path().join("again");
        again.save(&second, &Silent).unwrap();
        assert_eq!(Dataset::open(&second).unwrap().manifest(), again.manifest());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(matches!(made(3), Err(Error::IdOutOfRange { name: "train", id: 3, limit: 3, .. })));
        let labels = |rows: usize| NodeArrays {
            labels: Some(held(NpyType::Tensor(DType::U8), &[rows], vec![0; rows])),
            ..NodeArrays::default()
        };
        let refused = Dataset::in_memory("three", &graph(), vec![labels(2)], Vec::new()).unwrap_err().to_string();
        assert!(refused.contains("labels") && refused.contains("[3, ...]"), "{refused}");
        assert!(Dataset::in_memory("three", &graph(), vec![labels(3), labels(3)], Vec::new()).is_err());
        let bytes = Foreign::new(Arc::new(vec![0u8; 5]));
        assert!(Array::held("x", NpyType::U32, &[2], bytes).is_err());
    }

    #[test]
    fn names_that_become_one_file_are_told_apart() {
        let mut shelf = Shelf::default();
        let array = || held(NpyType::Tensor(DType::U8), &[0], Vec::new());
        assert_eq!([shelf.put("a/b", array()), shelf.put("a_b", array())], ["a_b.npy", "a_b-2.npy"]);
    }
}
