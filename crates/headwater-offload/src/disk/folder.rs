//! Which folders may hold activations.
//!
//! Inputs can be guessed from activations, so nobody else may reach them; and a disk across a network is no disk to keep up with a GPU.

use std::path::Path;

use rustix::fs::{Mode, StatFs};

use crate::error::{Error, Result};

/// File systems of other machines, by the numbers of `statfs(2)`.
const NETWORK: [(i64, &str); 7] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9P"),
    (0x0bd0_0bd0, "Lustre"),
    (0x00c3_6400, "Ceph"),
    (0x4750_4653, "GPFS"),
];
const TMPFS: i64 = 0x0102_1994;

pub(super) fn check(path: &Path, allow_network: bool) -> Result<()> {
    let refuse = |why: String| Err(Error::Folder { path: path.to_owned(), why });
    let (stat, system) = match (rustix::fs::stat(path), rustix::fs::statfs(path)) {
        (Ok(stat), Ok(system)) => (stat, system),
        (Err(why), _) | (_, Err(why)) => return refuse(why.to_string()),
    };
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
        return refuse("it is not a folder".to_owned());
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) && !mode.contains(Mode::SVTX) {
        return refuse(format!("others may write there (mode {:o})", mode.bits() & 0o7777));
    }
    let own = rustix::process::geteuid();
    if stat.st_uid != own.as_raw() && stat.st_uid != 0 && !mode.contains(Mode::SVTX) {
        return refuse(format!("it belongs to user {}", stat.st_uid));
    }
    unfit(number(&system), allow_network).map_or(Ok(()), refuse)
}

/// Bytes that the file system of a folder has left for this user.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// What is wrong with a file system of that number, if something is.
pub(crate) fn unfit(number: i64, allow_network: bool) -> Option<String> {
    match NETWORK.iter().find(|(known, _)| *known == number) {
        Some((_, name)) if !allow_network => Some(format!("{name} is a file system of another machine")),
        _ if number == TMPFS => Some("tmpfs lies in host memory".to_owned()),
        _ => None,
    }
}

fn number(system: &StatFs) -> i64 {
    #[allow(clippy::unnecessary_cast, reason = "its type differs between machines")]
    let number = system.f_type as i64;
    // Magic numbers have 32 bits, also where the type is signed.
    number & 0xffff_ffff
}
