//! Text in blocks of whole lines, read and unpacked ahead by a thread.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use flate2::bufread::MultiGzDecoder;
use headwater_tensor::parallel;

use super::fields::meant;
use crate::error::Result;
use crate::ingest::fault::{Fault, Place};
use crate::ingest::regular::open_regular;
use crate::progress::Progress;

/// Text handed to one parser at a time.
const BLOCK_BYTES: usize = 1 << 21;
/// A line longer than this is no line of an edge list or a table.
const LONGEST_LINE_BYTES: usize = 1 << 26;
/// Blocks that may wait to be parsed.
const AHEAD_BLOCKS: usize = 8;
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Whole lines, with the line end of each but perhaps the last of the file.
#[derive(Debug)]
pub struct Block {
    /// The text.
    pub bytes: Vec<u8>,
    /// Bytes of the file that were read to get it, packed if the file is.
    pub file_bytes: u64,
}

/// The blocks of a file, in their order.
#[derive(Debug)]
pub struct Blocks {
    path: PathBuf,
    /// Blocks, and nothing once more at the end: a thread that is gone before has not read everything.
    ready: Receiver<io::Result<Option<Block>>>,
    /// A block that was taken and put back.
    pending: Option<Block>,
    first_line: u64,
    is_over: bool,
}

impl Blocks {
    /// Opens a file and starts to read ahead. Whether it is packed is seen from its first bytes, not from its name.
    pub fn open(path: &Path) -> Result<Self> {
        Self::with_block_bytes(path, BLOCK_BYTES)
    }

