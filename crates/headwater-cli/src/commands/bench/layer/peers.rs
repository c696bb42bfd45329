//! Times of other systems, as `bench/peers/relational.py` writes them.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use super::case::Case;

/// One time of one system. Other fields of its line are not looked at.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Peer {
    /// The shape of the graph, by the name of `--like`.
    pub shape: String,
    /// The name of the layer.
    pub model: String,
    /// `inference` or `training`.
    pub what: String,
    /// The system.
    pub who: String,
    /// None where it did not run.
    pub ms: Option<f64>,
}

/// The lines of a file.
pub fn read(path: &Path) -> anyhow::Result<Vec<Peer>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--peers {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse =
        |(at, line)| serde_json::from_str(line).with_context(|| format!("--peers {}, line {}", path.display(), at + 1));
    lines.map(parse).collect()
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

/// What a system's last line about a case says.
pub fn find<'a>(peers: &'a [Peer], who: &str, case: &Case) -> Option<&'a Peer> {
    let is_it = |peer: &&Peer| {
        let own = (peer.who.as_str(), &peer.shape, &peer.model, peer.what.as_str());
        own == (who, &case.like, &case.model, case.direction.name())
    };
    peers.iter().rev().find(is_it)
}
