//! Zip archives as NumPy writes them: stored and deflated members, 64-bit sizes, read as streams.
//!
//! Written by hand because members here reach tens of gigabytes and come from anywhere: nothing is allocated from a
//! number in the archive, members may not overlap, and a member never yields more bytes than the directory promised.
//! The directory at the end is the truth; local headers only say where the data begins.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

/// Directories longer than this are refused; that of an archive of arrays has a few kilobytes.
const MOST_DIRECTORY_BYTES: u64 = 1 << 26;
/// Deflate cannot pack better than this.
const BEST_RATIO: u64 = 1032;
const END_BYTES: usize = 22;
const LONGEST_COMMENT_BYTES: usize = 0xffff;
const BUFFER_BYTES: usize = 1 << 18;

/// What is wrong with an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZipFault {
    /// No end record.
    #[error("not a zip archive, or its end is cut off: there is no end record")]
    NoEnd,
    /// A record that is not where another says.
    #[error("byte {at}: there is no {what}")]
    Record {
        /// Where it should be.
        at: u64,
        /// What should be there.
        what: &'static str,
    },
    /// A range beyond the end of the archive.
    #[error("{what} reaches from byte {at} for {bytes} bytes, but ends at {limit}")]
    Range {
        /// What reaches too far.
        what: String,
        /// Its start.
        at: u64,
        /// Its length.
        bytes: u64,
        /// Where it has to end.
        limit: u64,
    },
    /// Two members that share bytes.
    #[error("members {one:?} and {other:?} overlap")]
    Overlap {
        /// The first.
        one: String,
        /// The second.
        other: String,
    },
    /// A name that stands twice.
    #[error("member {0:?} stands twice")]
    Twice(String),
    /// Something no reader here knows.
    #[error("member {name:?} {why}")]
    Unsupported {
        /// Which member.
        name: String,
        /// What it needs.
        why: &'static str,
    },
    /// A size no packed data can have.
    #[error("member {name:?} claims {bytes} bytes from {packed_bytes} packed ones")]
    Claim {
        /// Which member.
        name: String,
        /// Unpacked.
        bytes: u64,
        /// Packed.
        packed_bytes: u64,
    },
    /// A directory longer than any honest one.
    #[error("the directory claims {bytes} bytes; the limit is {MOST_DIRECTORY_BYTES}")]
    Directory {
        /// Bytes claimed.
        bytes: u64,
    },
    /// The bytes could not be read.
    #[error("{0}")]
    Io(String),
}

/// Bytes that can be read anywhere.
pub trait ReadAt {
    /// Fills the buffer from a position.
    fn read_exact_from(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_from(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }
}

impl ReadAt for [u8] {
    fn read_exact_from(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let end = start.checked_add(buffer.len());
        let from = end.and_then(|end| self.get(start..end)).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(from);
        Ok(())
    }
}

/// How a member is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// As it is.
    Stored,
    /// By deflate.
    Deflated,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// How it is packed.
    pub method: Method,
    /// Bytes in the archive.
    pub packed_bytes: u64,
    /// Bytes unpacked.
    pub bytes: u64,
    crc: u32,
    header_at: u64,
    data_at: u64,
}

/// Reads and checks the directory of an archive of `archive_bytes` bytes.
pub fn entries(from: &(impl ReadAt + ?Sized), archive_bytes: u64) -> Result<Vec<Entry>, ZipFault> {
    let end = find_end(from, archive_bytes)?;
    if end.directory_bytes > MOST_DIRECTORY_BYTES {
        return Err(ZipFault::Directory { bytes: end.directory_bytes });
    }
    let range = ("the directory", end.directory_at, end.directory_bytes);
    within(range.0, range.1, range.2, archive_bytes)?;
    let mut directory = vec![0; usize::try_from(end.directory_bytes).unwrap_or(usize::MAX)];
    from.read_exact_from(&mut directory, end.directory_at).map_err(io)?;
    let mut found = Vec::new();
    let mut cursor = Cursor { bytes: &directory, at: 0, base: end.directory_at };
    while cursor.at < directory.len() {
        let mut entry = cursor.entry()?;
        entry.data_at = data_start(from, &entry, end.directory_at)?;
        found.push(entry);
    }
    if found.len() as u64 != end.count {
        return Err(ZipFault::Record {
            at: end.directory_at,
            what: "directory with as many members as the end record says",
        });
    }
    check_apart(&found)?;
    Ok(found)
}

/// A member's bytes, unpacked. Ends with an error when they are not what the directory promised.
pub struct Member {
    packed: Packed,
    left: u64,
    crc: Crc,
    expected_crc: u32,
}

