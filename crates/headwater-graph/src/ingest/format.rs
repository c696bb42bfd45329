//! What a source is. Deciding is pure: it takes what there is and returns a format.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use super::fault::Fault;
use super::regular::open_regular;
use crate::error::Result;

/// The kinds of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines with a source and a target: CSV, TSV, spaces, packed or not.
    EdgeList,
    /// Named arrays: an `.npz` archive, one `.npy` file or a folder of them.
    Arrays,
    /// OGB's folder of packed tables, with one kind of node.
    OgbCsv,
    /// OGB's folder of packed tables, with several.
    OgbCsvHetero,
    /// OGB's folder with `raw/data.npz`, as ogbn-papers100M has it.
    OgbNpz,
    /// MAG240M's folder of `.npy` files.
    Mag240m,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::EdgeList, Self::Arrays, Self::OgbCsv, Self::OgbCsvHetero, Self::OgbNpz, Self::Mag240m];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EdgeList => "edge-list",
            Self::Arrays => "arrays",
            Self::OgbCsv => "ogb-csv",
            Self::OgbCsvHetero => "ogb-csv-hetero",
            Self::OgbNpz => "ogb-npz",
            Self::Mag240m => "mag240m",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| format!("{text:?} is no format"))
    }
}

/// What can be seen of a source without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A file: how its name ends, and its first bytes.
    File {
        /// Its ending, in small letters.
        ending: String,
        /// Its first bytes.
        start: Vec<u8>,
    },
    /// A folder: paths in it, three levels deep, with slashes.
    Folder(BTreeSet<String>),
}

/// Decides what a source is, or why it is none.
pub fn decide(seen: &Seen) -> std::result::Result<Format, Fault> {
    match seen {
        Seen::File { ending, start } => decide_file(ending, start),
        Seen::Folder(paths) => decide_folder(paths),
    }
}

/// Looks at a source and decides.
pub fn detect(path: &Path) -> Result<Format> {
    let seen = see(path)?;
    decide(&seen).map_err(|fault| fault.of(path))
}

fn decide_file(ending: &str, start: &[u8]) -> std::result::Result<Format, Fault> {
    const PICKLES: [&str; 4] = ["pt", "pth", "pkl", "pickle"];
    // Pickles of protocol 2 and later begin so; torch wraps them in an archive.
    let is_pickle = matches!(start, [0x80, 2..=5, ..]);
    if PICKLES.contains(&ending) || is_pickle {
        let instead =
            "save its arrays with np.savez(\"graph.npz\", edge_index=..., x=..., y=...) and ingest that".into();
        return Err(Fault::Pickle { instead });
    }
    let is_array =
        start.starts_with(b"\x93NUMPY") || start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06");
    if start.is_empty() {
        return Err(Fault::Refused("is empty".into()));
    }
    if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
        return Err(Fault::Refused("is text in UTF-16; save it as UTF-8".into()));
    }
    let is_packed = start.starts_with(b"\x1f\x8b");
    let is_text = !start.contains(&0);
    match (is_array, is_packed || is_text) {
        (true, _) => Ok(Format::Arrays),
        (false, true) => Ok(Format::EdgeList),
        (false, false) => Err(unknown()),
    }
}

fn decide_folder(paths: &BTreeSet<String>) -> std::result::Result<Format, Fault> {
    let has = |path: &str| paths.contains(path);
    let has_in = |folder: &str, ending: &str| {
        paths.iter().any(|path| path.strip_prefix(folder).is_some_and(|rest| rest.ends_with(ending)))
    };
    if has("raw/edge.csv.gz") {
        Ok(Format::OgbCsv)
    } else if has("raw/triplet-type-list.csv.gz") {
        Ok(Format::OgbCsvHetero)
    } else if has("raw/data.npz") {
        Ok(Format::OgbNpz)
    } else if has_in("processed/", "/edge_index.npy") {
        Ok(Format::Mag240m)
    } else if paths.iter().any(|path| !path.contains('/') && path.ends_with(".npy")) {
        Ok(Format::Arrays)
    } else if has_in("processed/", ".pt") || has_in("", ".pt") {
        let instead = "ingest the folder with OGB's raw files (raw/edge.csv.gz or raw/data.npz) instead".into();
        Err(Fault::Pickle { instead })
    } else if let Some(archive) = paths.iter().find(|path| path.ends_with(".npz")) {
        Err(Fault::Refused(format!("is a folder; name the archive in it, as {archive}")))
    } else {
        Err(unknown())
    }
}

fn unknown() -> Fault {
    Fault::UnknownFormat { known: Format::ALL.map(Format::name).join(", ") }
}

fn see(path: &Path) -> Result<Seen> {
    const START_BYTES: u64 = 512;
    let wrong = |error| Fault::Io(error).of(path);
    if path.is_dir() {
        let mut paths = BTreeSet::new();
        walk(path, "", 3, &mut paths).map_err(wrong)?;
        return Ok(Seen::Folder(paths));
    }
    let mut start = Vec::new();
    open_regular(path)?.take(START_BYTES).read_to_end(&mut start).map_err(wrong)?;
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    Ok(Seen::File { ending, start })
}

fn walk(folder: &Path, prefix: &str, levels: usize, paths: &mut BTreeSet<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            if levels > 1 {
                walk(&entry.path(), &format!("{name}/"), levels - 1, paths)?;
            }
        } else {
            paths.insert(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_what_is_in_them() {
        for (ending, start, expected) in [
            ("csv", &b"0,1\n"[..], Some(Format::EdgeList)),
            ("", b"0 1\n", Some(Format::EdgeList)),
            ("gz", b"\x1f\x8b\x08\0", Some(Format::EdgeList)),
            ("npz", b"PK\x03\x04\0", Some(Format::Arrays)),
            ("npy", b"\x93NUMPY\x01\0", Some(Format::Arrays)),
            ("pt", b"PK\x03\x04\0", None),
            ("bin", b"\x80\x04K.", None),
            ("bin", b"a\0b", None),
            ("csv", b"", None),
            ("csv", b"\xff\xfe0\0,\0", None),
        ] {
            let seen = Seen::File { ending: ending.into(), start: start.to_vec() };
            assert_eq!(decide(&seen).ok(), expected, "{ending} {start:?}");
        }
        let pickle = decide(&Seen::File { ending: "pt".into(), start: vec![] }).unwrap_err().to_string();
        assert!(pickle.contains("np.savez"), "{pickle}");
    }

    #[test]
    fn folders_are_told_apart_by_their_files() {
        for (paths, expected) in [
            (&["raw/edge.csv.gz", "split/time/train.csv.gz"][..], Some(Format::OgbCsv)),
            (&["raw/triplet-type-list.csv.gz"], Some(Format::OgbCsvHetero)),
            (&["raw/data.npz", "raw/node-label.npz"], Some(Format::OgbNpz)),
            (&["meta.pt", "processed/a___b___c/edge_index.npy"], Some(Format::Mag240m)),
            (&["edge_index.npy", "y.npy"], Some(Format::Arrays)),
            (&["processed/data_processed.pt"], None),
            (&["notes.txt"], None),
            (&["graph.npz"], None),
            (&[], None),
        ] {
            let seen = Seen::Folder(paths.iter().map(|path| (*path).to_owned()).collect());
            assert_eq!(decide(&seen).ok(), expected, "{paths:?}");
        }
        assert!(Format::ALL.into_iter().all(|format| format.name().parse() == Ok(format)));
    }
}
