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
    /// What labels are.
    pub labels: LabelKind,
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
            labels: LabelKind::Auto,
        }
    }
}

/// What ids in text are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdKind {
    /// Whole numbers where every one of the first lines has them, names where most lines have others. Anything between is
    /// an error that names the line.
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

/// What labels of nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelKind {
    /// Whole numbers, also where they are stored as floats, are classes: -1 and NaN are none. Several a node are yes or no,
    /// 1 or 0. Other floats are numbers to predict.
    #[default]
    Auto,
    /// Classes, and nothing else.
    Classes,
    /// Numbers to predict, also where all of them are whole.
    Values,
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
    /// Says what was asked for and cannot be done for a source of this format.
    pub(super) fn check(&self, format: Format) -> Result<(), String> {
        let is_text = format == Format::EdgeList;
        let is_ogb = matches!(format, Format::OgbCsv | Format::OgbCsvHetero | Format::OgbNpz);
        let asked = Asked::default();
        let Asked { delimiter, header, source, target, weight, time, source_type, relation, target_type } = &self.text;
        let columns = [source, target, weight, time, source_type, relation, target_type];
        let says_text =
            *delimiter != asked.delimiter || *header != asked.header || columns.iter().any(|it| it.is_some());
        let refused = [
            (!is_text && (says_text || self.ids != IdKind::Auto), "ids, delimiters, headers and columns", "edge lists"),
            (!is_text && !self.edges.is_empty(), "edge lists by relation", "sources that are edge lists themselves"),
            (is_text && self.labels != LabelKind::Auto, "a kind of labels", "sources with labels"),
            (format != Format::Arrays && self.sparse_features != SparseFeatures::Dense, "sparse features", "arrays"),
            (is_ogb && !self.nodes.is_empty(), "a number of nodes", "sources that do not say it themselves"),
        ];
        match refused.into_iter().find(|(is_wrong, ..)| *is_wrong) {
            Some((_, what, of)) => Err(format!("{what} can be said of {of} only; this is read as {format}")),
            None if self.ids == IdKind::Integer && !self.nodes.is_empty() => {
                Err("a number of nodes goes with ids that are kept (--ids dense), not with ids that are numbered anew"
                    .into())
            }
            None => Ok(()),
        }
    }

    /// Checks that every number of nodes that was said is of a type that there is.
    pub(super) fn check_counts(&self, types: &[&str]) -> Result<(), String> {
        let there = types.join(", ");
        for (at, count) in self.nodes.iter().enumerate() {
            let is_known = match &count.of {
                Some(of) => types.contains(&of.as_str()),
                None => types.len() == 1,
            };
            if !is_known {
                let of = count.of.as_deref().unwrap_or("which type?");
                return Err(format!("{} nodes of {of:?} are said; node types are: {there}", count.count));
            }
            if self.nodes[..at].iter().any(|before| before.of == count.of) {
                return Err(format!("the number of nodes of {there} is said twice"));
            }
        }
        Ok(())
    }

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

    #[test]
    fn what_cannot_be_done_is_refused() {
        let plain = IngestOptions::default;
        let text = Asked { header: Some(true), ..Asked::default() };
        let nodes = vec![NodeCount { of: None, count: 3 }];
        for (format, options, words) in [
            (Format::Arrays, IngestOptions { text, ..plain() }, "read as arrays"),
            (Format::OgbCsv, IngestOptions { ids: IdKind::String, ..plain() }, "of edge lists only"),
            (Format::OgbNpz, IngestOptions { nodes: nodes.clone(), ..plain() }, "a number of nodes"),
            (Format::EdgeList, IngestOptions { labels: LabelKind::Values, ..plain() }, "a kind of labels"),
            (Format::EdgeList, IngestOptions { sparse_features: SparseFeatures::Skip, ..plain() }, "sparse features"),
            (Format::EdgeList, IngestOptions { ids: IdKind::Integer, nodes: nodes.clone(), ..plain() }, "--ids dense"),
        ] {
            let said = options.check(format).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
        let of = |name: &str| IngestOptions { nodes: vec![name.parse().unwrap()], ..plain() };
        assert!(of("3").check_counts(&["node"]).is_ok() && of("b=3").check_counts(&["a", "b"]).is_ok());
        assert!(of("3").check_counts(&["a", "b"]).is_err() && of("paper=3").check_counts(&["node"]).is_err());
        let twice = IngestOptions { nodes: [nodes.clone(), nodes].concat(), ..plain() };
        assert!(plain().check(Format::Arrays).is_ok() && twice.check_counts(&["node"]).is_err());
    }
}
