//! The memories of a table, and how they are filled.

use std::sync::{Arc, Mutex, PoisonError};

use headwater_cuda::{Allocation, Gpu, Span};
use headwater_memory::{Buffer, Pinned, SharedHost, Uploader, host_bytes_available, pin, upload};
use headwater_tensor::parallel;

use super::layout::{Layout, index};
use super::source::Source;
use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored};

/// What one thread fills of host memory at a time.
const PART_BYTES: usize = 1 << 20;

/// Copies of rows in GPU memory, and the rows in host memory.
#[derive(Debug)]
pub(super) struct Parts {
    pub replicated: Span,
    /// One share a member.
    pub members: Vec<Span>,
    pub host: Span,
    /// The host part, when other processes may map it.
    pub shared: Option<Arc<SharedHost>>,
    /// One a row of all parts for int8, else none.
    pub scales: Span,
}

/// Where the part in host memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostHome {
    /// Where the source has it, registered; pinned copies of rows that are padded or in a file.
    #[default]
    InPlace,
    /// In memory that other processes can map too. That is a copy.
    Shared,
}

/// What goes where.
pub(super) struct Placing<'a> {
    pub gpu: &'a Gpu,
    pub group: &'a [Gpu],
    pub source: &'a Source,
    pub format: RowFormat,
    pub layout: Layout,
    pub host: HostHome,
    /// Source rows of the first rows of the table when they are not the same; then the rest of the table is the whole
    /// source again.
    pub moved: Option<&'a [u64]>,
}