impl Member {
    /// Starts to read a member.
    #[must_use]
    pub fn new(file: Arc<File>, entry: &Entry) -> Self {
        let raw = Section { file, at: entry.data_at, left: entry.packed_bytes };
        let buffered = BufReader::with_capacity(BUFFER_BYTES, raw);
        let packed = match entry.method {
            Method::Stored => Packed::Stored(buffered),
            Method::Deflated => Packed::Deflated(DeflateDecoder::new(buffered)),
        };
        Self { packed, left: entry.bytes, crc: Crc::new(), expected_crc: entry.crc }
    }
}

impl Read for Member {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let got = match &mut self.packed {
            Packed::Stored(from) => from.read(&mut buffer[..most])?,
            Packed::Deflated(from) => from.read(&mut buffer[..most])?,
        };
        if got == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the member ends before its promised size"));
        }
        self.crc.update(&buffer[..got]);
        self.left -= got as u64;
        if self.left == 0 && self.crc.sum() != self.expected_crc {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the member's checksum does not agree with its data",
            ));
        }
        Ok(got)
    }
}

enum Packed {
    Stored(BufReader<Section>),
    Deflated(DeflateDecoder<BufReader<Section>>),
}

/// A range of a file, read without moving the file's own position.
struct Section {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += got as u64;
        self.left -= got as u64;
        Ok(got)
    }
}

/// Where the directory is.
struct End {
    count: u64,
    directory_at: u64,
    directory_bytes: u64,
}

fn find_end(from: &(impl ReadAt + ?Sized), archive_bytes: u64) -> Result<End, ZipFault> {
    let tail_bytes = archive_bytes.min((END_BYTES + LONGEST_COMMENT_BYTES) as u64);
    let tail_at = archive_bytes - tail_bytes;
    let mut tail = vec![0; usize::try_from(tail_bytes).unwrap_or(usize::MAX)];
    from.read_exact_from(&mut tail, tail_at).map_err(io)?;
    // The comment may hold anything, so the record counts only if its comment ends with the archive.
    let is_end = |at: &usize| {
        let record = Cursor { bytes: &tail, at: *at, base: 0 };
        record.bytes[*at..].starts_with(b"PK\x05\x06")
            && record.u16_at(20).is_ok_and(|comment| *at + END_BYTES + usize::from(comment) == tail.len())
    };
    let at = (0..=tail.len().saturating_sub(END_BYTES)).rev().find(is_end).ok_or(ZipFault::NoEnd)?;
    let record = Cursor { bytes: &tail, at, base: tail_at };
    let (count, bytes, start) = (record.u16_at(10)?, record.u32_at(12)?, record.u32_at(16)?);
    if count == u16::MAX || bytes == u32::MAX || start == u32::MAX {
        return find_wide_end(from, tail_at + at as u64);
    }
    Ok(End { count: count.into(), directory_at: start.into(), directory_bytes: bytes.into() })
}

/// The 64-bit end record, through the locator that stands before the 32-bit one.
fn find_wide_end(from: &(impl ReadAt + ?Sized), end_at: u64) -> Result<End, ZipFault> {
    const LOCATOR: &str = "locator of a 64-bit end record";
    let locator_at = end_at.checked_sub(20).ok_or(ZipFault::Record { at: 0, what: LOCATOR })?;
    let mut locator = [0; 20];
    from.read_exact_from(&mut locator, locator_at).map_err(io)?;
    let locator = Cursor { bytes: &locator, at: 0, base: locator_at };
    locator.expect(b"PK\x06\x07", LOCATOR)?;
    let at = locator.u64_at(8)?;
    let mut record = [0; 56];
    within("the 64-bit end record", at, 56, locator_at)?;
    from.read_exact_from(&mut record, at).map_err(io)?;
    let record = Cursor { bytes: &record, at: 0, base: at };
    record.expect(b"PK\x06\x06", "64-bit end record")?;
    Ok(End { count: record.u64_at(32)?, directory_bytes: record.u64_at(40)?, directory_at: record.u64_at(48)? })
}

/// Where a member's data begins, from its local header.
fn data_start(from: &(impl ReadAt + ?Sized), entry: &Entry, directory_at: u64) -> Result<u64, ZipFault> {
    within(&entry.name, entry.header_at, 30, directory_at)?;
    let mut header = [0; 30];
    from.read_exact_from(&mut header, entry.header_at).map_err(io)?;
    let header = Cursor { bytes: &header, at: 0, base: entry.header_at };
    header.expect(b"PK\x03\x04", "local header of a member")?;
    let data_at = entry.header_at + 30 + u64::from(header.u16_at(26)?) + u64::from(header.u16_at(28)?);
    within(&entry.name, data_at, entry.packed_bytes, directory_at)?;
    Ok(data_at)
}

fn within(what: &str, at: u64, bytes: u64, limit: u64) -> Result<(), ZipFault> {
    match at.checked_add(bytes) {
        Some(end) if end <= limit => Ok(()),
        _ => Err(ZipFault::Range { what: what.to_owned(), at, bytes, limit }),
    }
}

