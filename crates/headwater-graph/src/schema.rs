//! Names and sizes: which node types there are, and which relations connect them.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::topology::Layout;

/// Nodes of one kind, numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeType {
    /// What they are called.
    pub name: String,
    /// How many there are.
    pub count: u64,
}

/// Edges of one kind. Types are positions in [`Schema::node_types`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// Where its edges begin.
    pub source: usize,
    /// What it is called.
    pub name: String,
    /// Where its edges end.
    pub target: usize,
}

/// The types of a graph. One node type and one relation make a homogeneous graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    node_types: Vec<NodeType>,
    relations: Vec<Relation>,
}

impl Relation {
    /// The type whose nodes own lists in a layout, and the type of their neighbours.
    #[must_use]
    pub(crate) fn ends(&self, layout: Layout) -> (usize, usize) {
        match layout {
            Layout::Csc => (self.target, self.source),
            Layout::Csr => (self.source, self.target),
        }
    }
}

impl Schema {
    /// Checks names and ends. The same relation name may stand between different types.
    pub fn new(node_types: Vec<NodeType>, relations: Vec<Relation>) -> Result<Self> {
        let mut seen = HashSet::new();
        if let Some(node_type) = node_types.iter().find(|node_type| !seen.insert(&node_type.name)) {
            return Err(Error::Twice { kind: "node type", name: node_type.name.clone() });
        }
        let schema = Self { node_types, relations };
        let mut seen = HashSet::new();
        for (at, relation) in schema.relations.iter().enumerate() {
            let limit = schema.node_types.len() as u64;
            for (name, end) in [("source", relation.source), ("target", relation.target)] {
                if end as u64 >= limit {
                    return Err(Error::IdOutOfRange { name, position: at as u64, id: end as u64, limit });
                }
            }
            if !seen.insert((relation.source, &relation.name, relation.target)) {
                return Err(Error::Twice { kind: "relation", name: schema.relation_name(at) });
            }
        }
        Ok(schema)
    }

    /// One node type, `node`, and one relation, `to`.
    #[must_use]
    pub fn homogeneous(nodes: u64) -> Self {
        let node_types = vec![NodeType { name: "node".into(), count: nodes }];
        Self { node_types, relations: vec![Relation { source: 0, name: "to".into(), target: 0 }] }
    }

    /// The node types.
    #[must_use]
    pub fn node_types(&self) -> &[NodeType] {
        &self.node_types
    }

    /// The relations.
    #[must_use]
    pub fn relations(&self) -> &[Relation] {
        &self.relations
    }

    /// Whether there is one of each.
    #[must_use]
    pub fn is_homogeneous(&self) -> bool {
        self.node_types.len() == 1 && self.relations.len() == 1
    }

    /// The position of a node type.
    pub fn node_type(&self, name: &str) -> Result<usize> {
        let found = self.node_types.iter().position(|node_type| node_type.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.node_types.iter().map(|node_type| node_type.name.as_str()).collect();
            Error::Unknown { kind: "node type", name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// The position of a relation, by `source__name__target` or, where only one has it, by its name alone.
    pub fn relation(&self, name: &str) -> Result<usize> {
        let all = || 0..self.relations.len();
        let mut named = all().filter(|&at| self.relations[at].name == name);
        let full = all().find(|&at| self.relation_name(at) == name);
        full.or_else(|| named.next().filter(|_| named.next().is_none())).ok_or_else(|| {
            let known: Vec<String> = all().map(|at| self.relation_name(at)).collect();
            Error::Unknown { kind: "relation", name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// `source__name__target`, as PyG writes a relation in one word.
    #[must_use]
    pub fn relation_name(&self, at: usize) -> String {
        let relation = &self.relations[at];
        format!(
            "{}__{}__{}",
            self.node_types[relation.source].name, relation.name, self.node_types[relation.target].name
        )
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node_type in &self.node_types {
            writeln!(f, "{} ({})", node_type.name, node_type.count)?;
        }
        for relation in &self.relations {
            let (source, target) = (&self.node_types[relation.source], &self.node_types[relation.target]);
            writeln!(f, "{} -{}-> {}", source.name, relation.name, target.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn citations() -> Schema {
        let node_types = [("paper", 10), ("author", 4)].map(|(name, count)| NodeType { name: name.into(), count });
        let relations = [(0, "cites", 0), (1, "writes", 0), (0, "rev", 1), (0, "rev", 0)];
        let relations = relations.map(|(source, name, target)| Relation { source, name: name.into(), target });
        Schema::new(node_types.into(), relations.into()).unwrap()
    }

    #[test]
    fn relations_are_found_by_either_name() {
        let schema = citations();
        assert_eq!(schema.relation("author__writes__paper").unwrap(), 1);
        assert_eq!(schema.relation("cites").unwrap(), 0);
        assert_eq!(schema.node_type("author").unwrap(), 1);
        // `rev` alone could mean two relations.
        let why = schema.relation("rev").unwrap_err().to_string();
        assert!(why.contains("paper__rev__author") && why.contains("\"rev\""), "{why}");
    }

    #[test]
    fn names_stand_once_and_ends_exist() {
        let node = |name: &str| NodeType { name: name.into(), count: 1 };
        assert!(matches!(Schema::new(vec![node("a"), node("a")], vec![]), Err(Error::Twice { .. })));
        let dangling = Relation { source: 0, name: "to".into(), target: 1 };
        assert!(matches!(
            Schema::new(vec![node("a")], vec![dangling]),
            Err(Error::IdOutOfRange { name: "target", .. })
        ));
        let loops = Relation { source: 0, name: "to".into(), target: 0 };
        assert!(matches!(Schema::new(vec![node("a")], vec![loops.clone(), loops]), Err(Error::Twice { .. })));
    }
}
