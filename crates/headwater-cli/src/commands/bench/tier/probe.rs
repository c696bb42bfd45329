//! What a disk gives when nothing but requests is asked of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater::memory::io::{AlignedBuffer, AtEnd, Engine, Error, IoFile, Queue, Request};
use serde::Serialize;

/// A read of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    pub offset: u64,
    pub bytes: usize,
}

/// What came of the requests.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Raw {
    pub reads: u64,
    pub read_bytes: u64,
    pub gb_per_s: f64,
}

/// Requests of the same number and bytes as `reads` and `read_bytes`, in whole units, that begin at some of `units`.
/// Those are in rising order, list after list, and so are the requests.
pub fn requests(units: &[Vec<u64>], unit_bytes: usize, reads: u64, read_bytes: u64) -> Vec<Read> {
    let all: Vec<u64> = units.iter().flatten().copied().collect();
    let count = reads.min(all.len() as u64);
    let total_units = read_bytes / unit_bytes as u64;
    // Part `at` of so many, in whole numbers and without gaps.
    let part = |total: u64, at: u64| u128::from(total) * u128::from(at) / u128::from(reads.max(1));
    let index = |number: u128| usize::try_from(number).unwrap_or(usize::MAX);
    let read = |at: u64| Read {
        offset: all[index(u128::from(at) * all.len() as u128 / u128::from(count))] * unit_bytes as u64,
        bytes: index(part(total_units, at + 1) - part(total_units, at)).max(1) * unit_bytes,
    };
    (0..count).map(read).collect()
}

/// Reads with `depth` requests in flight until all are done or the time is over.
pub fn probe(
    engine: &Engine,
    file: &Arc<IoFile>,
    reads: &[Read],
    depth: usize,
    limit: Duration,
) -> anyhow::Result<Raw> {
    let most_bytes = reads.iter().map(|read| read.bytes).max().unwrap_or(0);
    let queue: Queue<AlignedBuffer> = engine.queue(depth)?;
    let submit = |read: &Read, buffer| {
        let request = Request::read(file, read.offset, buffer).span(0..read.bytes).at_end(AtEnd::Stop);
        queue.submit(request).map_err(Error::from)
    };
    let buffers = (0..depth.min(reads.len())).map(|_| AlignedBuffer::new(most_bytes)).collect::<Result<Vec<_>, _>>()?;
    let (mut left, mut done, mut read_bytes) = (reads.iter(), 0, 0);
    let begun = Instant::now();
    for (buffer, read) in buffers.into_iter().zip(left.by_ref()) {
        submit(read, buffer)?;
    }
    while let Some(completion) = queue.next()? {
        let (buffer, got_bytes) = completion.into_result()?;
        done += 1;
        read_bytes += got_bytes as u64;
        if begun.elapsed() < limit
            && let Some(read) = left.next()
        {
            submit(read, buffer)?;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Raw { reads: done, read_bytes, gb_per_s: read_bytes as f64 / seconds / 1e9 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_number_and_the_bytes() {
        let units = [vec![1, 3, 5, 7], vec![2, 4]];
        let found = requests(&units, 4096, 4, 6 * 4096);
        let shape: Vec<(u64, usize)> = found.iter().map(|read| (read.offset / 4096, read.bytes / 4096)).collect();
        assert_eq!(shape, [(1, 1), (3, 2), (7, 1), (2, 2)]);
        assert_eq!(requests(&units, 4096, 100, 100 * 4096).len(), 6);
        assert!(requests(&units, 4096, 0, 0).is_empty());
        assert!(requests(&[], 4096, 3, 4096).is_empty());
    }
}
