//! How a row is stored, and what comes out of it.
//!
//! Features are often good enough in half or a quarter of the bytes, and what binds a gather is bytes. A row of int8 has a
//! scale of its own: the largest absolute value over 127. Scales lie apart from the rows, four bytes a row, so that rows
//! keep their alignment and their quarter.

use half::{bf16, f16};
use headwater_tensor::DType;
use headwater_tensor::parallel;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Rows that one thread encodes at a time.
const ROWS: usize = 256;

/// The type elements are stored as, or come out as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stored {
    /// 32 bits.
    F32,
    /// 16 bits, IEEE.
    F16,
    /// 16 bits, the upper half of 32.
    Bf16,
    /// 8 bits and a scale a row. Nothing comes out as this.
    I8,
    /// Bytes of any other type. They come out as they are.
    Raw,
}

impl Stored {
    /// Every one that holds numbers.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::I8];

    /// Bytes of an element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 | Self::Raw => 1,
        }
    }

    /// Whether rows stored like this can come out as `out`.
    #[must_use]
    pub fn comes_out_as(self, out: Self) -> bool {
        match self {
            Self::Raw => out == Self::Raw,
            Self::F32 | Self::F16 | Self::Bf16 | Self::I8 => !matches!(out, Self::I8 | Self::Raw),
        }
    }

    /// Its number in kernels.
    #[must_use]
    pub(crate) fn in_kernels(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Bf16 => 2,
            Self::I8 => 3,
            Self::Raw => 4,
        }
    }

    /// The one that arrays of this type are stored as.
    pub fn of(dtype: DType) -> Result<Self> {
        match dtype {
            DType::F32 => Ok(Self::F32),
            DType::F16 => Ok(Self::F16),
            DType::BF16 => Ok(Self::Bf16),
            other => Err(Error::ElementType { found: other.name() }),
        }
    }
}

/// The shape of a stored row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowFormat {
    /// Elements of a row.
    pub elements: usize,
    /// What they are stored as.
    pub stored: Stored,
    /// Bytes from a row to the next; at least what its elements take.
    pub stride_bytes: usize,
}

impl RowFormat {
    /// Rows behind each other.
    #[must_use]
    pub fn packed(elements: usize, stored: Stored) -> Self {
        Self { elements, stored, stride_bytes: elements * stored.bytes() }
    }

    /// Rows that begin on a line of 128 bytes, which saves requests where rows are a little longer than lines.
    #[must_use]
    pub fn on_lines(elements: usize, stored: Stored) -> Self {
        Self { elements, stored, stride_bytes: (elements * stored.bytes()).next_multiple_of(128) }
    }

    /// Refuses rows that overlap, and rows that begin between two elements.
    pub(crate) fn check(&self) -> Result<()> {
        let stride = self.stride_bytes;
        let row_bytes = self.elements.checked_mul(self.stored.bytes());
        if stride == 0 || row_bytes.is_none_or(|bytes| bytes > stride) || !stride.is_multiple_of(self.stored.bytes()) {
            let expected = "a multiple of an element, at least a row, and at least 1";
            return Err(Error::Parameter { name: "stride_bytes", value: stride as f64, expected });
        }
        Ok(())
    }

    /// Bytes of a row's elements.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.elements * self.stored.bytes()
    }
}

/// Rows in a format, with their scales when they have some.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// Row after row.
    pub bytes: Vec<u8>,
    /// One a row for int8, else none.
    pub scales: Vec<f32>,
}

/// Stores rows of floats in a format. All rows are in memory; for tests and tables that fit.
#[must_use]
pub fn encode(rows: &[f32], format: &RowFormat) -> Encoded {
    let count = rows.len() / format.elements.max(1);
    let has_scales = format.stored == Stored::I8;
    let mut bytes = vec![0u8; count * format.stride_bytes];
    let mut scales = vec![0f32; if has_scales { count } else { 0 }];
    let parts = bytes.chunks_mut(ROWS * format.stride_bytes.max(1)).zip(rows.chunks(ROWS * format.elements.max(1)));
    if has_scales {
        parallel::for_each(parts.zip(scales.chunks_mut(ROWS)), |_, ((to, from), scales)| {
            let rows = to.chunks_mut(format.stride_bytes).zip(from.chunks(format.elements));
            rows.zip(scales).for_each(|((to, from), scale)| *scale = encode_row(from, format.stored, to));
        });
    } else {
        parallel::for_each(parts, |_, (to, from)| {
            let rows = to.chunks_mut(format.stride_bytes.max(1)).zip(from.chunks(format.elements.max(1)));
            rows.for_each(|(to, from)| {
                encode_row(from, format.stored, to);
            });
        });
    }
    Encoded { bytes, scales }
}

