//! A run as a TOML file.

use std::fs;
use std::path::Path;

use super::nearest::nearest;
use super::{RunConfig, RunFile};
use crate::error::{Error, Result};
use crate::whole_file::write_whole;

/// No description of a run is longer; a file that is something else is not read to its end.
const MOST_BYTES: u64 = 1 << 20;

impl RunFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let about = fs::metadata(path).map_err(Error::io("read", path))?;
        if !about.is_file() || about.len() > MOST_BYTES {
            let why = "this is no file that describes a run".to_owned();
            return Err(Error::RunFile { path: path.to_owned(), why });
        }
        Self::parse(&fs::read_to_string(path).map_err(Error::io("read", path))?, path)
    }

    /// Understands a text. `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let wrong = |why: toml::de::Error| Error::RunFile { path: path.to_owned(), why: why.to_string() };
        let table: toml::Table = text.parse().map_err(wrong)?;
        if let Some(field) = table.keys().find(|field| !Self::FIELDS.contains(&field.as_str())) {
            let nearest = nearest(field, Self::FIELDS).map(str::to_owned);
            return Err(Error::UnknownField { path: path.to_owned(), field: field.clone(), nearest });
        }
        toml::from_str(text).map_err(wrong)
    }
}

impl RunConfig {
    /// All fields, as a file that reads back as the same run.
    pub fn to_toml(&self) -> Result<String> {
        for (field, path) in [("dataset", &self.dataset), ("out", &self.out)] {
            if let Some(path) = path.as_ref().filter(|path| path.to_str().is_none()) {
                let expected = "a path in UTF-8, because the run's config.toml keeps it".to_owned();
                return Err(Error::Setting { field, value: path.display().to_string(), expected });
            }
        }
        let wrong = |why: toml::ser::Error| Error::Setting {
            field: "run",
            value: why.to_string(),
            expected: "fields that TOML can say".to_owned(),
        };
        toml::to_string(self).map_err(wrong)
    }

    /// Writes all fields into a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_whole(path, self.to_toml()?.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_path_that_is_no_text_is_named() {
        let dataset = Some(OsStr::from_bytes(b"data/\xff").into());
        let config = RunConfig::resolve(RunFile::default(), RunFile::default()).unwrap();
        let config = RunConfig { dataset, ..config };
        let said = config.to_toml().unwrap_err().to_string();
        assert!(said.starts_with("dataset is data/") && said.contains("a path in UTF-8"), "{said}");
    }
}
