//! Features of nodes, as the network's first stage takes them.

use headwater_compile::cpu::fast::{Given, SparseRows};
use rayon::prelude::*;

use super::{MOST_FILLED, Trainer};
use crate::error::{Error, Result};
use crate::network::{InputPlan, Inputs, Nodes};

/// Features of all nodes of the graph, kept from step to step.
#[derive(Debug, Default)]
pub(super) struct WholeRows {
    features: Vec<Option<Rows>>,
    counts: Vec<usize>,
}

#[derive(Debug)]
enum Rows {
    Dense(Vec<f32>),
    Sparse(SparseRows),
}

/// What is lent to a network: it owns the lists, and they lend the rows.
pub(super) struct Lent<'a> {
    features: Vec<Option<Given<'a>>>,
    nodes: Vec<Nodes<'a>>,
}

impl<'a> Lent<'a> {
    /// Rows of some nodes.
    pub fn listed(features: &'a [Option<Vec<f32>>], ids: &[&'a [u64]]) -> Self {
        let features = features.iter().map(|rows| rows.as_deref().map(Given::Dense)).collect();
        Self { features, nodes: ids.iter().map(|ids| Nodes::Listed(ids)).collect() }
    }

    pub fn inputs(&self) -> Inputs<'_> {
        Inputs { features: &self.features, nodes: &self.nodes }
    }
}

impl Rows {
    fn given(&self) -> Given<'_> {
        match self {
            Self::Dense(values) => Given::Dense(values),
            Self::Sparse(rows) => Given::Sparse(rows),
        }
    }
}

impl WholeRows {
    pub fn lent(&self) -> Lent<'_> {
        Lent {
            features: self.features.iter().map(|rows| rows.as_ref().map(Rows::given)).collect(),
            nodes: self.counts.iter().map(|count| Nodes::All(*count)).collect(),
        }
    }
}

impl Trainer {
    /// The features of every node, sparse where most of them are 0. All of them have to be numbers.
    pub(super) fn whole_rows(&self) -> Result<WholeRows> {
        let counts = self.task.node_counts();
        let ids: Vec<Vec<u64>> = counts.iter().map(|count| (0..*count).collect()).collect();
        let lists: Vec<&[u64]> = ids.iter().map(Vec::as_slice).collect();
        let rows = self.read(&lists, &mut |len| vec![0.0; len])?;
        self.check_features(&rows, &lists)?;
        let widths = self.array_widths();
        let kept = |(rows, width): (Option<Vec<f32>>, Option<usize>)| {
            let rows = rows?;
            Some(match width.and_then(|width| SparseRows::of(&rows, width, MOST_FILLED)) {
                Some(sparse) => Rows::Sparse(sparse),
                None => Rows::Dense(rows),
            })
        };
        let counts = counts.into_iter().map(|count| usize::try_from(count).unwrap_or(usize::MAX)).collect();
        Ok(WholeRows { features: rows.into_iter().zip(widths).map(kept).collect(), counts })
    }

    /// The features of some nodes of each type, in memory that is used again.
    pub(super) fn features_of(&mut self, ids: &[&[u64]]) -> Result<Vec<Option<Vec<f32>>>> {
        let mut free = std::mem::take(&mut self.network.workspace);
        let found = self.read(ids, &mut |len| free.take(len));
        self.network.workspace = free;
        found
    }

    /// The features of some nodes of each type, in the arrays that the network's first stage wants.
    fn read(&self, ids: &[&[u64]], room: &mut dyn FnMut(usize) -> Vec<f32>) -> Result<Vec<Option<Vec<f32>>>> {
        let widths = self.array_widths();
        let mut arrays = Vec::new();
        if let InputPlan::Together { width } = *self.network.input_plan() {
            let mut all = room(ids.iter().map(|ids| ids.len()).sum::<usize>() * width);
            let mut rest = all.as_mut_slice();
            for (node_type, ids) in ids.iter().enumerate() {
                let (own, behind) = rest.split_at_mut(ids.len() * width);
                self.task.gather(node_type, ids, own)?;
                rest = behind;
            }
            arrays.push(Some(all));
        } else {
            for (node_type, (ids, width)) in ids.iter().zip(&widths).enumerate() {
                let mut own = width.map(|width| room(ids.len() * width));
                own.iter_mut().try_for_each(|own| self.task.gather(node_type, ids, own))?;
                arrays.push(own);
            }
        }
        if self.config.normalise_features {
            arrays.iter_mut().zip(widths).for_each(|(rows, width)| normalise(rows.as_deref_mut(), width));
        }
        Ok(arrays)
    }

    /// Gives the memory of features back.
    pub(super) fn give_features(&mut self, arrays: Vec<Option<Vec<f32>>>) {
        arrays.into_iter().flatten().for_each(|rows| self.network.give(rows));
    }

    /// Elements of a row in each of the arrays.
    fn array_widths(&self) -> Vec<Option<usize>> {
        match *self.network.input_plan() {
            InputPlan::Nothing => Vec::new(),
            InputPlan::Together { width } => vec![Some(width)],
            InputPlan::Apart { .. } => self.task.widths(),
        }
    }

    /// Refuses features that are not numbers, and names the first.
    pub(super) fn check_features(&self, arrays: &[Option<Vec<f32>>], ids: &[&[u64]]) -> Result<()> {
        for (at, (rows, width)) in arrays.iter().zip(self.array_widths()).enumerate() {
            let (Some(rows), Some(width)) = (rows, width) else { continue };
            let Some(bad) = rows.par_iter().position_first(|value| !value.is_finite()) else { continue };
            // An array of one type, or of all of them, one behind the other.
            let (mut node_type, mut row) = (at, bad / width);
            while row >= ids[node_type].len() {
                row -= ids[node_type].len();
                node_type += 1;
            }
            let name = self.task.graph.schema().node_types()[node_type].name.clone();
            let (node, column, value) = (ids[node_type][row], bad % width, rows[bad]);
            return Err(Error::BadFeature { node_type: name, node, column, value });
        }
        Ok(())
    }
}

/// Every row over the sum of its elements, as published features of documents are used.
fn normalise(rows: Option<&mut [f32]>, width: Option<usize>) {
    let (Some(rows), Some(width)) = (rows, width.filter(|width| *width > 0)) else { return };
    for row in rows.chunks_exact_mut(width) {
        let sum: f32 = row.iter().sum();
        if sum > 0.0 {
            row.iter_mut().for_each(|x| *x /= sum);
        }
    }
}
