//! `metrics.jsonl`: one line of JSON an event, written as the run goes on.
//!
//! A run that is killed has written lines that its last checkpoint does not know. Resumed, it will make them again, so
//! the journal is first cut back to what the checkpoint knows, and a run that was killed has the same journal as one that
//! was not.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Result};

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Length of all whole lines.
    bytes: u64,
    /// Their checksum so far.
    sum: blake3::Hasher,
}

impl Journal {
    /// Begins an empty one in the place of whatever is there.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(Error::io("create", path))?;
        Ok(Self { path: path.to_owned(), file, bytes: 0, sum: blake3::Hasher::new() })
    }

    /// Goes on with the whole lines among the first `known_bytes`. A missing file is an empty one: lines that are lost, or are
    /// not what they were by their checksum, are no reason not to go on.
    pub fn resume(path: &Path, known_bytes: u64, known_sum: Option<&str>) -> Result<Self> {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(Error::io("open", path))?;
        let mut known = Vec::new();
        (&mut file).take(known_bytes).read_to_end(&mut known).map_err(Error::io("read", path))?;
        let bytes = whole_lines(&known).len() as u64;
        if bytes < known_bytes {
            log::warn!("{}: {} of {known_bytes} bytes are lost", path.display(), known_bytes - bytes);
        }
        let mut sum = blake3::Hasher::new();
        sum.update(whole_lines(&known));
        if bytes == known_bytes && known_sum.is_some_and(|known| known != sum.finalize().to_hex().as_str()) {
            log::warn!("{}: its lines are not as they were written", path.display());
        }
        file.set_len(bytes).map_err(Error::io("cut", path))?;
        Ok(Self { path: path.to_owned(), file, bytes, sum })
    }

    /// Adds a line. One that could not be written whole is not there.
    pub fn append(&mut self, event: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(event).map_err(|why| Error::io("write", &self.path)(why.into()))?;
        line.push(b'\n');
        if let Err(why) = self.file.write_all_at(&line, self.bytes) {
            // If this fails too, readers leave out a last line without an end, and the next line begins in its place.
            let _ = self.file.set_len(self.bytes);
            return Err(Error::io("write", &self.path)(why));
        }
        self.bytes += line.len() as u64;
        self.sum.update(&line);
        Ok(())
    }

    /// Makes all lines outlast a crash. Comes before the checkpoint that knows them.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(Error::io("sync", &self.path))
    }

    /// Length of all lines: what a checkpoint remembers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Checksum of all lines, which it remembers too.
    #[must_use]
    pub fn sum(&self) -> String {
        self.sum.finalize().to_hex().to_string()
    }
}

/// All whole lines of a journal.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read(path).map_err(Error::io("read", path))?;
    let lines = whole_lines(&text).split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let parse = |(at, line): (usize, &[u8])| {
        let wrong =
            |why: serde_json::Error| Error::Journal { path: path.to_owned(), line: at + 1, why: why.to_string() };
        serde_json::from_slice(line).map_err(wrong)
    };
    lines.map(parse).collect()
}

/// Everything up to the last line end.
fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn journal(epochs: u32) -> (tempfile::TempDir, PathBuf, Vec<u64>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        let mut lengths = vec![0];
        for epoch in 0..epochs {
            journal.append(&json!({"epoch": epoch, "loss": 1.0 / f64::from(epoch + 1)})).unwrap();
            lengths.push(journal.bytes());
        }
        journal.sync().unwrap();
        (folder, path, lengths)
    }

    #[test]
    fn a_resumed_journal_is_one_that_never_stopped() {
        let (_folder, path, lengths) = journal(3);
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            // Killed with this much on the disk, the last checkpoint knows the lines before.
            fs::write(&path, &whole[..cut]).unwrap();
            let known = lengths.iter().rposition(|&length| length <= cut as u64).unwrap();
            let mut journal = Journal::resume(&path, lengths[known], None).unwrap();
            for epoch in known..3 {
                journal.append(&json!({"epoch": epoch, "loss": 1.0 / (epoch + 1) as f64})).unwrap();
            }
            assert_eq!(
                (fs::read(&path).unwrap(), journal.bytes()),
                (whole.clone(), whole.len() as u64),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn lines_that_the_checkpoint_does_not_know_go() {
        let (_folder, path, lengths) = journal(3);
        // What is known is less than there is, falls into a line, is more than there is, or is all gone.
        for (known, left) in [(lengths[1], 1), (lengths[1] + 3, 1), (lengths[1] + 1000, 1), (0, 0), (5, 0)] {
            assert_eq!(Journal::resume(&path, known, None).unwrap().bytes(), lengths[left], "{known}");
            assert_eq!(read(&path).unwrap().len(), left);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(Journal::resume(&path, 10, None).unwrap().bytes(), 0);
    }

    #[test]
    fn a_sum_is_of_all_lines_whoever_wrote_them() {
        let (_folder, path, lengths) = journal(3);
        let sum = |bytes| Journal::resume(&path, bytes, None).unwrap().sum();
        let (whole, two) = (sum(lengths[3]), sum(lengths[2]));
        let mut journal = Journal::resume(&path, lengths[2], Some(&two)).unwrap();
        journal.append(&json!({"epoch": 2, "loss": 1.0 / 3.0})).unwrap();
        assert_eq!(journal.sum(), whole);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("0.5", "0.7")).unwrap();
        assert!(sum(lengths[3]) != whole, "what was changed shows");
    }

    #[test]
    fn reading_leaves_out_a_torn_line_and_names_a_bad_one() {
        let (_folder, path, _) = journal(2);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"epoch\": 2, \"lo");
        fs::write(&path, &text).unwrap();
        assert_eq!(read(&path).unwrap().iter().map(|line| line["epoch"].clone()).collect::<Vec<_>>(), [0, 1]);
        fs::write(&path, text + "\n").unwrap();
        let said = read(&path).unwrap_err().to_string();
        assert!(said.contains("metrics.jsonl:3"), "{said}");
        assert!(read(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
    }

    #[test]
    fn a_full_disk_is_an_error() {
        // The system keeps this file for the purpose.
        let mut journal = Journal {
            path: "/dev/full".into(),
            file: File::options().write(true).open("/dev/full").unwrap(),
            bytes: 0,
            sum: blake3::Hasher::new(),
        };
        assert!(journal.append(&1).unwrap_err().to_string().contains("/dev/full") && journal.bytes() == 0);
    }
}
