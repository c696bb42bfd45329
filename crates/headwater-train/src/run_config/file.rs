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
