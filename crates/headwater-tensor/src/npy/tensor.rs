//! Tensors from `.npy` files and back.
//!
//! A file is read straight into the memory the tensor lies in, several parts at a time; for GPU memory it passes through
//! the host in pieces. Nothing is mapped: a file that shrinks while it is read is an error here and would be a signal
//! there. Who wants a file in place maps it and lays a tensor over it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use headwater_memory::{Buffer, Host};
use rayon::prelude::*;

use super::{NpyFile, Order, write_array};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::exec::{output_bytes, part};
use crate::layout::Shape;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// Bytes read by one call.
const READ_BYTES: usize = 4 << 20;
/// Bytes on the host at a time, on their way to the GPU.
const PIECE_BYTES: usize = 64 << 20;

impl Tensor {
    /// Reads a file into a new tensor.
    pub fn read_npy(path: impl AsRef<Path>, device: Device) -> Result<Tensor> {
        let path = path.as_ref();
        let NpyFile { file, header } = NpyFile::open(path)?;
        let dtype = header.kind.dtype().map_err(|source| Error::NpyFile { path: path.to_owned(), source })?;
        // Column-major data is the row-major data of the reversed shape, seen transposed.
        let mut dims = header.shape.to_vec();
        if header.order == Order::Fortran {
            dims.reverse();
        }
        let shape = Shape::new(&dims)?;
        let mut storage = Storage::new(device, output_bytes(dtype, &shape)?)?;
        let from = Data { file: &file, path, offset: header.data_offset as u64 };
        from.fill(&mut storage)?;
        let tensor = Tensor::packed(storage, &shape, dtype, device)?;
        match header.order {
            Order::C => Ok(tensor),
            Order::Fortran => tensor.permute(&(0..dims.len()).rev().collect::<Vec<_>>()),
        }
    }

    /// Writes the elements in row-major order to a new file, or over an old one.
    pub fn write_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let packed = self.contiguous()?;
        let operand = packed.host_operand(self.dtype())?;
        let data = operand.packed_bytes()?.unwrap_or_default();
        let file = File::create(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        write_array(&file, self.dtype().into(), self.shape(), data)
    }
}

/// The data of an open file.
struct Data<'a> {
    file: &'a File,
    path: &'a Path,
    offset: u64,
}

impl Data<'_> {
    fn fill(&self, storage: &mut Storage) -> Result<()> {
        if let Some(to) = storage.host_mut()? {
            return self.read(0, to);
        }
        let (Some(gpu), Some(to)) = (storage.home(), storage.span()) else { return Ok(()) };
        for at in (0..to.bytes()).step_by(PIECE_BYTES) {
            let length = PIECE_BYTES.min(to.bytes() - at);
            let mut piece = Buffer::<u8, Host>::new(length)?;
            self.read(at, piece.as_mut_slice())?;
            gpu.stream()?.upload(piece.as_slice(), &part(to, at, length)?)?;
        }
        Ok(())
    }

    /// Reads from `at` on, with several threads for a large part.
    fn read(&self, at: usize, to: &mut [u8]) -> Result<()> {
        to.par_chunks_mut(READ_BYTES).enumerate().try_for_each(|(number, part)| {
            let offset = self.offset + (at + number * READ_BYTES) as u64;
            self.file.read_exact_at(part, offset).map_err(|source| Error::Io { path: self.path.to_owned(), source })
        })
    }
}
