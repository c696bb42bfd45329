//! A table that several processes read, with one copy of every row in the machine.
//!
//! GPU memory travels as handles, host memory as a file in memory that every process maps and registers for itself. What is
//! on disk each process reads through a cache of its own. The process that placed the table keeps it as long as others read
//! it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headwater_cuda::{Allocation, Gpu, Span, Stream};
use headwater_memory::{SharedHost, receive_device, send_device};
use headwater_tensor::gather::IdType;
use serde::{Deserialize, Serialize};

use super::beyond::Beyond;
use super::layout::{Layout, index};
use super::map::DeviceMap;
use super::parts::{Parts, connect, open_all, open_one};
use super::tiered::TieredTable;
use crate::disk::DiskRows;
use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored};

/// The longest wait for a peer's next word, unless the socket says otherwise.
const PATIENCE: Duration = Duration::from_secs(60);
/// No description is as long.
const MOST_BYTES: u32 = 1 << 16;

/// What is said before the memories are sent.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    format: RowFormat,
    layout: Layout,
    /// Ordinals of the GPUs that the parts are with, the table's own first.
    gpus: Vec<usize>,
    /// Bytes of the map from ids to rows, and how wide its rows are.
    map: Option<(u64, bool)>,
}

impl TieredTable {
    /// Offers the table to the process at the other end, which calls [`TieredTable::receive`]. The part in host memory must
    /// have been placed with [`HostHome::Shared`](super::HostHome::Shared).
    pub fn send(&self, peer: &UnixStream) -> Result<()> {
        if self.layout.host_rows() > 0 && self.parts.shared.is_none() {
            return Err(Error::Table { why: "has rows in memory of this process alone; place them in shared memory" });
        }
        if self.moved.is_some() || self.is_torn {
            return Err(Error::Table { why: "has moved rows; share it before rows are moved" });
        }
        self.is_sent.store(true, Ordering::Relaxed);
        let map = self.lookup.as_ref().map(|map| (map.span.bytes() as u64, map.row_type == IdType::U64));
        let gpus = std::iter::once(&self.gpu).chain(&self.group).map(Gpu::ordinal).collect();
        let description = Description { format: self.format, layout: self.layout, gpus, map };
        write_description(peer, &description)?;
        let lookup = self.lookup.as_ref().map(|map| &map.span);
        let parts = self.parts.members.iter().chain([&self.parts.replicated, &self.parts.scales]).chain(lookup);
        for part in parts.filter(|part| part.bytes() > 0) {
            send_device(peer, part.allocation())?;
        }
        if let Some(shared) = &self.parts.shared {
            shared.send(peer)?;
        }
        Ok(())
    }

    /// The table that the process at the other end sent, to be read by `gpu`. `disk` is where its rows on disk are read.
    pub fn receive(peer: &UnixStream, gpu: &Gpu, disk: Option<&Arc<DiskRows>>) -> Result<Self> {
        // Who never answers must not be waited for.
        let patience = peer.read_timeout().ok().flatten();
        if patience.is_none() {
            peer.set_read_timeout(Some(PATIENCE)).map_err(|why| unexpected(&why, "description"))?;
        }
        let table = Self::receive_all(peer, gpu, disk);
        peer.set_read_timeout(patience).map_err(|why| unexpected(&why, "description"))?;
        table
    }

    fn receive_all(peer: &UnixStream, gpu: &Gpu, disk: Option<&Arc<DiskRows>>) -> Result<Self> {
        let Description { format, layout, gpus, map } = read_description(peer)?;
        let layout = layout.checked()?;
        format.check()?;
        let Some((home, members)) = gpus.split_first() else { return Err(unexpected(&"no GPU", "description")) };
        if members.len() as u64 != layout.members {
            return Err(unexpected(&members.len(), "members"));
        }
        let group = open_all(gpu, members)?;
        let receiver = Receiver { peer, stride: format.stride_bytes };
        let shares = group.iter().enumerate().map(|(at, gpu)| receiver.rows(gpu, layout.share_rows(at as u64)));
        let shares = shares.collect::<Result<Vec<_>>>()?;
        let owner = open_one(gpu, *home)?;
        let replicated = at_home(gpu, &owner, receiver.rows(&owner, layout.replicated_end)?)?;
        let scales = if format.stored == Stored::I8 { layout.host_end } else { 0 };
        let scales = at_home(gpu, &owner, receiver.bytes(&owner, scales.saturating_mul(4))?)?;
        let lookup = map.map(|(bytes, is_wide)| -> Result<DeviceMap> {
            let span = at_home(gpu, &owner, receiver.bytes(&owner, bytes)?)?;
            Ok(DeviceMap { span, row_type: if is_wide { IdType::U64 } else { IdType::U32 } })
        });
        let lookup = lookup.transpose()?;
        let (host, shared) = receiver.host(gpu, layout.host_rows())?;
        connect(gpu, &group)?;
        let beyond = own_disk(gpu, &layout, &format, disk)?;
        let parts = Parts { replicated, members: shares, host, shared, scales };
        let mut table = Self::over(gpu, &group, format, layout, parts, beyond, None)?;
        table.lookup = lookup;
        Ok(table)
    }
}

