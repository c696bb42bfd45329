//! Datasets on disk: a folder of plain `.npy` files and one `headwater.json` that says what they are.
//!
//! | the question | the room |
//! | --- | --- |
//! | How is one written? | [`DatasetWriter`] |
//! | How is one read? | [`Dataset`] |
//! | How is one made of arrays in memory? | [`NodeArrays`], [`EdgeArrays`] |
//! | What does the manifest say? | [`Manifest`] |
//! | Is a file what was written? | [`Checksum`] |
//! | How do other programs read one? | [`export_npy`] |
//! | How are its nodes renumbered? | [`reorder`] |
//!
//! A folder is finished or it is not there: writers work in a hidden folder beside it, which gets its name when every byte
//! is on the disk. The data of every file begins on a page, so it can be mapped, registered with a GPU or read past the
//! page cache, and NumPy reads it all the same.
//!
//! Opening is quick and sees what is missing, cut short or of another shape, and a damaged manifest or small file. All bytes
//! are compared by [`Dataset::verify`], which [`reorder`], [`export_npy`] and [`Dataset::save`] do before they write.
//!
//! ```
//! use headwater_graph::dataset::{Dataset, DatasetWriter, Description, NodeFiles, Split, Splits};
//! use headwater_graph::{Layout, Schema, Silent, Topology};
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("three");
//! let topology = Topology::new(Layout::Csc, 3, vec![0u64, 0, 2, 3].into(), vec![0u32, 2, 1].into())?;
//! let writer = DatasetWriter::create(&path)?;
//! writer.relation(0, &topology)?;
//! writer.array("node.train", &[2], &[0u32, 2])?;
//! writer.rows("node.features", &[3, 2], |rows, out: &mut [f32]| out.fill(rows.start as f32), &Silent)?;
//! let files = NodeFiles {
//!     features: Some("node.features".into()),
//!     splits: Splits { train: Some("node.train".into()), ..Splits::default() },
//!     ..NodeFiles::default()
//! };
//! let origin = "an example".to_owned();
//! let described = Description::new("three", Schema::homogeneous(3), Layout::Csc, origin);
//! writer.finish(Description { nodes: vec![files], ..described })?;
//!
//! let dataset = Dataset::open(&path)?;
//! dataset.verify(&Silent)?;
//! assert_eq!(dataset.graph()?.relation(0).degree(1), 2);
//! assert_eq!(dataset.split(0, Split::Train)?.unwrap().at(1), 2);
//! # Ok::<(), headwater_graph::Error>(())
//! ```

mod array;
mod array_file;
mod checksum;
mod describe;
mod export;
mod growing;
mod held;
mod loader;
mod manifest;
mod names;
mod reorder;
mod roles;
mod seal;
mod staged;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use array::Array;
pub use checksum::Checksum;
pub use export::export_npy;
pub use growing::Growing;
pub use held::{EdgeArrays, NodeArrays};
pub use loader::Dataset;
pub use manifest::{
    EdgeFiles, FileEntry, LinkFiles, Links, Manifest, NodeEntry, NodeFiles, RelationEntry, Split, Splits,
};
pub use reorder::reorder;
pub use staged::abandon;
pub use writer::{DatasetWriter, Description};

use std::path::Path;

use crate::error::Error;

/// The manifest's name in a dataset's folder.
pub const MANIFEST: &str = "headwater.json";

/// Says what was tried with which file.
fn refused(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |why| Error::File { action, path: path.to_owned(), why }
}