impl Placing<'_> {
    /// Fills all memories.
    pub fn fill(&self) -> Result<Parts> {
        self.check_room()?;
        let (layout, stride) = (&self.layout, self.format.stride_bytes);
        let replicated = device_span(self.gpu, layout.replicated_end, stride)?;
        let members =
            self.group.iter().enumerate().map(|(at, gpu)| device_span(gpu, layout.share_rows(at as u64), stride));
        let members = members.collect::<Result<Vec<_>>>()?;
        connect(self.gpu, self.group)?;
        let (host, shared) = self.host_part()?;
        let scales = self.scales()?;
        let parts = Parts { replicated, members, host, shared, scales };
        self.upload_all(&parts)?;
        Ok(parts)
    }

    /// Refuses what there is no room for before anything is filled.
    fn check_room(&self) -> Result<()> {
        let bytes = |rows: u64| rows.saturating_mul(self.format.stride_bytes as u64);
        let shares = |gpu: &Gpu| {
            let members = self.group.iter().enumerate().filter(|(_, member)| member.ordinal() == gpu.ordinal());
            members.fold(0u64, |sum, (at, _)| sum.saturating_add(bytes(self.layout.share_rows(at as u64))))
        };
        for gpu in self.group.iter().chain([self.gpu]) {
            let own = if gpu.ordinal() == self.gpu.ordinal() { bytes(self.layout.replicated_end) } else { 0 };
            let (asked_bytes, bytes) = (own.saturating_add(shares(gpu)), gpu.memory()?.free_bytes as u64);
            if asked_bytes > bytes {
                return Err(Error::Budget { memory: "GPU memory", asked_bytes, bytes });
            }
        }
        self.check_host_room(0)
    }

    /// The same for host memory alone, when `held_bytes` of it are given back first.
    pub fn check_host_room(&self, held_bytes: u64) -> Result<()> {
        let asked_bytes = self.layout.host_rows().saturating_mul(self.format.stride_bytes as u64);
        let bytes = (host_bytes_available() as u64).saturating_add(held_bytes);
        if self.copies_host() && asked_bytes > bytes {
            return Err(Error::Budget { memory: "host memory", asked_bytes, bytes });
        }
        Ok(())
    }

    /// Whether rows in host memory are copied and not read where they lie.
    fn copies_host(&self) -> bool {
        let lies_there = self.source.in_memory().is_some();
        self.host == HostHome::Shared || !lies_there || self.source.format().stride_bytes != self.format.stride_bytes
    }

    /// Fills GPU memory again. Nobody may be reading it.
    pub fn refill(&self, parts: &mut Parts) -> Result<()> {
        parts.scales = self.scales()?;
        self.upload_all(parts)
    }

    /// Makes the part in host memory again. Nobody may be reading it.
    pub fn replace_host(&self, parts: &mut Parts) -> Result<()> {
        // The old part goes before the new one comes: there may be no room for both.
        parts.host = Span::whole(Allocation::shareable(self.gpu, 0)?);
        (parts.host, parts.shared) = self.host_part()?;
        Ok(())
    }

    fn upload_all(&self, parts: &Parts) -> Result<()> {
        self.upload(self.gpu, &parts.replicated, &|slot| (slot < self.layout.replicated_end).then_some(slot))?;
        for (member, (gpu, share)) in self.group.iter().zip(&parts.members).enumerate() {
            self.upload(gpu, share, &|slot| self.layout.row_of_member(member as u64, slot))?;
        }
        Ok(())
    }

    fn source_row(&self, row: u64) -> u64 {
        source_row(self.moved, row)
    }

    fn upload(&self, gpu: &Gpu, to: &Span, row_of: &(dyn Fn(u64) -> Option<u64> + Sync)) -> Result<()> {
        let failure = Mutex::new(None);
        let mut uploader = Uploader::new(gpu, to.bytes())?;
        uploader.fill(to, |at, part| {
            let row_of = |slot| row_of(slot).map(|row| self.source_row(row));
            if let Err(why) = self.source.write_part(at, part, self.format.stride_bytes, &row_of) {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            }
        })?;
        uploader.wait()?;
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn host_part(&self) -> Result<(Span, Option<Arc<SharedHost>>)> {
        let bytes = index(self.layout.host_rows()).saturating_mul(self.format.stride_bytes);
        if self.host == HostHome::Shared {
            return self.shared_part(bytes);
        }
        if let (Some((rows, _)), false) = (self.source.in_memory(), self.copies_host()) {
            let first = self.source_row(self.layout.interleaved_end);
            let start = index(first) * self.format.stride_bytes;
            let (found, expected) = (rows.as_slice().len() as u64, (start + bytes) as u64);
            let part = rows.part(start..start + bytes).ok_or(Error::Bytes { name: "the table", found, expected })?;
            return Ok((pin(self.gpu, &part)?, None));
        }
        let copy = Buffer::<u8, Pinned>::filled(self.gpu, bytes, |copy| {
            let parts = copy.chunks_mut(PART_BYTES).enumerate();
            parallel::try_for_each(parts, |(at, part)| self.write_host(at * PART_BYTES, part))
        })?;
        Ok((copy.whole().clone(), None))
    }

    fn shared_part(&self, bytes: usize) -> Result<(Span, Option<Arc<SharedHost>>)> {
        if bytes == 0 {
            return Ok((Span::whole(Allocation::shareable(self.gpu, 0)?), None));
        }
        let shared = SharedHost::filled(bytes, PART_BYTES, |at, part| self.write_host(at, part))?;
        Ok((shared.map_into(self.gpu)?, Some(Arc::new(shared))))
    }

    fn write_host(&self, at: usize, part: &mut [u8]) -> Result<()> {
        let first = self.layout.interleaved_end;
        let row_of = |slot| Some(self.source_row(first + slot));
        self.source.write_part(at, part, self.format.stride_bytes, &row_of)
    }

    fn scales(&self) -> Result<Span> {
        let rows = if self.format.stored == Stored::I8 { self.layout.host_end } else { 0 };
        let all = self.source.in_memory().map_or(&[][..], |(_, scales)| scales);
        let scale = |row: usize| all.get(index(self.source_row(row as u64))).copied().unwrap_or(1.0);
        let scales: Vec<f32> = parallel::tabulate(index(rows), scale);
        Ok(upload(self.gpu, bytemuck::cast_slice(&scales))?)
    }
}

fn device_span(gpu: &Gpu, rows: u64, stride: usize) -> Result<Span> {
    Ok(Span::whole(Allocation::shareable(gpu, index(rows).saturating_mul(stride))?))
}

/// The source row that is row `row` of a table whose first rows are copies of the rows `moved`.
pub(super) fn source_row(moved: Option<&[u64]>, row: u64) -> u64 {
    let Some(moved) = moved else { return row };
    moved.get(index(row)).copied().unwrap_or_else(|| row - moved.len() as u64)
}

/// Lets a GPU read the memory of all members of its group.
pub(super) fn connect(gpu: &Gpu, group: &[Gpu]) -> Result<()> {
    let mut others = group.iter().filter(|member| member.ordinal() != gpu.ordinal());
    Ok(others.try_for_each(|member| gpu.enable_access(member))?)
}

/// GPUs by their ordinals, of which `gpu` may be one.
pub(super) fn open_all(gpu: &Gpu, ordinals: &[usize]) -> Result<Vec<Gpu>> {
    ordinals.iter().map(|ordinal| open_one(gpu, *ordinal)).collect()
}

/// The GPU of an ordinal, which `gpu` may be.
pub(super) fn open_one(gpu: &Gpu, ordinal: usize) -> Result<Gpu> {
    Ok(if ordinal == gpu.ordinal() { gpu.clone() } else { Gpu::open(ordinal)? })
}
