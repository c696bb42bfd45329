//! Times of other systems, as `bench/peers/relational.py` writes them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use super::case::{Case, Direction};

/// One time of one system. Other fields of its line are not looked at.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Peer {
    /// The shape of the graph, by the name of `--like`.
    pub shape: String,
    /// The name of the layer.
    pub model: String,
    /// The step that was timed: `inference`, `training`, or `layer`, which is training without a loss as ours is.
    pub what: String,
    /// The name of the system that ran it.
    #[serde(alias = "system")]
    pub who: String,
    /// None where it did not run.
    pub ms: Option<f64>,
    /// Elements of a row, where the line says so, and attention heads.
    #[serde(default)]
    pub width: Option<usize>,
    #[serde(default)]
    pub heads: Option<usize>,
    /// Nodes and edges of the graph, where a line of its own says so.
    #[serde(skip)]
    pub graph: Option<[usize; 2]>,
}

/// The times of a file. Lines that describe a graph or compare results have none.
pub fn read(path: &Path) -> anyhow::Result<Vec<Peer>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--peers {}", path.display()))?;
    let mut graphs: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("--peers {}, line {}", path.display(), at + 1);
        let fields: Value = serde_json::from_str(line).with_context(place)?;
        let shape = fields["shape"].as_str().context("it has no shape").with_context(place)?.to_owned();
        let count = |name: &str| fields[name].as_u64().and_then(|count| usize::try_from(count).ok());
        if let (Some(nodes), Some(edges)) = (count("nodes"), count("edges")) {
            graphs.insert(shape, [nodes, edges]);
        } else if fields.get("what").is_some() {
            let peer: Peer = serde_json::from_value(fields.clone()).with_context(place)?;
            // What differs from the reference is no time of the same work.
            let ms = peer.ms.filter(|_| fields["ok"] != Value::Bool(false));
            found.push(Peer { ms, graph: graphs.get(&shape).copied(), ..peer });
        }
    }
    Ok(found)
}

/// Systems, in the order of their first lines.
pub fn systems(peers: &[Peer]) -> Vec<&str> {
    let mut found = Vec::new();
    peers.iter().map(|peer| peer.who.as_str()).for_each(|who| {
        if !found.contains(&who) {
            found.push(who);
        }
    });
    found
}

/// A system's best time of a case, on a graph of as many nodes and edges where both are known.
pub fn find(peers: &[Peer], who: &str, case: &Case, graph: Option<[usize; 2]>) -> Option<f64> {
    let is_it = |peer: &&Peer, what: &str| {
        let own = (peer.who.as_str(), &peer.shape, &peer.model, peer.what.as_str());
        let is_sized = peer.width.is_none_or(|own| own == case.width) && peer.heads.is_none_or(|own| own == case.heads);
        let is_like = peer.graph.is_none_or(|own| graph.is_none_or(|graph| own == graph));
        own == (who, &case.like, &case.model, what) && is_sized && is_like
    };
    let best =
        |what: &str| peers.iter().filter(|peer| is_it(peer, what)).filter_map(|peer| peer.ms).min_by(f64::total_cmp);
    match case.direction {
        Direction::Training => best("layer").or_else(|| best("training")),
        Direction::Inference => best("inference"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as `relational.py` has them: the graph, a comparison, variants, and a step with a loss.
    #[test]
    fn the_best_variant_of_the_same_step_and_graph_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers.jsonl");
        let line = |what: &str, width: usize, ms: f64, ok: bool| {
            format!(
                r#"{{"shape":"aifb","model":"rgcn","system":"expert","what":"{what}","width":{width},"heads":1,"ms":{ms},"ok":{ok}}}"#
            )
        };
        let lines = [
            r#"{"shape":"aifb","nodes":10,"edges":20}"#.to_owned(),
            r#"{"shape":"aifb","model":"rgcn","system":"expert","worst":1e-6,"ok":true}"#.to_owned(),
            line("layer", 64, 3.0, true),
            line("layer", 64, 2.0, true),
            line("layer", 64, 0.5, false),
            line("layer", 32, 1.0, true),
            line("training", 64, 1.5, true),
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let peers = read(&path).unwrap();
        assert_eq!(systems(&peers), ["expert"]);
        let own = Case { direction: Direction::Training, ..Case::new("aifb", "rgcn", None) };
        assert_eq!(find(&peers, "expert", &own, Some([10, 20])), Some(2.0));
        assert_eq!(find(&peers, "expert", &own, Some([11, 20])), None);
        assert_eq!(find(&peers, "expert", &Case { direction: Direction::Inference, ..own }, None), None);
        std::fs::write(&path, r#"{"like":"aifb","ms":1}"#).unwrap();
        assert!(read(&path).is_err());
    }
}
