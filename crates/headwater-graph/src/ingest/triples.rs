//! Statements of head, relation and tail: knowledge graphs, for entities to classify or for links to predict.
//!
//! All nodes are of one type, `entity`, and relation k is called `rk`, so ids stay what they are in the file. With a split
//! the graph has the training statements only, and all statements are kept as links to predict.

use super::MOST_RELATIONS;
use super::arrays::Arrays;
use super::collected::{Collected, Edges, Found, LinkCounts, Nodes, Sink, implied_count};
use super::edges::{EdgeList, GrowingIds};
use super::fault::{Fault, Place};
use super::npz::{node_arrays, node_count, scalar};
use super::options::IngestOptions;
use crate::column::Ids;
use crate::dataset::{LinkFiles, Links};
use crate::error::Result;
use crate::topology::index;

/// Reads `head`, `rel`, `tail` and what else there is.
pub fn read(arrays: &Arrays, options: &IngestOptions, sink: &Sink<'_>) -> Result<Collected> {
    sink.progress.begin("edges", 0);
    let heads: Ids = arrays.array("head")?.ids()?.into();
    let expected = heads.len() as u64;
    let column = |name: &str| arrays.array(name)?.expect_rows(expected, "heads")?.ids().map(Ids::from);
    let (relations, tails) = (column("rel")?, column("tail")?);
    let declared = arrays.has("num_rels").then(|| scalar(arrays, "num_rels")).transpose()?;
    let relation_count = declared.unwrap_or_else(|| relations.iter().max().map_or(0, |max| max + 1));
    let wrong = |fault: Fault, name: &str| fault.at(arrays.path(), Place::Array(name.to_owned()));
    let limit = MOST_RELATIONS as u64;
    if relation_count > limit {
        return Err(wrong(Fault::TooMany { what: "relations", limit }, "rel"));
    }
    if let Some((at, id)) = (0..).zip(relations.iter()).find(|(_, id)| *id >= relation_count) {
        let expected = format!("one of the {relation_count} relations, from 0");
        let fault = Fault::Value { value: id.to_string(), expected };
        return Err(fault.at(arrays.path(), Place::Element("rel".into(), at)));
    }
    let largest = || implied_count(heads.iter().chain(tails.iter()).max(), expected, arrays.path());
    let mut nodes = Nodes::new("entity", node_count(arrays, options, "entity")?.map_or_else(largest, Ok)?);
    node_arrays(&mut nodes, arrays, options, sink)?;
    let triples = Triples { heads, relations, tails };
    let split = arrays.has("split").then(|| split(arrays, expected)).transpose()?;
    let links = split.as_deref().map(|split| triples.links(split, sink)).transpose()?.unwrap_or_default();
    let relations = triples.edges(index(relation_count), split.as_deref());
    let of_split = |split: &[i64], part: i64| split.iter().filter(|of| **of == part).count() as u64;
    let counts =
        |split: &[i64]| LinkCounts { train: of_split(split, 0), valid: of_split(split, 1), test: of_split(split, 2) };
    Ok(Collected { nodes: vec![nodes], relations, links, link_counts: split.as_deref().map(counts) })
}

fn split(arrays: &Arrays, expected: u64) -> Result<Vec<i64>> {
    let split = arrays.array("split")?.expect_rows(expected, "statements")?.integers()?;
    match (0..).zip(&split).find(|(_, part)| !(0..=2).contains(*part)) {
        Some((at, part)) => {
            let expected = "0 (train), 1 (valid) or 2 (test)".to_owned();
            let place = Place::Element("split".into(), at);
            Err(Fault::Value { value: part.to_string(), expected }.at(arrays.path(), place))
        }
        None => Ok(split),
    }
}

struct Triples {
    heads: Ids,
    relations: Ids,
    tails: Ids,
}

impl Triples {
    fn edges(&self, relations: usize, split: Option<&[i64]>) -> Vec<Edges> {
        let mut lists: Vec<EdgeList> = (0..relations).map(|_| EdgeList::default()).collect();
        for at in (0..self.heads.len()).filter(|at| split.is_none_or(|split| split[*at] == 0)) {
            let list = &mut lists[index(self.relations.at(at))];
            list.sources.push(self.heads.at(at));
            list.targets.push(self.tails.at(at));
        }
        let edges = |(at, list)| Edges::new(0, format!("r{at}"), 0, Found::List(list));
        lists.into_iter().enumerate().map(edges).collect()
    }

    fn links(&self, split: &[i64], sink: &Sink<'_>) -> Result<Links> {
        let mut links = Links::default();
        let parts = [("train", &mut links.train), ("valid", &mut links.valid), ("test", &mut links.test)];
        for (part, (name, files)) in (0..).zip(parts) {
            let mut rows = GrowingIds::default();
            for at in (0..split.len()).filter(|at| split[*at] == part) {
                rows.extend(&[self.heads.at(at), self.relations.at(at), self.tails.at(at)]);
            }
            let triples = format!("links.{name}");
            let shape = [rows.len() as u64 / 3, 3];
            match &rows {
                GrowingIds::U32(rows) => sink.writer.array(&triples, &shape, rows)?,
                GrowingIds::U64(rows) => sink.writer.array(&triples, &shape, rows)?,
            }
            *files = Some(LinkFiles { triples, ..LinkFiles::default() });
        }
        Ok(links)
    }
}
