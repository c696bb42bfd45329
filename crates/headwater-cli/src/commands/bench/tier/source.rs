//! The rows that tables are made of: the dataset's file where it is mapped, or the same rows as another type in memory.

use std::sync::Arc;

use anyhow::{Context, ensure};
use headwater::cuda::{Gpu, Span};
use headwater::feature::rows::encode;
use headwater::feature::{RowFormat, Stored};
use headwater::graph::Dataset;
use headwater::graph::dataset::Array;
use headwater::memory::{Foreign, host_bytes_available};
use indicatif::HumanBytes;

use crate::args::stored_name;

/// Tables of fewer bytes are copied where they are to be pinned.
const COPIED_BYTES: usize = 1 << 20;

/// Rows in host memory.
pub struct Source {
    pub bytes: Foreign,
    /// One a row for int8, else none.
    pub scales: Vec<f32>,
    pub format: RowFormat,
    pub rows: u64,
}

/// The features of one node type.
pub struct Features {
    /// Position of the type in the schema.
    pub node_type: usize,
    pub array: Array,
    pub source: Source,
}

impl Features {
    /// Of the first node type that has some.
    pub fn of(dataset: &Dataset) -> anyhow::Result<Self> {
        let types = 0..dataset.schema().node_types().len();
        let first = types.into_iter().find_map(|at| dataset.features(at).map(|array| (at, array.clone())));
        let (node_type, array) = first.context("no node type has features, so there are no rows to gather")?;
        let named = || array.path().display().to_string();
        let stored = array.kind().dtype().map_err(anyhow::Error::from).and_then(|dtype| Ok(Stored::of(dtype)?));
        let stored = stored.with_context(named)?;
        let rows = dataset.schema().node_types()[node_type].count;
        let found = array.shape().first().map_or(0, |rows| *rows as u64);
        ensure!(found >= rows, "{} has {found} rows for {rows} nodes", named());
        let elements = array.shape().iter().skip(1).product::<usize>();
        ensure!(rows > 0 && elements > 0, "{}: there are no features in it", named());
        let (bytes, format) = (array.data().clone(), RowFormat::packed(elements, stored));
        let source = Source { bytes, scales: Vec::new(), format, rows };
        Ok(Self { node_type, array, source })
    }

    /// How rows would be stored as a type; why not, where they cannot.
    pub fn format_as(&self, stored: Stored) -> anyhow::Result<RowFormat> {
        let format = self.source.format;
        let can_be = stored == format.stored || format.stored == Stored::F32;
        ensure!(can_be, "the file holds {}, and other types are made of f32 alone", stored_name(format.stored));
        Ok(RowFormat::packed(format.elements, stored))
    }

    /// The same rows as another type, in memory of their own; why not, where that does not go.
    pub fn encoded(&self, stored: Stored) -> anyhow::Result<Source> {
        let (format, rows) = (self.format_as(stored)?, self.source.rows);
        let (bytes, available) = (rows.saturating_mul(format.row_bytes() as u64), host_bytes_available() as u64);
        ensure!(
            bytes <= available / 10 * 8,
            "{} of rows are too much for the {} of host memory that are available",
            HumanBytes(bytes),
            HumanBytes(available)
        );
        let encoded = encode(&self.array.column::<f32>()?, &format);
        let bytes = Foreign::new(Arc::new(encoded.bytes));
        Ok(Source { bytes, scales: encoded.scales, format, rows })
    }
}

impl Source {
    /// Pins all rows where they lie, so that placing tables over them is quick for as long as this is held. Where that
    /// does not go, and for few rows, which tables copy, there is nothing to hold.
    pub fn pinned(&self, gpu: &Gpu) -> Option<Span> {
        let is_large = self.bytes.as_slice().len() >= COPIED_BYTES;
        is_large.then(|| self.bytes.map_into(gpu).ok()).flatten()
    }

    /// Bytes of a row as it is stored.
    pub fn row_bytes(&self) -> u64 {
        self.format.row_bytes() as u64
    }
}
