//! OGB's raw folders of node property prediction: packed tables with one kind of node or several, and one archive.
//!
//! Tables have no header and ids are dense. OGB stores some graphs with each edge once and adds the other direction when
//! it loads them; [`Reverse::Add`](super::options::Reverse) does the same.

use std::path::{Path, PathBuf};

use super::arrays::Arrays;
use super::collected::{Collected, Edges, Found, Nodes, Sink, begin, check_ends, there};
use super::edges::EdgeList;
use super::fault::{Fault, Place};
use super::npz;
use super::text::{
    Blocks, Delimiter, Dialect, Keys, RowPlan, SeenIds, integer_column, label_rows, parse_rows, small_table,
};
use crate::error::Result;

/// One kind of node: `raw/edge.csv.gz` and what stands beside it.
pub fn read_csv(root: &Path, sink: &Sink<'_>) -> Result<Collected> {
    let raw = root.join("raw");
    tell_files(&raw, &["num-node-list", "num-edge-list", "edge", "edge-feat", "node-feat", "node_year", "node-label"]);
    let mut nodes = Nodes::new("node", single_count(&raw.join("num-node-list.csv.gz"), sink)?);
    let list = edges(&raw, [&nodes, &nodes], sink)?;
    tables(&mut nodes, &raw, &raw, sink)?;
    splits(&mut nodes, root, "", sink)?;
    let mut edges = Edges::new(0, "to", 0, Found::List(list));
    edge_tables(&mut edges, "node__to__node", &raw, sink)?;
    Ok(Collected { nodes: vec![nodes], relations: vec![edges], ..Collected::default() })
}

/// Several kinds of nodes: `raw/triplet-type-list.csv.gz`, `raw/relations`, `raw/node-feat`, `raw/node-label`.
pub fn read_csv_hetero(root: &Path, sink: &Sink<'_>) -> Result<Collected> {
    let raw = root.join("raw");
    let mut nodes = node_types(&raw.join("num-node-dict.csv.gz"))?;
    let triplets = raw.join("triplet-type-list.csv.gz");
    let mut relations: Vec<Edges> = Vec::new();
    for row in small_table(&triplets)? {
        let [source, name, target] = &row[..] else {
            return Err(Fault::Ragged { found: row.len(), expected: 3 }.of(&triplets));
        };
        let [from, to] = [source, target].map(|end| position(&nodes, end, &triplets));
        let (from, to) = (from?, to?);
        if relations.iter().any(|known| known.name == *name && (known.source, known.target) == (from, to)) {
            return Err(Fault::Twice { what: "relation", name: row.join(",") }.of(&triplets));
        }
        let folder = raw.join("relations").join(format!("{source}___{name}___{target}"));
        tell_files(&folder, &["num-edge-list", "edge", "edge-feat", "edge_reltype"]);
        let list = edges(&folder, [&nodes[from], &nodes[to]], sink)?;
        let mut edges = Edges::new(from, name, to, Found::List(list));
        edge_tables(&mut edges, &format!("{source}__{name}__{target}"), &folder, sink)?;
        relations.push(edges);
    }
    for kind in &mut nodes {
        let name = kind.name.clone();
        tell_files(&raw.join("node-feat").join(&name), &["node-feat", "node_year", "num-node-list"]);
        tell_files(&raw.join("node-label").join(&name), &["node-label", "num-node-list"]);
        tables(kind, &raw.join("node-feat").join(&name), &raw.join("node-label").join(&name), sink)?;
        splits(kind, root, &name, sink)?;
    }
    Ok(Collected { nodes, relations, ..Collected::default() })
}

/// One archive, `raw/data.npz`, as ogbn-papers100M has it.
pub fn read_npz(root: &Path, sink: &Sink<'_>) -> Result<Collected> {
    let data = Arrays::open(&root.join("raw/data.npz"))?;
    let known = ["num_nodes_list", "num_edges_list", "edge_index", "edge_feat", "node_feat", "node_year"];
    npz::tell_others(data.path(), data.names(), &known);
    let mut nodes = Nodes::new("node", npz::scalar(&data, "num_nodes_list")?);
    sink.progress.begin("edges", 0);
    let edges = npz::edge_index(data.array("edge_index")?)?;
    let (found, expected) = (edges.len() as u64, npz::scalar(&data, "num_edges_list")?);
    if found != expected {
        let fault = Fault::Length { found, expected, of: "edges by num_edges_list".into() };
        return Err(data.array("edge_index")?.wrong(fault));
    }
    check_ends(&edges, [&nodes, &nodes], data.path())?;
    if data.has("node_feat") {
        nodes.features(data.array("node_feat")?, sink)?;
    }
    if data.has("node_year") {
        nodes.times(&data.array("node_year")?.integers()?, data.path(), sink)?;
    }
    if let Some(path) = there(root.join("raw/node-label.npz")) {
        npz::labels(&mut nodes, Arrays::open(&path)?.array("node_label")?, sink)?;
    }
    splits(&mut nodes, root, "", sink)?;
    let mut edges = Edges::new(0, "to", 0, Found::List(edges));
    if data.has("edge_feat") {
        edges.features("node__to__node", &data, "edge_feat", sink)?;
    }
    Ok(Collected { nodes: vec![nodes], relations: vec![edges], ..Collected::default() })
}

