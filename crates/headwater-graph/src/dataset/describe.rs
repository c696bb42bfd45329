//! From what the caller says about its arrays to the manifest: names become files, relations are matched to the schema.

use std::collections::BTreeMap;

use super::manifest::{EdgeFiles, FORMAT, Manifest, NodeEntry, RelationEntry, VERSION};
use super::writer::{Description, Files};
use super::{names, roles};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::topology::{Layout, index};

/// A relation whose arrays were written from a topology.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) files: EdgeFiles,
    pub(super) layout: Layout,
    pub(super) columns: u64,
}

/// What an array of a relation is called while the schema is not known.
pub(super) fn relation_array(at: usize, what: &str) -> String {
    format!("relation {at}.{what}")
}

/// Puts the manifest together. Everything it names is there; whether it fits is the reader's check.
pub(super) fn manifest(
    files: &Files,
    description: Description,
    mut written: BTreeMap<usize, Written>,
) -> Result<Manifest> {
    let Description { name, schema, layout, mut nodes, relations, mut links, origin } = description;
    for (what, found, expected) in [
        ("node types", nodes.len(), schema.node_types().len()),
        ("relations", relations.len(), schema.relations().len()),
        ("relations", written.last_key_value().map_or(0, |(at, _)| at + 1), schema.relations().len()),
    ] {
        if found > expected {
            return Err(files.unfit(format!("arrays of {found} {what} are given; the schema has {expected}")));
        }
    }
    nodes.resize_with(schema.node_types().len(), Default::default);
    for node in &mut nodes {
        roles::rename_nodes(node, &mut into_file)?;
    }
    for link in [&mut links.train, &mut links.valid, &mut links.test].into_iter().flatten() {
        roles::rename_links(link, &mut into_file)?;
    }
    let mut given = relations.into_iter();
    let mut edge_files = Vec::new();
    for at in 0..schema.relations().len() {
        let given = given.next().unwrap_or_default();
        edge_files.push(relation_files(files, &schema, layout, (at, given, written.remove(&at)))?);
    }
    let all = files.entries()?;
    let edges = |of: &EdgeFiles| all.get(&of.neighbours).and_then(|file| file.shape.first().copied()).unwrap_or(0);
    let node = |(kind, files): (&crate::NodeType, _)| NodeEntry { name: kind.name.clone(), count: kind.count, files };
    let relation = |(relation, files): (&crate::Relation, EdgeFiles)| {
        let [source, target] = [relation.source, relation.target].map(|end| schema.node_types()[end].name.clone());
        RelationEntry { source, name: relation.name.clone(), target, edges: edges(&files), files }
    };
    Ok(Manifest {
        format: FORMAT.to_owned(),
        version: VERSION.to_owned(),
        name,
        origin,
        layout,
        nodes: schema.node_types().iter().zip(nodes).map(node).collect(),
        relations: schema.relations().iter().zip(edge_files).map(relation).collect(),
        links,
        files: all,
        blake3: None,
    })
}

/// The files of one relation: those the description names, else those written from a topology, under their final names.
fn relation_files(
    files: &Files,
    schema: &Schema,
    layout: Layout,
    (at, mut given, written): (usize, EdgeFiles, Option<Written>),
) -> Result<EdgeFiles> {
    let relation = schema.relation_name(at);
    if !given.offsets.is_empty() {
        roles::rename_edges(&mut given, &mut into_file)?;
        return Ok(given);
    }
    let Some(written) = written else {
        return Err(files.unfit(format!("the arrays of relation {relation} were not written")));
    };
    check_fit(schema, layout, at, &written)?;
    let mut own = written.files;
    roles::rename_edges(&mut own, &mut |name| {
        let what = name.rsplit_once('.').map_or("", |(_, what)| what);
        *name = files.rename(&names::file_name(name), &format!("{relation}.{what}"))?;
        Ok(())
    })?;
    // Labels and features are no part of a topology; they may be given beside it.
    own.labels = given.labels.map(|name| names::file_name(&name));
    own.features = given.features.map(|name| names::file_name(&name));
    Ok(own)
}

fn check_fit(schema: &Schema, layout: Layout, at: usize, written: &Written) -> Result<()> {
    if written.layout != layout {
        return Err(Error::MixedLayouts {
            relation: schema.relation_name(at),
            found: written.layout,
            expected: layout,
        });
    }
    let column_end = match layout {
        Layout::Csr => schema.relations()[at].target,
        Layout::Csc => schema.relations()[at].source,
    };
    let (found, expected) = (written.columns, schema.node_types()[column_end].count);
    if index(found) == index(expected) {
        Ok(())
    } else {
        Err(Error::Shape { relation: schema.relation_name(at), what: "columns", found, expected })
    }
}

fn into_file(name: &mut String) -> Result<()> {
    *name = names::file_name(name);
    Ok(())
}
