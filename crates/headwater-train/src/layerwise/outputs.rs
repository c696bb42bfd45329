//! What a layer gives, a row a node: in memory, or in a file without a name where there would be too much.
//!
//! Rows of nodes that nobody needs are never written; a file has no room for them until they are.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use headwater_tensor::parallel;

use crate::error::{Error, Result};

/// Rows that one thread copies or reads at a time.
const PART: usize = 256;
/// Rows that one thread puts in their places at a time.
const PUT_ROWS: usize = 1 << 12;

/// Rows of all nodes, some of them filled.
#[derive(Debug)]
pub struct Outputs {
    /// The first row of each node type.
    firsts: Vec<usize>,
    width: usize,
    home: Home,
}

#[derive(Debug)]
enum Home {
    Memory(Vec<f32>),
    File { file: File, path: PathBuf },
}

/// Where outputs may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room<'a> {
    /// More bytes than these go to a file.
    pub memory_bytes: u64,
    /// The folder it is made in.
    pub scratch: &'a Path,
}

impl Room<'_> {
    /// Whether so many numbers may be in memory.
    pub fn has_memory_for(&self, len: usize) -> bool {
        4 * len as u64 <= self.memory_bytes
    }
}

impl Outputs {
    /// Room for rows of so many nodes of each type, in memory that `take` gives, or in a file.
    pub(super) fn new(
        counts: &[u64],
        width: usize,
        room: Room<'_>,
        take: impl FnOnce(usize) -> Vec<f32>,
    ) -> Result<Self> {
        let rows = usize::try_from(counts.iter().sum::<u64>()).unwrap_or(usize::MAX);
        let len = rows.saturating_mul(width);
        let home =
            if room.has_memory_for(len) { Home::Memory(take(len)) } else { nameless(room.scratch, 4 * len as u64)? };
        Ok(Self { firsts: firsts(counts), width, home })
    }

    /// Rows that are all there, in memory.
    pub(crate) fn whole(counts: &[u64], width: usize, rows: Vec<f32>) -> Self {
        Self { firsts: firsts(counts), width, home: Home::Memory(rows) }
    }

    /// Elements of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether rows are in a file.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        matches!(self.home, Home::File { .. })
    }

    /// The rows of nodes of one type. Rows that were not put there are whatever they are.
    pub(crate) fn gather(&self, of_type: usize, nodes: &[u64], out: &mut [f32]) -> Result<()> {
        let width = self.width.max(1);
        let parts = out.chunks_mut(PART * width).zip(nodes.chunks(PART));
        parallel::try_for_each(parts, |(out, nodes)| self.read(of_type, nodes, out))
    }

    fn read(&self, of_type: usize, nodes: &[u64], out: &mut [f32]) -> Result<()> {
        for (run, out) in runs(nodes, out, self.width) {
            let first = self.row(of_type, run) * self.width;
            match &self.home {
                Home::Memory(rows) => out.copy_from_slice(&rows[first..first + out.len()]),
                Home::File { file, path } => {
                    let bytes = bytemuck::cast_slice_mut(out);
                    file.read_exact_at(bytes, 4 * first as u64).map_err(Error::io("read", path))?;
                }
            }
        }
        Ok(())
    }

    /// Fills the rows of nodes of one type, which are ascending.
    pub(super) fn put(&mut self, of_type: usize, nodes: &[u64], rows: &[f32]) -> Result<()> {
        let (first_row, width) = (self.firsts[of_type], self.width);
        let first = |node: u64| (first_row + usize::try_from(node).unwrap_or(usize::MAX)) * width;
        let parts = nodes.chunks(PUT_ROWS).zip(rows.chunks((PUT_ROWS * width).max(1)));
        match &mut self.home {
            Home::Memory(all) => {
                let (mut rest, mut at) = (&mut all[..], 0);
                let mut own = Vec::new();
                for (nodes, rows) in parts {
                    // Every part has a stretch of memory of its own.
                    let (start, end) = (first(nodes[0]), first(nodes[nodes.len() - 1]) + width);
                    let (stretch, behind) = std::mem::take(&mut rest)[start - at..].split_at_mut(end - start);
                    (rest, at) = (behind, end);
                    own.push((nodes, rows, stretch, start));
                }
                parallel::for_each(own.into_iter(), |_, (nodes, rows, stretch, start)| {
                    for (node, rows) in runs_of(nodes, rows, width) {
                        stretch[first(node) - start..][..rows.len()].copy_from_slice(rows);
                    }
                });
            }
            Home::File { file, path } => {
                for (node, rows) in runs_of(nodes, rows, width) {
                    let bytes = bytemuck::cast_slice(rows);
                    file.write_all_at(bytes, 4 * first(node) as u64).map_err(Error::io("write", path))?;
                }
            }
        }
        Ok(())
    }

    /// The memory of the rows, to be used again.
    pub(crate) fn into_memory(self) -> Option<Vec<f32>> {
        match self.home {
            Home::Memory(rows) => Some(rows),
            Home::File { .. } => None,
        }
    }

    fn row(&self, of_type: usize, node: u64) -> usize {
        self.firsts[of_type] + usize::try_from(node).unwrap_or(usize::MAX)
    }
}

fn firsts(counts: &[u64]) -> Vec<usize> {
    let sum = |sum: &mut u64, count: &u64| Some(std::mem::replace(sum, *sum + count));
    counts.iter().scan(0, sum).map(|first| usize::try_from(first).unwrap_or(usize::MAX)).collect()
}

/// A file of so many bytes that is gone when it is closed, however the process ends.
fn nameless(folder: &Path, bytes: u64) -> Result<Home> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let path = folder.join(format!(".layer-{}-{}.partial", std::process::id(), MADE.fetch_add(1, Relaxed)));
    // Left by a process of the same number that was killed just here.
    let _ = fs::remove_file(&path);
    let made = File::options().read(true).write(true).create_new(true).open(&path);
    let file = made.map_err(Error::io("create", &path))?;
    fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    file.set_len(bytes).map_err(Error::io("make room in", &path))?;
    Ok(Home::File { file, path })
}

/// Stretches of nodes that follow each other, with their rows.
fn runs<'a>(nodes: &'a [u64], out: &'a mut [f32], width: usize) -> impl Iterator<Item = (u64, &'a mut [f32])> {
    let mut rest = out;
    nodes.chunk_by(|a, b| a + 1 == *b).map(move |run| {
        let (own, behind) = std::mem::take(&mut rest).split_at_mut(run.len() * width);
        rest = behind;
        (run[0], own)
    })
}

fn runs_of<'a>(nodes: &'a [u64], rows: &'a [f32], width: usize) -> impl Iterator<Item = (u64, &'a [f32])> {
    let mut rest = rows;
    nodes.chunk_by(|a, b| a + 1 == *b).map(move |run| {
        let (own, behind) = rest.split_at(run.len() * width);
        rest = behind;
        (run[0], own)
    })
}
