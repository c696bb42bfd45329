//! Features stored as sparse rows, written out with their zeros: feature tables gather whole rows.

use half::f16;
use headwater_tensor::npy::NpyElement;

use super::arrays::{Arrays, element};
use super::collected::{Nodes, Sink};
use super::fault::Fault;
use super::features::NotFinite;
use super::options::SparseFeatures;
use crate::error::Result;
use crate::topology::index;

/// Wider rows are no features, and would fill the disk with zeros.
const MOST_FEATURES: i64 = 1 << 22;

/// Reads `x_indptr`, `x_indices`, `x_values` and `x_shape`.
pub fn features(nodes: &mut Nodes, arrays: &Arrays, wanted: SparseFeatures, sink: &Sink<'_>) -> Result<()> {
    if wanted == SparseFeatures::Skip {
        return Ok(());
    }
    let rows = Rows::read(arrays, nodes.count)?;
    let mut odd = NotFinite::default();
    odd.look(&rows.values);
    odd.tell(arrays.path());
    let name = format!("{}.features", nodes.name);
    match wanted {
        SparseFeatures::Half => {
            let is_lost = |value: &f32| value.is_finite() && f16::from_f32(*value).is_infinite();
            if let Some(at) = rows.values.iter().position(is_lost) {
                let fault = Fault::Value {
                    value: rows.values[at].to_string(),
                    expected: "a number that half precision holds; --sparse-features dense keeps single precision"
                        .into(),
                };
                return Err(fault.at(arrays.path(), element("x_values", 0, at)));
            }
            rows.write(&name, f16::from_f32, sink)?;
        }
        _ => rows.write(&name, |value| value, sink)?,
    }
    nodes.files.features = Some(name);
    Ok(())
}

struct Rows {
    starts: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f32>,
    width: usize,
}

impl Rows {
    fn read(arrays: &Arrays, count: u64) -> Result<Self> {
        let shape = arrays.array("x_shape")?.integers()?;
        let width = match shape[..] {
            [rows, width] if width <= MOST_FEATURES && u64::try_from(rows).is_ok_and(|rows| rows == count) => {
                usize::try_from(width).ok()
            }
            _ => None,
        };
        let bad_shape = || {
            let expected = format!("[{count} nodes, up to {MOST_FEATURES} features]");
            Fault::Value { value: format!("shape {shape:?}"), expected }.at(arrays.path(), element("x_shape", 0, 0))
        };
        let width = width.ok_or_else(bad_shape)?;
        let values = arrays.array("x_values")?.floats()?;
        let starts = bounded(arrays, "x_indptr", values.len())?;
        let columns = bounded(arrays, "x_indices", width.saturating_sub(1))?;
        let length = |name: &str, found: usize, expected: usize, of: &str| {
            let fault = Fault::Length { found: found as u64, expected: expected as u64, of: of.to_owned() };
            if found == expected {
                Ok(())
            } else {
                Err(fault.at(arrays.path(), super::fault::Place::Array(name.into())))
            }
        };
        length("x_indptr", starts.len(), index(count).saturating_add(1), "are wanted, one more than nodes")?;
        length("x_indices", columns.len(), values.len(), "values in x_values")?;
        if let Some(row) = starts.windows(2).position(|pair| pair[0] > pair[1]) {
            let fault =
                Fault::Value { value: starts[row + 1].to_string(), expected: format!("{} or more", starts[row]) };
            return Err(fault.at(arrays.path(), element("x_indptr", 1, row)));
        }
        Ok(Self { starts, columns, values, width })
    }

    fn write<T: NpyElement>(&self, name: &str, convert: impl Fn(f32) -> T + Sync, sink: &Sink<'_>) -> Result<()> {
        let shape = [self.starts.len() as u64 - 1, self.width as u64];
        sink.progress.begin("features", shape[0].saturating_mul(shape[1]).saturating_mul(size_of::<T>() as u64));
        let fill = |rows: std::ops::Range<u64>, out: &mut [T]| {
            let mut sums = vec![0.0; self.width];
            for (row, to) in rows.zip(out.chunks_exact_mut(self.width.max(1))) {
                let row = index(row);
                let entries = self.starts[row]..self.starts[row + 1];
                // A place that is named twice has the sum, as in SciPy.
                entries.clone().for_each(|at| sums[self.columns[at]] += self.values[at]);
                for at in entries.clone() {
                    to[self.columns[at]] = convert(sums[self.columns[at]]);
                }
                entries.for_each(|at| sums[self.columns[at]] = 0.0);
            }
        };
        sink.writer.rows(name, &shape, fill, sink.progress)
    }
}

/// Positions that are not above a limit.
fn bounded(arrays: &Arrays, name: &str, limit: usize) -> Result<Vec<usize>> {
    let array = arrays.array(name)?;
    let place = array.placer();
    let mut all = Vec::new();
    array.for_each_integer(|start, piece| {
        for (at, value) in (start..).zip(piece) {
            let fits = usize::try_from(*value).ok().filter(|value| *value <= limit);
            let fault = || Fault::Value { value: value.to_string(), expected: format!("a number from 0 to {limit}") };
            all.push(fits.ok_or_else(|| place(fault(), at))?);
        }
        Ok(())
    })?;
    Ok(all)
}
