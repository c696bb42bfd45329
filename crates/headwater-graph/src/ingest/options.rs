//! What the user may say about a source.

use std::path::PathBuf;
use std::str::FromStr;

use super::format::Format;
use super::text::Asked;
use crate::topology::Layout;

/// How to take a source in. The default finds out everything it can.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// What the source is.
    pub format: Option<Format>,
    /// What the dataset is called; otherwise after the folder it goes to.
    pub name: Option<String>,
    /// How neighbour lists are stored.
    pub layout: Layout,
    /// How an edge list is written.
    pub text: Asked,
    /// What ids of an edge list are.
    pub ids: IdKind,
    /// Edge lists of several relations.
    pub edges: Vec<TypedFile>,
    /// How many nodes there are, where the source does not say.
    pub nodes: Vec<NodeCount>,
    /// Whether edges also go the other way.
    pub reverse: Reverse,
    /// What becomes of sparse features.
    pub sparse_features: SparseFeatures,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self {
            format: None,
            name: None,
            layout: Layout::Csc,
            text: Asked::default(),
            ids: IdKind::Auto,
            edges: Vec::new(),
            nodes: Vec::new(),
            reverse: Reverse::None,
            sparse_features: SparseFeatures::Dense,
        }
    }
}

/// What ids in text are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdKind {
    /// Whole numbers if the first lines have nothing else, otherwise any text.
    #[default]
    Auto,
    /// Whole numbers that are kept: node 7 is node 7.
    Dense,
    /// Whole numbers; those that occur are numbered anew in ascending order.
    Integer,
    /// Any text; ids are numbered in the order of their bytes.
    String,
}

/// Whether edges also go the other way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reverse {
    /// They do not.
    #[default]
    None,
    /// Relations within one type get the reverse of each of their edges; others get a relation `rev_NAME` beside them.
    Add,
}

/// What becomes of sparse features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SparseFeatures {
    /// They become rows of 32-bit floats, zeros written out.
    #[default]
    Dense,
    /// They become rows of 16-bit floats.
    Half,
    /// They are left out.
    Skip,
}

/// An edge list of one relation, `author:writes:paper=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedFile {
    /// The type its edges begin at.
    pub source: String,
    /// The relation.
    pub relation: String,
    /// The type its edges end at.
    pub target: String,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for TypedFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not of the form SOURCE:RELATION:TARGET=FILE");
        let (relation, path) = text.split_once('=').ok_or_else(wrong)?;
        let words: Vec<&str> = relation.split(':').collect();
        match words[..] {
            [source, relation, target] if words.iter().all(|word| !word.is_empty()) && !path.is_empty() => Ok(Self {
                source: source.to_owned(),
                relation: relation.to_owned(),
                target: target.to_owned(),
                path: path.into(),
            }),
            _ => Err(wrong()),
        }
    }
}

/// How many nodes there are, `100` or `paper=100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCount {
    /// Of which type; without, of the only one.
    pub of: Option<String>,
    /// How many.
    pub count: u64,
}

impl FromStr for NodeCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (of, number) = match text.rsplit_once('=') {
            Some((of, number)) => (Some(of.to_owned()), number),
            None => (None, text),
        };
        let count = number.parse().map_err(|_| format!("{text:?} is not of the form COUNT or TYPE=COUNT"))?;
        Ok(Self { of, count })
    }
}

impl IngestOptions {
    /// What was said about the number of nodes of a type, `only` when there is no other.
    pub(super) fn count_of(&self, node_type: &str, only: bool) -> Option<u64> {
        let is_it = |count: &&NodeCount| count.of.as_deref().map_or(only, |of| of == node_type);
        self.nodes.iter().find(is_it).map(|count| count.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let typed: TypedFile = "author:writes:paper=a=b.csv".parse().unwrap();
        assert_eq!((typed.relation.as_str(), typed.path.to_str()), ("writes", Some("a=b.csv")));
        assert!(["a:b=c", "a:b:c", "a::c=f", "a:b:c="].iter().all(|text| text.parse::<TypedFile>().is_err()));
        assert_eq!("paper=7".parse(), Ok(NodeCount { of: Some("paper".into()), count: 7 }));
        assert_eq!("7".parse(), Ok(NodeCount { of: None, count: 7 }));
        assert!("x".parse::<NodeCount>().is_err());
    }
}
