//! A hop on one thread: neighbours are numbered and their edges written group by group, as they are drawn.

use super::batch::{Batch, Hop, local_number};
use super::draw::{Drawn, GROUP_ROWS};
use crate::column::Id;
use crate::error::Result;
use crate::sample::index::Entry;

/// Edges whose table slots are asked for ahead of their turn.
const AHEAD: usize = 16;

impl<E: Entry> Batch<'_, E> {
    /// Draws and numbers on this thread.
    pub(super) fn expand_alone<I: Id>(&mut self, hop: &Hop<'_, I>) -> Result<()> {
        let (rows, mut drawn) = (hop.draw.ids.len(), Drawn::default());
        for first in (0..rows).step_by(GROUP_ROWS) {
            drawn.clear();
            hop.draw.rows(first..(first + GROUP_ROWS).min(rows), &mut drawn)?;
            self.settle(hop, first, &drawn)?;
        }
        Ok(())
    }

    /// Numbers the neighbours that were drawn and writes their edges.
    fn settle<I: Id>(&mut self, hop: &Hop<'_, I>, first: usize, drawn: &Drawn<I>) -> Result<()> {
        let limit = hop.draw.topology.columns();
        let edges = &mut self.sample.edges[hop.relation];
        let (known, nodes) = (&mut self.memory.whole[hop.found], &mut self.sample.nodes[hop.found]);
        edges.row.reserve(drawn.neighbours.len());
        edges.col.reserve(drawn.neighbours.len());
        let mut at = 0;
        for (row, &length) in drawn.lengths.iter().enumerate() {
            let tree = drawn.trees.get(row).copied();
            let base = tree.map_or(0, |tree| u64::from(tree) * limit);
            for _ in 0..length {
                if let Some(ahead) = drawn.neighbours.get(at + AHEAD) {
                    known.prefetch(base.wrapping_add(ahead.wide()));
                }
                let id = drawn.checked(at, limit)?;
                let (number, is_new) = known.number(base + id, Id::narrow(nodes.ids.len() as u64));
                if is_new {
                    nodes.ids.push(id);
                    nodes.trees.iter_mut().zip(tree).for_each(|(trees, tree)| trees.push(tree));
                }
                edges.row.push(number);
                at += 1;
            }
            let asking: u32 = Id::narrow((hop.asking_first + first + row) as u64);
            edges.col.resize(edges.col.len() + length as usize, asking);
        }
        if let Some(ids) = &mut edges.ids {
            hop.draw.edge_ids(&drawn.positions, ids);
        }
        local_number(nodes.ids.len()).map(drop)
    }
}
