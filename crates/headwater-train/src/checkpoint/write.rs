//! From a snapshot to the bytes of a file, without a copy of the arrays.

use std::collections::HashMap;
use std::io::{self, Write};

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};

use super::{META_KEY, Meta, Part, SUM_KEY, Snapshot, Sum, VERSION};

/// Numbers that are turned into bytes at a time.
const PIECE: usize = 1 << 12;

/// A snapshot that is ready to be written.
pub(super) struct Image<'a> {
    arrays: Vec<Source<'a>>,
    /// Its description, as people read it.
    pub(super) description: String,
    header: Vec<u8>,
}

/// An array by its name in the file.
struct Source<'a> {
    name: String,
    shape: &'a [usize],
    values: &'a [f32],
}

impl<'a> Image<'a> {
    pub(super) fn new(snapshot: Snapshot<'a>) -> io::Result<Self> {
        let meta = Meta {
            version: VERSION,
            state: snapshot.state.clone(),
            fingerprint: snapshot.fingerprint.clone(),
            optimiser_steps: snapshot.optimiser.steps(),
        };
        let arrays = sources(snapshot);
        if let Some(pair) = arrays.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(io::Error::other(format!("two arrays are called {:?}", pair[0].name)));
        }
        let text = serde_json::to_string(&meta)?;
        let sum = sum_of(&text, &arrays);
        let header = header(text, sum, &arrays).map_err(io::Error::other)?;
        Ok(Self { arrays, description: serde_json::to_string_pretty(&meta)?, header })
    }

    pub(super) fn write(&self, sink: &mut dyn Write) -> io::Result<()> {
        sink.write_all(&(self.header.len() as u64).to_le_bytes())?;
        sink.write_all(&self.header)?;
        self.arrays.iter().try_for_each(|array| each_bytes(array.values, |bytes| sink.write_all(bytes)))
    }
}

fn sources(snapshot: Snapshot<'_>) -> Vec<Source<'_>> {
    let name = |part: Part, name: &str| format!("{}{name}", part.prefix());
    let parameters = snapshot.parameters.iter().map(|p| Source {
        name: name(Part::Parameter, &p.name),
        shape: &p.shape,
        values: &p.values,
    });
    let optimiser = snapshot.optimiser.arrays().map(|array| (Part::Optimiser, array));
    let buffers = snapshot.buffers.iter().map(|array| (Part::Buffer, array));
    let others = optimiser.chain(buffers).map(|(part, array)| Source {
        name: name(part, &array.name),
        shape: &array.shape,
        values: &array.values,
    });
    // Readers go by name too: arrays without elements have no place of their own in the file.
    let mut all: Vec<_> = parameters.chain(others).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn sum_of(meta: &str, arrays: &[Source<'_>]) -> String {
    let mut sum = Sum::new(meta);
    for array in arrays {
        sum.array(&array.name, array.shape);
        let _: Result<(), ()> = each_bytes(array.values, |bytes| {
            sum.bytes(bytes);
            Ok(())
        });
    }
    sum.finish()
}

/// The JSON that a file begins with. It ends on a multiple of eight bytes, as the format asks.
fn header(meta: String, sum: String, arrays: &[Source<'_>]) -> Result<Vec<u8>, SafeTensorError> {
    let mut end = 0;
    let info = |array: &Source<'_>| {
        let start = end;
        end += size_of_val(array.values);
        let info = TensorInfo { dtype: Dtype::F32, shape: array.shape.to_owned(), data_offsets: (start, end) };
        (array.name.clone(), info)
    };
    let infos = arrays.iter().map(info).collect();
    let texts = HashMap::from([(META_KEY.to_owned(), meta), (SUM_KEY.to_owned(), sum)]);
    let mut header = serde_json::to_vec(&Metadata::new(Some(texts), infos)?)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

/// The numbers as the file has them, little end first.
fn each_bytes<E>(values: &[f32], mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let mut bytes = [0u8; 4 * PIECE];
    for piece in values.chunks(PIECE) {
        for (bytes, value) in bytes.chunks_exact_mut(4).zip(piece) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        take(&bytes[..4 * piece.len()])?;
    }
    Ok(())
}
