//! Rows that stay in a file, and the memory that keeps those which are read often.
//!
//! A file is read in units of whole pages, past the page cache where the file system allows it. The units that are asked
//! for again stay in a cache of fixed size.
//!
//! | the question | the room |
//! | --- | --- |
//! | Which bytes of which units is a row? | `pieces` |
//! | Which units stay? | [`cache`] |
//! | Who reads a unit that several callers miss? | `claims` |
//! | How many requests for these units? | [`reads`] |
//! | Where do bytes land, and where do they stay? | `staging`, `slots` |
//! | The reads of one call | `reader` |
//! | The reads of later calls | `prefetch` |
//! | Are these bytes still what was written? | [`PageSums`] |
//! | The table | [`rows`] |
//!
//! A unit is 4096 bytes unless asked otherwise. That is the smallest piece every device reads at the price of one request,
//! and a cache of small units wastes the least on rows nobody asked for. Larger rows lose nothing: a row may lie over
//! several units, and units that follow each other are one request. Single rows would use the memory better only where
//! neighbours in the file have nothing in common; rows in the order of how often they are read have.

pub mod cache;
mod claims;
mod counters;
mod page_sums;
mod pieces;
mod prefetch;
mod reader;
pub mod reads;
pub mod rows;
mod slots;
mod staging;

#[cfg(test)]
mod tests;

pub use cache::Sieve;
pub use counters::{DiskCounts, UnitCounts};
pub use page_sums::PageSums;
pub use reads::ReadCost;
pub use rows::{DiskOptions, DiskRows, RowFile};