    /// As [`Blocks::open`], with blocks of about this size.
    pub fn with_block_bytes(path: &Path, block_bytes: usize) -> Result<Self> {
        let wrong = |error: io::Error| Fault::Io(error).of(path);
        let file = open_regular(path)?;
        let consumed = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, consumed: consumed.clone() };
        let mut cutter =
            Cutter { from: unpacked(counted).map_err(wrong)?, rest: Vec::new(), block_bytes, ended: false };
        let (send, ready) = sync_channel(AHEAD_BLOCKS);
        let work = move || {
            let mut before = 0;
            while let Some(bytes) = cutter.next().transpose() {
                let now = consumed.load(Ordering::Relaxed);
                let block = bytes.map(|bytes| Some(Block { bytes, file_bytes: now - before }));
                before = now;
                let last = block.is_err();
                // Whoever wanted the blocks may be gone.
                if send.send(block).is_err() || last {
                    return;
                }
            }
            let _ = send.send(Ok(None));
        };
        std::thread::Builder::new().name("read-ahead".into()).spawn(work).map_err(wrong)?;
        Ok(Self { path: path.to_owned(), ready, pending: None, first_line: 1, is_over: false })
    }

    /// The next block; none at the end.
    pub fn next_block(&mut self) -> Result<Option<Block>> {
        if let Some(block) = self.pending.take() {
            return Ok(Some(block));
        }
        if self.is_over {
            return Ok(None);
        }
        let gone = |_| Err(io::Error::other("the thread that reads ahead ended before the file did"));
        let block = self.ready.recv().unwrap_or_else(gone).map_err(|error| Fault::Io(error).of(&self.path))?;
        self.is_over = block.is_none();
        Ok(block)
    }

    /// Drops everything up to the end of the first line that is neither empty nor a comment: the header.
    pub fn skip_header(&mut self) -> Result<()> {
        while let Some(mut block) = self.next_block()? {
            let mut end = 0;
            let found = block.bytes.split_inclusive(|byte| *byte == b'\n').any(|line| {
                end += line.len();
                self.first_line += 1;
                meant(line.strip_suffix(b"\n").unwrap_or(line)).is_some()
            });
            if found {
                block.bytes.drain(..end);
                self.pending = Some(block);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Parses blocks in parallel and takes the results in order. Faults are numbered by line within their block.
    pub fn for_each<P: Send>(
        mut self,
        progress: &dyn Progress,
        parse: impl Fn(&[u8]) -> Result<P, (u64, Fault)> + Sync,
        mut take: impl FnMut(Vec<Numbered<P>>) -> Result<()>,
    ) -> Result<()> {
        let at_once = 2 * rayon::current_num_threads();
        let mut line = self.first_line;
        loop {
            let mut batch = Vec::with_capacity(at_once);
            while batch.len() < at_once {
                let Some(block) = self.next_block()? else { break };
                batch.push(block);
            }
            if batch.is_empty() {
                return Ok(());
            }
            let parse_one = |at: usize| (count_lines(&batch[at].bytes), parse(&batch[at].bytes));
            let parsed = parallel::collect(batch.len(), parse_one);
            let mut numbered = Vec::with_capacity(parsed.len());
            for (lines, result) in parsed {
                let within = |(at, fault): (u64, Fault)| fault.at(&self.path, Place::Line(line + at));
                numbered.push(Numbered { first_line: line, parsed: result.map_err(within)? });
                line += lines;
            }
            take(numbered)?;
            progress.advance(batch.iter().map(|block| block.file_bytes).sum());
        }
    }
}

/// What became of a block, and where it was in the file.
#[derive(Debug)]
pub struct Numbered<P> {
    /// The line it begins with, counted from 1.
    pub first_line: u64,
    /// What was in it.
    pub parsed: P,
}

fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Cuts a stream after the last line end of each block.
struct Cutter {
    from: Box<dyn Read + Send>,
    rest: Vec<u8>,
    block_bytes: usize,
    ended: bool,
}

impl Cutter {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = std::mem::take(&mut self.rest);
        while !self.ended {
            let searched = bytes.len();
            let got = (&mut self.from).take(self.block_bytes as u64).read_to_end(&mut bytes)?;
            self.ended = got < self.block_bytes;
            if let Some(last) = memchr::memrchr(b'\n', &bytes[searched..]).filter(|_| !self.ended) {
                self.rest = bytes.split_off(searched + last + 1);
                return Ok(Some(bytes));
            }
            if !self.ended && bytes.len() > LONGEST_LINE_BYTES {
                let why = format!("a line has more than {LONGEST_LINE_BYTES} bytes; is this text?");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

/// The text of a file, without the mark some programs put before it.
fn unpacked(file: Counted) -> io::Result<Box<dyn Read + Send>> {
    const PACKED: [u8; 2] = [0x1f, 0x8b];
    let mut start = Vec::new();
    let mut file = file;
    (&mut file).take(PACKED.len() as u64).read_to_end(&mut start)?;
    let is_packed = start == PACKED;
    let whole = BufReader::with_capacity(1 << 18, io::Cursor::new(start).chain(file));
    let mut text: Box<dyn Read + Send> = if is_packed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
    let mut first = Vec::new();
    (&mut text).take(MARK.len() as u64).read_to_end(&mut first)?;
    if first == MARK {
        first.clear();
    }
    Ok(Box::new(io::Cursor::new(first).chain(text)))
}

/// A file that counts what was read of it.
struct Counted {
    file: File,
    consumed: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(buffer)?;
        self.consumed.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use std::io::Write;

    fn texts(path: &Path, block_bytes: usize) -> Vec<Vec<u8>> {
        let mut blocks = Blocks::with_block_bytes(path, block_bytes).unwrap();
        std::iter::from_fn(|| blocks.next_block().unwrap()).map(|block| block.bytes).collect()
    }

    #[test]
    fn blocks_are_whole_lines_and_together_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..500).map(|i| format!("{i},{}\n", i * i)).collect::<String>() + "no end";
        let plain = folder.path().join("plain");
        std::fs::write(&plain, format!("\u{feff}{text}")).unwrap();
        let packed = folder.path().join("packed.csv");
        let mut to = flate2::write::GzEncoder::new(File::create(&packed).unwrap(), flate2::Compression::fast());
        to.write_all(text.as_bytes()).unwrap();
        to.finish().unwrap();
        for path in [&plain, &packed] {
            for block_bytes in [1, 7, 100, 1 << 20] {
                let blocks = texts(path, block_bytes);
                assert_eq!(String::from_utf8(blocks.concat()).unwrap(), text);
                assert!(blocks[..blocks.len() - 1].iter().all(|block| block.ends_with(b"\n")));
            }
        }
    }

    #[test]
    fn faults_have_the_line_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        std::fs::write(&path, "a\n".repeat(300) + "b\n").unwrap();
        let parse = |bytes: &[u8]| match memchr::memchr(b'b', bytes) {
            Some(at) => Err((at as u64 / 2, Fault::TooMany { what: "b", limit: 0 })),
            None => Ok(()),
        };
        let blocks = Blocks::with_block_bytes(&path, 16).unwrap();
        let why = blocks.for_each(&Silent, parse, |_| Ok(())).unwrap_err().to_string();
        assert!(why.ends_with("lines: line 301: more than 0 b"), "{why}");
    }

    #[test]
    fn a_cut_archive_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut.gz");
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        to.write_all("0,1\n".repeat(1000).as_bytes()).unwrap();
        let whole = to.finish().unwrap();
        for keep in [3, 15, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..keep]).unwrap();
            let failed = Blocks::open(&path).and_then(|blocks| blocks.for_each(&Silent, |_| Ok(()), |_| Ok(())));
            assert!(failed.unwrap_err().to_string().contains("cut.gz: cannot be read"), "{keep}");
        }
    }
}