/// Members neither share bytes nor names.
fn check_apart(entries: &[Entry]) -> Result<(), ZipFault> {
    let mut by_place: Vec<&Entry> = entries.iter().collect();
    by_place.sort_by_key(|entry| entry.header_at);
    for pair in by_place.windows(2) {
        if pair[0].data_at + pair[0].packed_bytes > pair[1].header_at {
            return Err(ZipFault::Overlap { one: pair[0].name.clone(), other: pair[1].name.clone() });
        }
    }
    let mut by_name: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    by_name.sort_unstable();
    match by_name.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ZipFault::Twice(pair[0].to_owned())),
        None => Ok(()),
    }
}

fn io(error: io::Error) -> ZipFault {
    ZipFault::Io(error.to_string())
}

/// A record being read. Fields are named by their distance from its start, as the format's description does.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    base: u64,
}

impl<'a> Cursor<'a> {
    fn entry(&mut self) -> Result<Entry, ZipFault> {
        self.expect(b"PK\x01\x02", "member of the directory")?;
        let lengths = [28, 30, 32].map(|field| self.u16_at(field).map(usize::from));
        let [name_bytes, extra_bytes, comment_bytes] = lengths;
        let (name_bytes, extra_bytes, comment_bytes) = (name_bytes?, extra_bytes?, comment_bytes?);
        let name = String::from_utf8_lossy(self.slice(46, name_bytes)?).into_owned();
        let extra = self.slice(46 + name_bytes, extra_bytes)?;
        let [packed, bytes, header_at] = [20, 24, 42].map(|field| self.u32_at(field));
        let [bytes, packed_bytes, header_at] = wide_fields(extra, [bytes?, packed?, header_at?])
            .ok_or(ZipFault::Unsupported { name: name.clone(), why: "lacks its 64-bit sizes" })?;
        let method = self.method(&name)?;
        let claim = packed_bytes.saturating_mul(BEST_RATIO).saturating_add(64);
        if (method == Method::Stored && bytes != packed_bytes) || bytes > claim {
            return Err(ZipFault::Claim { name, bytes, packed_bytes });
        }
        let crc = self.u32_at(16)?;
        self.at += 46 + name_bytes + extra_bytes + comment_bytes;
        Ok(Entry { name, method, packed_bytes, bytes, crc, header_at, data_at: 0 })
    }

    fn method(&self, name: &str) -> Result<Method, ZipFault> {
        let unsupported = |why| Err(ZipFault::Unsupported { name: name.to_owned(), why });
        if self.u16_at(8)? & 1 != 0 {
            return unsupported("is encrypted");
        }
        match self.u16_at(10)? {
            0 => Ok(Method::Stored),
            8 => Ok(Method::Deflated),
            _ => unsupported("is packed by something other than deflate"),
        }
    }

    fn expect(&self, mark: &[u8; 4], what: &'static str) -> Result<(), ZipFault> {
        if self.slice(0, 4)? == mark { Ok(()) } else { Err(ZipFault::Record { at: self.base + self.at as u64, what }) }
    }

    fn u16_at(&self, field: usize) -> Result<u16, ZipFault> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    fn u32_at(&self, field: usize) -> Result<u32, ZipFault> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    fn u64_at(&self, field: usize) -> Result<u64, ZipFault> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    fn array<const N: usize>(&self, field: usize) -> Result<[u8; N], ZipFault> {
        let cut = ZipFault::Record { at: self.base + self.at as u64, what: "whole record" };
        self.slice(field, N)?.first_chunk().copied().ok_or(cut)
    }

    fn slice(&self, field: usize, bytes: usize) -> Result<&'a [u8], ZipFault> {
        let start = self.at + field;
        let cut = ZipFault::Record { at: self.base + self.at as u64, what: "whole record" };
        self.bytes.get(start..start + bytes).ok_or(cut)
    }
}

/// Sizes and place of a member: those that are all ones in 32 bits stand in the 64-bit extra field, in this order.
fn wide_fields(extra: &[u8], narrow: [u32; 3]) -> Option<[u64; 3]> {
    let mut wide = narrow.map(u64::from);
    if !narrow.contains(&u32::MAX) {
        return Some(wide);
    }
    let mut rest = extra;
    let mut field = loop {
        let (id, length) = (rest.first_chunk::<2>()?, rest.get(2..)?.first_chunk::<2>()?);
        let body = rest.get(4..)?.get(..usize::from(u16::from_le_bytes(*length)))?;
        if u16::from_le_bytes(*id) == 1 {
            break body;
        }
        rest = rest.get(4 + body.len()..)?;
    };
    for (value, narrow) in wide.iter_mut().zip(narrow) {
        if narrow == u32::MAX {
            let (number, after) = field.split_first_chunk::<8>()?;
            (*value, field) = (u64::from_le_bytes(*number), after);
        }
    }
    Some(wide)
}

#[cfg(test)]
mod tests;
