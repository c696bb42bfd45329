//! Links around the CPU's sampler.

use super::super::exclude::Excluded;
use super::super::neighbour::NeighbourSampler;
use super::ends::Asked;
use super::{LinkSample, LinkSeeds, Negative};
use crate::error::Result;
use crate::random::Key;

/// Samples around edges. `excluded` edges are not seen; see [`Excluded`].
pub fn sample_links(
    sampler: &NeighbourSampler,
    links: LinkSeeds<'_>,
    negative: Negative,
    excluded: &Excluded,
    key: Key,
) -> Result<LinkSample> {
    let asked = Asked::new(sampler.graph(), sampler.options(), links, negative, key)?;
    let drawn = asked.negatives.map(|(pairs, count)| pairs.draw(count)).transpose()?.unwrap_or_default();
    let start = asked.start(drawn)?;
    let mut sample = sampler.sample_without(&start.seeds(), excluded, key)?;
    if let Some(owner) = start.owner {
        let trees = sample.nodes.iter_mut().filter_map(|nodes| nodes.trees.as_mut());
        trees.flatten().for_each(|tree| *tree = owner.edge_of(*tree));
    }
    let (positives, unresolved) = (start.positives, start.unresolved);
    Ok(LinkSample { sample, sources: start.sources, targets: start.targets, positives, unresolved })
}
