//! One table over several memories: `gather(ids)` gives rows from wherever they lie.
//!
//! Rows are cut by number: the first in every GPU, the next with the members of a group in turn, the next in pinned host
//! memory, the rest in a file. A gather puts its ids into the order of rows, which is the order of heat and of addresses
//! alike, and then runs one kernel: a few blocks read host memory in address order, as fast as the link goes, while all
//! others read GPU memory. It runs on the caller's stream and waits for nobody, unless rows may be on disk.
//!
//! | the question | the room |
//! | --- | --- |
//! | Where is a row? | [`Layout`] |
//! | Where do rows come from? | [`Source`] |
//! | How do they get into the memories? | `parts` |
//! | Give me these rows | [`TieredTable`] |
//! | And those on disk? | `beyond` |
//! | The same without a GPU | [`HostTable`] |
//! | Who are you, if not a row number? | [`IdMap`] |
//! | Who was read how often, and from where? | [`Served`], [`TieredTable::observed`] |
//! | And now put those first | [`TieredTable::retier`] |
//! | For other processes | [`TieredTable::send`], [`TieredTable::receive`] |

mod beyond;
mod counts;
mod cpu;
mod cuda;
mod host;
mod layout;
mod map;
mod parts;
mod retier;
mod share;
mod source;
#[cfg(test)]
mod tests;
mod tiered;
mod unified;

pub use counts::{Served, TierCounts};
pub use cpu::HostRows;
pub use cuda::kernel_builds;
pub use host::{HostServed, HostTable, HostTables};
pub use layout::{Layout, Spot};
pub use map::IdMap;
pub use parts::HostHome;
pub use retier::Moved;
pub use source::Source;
pub use tiered::{Placement, TieredTable, WINDOW};
pub use unified::UnifiedTensor;
