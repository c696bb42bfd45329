//! From a file to a checkpoint. The file is untrusted: nothing is allocated that its length does not allow.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::Value;

use super::{Checkpoint, META_KEY, Meta, Part, SUM_KEY, Sum, VERSION};
use crate::array::Array;
use crate::error::{Error, Result};

/// No header is longer, here as in the format's own library.
const MOST_HEADER_BYTES: u64 = 100_000_000;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 16;

pub(super) fn read(path: &Path) -> Result<Checkpoint> {
    let file = open(path)?;
    let file_bytes = file.metadata().map_err(Error::io("read", path))?.len();
    read_from(file, file_bytes, path)
}

/// Reads what has so many bytes. `path` is for messages.
pub(super) fn read_from(mut file: impl Read, file_bytes: u64, path: &Path) -> Result<Checkpoint> {
    let damaged = |why: String| Error::Damaged { path: path.to_owned(), why };
    let header = read_header(&mut file, file_bytes).map_err(|why| from_io(path, why))?;
    let texts = header.metadata().as_ref();
    let text = |key: &str| texts.and_then(|texts| texts.get(key)).ok_or_else(|| damaged(format!("it has no {key:?}")));
    let (meta_text, expected) = (text(META_KEY)?, text(SUM_KEY)?);
    let meta = parse_meta(meta_text, path)?;
    let (arrays, sum) = read_arrays(&mut file, &header, meta_text).map_err(|why| from_io(path, why))?;
    if *expected != sum {
        return Err(damaged(format!("its checksum is {sum}; expected {expected}")));
    }
    sort(meta, arrays).map_err(damaged)
}

/// Opens a plain file; anything else might never end.
fn open(path: &Path) -> Result<File> {
    let refused = |why| Error::io("read", path)(why);
    if !fs::metadata(path).map_err(refused)?.is_file() {
        return Err(refused(io::Error::other("it is not a file")));
    }
    File::open(path).map_err(refused)
}

fn read_header(file: &mut impl Read, file_bytes: u64) -> io::Result<Metadata> {
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let header_bytes = u64::from_le_bytes(length);
    if header_bytes > MOST_HEADER_BYTES.min(file_bytes) {
        return Err(wrong("its header is longer than the file or 100 MB"));
    }
    let mut header = Vec::new();
    file.take(header_bytes).read_to_end(&mut header)?;
    let header: Metadata = serde_json::from_slice(&header).map_err(|why| wrong(&format!("its header: {why}")))?;
    // The header has made sure that the arrays lie one after the other.
    let expected = (header.data_len() as u64).saturating_add(8 + header_bytes);
    if expected != file_bytes {
        return Err(wrong(&format!("it has {file_bytes} bytes; by its header there should be {expected}")));
    }
    Ok(header)
}

/// The version is looked at first: a later one may say everything else in another way.
fn parse_meta(text: &str, path: &Path) -> Result<Meta> {
    let damaged =
        |why: serde_json::Error| Error::Damaged { path: path.to_owned(), why: format!("its metadata: {why}") };
    let value: Value = serde_json::from_str(text).map_err(damaged)?;
    match value.get("version").and_then(Value::as_u64) {
        Some(found) if found > VERSION => {
            Err(Error::CheckpointVersion { path: path.to_owned(), found, known: VERSION })
        }
        _ => serde_json::from_value(value).map_err(damaged),
    }
}

/// All arrays in the order of their names, which is that of the file, and the checksum of everything.
fn read_arrays(file: &mut impl Read, header: &Metadata, meta: &str) -> io::Result<(Vec<Array>, String)> {
    let mut sum = Sum::new(meta);
    let mut arrays = Vec::new();
    let mut at = 0;
    let mut infos: Vec<_> = header.tensors().into_iter().collect();
    infos.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, info) in infos {
        let (start, end) = info.data_offsets;
        if info.dtype != Dtype::F32 || start != at {
            return Err(wrong(&format!("array {name:?} is not of f32, or not in its place")));
        }
        at = end;
        sum.array(&name, &info.shape);
        let values = read_values(file, end - start, &mut sum)?;
        arrays.push(Array { name, shape: info.shape.clone(), values });
    }
    Ok((arrays, sum.finish()))
}

fn read_values(file: &mut impl Read, bytes: usize, sum: &mut Sum) -> io::Result<Vec<f32>> {
    let mut values = Vec::with_capacity(bytes / 4);
    let mut piece = vec![0; PIECE_BYTES.min(bytes)];
    let mut left = bytes;
    while left > 0 {
        let piece = &mut piece[..PIECE_BYTES.min(left)];
        file.read_exact(piece)?;
        sum.bytes(piece);
        values.extend(piece.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        left -= piece.len();
    }
    Ok(values)
}

/// Tells the arrays apart by what they are for.
fn sort(meta: Meta, arrays: Vec<Array>) -> Result<Checkpoint, String> {
    let mut checkpoint = Checkpoint {
        state: meta.state,
        fingerprint: meta.fingerprint,
        optimiser_steps: meta.optimiser_steps,
        parameters: Vec::new(),
        optimiser: Vec::new(),
        buffers: Vec::new(),
    };
    for array in arrays {
        let (part, name) = Part::split(&array.name).ok_or_else(|| format!("array {:?} has no purpose", array.name))?;
        let list = match part {
            Part::Parameter => &mut checkpoint.parameters,
            Part::Optimiser => &mut checkpoint.optimiser,
            Part::Buffer => &mut checkpoint.buffers,
        };
        list.push(Array { name: name.to_owned(), ..array });
    }
    Ok(checkpoint)
}

/// What is wrong with the content, on its way through functions that read.
fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A file that says nonsense or ends early is damaged; anything else is the system's refusal.
fn from_io(path: &Path, why: io::Error) -> Error {
    match why.kind() {
        io::ErrorKind::InvalidData => Error::Damaged { path: path.to_owned(), why: why.to_string() },
        io::ErrorKind::UnexpectedEof => Error::Damaged { path: path.to_owned(), why: "it ends early".to_owned() },
        _ => Error::io("read", path)(why),
    }
}
