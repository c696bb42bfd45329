//! What a disk gives when nothing but requests is asked of it.

use std::sync::Arc;
use std::time::Instant;

use headwater::memory::io::{AlignedBuffer, AtEnd, Engine, Error, IoFile, Queue, Request};
use serde::Serialize;

/// A read of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    pub offset: u64,
    pub bytes: usize,
}

/// What came of requests.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Raw {
    pub reads: u64,
    pub read_bytes: u64,
    pub seconds: f64,
}

impl Raw {
    /// With what came of more requests.
    pub fn and(self, more: Self) -> Self {
        let (reads, read_bytes) = (self.reads + more.reads, self.read_bytes + more.read_bytes);
        Self { reads, read_bytes, seconds: self.seconds + more.seconds }
    }

    /// Bytes over time.
    pub fn gb_per_s(&self) -> f64 {
        self.read_bytes as f64 / self.seconds.max(f64::MIN_POSITIVE) / 1e9
    }
}

/// Requests of given lengths, `sizes[n]` of them `n` units long, that begin at some of `units`, which rise. A unit begins one
/// request at most.
pub fn requests(units: &[u64], unit_bytes: usize, sizes: &[u64]) -> Vec<Read> {
    let count = sizes.iter().sum::<u64>().min(units.len() as u64);
    // The first `at` of `count` equal parts of all units, in whole numbers.
    let place = |at: u64| u128::from(at) * units.len() as u128 / u128::from(count.max(1));
    let index = |number: u128| usize::try_from(number).unwrap_or(usize::MAX);
    let mut left = sizes.to_vec();
    let mut reads = Vec::new();
    // Lengths take turns, so that each is found all over the file.
    while (reads.len() as u64) < count {
        for (length, left) in left.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
            *left -= 1;
            if reads.len() as u64 == count {
                break;
            }
            let offset = units[index(place(reads.len() as u64))] * unit_bytes as u64;
            reads.push(Read { offset, bytes: length.max(1) * unit_bytes });
        }
    }
    reads
}

/// Reads all of it with `depth` requests in flight.
pub fn probe(engine: &Engine, file: &Arc<IoFile>, reads: &[Read], depth: usize) -> anyhow::Result<Raw> {
    let most_bytes = reads.iter().map(|read| read.bytes).max().unwrap_or(0);
    let queue: Queue<AlignedBuffer> = engine.queue(depth)?;
    let submit = |read: &Read, buffer| {
        let request = Request::read(file, read.offset, buffer).span(0..read.bytes).at_end(AtEnd::Stop);
        queue.submit(request).map_err(Error::from)
    };
    let buffers = (0..depth.min(reads.len())).map(|_| AlignedBuffer::new(most_bytes)).collect::<Result<Vec<_>, _>>()?;
    let (mut left, mut raw, begun) = (reads.iter(), Raw::default(), Instant::now());
    for (buffer, read) in buffers.into_iter().zip(left.by_ref()) {
        submit(read, buffer)?;
    }
    while let Some(completion) = queue.next()? {
        let (buffer, got_bytes) = completion.into_result()?;
        raw.reads += 1;
        raw.read_bytes += got_bytes as u64;
        if let Some(read) = left.next() {
            submit(read, buffer)?;
        }
    }
    Ok(Raw { seconds: begun.elapsed().as_secs_f64(), ..raw })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_lengths() {
        let units = [1, 3, 5, 7, 9, 11];
        let found = requests(&units, 4096, &[0, 3, 1]);
        let shape: Vec<(u64, usize)> = found.iter().map(|read| (read.offset / 4096, read.bytes / 4096)).collect();
        assert_eq!(shape, [(1, 1), (3, 2), (7, 1), (9, 1)]);
        assert_eq!(requests(&units, 4096, &[0, 50, 50]).len(), 6);
        assert!(requests(&units, 4096, &[]).is_empty());
        assert!(requests(&[], 4096, &[0, 3]).is_empty());
    }
}
