//! How long work says how far it is, without knowing who listens.

/// Somebody who wants to know how far the work is. Called from many threads.
pub trait Progress: Sync {
    /// A step begins that will take `total` units; 0 when that is not known.
    fn begin(&self, step: &str, total: u64);

    /// So many more units are done.
    fn advance(&self, units: u64);
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _step: &str, _total: u64) {}

    fn advance(&self, _units: u64) {}
}