/// The node types and their counts: names in one line, counts in the next.
fn node_types(path: &Path) -> Result<Vec<Nodes>> {
    let table = small_table(path)?;
    let [names, counts] = &table[..] else {
        let what = "line of node types and one line of counts".into();
        return Err(Fault::Missing { what, there: format!("{} lines", table.len()) }.of(path));
    };
    if names.len() != counts.len() {
        return Err(Fault::Ragged { found: counts.len(), expected: names.len() }.of(path));
    }
    let mut nodes: Vec<Nodes> = Vec::new();
    for (name, count) in names.iter().zip(counts) {
        let wrong = || Fault::Field { column: name.clone(), value: count.clone(), expected: "a count" };
        let count = count.parse().map_err(|_| wrong().of(path))?;
        if nodes.iter().any(|known| known.name == *name) {
            return Err(Fault::Twice { what: "node type", name: name.clone() }.of(path));
        }
        nodes.push(Nodes::new(name, count));
    }
    Ok(nodes)
}

pub(super) fn position(nodes: &[Nodes], name: &str, path: &Path) -> Result<usize> {
    let found = nodes.iter().position(|kind| kind.name == name);
    found.ok_or_else(|| {
        let there: Vec<&str> = nodes.iter().map(|kind| kind.name.as_str()).collect();
        Fault::Missing { what: format!("node type {name:?}"), there: there.join(", ") }.of(path)
    })
}

/// A file with one number: how many there are of something, of the only graph.
fn single_count(path: &Path, sink: &Sink<'_>) -> Result<u64> {
    let counts = integer_column(path, sink.progress)?;
    match counts[..] {
        [count] if count >= 0 => Ok(count.unsigned_abs()),
        _ => {
            let value = format!("{:?}", &counts[..counts.len().min(4)]);
            Err(Fault::Value { value, expected: "one count, of one graph".into() }.of(path))
        }
    }
}

fn edges(folder: &Path, ends: [&Nodes; 2], sink: &Sink<'_>) -> Result<EdgeList> {
    let path = folder.join("edge.csv.gz");
    let expected = single_count(&folder.join("num-edge-list.csv.gz"), sink)?;
    begin(sink.progress, &format!("reading {}", path.display()), &path);
    let dialect = Dialect {
        delimiter: Delimiter::Byte(b','),
        columns: 2,
        header: None,
        source: 0,
        target: 1,
        weight: None,
        time: None,
        kinds: [None; 3],
        ids: SeenIds::default(),
        guessed_header: None,
        unused: Vec::new(),
    };
    let plan = RowPlan { dialect, integer_ids: true };
    let mut list = EdgeList::default();
    Blocks::open(&path)?.for_each(
        sink.progress,
        |block| parse_rows(block, &plan),
        |blocks| {
            for block in blocks {
                if let Keys::Integers(ids) = block.parsed.ends {
                    let end = |from: usize| ids.iter().skip(from).step_by(2).copied().collect::<Vec<u64>>();
                    list.sources.extend(&end(0));
                    list.targets.extend(&end(1));
                }
            }
            Ok(())
        },
    )?;
    let found = list.len() as u64;
    if found != expected {
        return Err(Fault::Length { found, expected, of: "edges by num-edge-list.csv.gz".into() }.of(&path));
    }
    check_ends(&list, ends, &path)?;
    Ok(list)
}

/// Features, years and labels, those that are there.
fn tables(nodes: &mut Nodes, features: &Path, labels: &Path, sink: &Sink<'_>) -> Result<()> {
    if let Some(path) = there(features.join("node-feat.csv.gz")) {
        nodes.features_of_text(&path, sink)?;
    }
    if let Some(path) = there(features.join("node_year.csv.gz")) {
        begin(sink.progress, "years", &path);
        nodes.times(&integer_column(&path, sink.progress)?, &path, sink)?;
    }
    if let Some(path) = there(labels.join("node-label.csv.gz")) {
        begin(sink.progress, "labels", &path);
        let (columns, numbers) = label_rows(&path, sink.progress)?;
        let place = |fault: Fault, at: u64| fault.at(&path, Place::Element("label".into(), at));
        nodes.labels(columns.max(1), numbers, place, &path, sink)?;
    }
    Ok(())
}

/// Features of edges, when they are there. `edge_reltype` says once more which relation this is.
fn edge_tables(edges: &mut Edges, relation: &str, folder: &Path, sink: &Sink<'_>) -> Result<()> {
    there(folder.join("edge-feat.csv.gz")).map_or(Ok(()), |path| edges.features_of_text(relation, &path, sink))
}

/// The lists of nodes in `split/NAME/TYPE/train.csv.gz` and so on.
fn splits(nodes: &mut Nodes, root: &Path, kind: &str, sink: &Sink<'_>) -> Result<()> {
    let Some(folder) = split_folder(&root.join("split")) else { return Ok(()) };
    let lists = folder.join(kind);
    if !lists.join("train.csv.gz").is_file() {
        if let Some(pickle) = there(folder.join("split_dict.pt")) {
            let wanted = lists.join("{train,valid,test}.csv.gz");
            let instead = format!("write its lists to {} with one node a line", wanted.display());
            return Err(Fault::Pickle { instead }.of(&pickle));
        }
        return Ok(());
    }
    for what in ["train", "valid", "test"] {
        let path = lists.join(format!("{what}.csv.gz"));
        nodes.split(what, &integer_column(&path, sink.progress)?, &path, sink)?;
    }
    Ok(())
}

/// Says which tables of a folder are none of these.
fn tell_files(folder: &Path, known: &[&str]) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let stem = |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".csv.gz")?.to_owned());
    let mut names: Vec<String> = entries.filter_map(stem).collect();
    names.sort();
    npz::tell_others(folder, names, known);
}

/// The only folder of a folder; of several the first by name.
fn split_folder(path: &Path) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(path).ok()?.flatten().map(|entry| entry.path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    if folders.len() > 1 {
        log::warn!("{}: there are {} splits; {} is taken", path.display(), folders.len(), folders[0].display());
    }
    folders.into_iter().next()
}
