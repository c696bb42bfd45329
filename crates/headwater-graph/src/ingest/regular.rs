//! Files that can be read more than once.
//!
//! A source is looked at before it is read. A pipe gives its bytes once, and opening one waits for somebody to write to it,
//! so whatever is no regular file is refused, and without waiting.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::fault::Fault;
use crate::error::Result;

/// Opens a regular file.
pub fn open_regular(path: &Path) -> Result<File> {
    let wrong = |error: std::io::Error| Fault::Io(error).of(path);
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path).map_err(wrong)?;
    let about = file.metadata().map_err(wrong)?;
    if about.is_dir() {
        return Err(wrong(std::io::ErrorKind::IsADirectory.into()));
    }
    if !about.is_file() {
        let why =
            "is no regular file: a pipe or a device gives its bytes once, and sources are read twice; save it first";
        return Err(Fault::Refused(why.into()).of(path));
    }
    Ok(file)
}
