//! Features of nodes, as a network's first stage takes them.
//!
//! Rows of one table in memory are not copied: kernels read them where they lie. Others are gathered, and those of whole graphs are
//! kept as sparse rows where most of them are zeros.

use headwater_compile::cpu::fast::{Given, SparseRows};
use headwater_tensor::parallel;

use crate::error::{Error, Result};
use crate::network::{InputPlan, Inputs, Nodes};
use crate::task::Task;

/// Part of the features that may be other than zero where they are kept as sparse rows.
pub(crate) const MOST_FILLED: f64 = 0.25;

/// Rows that a thread looks through at a time.
const ROWS_TOGETHER: usize = 1 << 8;

/// Reads features for a network.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    pub task: &'a Task,
    /// What the network's first stage wants.
    pub plan: InputPlan,
    /// Whether every row is divided by the sum of its absolute values.
    pub normalise: bool,
}

/// Rows of some nodes.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// Copies.
    Copied(Vec<f32>),
    /// Numbers of rows of the only table.
    InPlace(Vec<u32>),
}

/// Features of all nodes of the graph, kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct WholeRows {
    features: Vec<Option<Rows>>,
    counts: Vec<usize>,
}

#[derive(Debug)]
enum Rows {
    Dense(Vec<f32>),
    Sparse(SparseRows),
}

/// What is lent to a network: it owns the lists, and they lend the rows.
pub(crate) struct Lent<'a> {
    features: Vec<Option<Given<'a>>>,
    nodes: Vec<Nodes<'a>>,
}

impl<'a> Lent<'a> {
    /// Rows of some nodes.
    pub fn listed(task: &'a Task, features: &'a [Option<Fetched>], ids: &[&'a [u64]]) -> Self {
        let given = |rows: &'a Fetched| match rows {
            Fetched::Copied(rows) => Given::Dense(rows),
            Fetched::InPlace(rows) => Given::Picked { table: task.only_table().unwrap_or_default(), rows },
        };
        let features = features.iter().map(|rows| rows.as_ref().map(given)).collect();
        Self { features, nodes: ids.iter().map(|ids| Nodes::Listed(ids)).collect() }
    }

    /// Sparse rows of some nodes of all types.
    pub fn sparse(rows: &'a SparseRows, ids: &[&'a [u64]]) -> Self {
        let nodes = ids.iter().map(|ids| Nodes::Listed(ids)).collect();
        Self { features: vec![Some(Given::Sparse(rows))], nodes }
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
    /// The rows of all types in one array, where the first layer reads them as they are.
    pub fn dense(&self) -> Option<Vec<f32>> {
        match self.features.first()?.as_ref()? {
            Rows::Dense(values) => Some(values.clone()),
            Rows::Sparse(rows) => {
                let mut values = vec![0.0; rows.rows() * rows.width];
                rows.dense_into(&mut values);
                Some(values)
            }
        }
    }

    pub fn lent(&self) -> Lent<'_> {
        Lent {
            features: self.features.iter().map(|rows| rows.as_ref().map(Rows::given)).collect(),
            nodes: self.counts.iter().map(|count| Nodes::All(*count)).collect(),
        }
    }
}

