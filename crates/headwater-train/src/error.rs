//! What can go wrong in a training run.

use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