/// Stores one row and returns its scale.
pub fn encode_row(from: &[f32], stored: Stored, to: &mut [u8]) -> f32 {
    let halves = |to: &mut [u8], bits: &dyn Fn(f32) -> u16| {
        to.chunks_exact_mut(2).zip(from).for_each(|(to, x)| to.copy_from_slice(&bits(*x).to_le_bytes()));
    };
    match stored {
        Stored::F32 => to.chunks_exact_mut(4).zip(from).for_each(|(to, x)| to.copy_from_slice(&x.to_le_bytes())),
        Stored::F16 => halves(to, &|x| f16::from_f32(x).to_bits()),
        Stored::Bf16 => halves(to, &|x| bf16::from_f32(x).to_bits()),
        Stored::I8 => {
            // What is not finite has no part in the scale: it would leave no room for the numbers.
            let finite = from.iter().filter(|x| x.is_finite());
            let largest = finite.fold(0f32, |most, x| most.max(x.abs()));
            let scale = if largest > 0.0 { (largest / 127.0).max(f32::MIN_POSITIVE) } else { 1.0 };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from -127 to 127")]
            to.iter_mut().zip(from).for_each(|(to, x)| *to = (x / scale).round().clamp(-127.0, 127.0) as i8 as u8);
            return scale;
        }
        // Bytes of other types are no floats to begin with.
        Stored::Raw => {}
    }
    1.0
}

/// The elements of one stored row, as floats.
pub fn decode_row(from: &[u8], stored: Stored, scale: f32, to: &mut [f32]) {
    let half = |at: usize| u16::from_le_bytes([from[2 * at], from[2 * at + 1]]);
    for (at, to) in to.iter_mut().enumerate() {
        *to = match stored {
            Stored::F32 => f32::from_le_bytes([from[4 * at], from[4 * at + 1], from[4 * at + 2], from[4 * at + 3]]),
            Stored::F16 => f16::from_bits(half(at)).to_f32(),
            Stored::Bf16 => bf16::from_bits(half(at)).to_f32(),
            Stored::I8 => f32::from(from[at].cast_signed()) * scale,
            Stored::Raw => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let rows: Vec<f32> = (0..2000).map(|at| (at % 61) as f32 * 0.25 - 7.0).collect();
        for stored in Stored::ALL {
            for format in [RowFormat::packed(5, stored), RowFormat::on_lines(5, stored)] {
                let encoded = encode(&rows, &format);
                assert_eq!(encoded.bytes.len(), 400 * format.stride_bytes);
                let mut back = [0f32; 5];
                for (row, want) in rows.chunks(5).enumerate() {
                    let scale = encoded.scales.get(row).copied().unwrap_or(1.0);
                    decode_row(&encoded.bytes[row * format.stride_bytes..], stored, scale, &mut back);
                    let tolerance = if stored == Stored::I8 { scale / 2.0 * 1.001 } else { 0.0 };
                    let close = back.iter().zip(want).all(|(back, want)| (back - want).abs() <= tolerance);
                    assert!(close, "{stored:?} {back:?} {want:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_leaves_the_other_elements_as_they_are() {
        for odd in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            for others in [[0.25f32, -0.5], [1e30, -2e30], [1e-44, 1e-42]] {
                let (mut row, mut back) = ([0u8; 3], [0f32; 3]);
                let scale = encode_row(&[others[0], odd, others[1]], Stored::I8, &mut row);
                decode_row(&row, Stored::I8, scale, &mut back);
                let close = |at: usize, want: f32| (back[at] - want).abs() <= scale / 2.0 * 1.001;
                assert!(close(0, others[0]) && close(2, others[1]), "{odd}: {others:?} came back as {back:?}");
                assert!(scale.is_normal(), "{scale}");
            }
        }
    }

    #[test]
    fn rows_of_zeros_and_of_infinities_have_a_scale() {
        let mut row = [0u8; 2];
        assert_eq!(encode_row(&[0.0, 0.0], Stored::I8, &mut row), 1.0);
        assert_eq!(encode_row(&[f32::INFINITY, f32::NEG_INFINITY], Stored::I8, &mut row), 1.0);
        assert_eq!(row, [127, 129]);
    }
}
