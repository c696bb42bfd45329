//! An array whose length is known when its last element has come.
//!
//! Room for the header is left at the beginning and filled at the end. Elements gather in memory until there are a few
//! blocks, which are then hashed and written by several threads.

use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_tensor::npy::{NpyElement, NpyType};
use headwater_tensor::parallel;

use super::array_file::{BLOCK_BYTES, HEADER_BYTES, create, elements_of, header};
use super::checksum::{BlockSum, block_sum, join};
use super::manifest::FileEntry;
use super::refused;
use super::writer::Files;
use crate::error::{Error, Result};
use crate::topology::index;

/// So many bytes gather before they are written.
const PENDING_BYTES: usize = 4 << 20;

/// An array being written, made by [`super::DatasetWriter::append`]. It counts only once it is closed.
#[derive(Debug)]
pub struct Growing<T> {
    bytes: GrowingBytes,
    of: PhantomData<T>,
}

impl<T: NpyElement> Growing<T> {
    pub(super) fn begin(files: Arc<Files>, name: String, row_shape: &[u64]) -> Result<Self> {
        Ok(Self { bytes: GrowingBytes::begin(files, name, T::KIND, row_shape)?, of: PhantomData })
    }

    /// More elements. Rows may be cut anywhere.
    pub fn push(&mut self, elements: &[T]) -> Result<()> {
        self.bytes.push(elements.len() as u64, bytemuck::cast_slice(elements))
    }

    /// Rows pushed so far, the last of which may not be whole yet.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.bytes.rows()
    }

    /// Writes what is left and the header. Returns the number of rows.
    pub fn close(self) -> Result<u64> {
        self.bytes.close()
    }
}

/// The same for elements of any kind as their bytes: compiled once.
#[derive(Debug)]
struct GrowingBytes {
    files: Arc<Files>,
    name: String,
    path: PathBuf,
    file: File,
    kind: NpyType,
    row_shape: Vec<u64>,
    row_elements: u64,
    elements: u64,
    /// What is not yet written; it continues the file at a multiple of a block.
    pending: Vec<u8>,
    sums: Vec<BlockSum>,
}

impl GrowingBytes {
    fn begin(files: Arc<Files>, name: String, kind: NpyType, row_shape: &[u64]) -> Result<Self> {
        let path = files.folder().join(&name);
        // One row must have a header.
        header(kind, &[&[1], row_shape].concat())?;
        let file = create(&path)?;
        Ok(Self {
            files,
            name,
            path,
            file,
            kind,
            row_shape: row_shape.to_vec(),
            row_elements: elements_of(row_shape),
            elements: 0,
            pending: vec![0; index(HEADER_BYTES)],
            sums: Vec::new(),
        })
    }

    fn push(&mut self, elements: u64, bytes: &[u8]) -> Result<()> {
        self.elements += elements;
        for piece in bytes.chunks(PENDING_BYTES) {
            self.pending.extend_from_slice(piece);
            if self.pending.len() >= PENDING_BYTES {
                let whole_blocks = self.pending.len() - self.pending.len() % index(BLOCK_BYTES);
                self.flush(whole_blocks)?;
            }
        }
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.elements.div_ceil(self.row_elements.max(1))
    }

    fn close(mut self) -> Result<u64> {
        let rows = self.rows();
        if rows * self.row_elements != self.elements {
            let (found, expected) = (self.elements, rows * self.row_elements);
            return Err(Error::Length { name: "the array", found, expected, of: "whole rows" });
        }
        self.flush(self.pending.len())?;
        let shape = [&[rows], &self.row_shape[..]].concat();
        let (header, data_bytes) = header(self.kind, &shape)?;
        let bytes = HEADER_BYTES + data_bytes;
        self.file.write_all_at(&header, 0).map_err(refused("write", &self.path))?;
        self.sums[0] = self.first_block(bytes.min(BLOCK_BYTES))?;
        let entry = FileEntry { dtype: self.kind.name().to_owned(), shape, bytes, blake3: join(&self.sums) };
        self.files.put(&self.name, entry);
        Ok(rows)
    }

    /// Writes the first bytes of what is pending. Only the last call may leave a block unfinished.
    fn flush(&mut self, bytes: usize) -> Result<()> {
        let first = self.sums.len() as u64;
        let blocks: Vec<&[u8]> = self.pending[..bytes].chunks(index(BLOCK_BYTES)).collect();
        let sums = parallel::try_collect(blocks.len(), |at| -> Result<_> {
            let start = (first + at as u64) * BLOCK_BYTES;
            self.file.write_all_at(blocks[at], start).map_err(refused("write", &self.path))?;
            Ok(block_sum(start, &[blocks[at]]))
        })?;
        self.sums.extend(sums);
        self.pending.drain(..bytes);
        Ok(())
    }

    /// The first block was hashed before its header was known.
    fn first_block(&self, bytes: u64) -> Result<BlockSum> {
        let mut block = vec![0; index(bytes)];
        self.file.read_exact_at(&mut block, 0).map_err(refused("read", &self.path))?;
        Ok(block_sum(0, &[&block]))
    }
}
