//! Steps of some rows of a parameter, as `torch.optim.SparseAdam` takes them.
//!
//! Rows without a gradient stay, and so does what is remembered of them; the number of the step is that of the whole run.
//! There is no decay, and SGD has no momentum: both are about all rows at every step.

use super::{PIECE, Piece, Slope, Step};
use crate::array::{Array, check_length};
use crate::error::{Error, Result};
use crate::gradient::RowGradient;
use crate::parameter::Parameter;

/// A table is cut into so many pieces at most: whoever has none of the rows costs time too.
const MOST_PIECES: usize = 64;

/// Whether a parameter has these rows.
pub(super) fn check(parameter: &Parameter, rows: &RowGradient) -> Result<()> {
    let name = &parameter.name;
    let width = parameter.shape.iter().skip(1).product();
    check_length(format!("a row of the gradient of {name:?}"), rows.width(), width)?;
    let count = parameter.shape.first().map_or(0, |rows| *rows as u64);
    match rows.last() {
        Some(last) if last >= count => {
            let why = format!("has a gradient of row {last}; it has {count} rows");
            Err(Error::Parameter { name: name.clone(), why })
        }
        _ => Ok(()),
    }
}

/// Cuts a table and its state into pieces of whole rows.
pub(super) fn cut<'a>(
    step: Step,
    values: &'a mut [f32],
    rows: &'a RowGradient,
    state: &'a mut [Array],
) -> impl Iterator<Item = Piece<'a>> {
    let width = rows.width().max(1);
    let piece_rows = (PIECE / width).max((values.len() / width).div_ceil(MOST_PIECES)).max(1);
    let elements = piece_rows * width;
    let mut state: Vec<_> = state.iter_mut().map(|slot| slot.values.chunks_mut(elements)).collect();
    values.chunks_mut(elements).zip((0..).step_by(piece_rows)).map(move |(values, first)| {
        let state = state.iter_mut().filter_map(Iterator::next).collect();
        Piece { step: on_rows(step), values, slope: Slope::Rows(rows, first), state }
    })
}

/// The steps of the rows of a piece, of which `first` is the first.
pub(super) fn take(piece: Piece<'_>, rows: &RowGradient, first: u64) {
    let Piece { step, values, mut state, .. } = piece;
    let width = rows.width().max(1);
    let end = first + (values.len() / width) as u64;
    for (row, gradient) in rows.within(first..end) {
        let at = usize::try_from(row - first).unwrap_or(usize::MAX) * width;
        step.take(values, gradient, &mut state, at);
    }
}

fn on_rows(step: Step) -> Step {
    match step {
        Step::Plain(step) => Step::Plain(step.on_rows()),
        Step::Momentum(step) => Step::Plain(step.on_rows()),
        Step::Adam(step) => Step::Adam(step.on_rows()),
    }
}
