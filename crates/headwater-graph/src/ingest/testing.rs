//! Sources made for tests: archives, arrays, packed text.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use headwater_tensor::npy::{NpyType, header_bytes};

/// How to write an archive.
#[derive(Debug, Clone, Copy)]
pub struct ZipStyle {
    pub deflate: bool,
    /// Sizes and places in 64 bits, as for members from 4 GiB on.
    pub wide: bool,
}

/// An archive of these members.
pub fn zip(members: &[(&str, Vec<u8>)], style: ZipStyle) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let packed = if style.deflate { deflated(bytes) } else { bytes.clone() };
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let method = if style.deflate { 8u16 } else { 0 };
        let (size, packed_size, at) = (bytes.len() as u64, packed.len() as u64, archive.len() as u64);
        let narrow = |value: u64| if style.wide { u32::MAX } else { u32::try_from(value).unwrap() };
        let name_bytes = u16::try_from(name.len()).unwrap();
        // Another extra field stands before the one that matters.
        let mut extra = vec![0x99, 0x99, 2, 0, 7, 7];
        if style.wide {
            extra.extend([1, 0, 24, 0]);
            extra.extend([size, packed_size, at].iter().flat_map(|value| value.to_le_bytes()));
        }
        let start = |to: &mut Vec<u8>, mark: &[u8], made_by: &[u8]| {
            to.extend(mark);
            to.extend(made_by);
            to.extend([45, 0, 0, 0]);
            to.extend(method.to_le_bytes());
            to.extend([0; 4]);
            to.extend(crc.sum().to_le_bytes());
            to.extend(narrow(packed_size).to_le_bytes());
            to.extend(narrow(size).to_le_bytes());
            to.extend(name_bytes.to_le_bytes());
            to.extend(u16::try_from(extra.len()).unwrap().to_le_bytes());
        };
        start(&mut archive, b"PK\x03\x04", &[]);
        archive.extend(name.as_bytes());
        archive.extend(&extra);
        archive.extend(packed);
        start(&mut directory, b"PK\x01\x02", &[45, 3]);
        directory.extend([0; 10]);
        directory.extend(narrow(at).to_le_bytes());
        directory.extend(name.as_bytes());
        directory.extend(&extra);
    }
    end(archive, &directory, members.len() as u64, style.wide)
}

fn end(mut archive: Vec<u8>, directory: &[u8], count: u64, wide: bool) -> Vec<u8> {
    let (at, bytes) = (archive.len() as u64, directory.len() as u64);
    archive.extend(directory);
    if wide {
        let record_at = archive.len() as u64;
        archive.extend(b"PK\x06\x06");
        archive.extend(44u64.to_le_bytes());
        archive.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        archive.extend([count, count, bytes, at].iter().flat_map(|value| value.to_le_bytes()));
        archive.extend(b"PK\x06\x07\0\0\0\0");
        archive.extend(record_at.to_le_bytes());
        archive.extend([1, 0, 0, 0]);
    }
    let narrow = |value: u64| if wide { u32::MAX } else { u32::try_from(value).unwrap() };
    archive.extend(b"PK\x05\x06\0\0\0\0");
    let count = if wide { u16::MAX } else { u16::try_from(count).unwrap() };
    archive.extend([count, count].iter().flat_map(|value| value.to_le_bytes()));
    archive.extend(narrow(bytes).to_le_bytes());
    archive.extend(narrow(at).to_le_bytes());
    archive.extend([5, 0]);
    archive.extend(b"words");
    archive
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut to = DeflateEncoder::new(Vec::new(), Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

/// A `.npy` file.
pub fn npy<T: bytemuck::Pod>(kind: impl Into<NpyType>, shape: &[usize], values: &[T]) -> Vec<u8> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    [header_bytes(kind.into(), shape), bytes.to_vec()].concat()
}

/// Text, packed.
pub fn packed(text: &str) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    to.write_all(text.as_bytes()).unwrap();
    to.finish().unwrap()
}

/// Writes packed text.
pub fn write_gz(path: &Path, text: &str) {
    write(path, packed(text));
}

/// Writes bytes, and the folders above them.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}
