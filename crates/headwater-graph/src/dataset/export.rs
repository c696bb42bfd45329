//! The arrays of a dataset for programs that know nothing of it: the names and the 64-bit signed integers that scripts
//! around PyTorch expect.
//!
//! One folder for a homogeneous graph. With several types, one folder a relation for its lists and one a node type for
//! what belongs to the nodes.

use std::fs;
use std::ops::Range;
use std::path::Path;

use headwater_tensor::DType;
use headwater_tensor::npy::{NpyElement, NpyType};

use super::array::Array;
use super::loader::Dataset;
use super::manifest::Split;
use super::staged::Staged;
use super::{array_file, names, refused};
use crate::column::Ids;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::topology::{Topology, index};

/// Writes `indptr`, `indices`, `feat`, `label`, `train_idx`, `val_idx` and `test_idx` as `.npy` files into a new folder,
/// all or nothing. The dataset is verified first. `edge_ids`, `weight`, `time` and `edge_feat` (by edge id) come with them
/// where the dataset has them, and so does what nodes were called before they were numbered or reordered: `original_id` has
/// their numbers, or the UTF-8 bytes of their names, those of node i from `original_id_offsets[i]` to that of i + 1.
pub fn export_npy(dataset: &Dataset, dir: &Path, progress: &dyn Progress) -> Result<()> {
    let staged = Staged::create(dir)?;
    dataset.verify_once(progress)?;
    let schema = dataset.schema();
    let below = |name: &str| -> Result<std::path::PathBuf> {
        let folder = if schema.is_homogeneous() { staged.path().to_owned() } else { staged.path().join(name) };
        fs::create_dir_all(&folder).map_err(refused("create", &folder))?;
        Ok(folder)
    };
    for at in 0..schema.relations().len() {
        let name = names::file_name(&schema.relation_name(at));
        let folder = below(name.trim_end_matches(".npy"))?;
        let to = Export { folder: &folder, progress };
        export_lists(&dataset.topology(at)?, &to)?;
        dataset.edge_features(at).map_or(Ok(()), |features| to.plain("edge_feat", features))?;
    }
    for (at, node_type) in schema.node_types().iter().enumerate() {
        let name = names::file_name(&node_type.name);
        let folder = below(name.trim_end_matches(".npy"))?;
        export_nodes(dataset, at, &Export { folder: &folder, progress })?;
    }
    staged.publish(None)
}

fn export_lists(topology: &Topology, to: &Export<'_>) -> Result<()> {
    to.ids("indptr", &Ids::U64(topology.offsets().clone()))?;
    to.ids("indices", topology.neighbours())?;
    if let Some(edge_ids) = topology.edge_ids() {
        to.ids("edge_ids", edge_ids)?;
    }
    if let Some(weights) = topology.weights() {
        to.slice("weight", &[weights.len() as u64], weights)?;
    }
    if let Some(times) = topology.times() {
        to.slice("time", &[times.len() as u64], times)?;
    }
    Ok(())
}

fn export_nodes(dataset: &Dataset, node_type: usize, to: &Export<'_>) -> Result<()> {
    if let Some(features) = dataset.features(node_type) {
        to.plain("feat", features)?;
    }
    if let Some(labels) = dataset.labels(node_type) {
        match labels.kind() {
            NpyType::Tensor(DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::I64) => {
                to.plain("label", labels)
            }
            _ => to.integers("label", labels),
        }?;
    }
    match dataset.original_ids(node_type)? {
        Some((numbers, None)) => to.integers("original_id", numbers)?,
        Some((bytes, Some(offsets))) => {
            to.plain("original_id", bytes)?;
            to.integers("original_id_offsets", offsets)?;
        }
        None => {}
    }
    for (split, name) in Split::ALL.into_iter().zip(["train_idx", "val_idx", "test_idx"]) {
        if let Some(ids) = dataset.split(node_type, split)? {
            to.ids(name, &ids)?;
        }
    }
    Ok(())
}

/// Where arrays go.
struct Export<'a> {
    folder: &'a Path,
    progress: &'a dyn Progress,
}

impl Export<'_> {
    fn ids(&self, name: &str, ids: &Ids) -> Result<()> {
        let shape = [ids.len() as u64];
        match ids {
            Ids::U32(ids) => self.widened(name, &shape, |at| i64::from(ids[at])),
            Ids::U64(ids) => {
                // Ids this large are in no graph that fits a disk, but a damaged file may have them.
                let limit = i64::MAX as u64;
                if let Some(at) = ids.iter().position(|id| *id > limit) {
                    return Err(Error::IdOutOfRange { name: "ids", position: at as u64, id: ids[at], limit });
                }
                self.widened(name, &shape, |at| ids[at].cast_signed())
            }
        }
    }

    fn integers(&self, name: &str, array: &Array) -> Result<()> {
        let shape: Vec<u64> = array.shape().iter().map(|dim| *dim as u64).collect();
        let bytes = array.data().as_slice();
        match array.kind() {
            NpyType::U16 => self.widened_column::<u16>(name, &shape, array),
            NpyType::I16 => self.widened_column::<i16>(name, &shape, array),
            NpyType::U32 => self.widened_column::<u32>(name, &shape, array),
            NpyType::U64 => {
                let column = array.column::<u64>()?;
                self.widened(name, &shape, |at| column[at].cast_signed())
            }
            NpyType::Tensor(DType::I32) => self.widened_column::<i32>(name, &shape, array),
            NpyType::Tensor(DType::I8) => self.widened_column::<i8>(name, &shape, array),
            _ => self.widened(name, &shape, |at| i64::from(bytes[at])),
        }
    }

    fn widened_column<T: NpyElement + Into<i64>>(&self, name: &str, shape: &[u64], array: &Array) -> Result<()> {
        let column = array.column::<T>()?;
        self.widened(name, shape, |at| column[at].into())
    }

    /// Every element by its position in the whole array.
    fn widened(&self, name: &str, shape: &[u64], element: impl Fn(usize) -> i64 + Sync) -> Result<()> {
        let row_elements = index(array_file::elements_of(&shape[1..]));
        let fill = |rows: Range<u64>, out: &mut [i64]| {
            let first = index(rows.start) * row_elements;
            out.iter_mut().enumerate().for_each(|(at, out)| *out = element(first + at));
        };
        array_file::write_rows(&self.path(name), shape, fill, self.progress)?;
        Ok(())
    }

    /// The array as it is.
    fn plain(&self, name: &str, array: &Array) -> Result<()> {
        let shape: Vec<u64> = array.shape().iter().map(|dim| *dim as u64).collect();
        array_file::write_bytes(&self.path(name), array.kind(), &shape, array.data().as_slice(), self.progress)?;
        Ok(())
    }

    fn slice<T: NpyElement>(&self, name: &str, shape: &[u64], elements: &[T]) -> Result<()> {
        array_file::write_bytes(&self.path(name), T::KIND, shape, bytemuck::cast_slice(elements), self.progress)?;
        Ok(())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.join(format!("{name}.npy"))
    }
}
