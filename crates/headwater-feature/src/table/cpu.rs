//! Rows of a table in host memory, converted: what the kernel gives, and the way without a GPU.

use headwater_tensor::gather::GatherError;
use headwater_tensor::parallel;

use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored, decode_row, encode_row};

/// Rows that one thread takes at a time.
const ROWS: usize = 64;

/// A whole table in host memory.
#[derive(Debug, Clone, Copy)]
pub struct HostRows<'a> {
    /// Row after row, a stride apart.
    pub bytes: &'a [u8],
    /// One a row for int8, else none.
    pub scales: &'a [f32],
    /// How rows are stored.
    pub format: RowFormat,
}

impl HostRows<'_> {
    /// `out[i] = row of ids[i]`, its elements as `out_type`. An id that is no row is an error that names the first.
    pub fn gather(&self, ids: &[u64], out_type: Stored, out: &mut [u8]) -> Result<()> {
        let row_bytes = self.format.elements * out_type.bytes();
        let expected = (ids.len() * row_bytes) as u64;
        if !self.format.stored.comes_out_as(out_type) || out.len() as u64 != expected {
            return Err(Error::Bytes { name: "the output", found: out.len() as u64, expected });
        }
        let rows = (self.bytes.len() / self.format.stride_bytes.max(1)) as u64;
        if let Some(at) = parallel::position(ids, |id| *id >= rows) {
            let bad = GatherError::IdOutOfRange { position: at as u64, id: ids[at].into(), rows };
            return Err(headwater_tensor::Error::from(bad).into());
        }
        let parts = out.chunks_mut((ROWS * row_bytes).max(1)).zip(ids.chunks(ROWS));
        parallel::for_each(parts, |_, (out, ids)| {
            let mut elements = vec![0f32; self.format.elements];
            let rows = out.chunks_mut(row_bytes.max(1)).zip(ids);
            rows.for_each(|(out, id)| self.row(*id, out_type, &mut elements, out));
        });
        Ok(())
    }

    fn row(&self, id: u64, out_type: Stored, elements: &mut [f32], out: &mut [u8]) {
        let at = usize::try_from(id).unwrap_or(usize::MAX);
        let row = &self.bytes[at * self.format.stride_bytes..][..self.format.row_bytes()];
        if out_type == self.format.stored {
            out.copy_from_slice(row);
            return;
        }
        decode_row(row, self.format.stored, self.scales.get(at).copied().unwrap_or(1.0), elements);
        encode_row(elements, out_type, out);
    }
}