impl Reader<'_> {
    /// The features of every node, sparse where most of them are 0. All of them have to be numbers.
    pub fn whole(&self) -> Result<WholeRows> {
        let counts = self.task.node_counts();
        let ids: Vec<Vec<u64>> = counts.iter().map(|count| (0..*count).collect()).collect();
        let lists: Vec<&[u64]> = ids.iter().map(Vec::as_slice).collect();
        let rows = self.copied(&lists, &mut |len| vec![0.0; len])?;
        self.check(&rows, &lists)?;
        let kept = |(rows, width): (Option<Fetched>, Option<usize>)| {
            let Some(Fetched::Copied(rows)) = rows else { return None };
            Some(match width.and_then(|width| SparseRows::of(&rows, width, MOST_FILLED)) {
                Some(sparse) => Rows::Sparse(sparse),
                None => Rows::Dense(rows),
            })
        };
        let counts = counts.into_iter().map(|count| usize::try_from(count).unwrap_or(usize::MAX)).collect();
        Ok(WholeRows { features: rows.into_iter().zip(self.widths()).map(kept).collect(), counts })
    }

    /// The features of some nodes of each type. `room` gives arrays of a length.
    pub fn read(&self, ids: &[&[u64]], room: &mut dyn FnMut(usize) -> Vec<f32>) -> Result<Vec<Option<Fetched>>> {
        let is_together = matches!(self.plan, InputPlan::Together { .. });
        let table = self.task.only_table().filter(|_| is_together && !self.normalise);
        let in_place = table.and(ids.first()).and_then(|ids| rows_in_place(ids));
        match in_place {
            Some(rows) => {
                self.task.note_reads(rows.len());
                Ok(vec![Some(Fetched::InPlace(rows))])
            }
            None => self.copied(ids, room),
        }
    }

    /// Copies of rows, in the arrays that the network's first stage wants.
    pub fn copied(&self, ids: &[&[u64]], room: &mut dyn FnMut(usize) -> Vec<f32>) -> Result<Vec<Option<Fetched>>> {
        let widths = self.widths();
        let mut arrays: Vec<Option<Vec<f32>>> = Vec::new();
        if let InputPlan::Together { width } = self.plan {
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
        if self.normalise {
            arrays.iter_mut().zip(widths).for_each(|(rows, width)| normalise(rows.as_deref_mut(), width));
        }
        Ok(arrays.into_iter().map(|rows| rows.map(Fetched::Copied)).collect())
    }

    /// Elements of a row in each of the arrays.
    fn widths(&self) -> Vec<Option<usize>> {
        match self.plan {
            InputPlan::Nothing => Vec::new(),
            InputPlan::Together { width } => vec![Some(width)],
            InputPlan::Apart { .. } => self.task.widths(),
        }
    }

    /// Refuses features that are not numbers, and names the first.
    pub fn check(&self, arrays: &[Option<Fetched>], ids: &[&[u64]]) -> Result<()> {
        for (at, (rows, width)) in arrays.iter().zip(self.widths()).enumerate() {
            let (Some(rows), Some(width)) = (rows, width.filter(|width| *width > 0)) else { continue };
            let Some((bad, value)) = self.first_bad(rows, width) else { continue };
            // An array of one type, or of all of them, one behind the other.
            let (mut node_type, mut row) = (at, bad / width);
            while row >= ids[node_type].len() {
                row -= ids[node_type].len();
                node_type += 1;
            }
            let name = self.task.graph.schema().node_types()[node_type].name.clone();
            let (node, column) = (ids[node_type][row], bad % width);
            return Err(Error::BadFeature { node_type: name, node, column, value });
        }
        Ok(())
    }

    /// The first element that is no number.
    fn first_bad(&self, rows: &Fetched, width: usize) -> Option<(usize, f32)> {
        match rows {
            Fetched::Copied(rows) => {
                let bad = parallel::position(rows, |value| !value.is_finite())?;
                Some((bad, rows[bad]))
            }
            Fetched::InPlace(numbers) => {
                let table = self.task.only_table()?;
                let row = |number: u32| &table[number as usize * width..][..width];
                let bad_in = |number: u32| row(number).iter().position(|value| !value.is_finite());
                let at = parallel::first(numbers.len(), ROWS_TOGETHER, &|mut range| {
                    range.find(|at| bad_in(numbers[*at]).is_some())
                })?;
                let bad = bad_in(numbers[at])?;
                Some((at * width + bad, row(numbers[at])[bad]))
            }
        }
    }
}

/// Ids as numbers of rows, where 32 bits are enough.
fn rows_in_place(ids: &[u64]) -> Option<Vec<u32>> {
    ids.iter().map(|id| u32::try_from(*id).ok()).collect()
}

/// Every row over the sum of its absolute values, as scikit-learn's `normalize(norm="l1")` does it; where nothing is negative
/// that is the published way with counts of words. No element is larger than 1 afterwards. Rows of zeros stay.
pub(crate) fn normalise(rows: Option<&mut [f32]>, width: Option<usize>) {
    let (Some(rows), Some(width)) = (rows, width.filter(|width| *width > 0)) else { return };
    for row in rows.chunks_exact_mut(width) {
        let sum: f32 = row.iter().map(|x| x.abs()).sum();
        if sum > 0.0 {
            row.iter_mut().for_each(|x| *x /= sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_by_the_sum_of_absolute_values() {
        let rows =
            [[3.0, 1.0, 0.0], [-1.0, 3.0, 0.0], [1.0, -1.0, 1e-6], [-2.0, -2.0, 0.0], [0.0; 3], [1e-30, 0.0, 0.0]];
        let wanted =
            [[0.75, 0.25, 0.0], [-0.25, 0.75, 0.0], [0.5, -0.5, 5e-7], [-0.5, -0.5, 0.0], [0.0; 3], [1.0, 0.0, 0.0]];
        let mut found = rows.concat();
        normalise(Some(&mut found), Some(3));
        for (found, wanted) in found.iter().zip(wanted.concat()) {
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
    }
}
