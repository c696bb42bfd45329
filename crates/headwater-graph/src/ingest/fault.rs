//! What can be wrong with a source, as data, and where in it.

use std::fmt;
use std::path::Path;

use headwater_tensor::npy::NpyError;

use super::zip::ZipFault;
use crate::error::Error;

/// Where in a file something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The file as such.
    File,
    /// A line, counted from 1.
    Line(u64),
    /// A member of an archive, or an array.
    Array(String),
    /// An element of an array, counted from 0.
    Element(String, u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => Ok(()),
            Self::Line(line) => write!(f, ": line {line}"),
            Self::Array(name) => write!(f, ": {name}"),
            Self::Element(name, at) => write!(f, ": {name}[{at}]"),
        }
    }
}

/// What is wrong there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The system could not read it, or its compressed data is damaged or cut.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A `.npy` header that is none.
    #[error(transparent)]
    Npy(#[from] NpyError),
    /// An archive that is none.
    #[error(transparent)]
    Zip(#[from] ZipFault),
    /// A field of a line.
    #[error("column {column}: {value:?} is not {expected}")]
    Field {
        /// Which column, by name or by number from 0.
        column: String,
        /// What stands there.
        value: String,
        /// What should.
        expected: &'static str,
    },
    /// A line with more or fewer fields than the first one.
    #[error("{found} fields, but the lines before have {expected}")]
    Ragged {
        /// Fields of this line.
        found: usize,
        /// Fields of the first.
        expected: usize,
    },
    /// A number that does not belong there.
    #[error("{value} is not {expected}")]
    Value {
        /// The number as it stands.
        value: String,
        /// What should stand there.
        expected: String,
    },
    /// An id that names no node.
    #[error("id {id} is out of range: there are {limit} {of} nodes")]
    IdOutOfRange {
        /// The id.
        id: u64,
        /// Ids are below this.
        limit: u64,
        /// The node type.
        of: String,
    },
    /// An array of the wrong length.
    #[error("{found} elements, but {expected} {of}")]
    Length {
        /// Its length.
        found: u64,
        /// What it should be.
        expected: u64,
        /// Of what there are so many.
        of: String,
    },
    /// An array of the wrong shape.
    #[error("has shape {found:?}; {expected} is wanted")]
    Shape {
        /// Its shape.
        found: Vec<usize>,
        /// What it should be.
        expected: &'static str,
    },
    /// An array of the wrong type.
    #[error("has type {found}; {expected} are wanted")]
    DType {
        /// Its type, as NumPy writes it.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// Something that has to be there.
    #[error("there is no {what}; there is: {there}")]
    Missing {
        /// What was looked for.
        what: String,
        /// What was found.
        there: String,
    },
    /// A name that stands twice.
    #[error("{what} {name:?} stands twice")]
    Twice {
        /// What kind of name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// More of something than this can hold.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// A pickle, which only Python can read and nobody should.
    #[error("is a pickle, which is never read; {instead}")]
    Pickle {
        /// What to do.
        instead: String,
    },
    /// A source that is nothing known.
    #[error("is no source that is known; say what it is with --format, one of: {known}")]
    UnknownFormat {
        /// The formats.
        known: String,
    },
    /// A source that is known but cannot be taken in as asked.
    #[error("{0}")]
    Refused(String),
}

impl Fault {
    /// As an error of this crate, with its place.
    pub fn at(self, path: &Path, place: Place) -> Error {
        Error::Source { path: path.to_owned(), place, fault: Box::new(self) }
    }

    /// As an error about a whole file.
    pub fn of(self, path: &Path) -> Error {
        self.at(path, Place::File)
    }
}

/// The start of somebody else's text, fit for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MOST_BYTES: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_BYTES)]).into_owned();
    if bytes.len() > MOST_BYTES { text + "…" } else { text }
}
