//! `headwater.json`: what a dataset is, and which file is what.
//!
//! The manifest is text that anybody may have written or damaged. Reading it allocates no more than its own length, and
//! everything it says about arrays is checked by `roles.rs` before a byte of them is looked at. Fields that are not known
//! are ignored, so a later minor version may add some; another major version is refused.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::checksum::Checksum;
use super::refused;
use super::roles;
use crate::error::{Error, Result};
use crate::schema::{NodeType, Relation, Schema};
use crate::topology::{Layout, RowOrder};

/// The first field of every manifest.
pub(super) const FORMAT: &str = "headwater dataset";
/// The version written. Its first number changes when old readers would misread it.
pub(super) const VERSION: &str = "1.1";
const MAJOR: &str = "1";
/// A schema with a million relations fits.
const MOST_BYTES: u64 = 1 << 30;

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Says what kind of file this is.
    pub format: String,
    /// `major.minor`.
    pub version: String,
    /// What the dataset is called.
    pub name: String,
    /// How it was made, in words.
    pub origin: String,
    /// How every relation is stored.
    pub layout: Layout,
    /// The node types.
    pub nodes: Vec<NodeEntry>,
    /// The relations.
    pub relations: Vec<RelationEntry>,
    /// Edges to predict.
    #[serde(default, skip_serializing_if = "Links::is_empty")]
    pub links: Links,
    /// Every file, by its name.
    pub files: BTreeMap<String, FileEntry>,
    /// Checksum of all the rest. Version 1.0 has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<Checksum>,
}

/// A node type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// What it is called.
    pub name: String,
    /// How many there are.
    pub count: u64,
    /// What belongs to them.
    #[serde(flatten)]
    pub files: NodeFiles,
}

/// A relation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelationEntry {
    /// The node type its edges begin at.
    pub source: String,
    /// What it is called.
    pub name: String,
    /// The node type its edges end at.
    pub target: String,
    /// How many edges it has.
    pub edges: u64,
    /// What belongs to them.
    #[serde(flatten)]
    pub files: EdgeFiles,
}

/// Arrays that belong to the nodes of a type, in their order. To a writer these are the names it gave the arrays, in a
/// manifest they are files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFiles {
    /// One row a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<String>,
    /// One number or one row a node. A class of -1 or NaN is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// Labels are below this when they are classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<u64>,
    /// When the node appeared, 64-bit signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<String>,
    /// What the node was called where it came from: one integer a node or, with offsets, bytes of UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_ids: Option<String>,
    /// Where each node's bytes begin in `original_ids`, and after the last one where they end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_id_offsets: Option<String>,
    /// The node's number in the dataset that this one is a reordering of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_numbers: Option<String>,
    /// Lists of nodes.
    #[serde(skip_serializing_if = "Splits::is_empty")]
    pub splits: Splits,
}

/// Lists of node ids to learn from, to choose by and to report on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Splits {
    /// To learn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<String>,
    /// To choose by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<String>,
    /// To report on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
}

/// One of the splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// To learn from.
    Train,
    /// To choose by.
    Valid,
    /// To report on.
    Test,
}

/// Arrays that belong to the edges of a relation, in the order of the lists if nothing else is said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EdgeFiles {
    /// Where each row's list begins, 64-bit unsigned.
    pub offsets: String,
    /// The lists, 32 or 64-bit unsigned.
    pub neighbours: String,
    /// The edges' own ids, when they are not their positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_ids: Option<String>,
    /// One 32-bit float an edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// One 64-bit signed integer an edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<String>,
    /// One number or one row an edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// One row an edge in the order of edge ids, which are then below the number of edges. Lists are sorted without moving
    /// them, and a relation and its reverse may share them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<String>,
    /// How rows are ordered.
    pub order: RowOrder,
}

/// Edges to predict, apart from those of the graph.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Links {
    /// To learn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<LinkFiles>,
    /// To choose by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<LinkFiles>,
    /// To report on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<LinkFiles>,
}

/// A list of edges to predict.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkFiles {
    /// One row an edge: source, position of the relation in the schema, target.
    pub triples: String,
    /// One number an edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// One row of other sources an edge, to rank it against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_sources: Option<String>,
    /// One row of other targets an edge, to rank it against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_targets: Option<String>,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileEntry {
    /// NumPy's name of the element type.
    pub dtype: String,
    /// The array's shape.
    pub shape: Vec<u64>,
    /// Bytes of the whole file.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub blake3: Checksum,
}

#[derive(Deserialize)]
struct Head {
    format: String,
    version: String,
}

impl Manifest {
    /// Reads a manifest and checks that it makes sense by itself.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?, path)
    }

    /// Reads the text of a manifest; `path` is for messages.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let wrong = |why: String| Error::Manifest { path: path.to_owned(), why };
        let head: Head = serde_json::from_slice(text).map_err(|why| wrong(format!("is no manifest: {why}")))?;
        if head.format != FORMAT {
            return Err(wrong(format!("format is {:?}; expected {FORMAT:?}", head.format)));
        }
        if head.version.split('.').next() != Some(MAJOR) {
            return Err(Error::DatasetVersion { path: path.to_owned(), found: head.version, known: "1.x" });
        }
        let manifest: Self = serde_json::from_slice(text).map_err(|why| wrong(why.to_string()))?;
        roles::check(&manifest, path)?;
        Ok(manifest)
    }

    /// The node types and relations.
    pub fn schema(&self) -> Result<Schema> {
        let types = self.nodes.iter().map(|node| NodeType { name: node.name.clone(), count: node.count }).collect();
        let bare = Schema::new(types, Vec::new())?;
        let positions: HashMap<&str, usize> = self.nodes.iter().map(|node| node.name.as_str()).zip(0..).collect();
        // The schema knows how to say what is missing.
        let end = |name: &str| positions.get(name).copied().map_or_else(|| bare.node_type(name), Ok);
        let relation = |entry: &RelationEntry| {
            Ok(Relation { source: end(&entry.source)?, name: entry.name.clone(), target: end(&entry.target)? })
        };
        let relations = self.relations.iter().map(relation).collect::<Result<Vec<_>>>()?;
        Schema::new(bare.node_types().to_vec(), relations)
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}

/// The text of a manifest, unless it is no file or too long to be one.
pub(super) fn read_text(path: &Path) -> Result<Vec<u8>> {
    let is_file = std::fs::metadata(path).map_err(refused("read", path))?.is_file();
    let wrong = |why: String| Error::Manifest { path: path.to_owned(), why };
    if !is_file {
        return Err(wrong("is no regular file".into()));
    }
    let file = File::open(path).map_err(refused("read", path))?;
    let mut text = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(refused("read", path))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(wrong(format!("is longer than {MOST_BYTES} bytes")));
    }
    Ok(text)
}

impl Splits {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The list of one split.
    #[must_use]
    pub fn get(&self, split: Split) -> Option<&String> {
        match split {
            Split::Train => self.train.as_ref(),
            Split::Valid => self.valid.as_ref(),
            Split::Test => self.test.as_ref(),
        }
    }
}

impl Links {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The edges of one split.
    #[must_use]
    pub fn get(&self, split: Split) -> Option<&LinkFiles> {
        match split {
            Split::Train => self.train.as_ref(),
            Split::Valid => self.valid.as_ref(),
            Split::Test => self.test.as_ref(),
        }
    }
}

impl Split {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Train, Self::Valid, Self::Test];

    /// `train`, `valid` or `test`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }
}