fn own_disk(gpu: &Gpu, layout: &Layout, format: &RowFormat, disk: Option<&Arc<DiskRows>>) -> Result<Option<Beyond>> {
    if layout.disk_rows() == 0 {
        return Ok(None);
    }
    let disk = disk.ok_or(Error::Table { why: "has rows on disk; say how this process reads them" })?;
    if disk.rows() < layout.rows || disk.row_bytes() != format.row_bytes() {
        let (found, expected) = (disk.rows() * disk.row_bytes() as u64, layout.rows * format.row_bytes() as u64);
        return Err(Error::Bytes { name: "the file of rows", found, expected });
    }
    Beyond::new(gpu, Some(disk), format.stored)
}

/// Memory that this GPU reads as its own: itself where it is, else a copy.
fn at_home(gpu: &Gpu, owner: &Gpu, span: Span) -> Result<Span> {
    if gpu.ordinal() == owner.ordinal() || span.bytes() == 0 {
        return Ok(span);
    }
    gpu.enable_access(owner)?;
    let copy = Span::whole(Allocation::shareable(gpu, span.bytes())?);
    let stream = Stream::new(gpu)?;
    stream.copy(&span, &copy)?;
    stream.synchronize()?;
    Ok(copy)
}

/// Memories in the order they are sent, each as long as the description says.
struct Receiver<'a> {
    peer: &'a UnixStream,
    stride: usize,
}

impl Receiver<'_> {
    fn rows(&self, gpu: &Gpu, rows: u64) -> Result<Span> {
        self.bytes(gpu, rows.saturating_mul(self.stride as u64))
    }

    fn bytes(&self, gpu: &Gpu, bytes: u64) -> Result<Span> {
        if bytes == 0 {
            return Ok(Span::whole(Allocation::shareable(gpu, 0)?));
        }
        let span = receive_device(self.peer, gpu)?;
        let (found, expected) = (span.bytes() as u64, bytes);
        if found == expected { Ok(span) } else { Err(Error::Bytes { name: "a part of the table", found, expected }) }
    }

    fn host(&self, gpu: &Gpu, rows: u64) -> Result<(Span, Option<Arc<SharedHost>>)> {
        let expected = rows.saturating_mul(self.stride as u64);
        if expected == 0 {
            return Ok((Span::whole(Allocation::shareable(gpu, 0)?), None));
        }
        let shared = SharedHost::receive(self.peer)?;
        let found = shared.bytes() as u64;
        if found != expected {
            return Err(Error::Bytes { name: "the part in host memory", found, expected });
        }
        Ok((shared.map_into(gpu)?, Some(Arc::new(shared))))
    }
}

fn write_description(mut peer: &UnixStream, description: &Description) -> Result<()> {
    let text = serde_json::to_vec(description).map_err(|why| unexpected(&why, "description"))?;
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let sent = peer.write_all(&length.to_le_bytes()).and_then(|()| peer.write_all(&text));
    sent.map_err(|why| unexpected(&why, "description"))
}

fn read_description(mut peer: &UnixStream) -> Result<Description> {
    let mut length = [0; 4];
    peer.read_exact(&mut length).map_err(|why| unexpected(&why, "description"))?;
    let length = u32::from_le_bytes(length);
    if length > MOST_BYTES {
        return Err(unexpected(&format!("{length} bytes"), "description"));
    }
    let mut text = vec![0; index(u64::from(length))];
    peer.read_exact(&mut text).map_err(|why| unexpected(&why, "description"))?;
    serde_json::from_slice(&text).map_err(|why| unexpected(&why, "description"))
}

fn unexpected(found: &dyn std::fmt::Display, expected: &'static str) -> Error {
    Error::Peer { found: found.to_string(), expected }
}
