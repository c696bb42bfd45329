//! A schema with the neighbour lists of each of its relations.

use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::topology::{Layout, Topology};

/// A graph in host memory. Clones share its arrays.
#[derive(Debug, Clone)]
pub struct Graph {
    schema: Schema,
    relations: Vec<Topology>,
}

impl Graph {
    /// One topology a relation, in the schema's order and all in one layout.
    pub fn new(schema: Schema, relations: Vec<Topology>) -> Result<Self> {
        let (found, expected) = (relations.len() as u64, schema.relations().len() as u64);
        if found != expected {
            return Err(Error::Length { name: "topologies", found, expected, of: "the schema's relations" });
        }
        for (at, topology) in relations.iter().enumerate() {
            let relation = || schema.relation_name(at);
            let expected = relations[0].layout();
            if topology.layout() != expected {
                return Err(Error::MixedLayouts { relation: relation(), found: topology.layout(), expected });
            }
            let ends = [schema.relations()[at].source, schema.relations()[at].target];
            let [source, target] = ends.map(|end| schema.node_types()[end].count);
            let (rows, columns) = match topology.layout() {
                Layout::Csr => (source, target),
                Layout::Csc => (target, source),
            };
            for (what, found, expected) in [("rows", topology.rows(), rows), ("columns", topology.columns(), columns)] {
                if found != expected {
                    return Err(Error::Shape { relation: relation(), what, found, expected });
                }
            }
        }
        Ok(Self { schema, relations })
    }

    /// One node type and one relation.
    pub fn homogeneous(topology: Topology) -> Result<Self> {
        Self::new(Schema::homogeneous(topology.rows()), vec![topology])
    }

    /// A copy in memory of large pages, where scattered reads are faster than in mapped files.
    pub fn in_memory(&self) -> Result<Self> {
        let relations = self.relations.iter().map(Topology::in_memory).collect::<Result<_>>()?;
        Ok(Self { schema: self.schema.clone(), relations })
    }

    /// The types.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The neighbour lists of a relation. Panics when there is no such relation, as a slice does.
    #[must_use]
    pub fn relation(&self, at: usize) -> &Topology {
        &self.relations[at]
    }

    /// Those of all relations, in the schema's order.
    #[must_use]
    pub fn relations(&self) -> &[Topology] {
        &self.relations
    }

    /// The type whose nodes own the lists of a relation, and the type of their neighbours.
    #[must_use]
    pub(crate) fn ends(&self, at: usize) -> (usize, usize) {
        self.schema.relations()[at].ends(self.relation(at).layout())
    }

    /// Nodes of all types.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.schema.node_types().iter().map(|node_type| node_type.count).sum()
    }

    /// Edges of all relations.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.relations.iter().map(Topology::edges).sum()
    }

    /// Bytes of all arrays.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.relations.iter().map(Topology::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{NodeType, Relation};

    #[test]
    fn topologies_fit_their_relations() {
        let node_types = [("a", 2), ("b", 3)].map(|(name, count)| NodeType { name: name.into(), count });
        let relation = Relation { source: 0, name: "to".into(), target: 1 };
        let schema = Schema::new(node_types.into(), vec![relation]).unwrap();
        let topology = |layout, columns, offsets: Vec<u64>| {
            Topology::new(layout, columns, offsets.into(), vec![0u32, 1].into()).unwrap()
        };
        let by_target = topology(Layout::Csc, 2, vec![0, 1, 1, 2]);
        let graph = Graph::new(schema.clone(), vec![by_target.clone()]).unwrap();
        assert_eq!((graph.nodes(), graph.edges(), graph.bytes()), (5, 2, 4 * 8 + 2 * 4));
        let by_source = topology(Layout::Csr, 3, vec![0, 1, 2]);
        assert!(Graph::new(schema.clone(), vec![by_source]).is_ok());
        let wrong = topology(Layout::Csr, 2, vec![0, 1, 1, 2]);
        assert!(matches!(Graph::new(schema.clone(), vec![wrong]), Err(Error::Shape { what: "rows", found: 3, .. })));
        assert!(matches!(Graph::new(schema, vec![]), Err(Error::Length { .. })));
    }
}
