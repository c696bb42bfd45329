//! A feature array with a split ratio, as users of GraphLearn-for-PyTorch know it.
//!
//! The first rows, up to the ratio, are in the memory of the GPUs, spread row by row over the GPUs of a group; every group
//! has a copy of its own. The rest is in host memory, where the GPU reads it. Without a GPU all rows are read by the CPU.

use headwater_cuda::{Gpu, Span, Stream};
use headwater_tensor::gather::IdType;

use crate::error::{Error, Result};
use crate::group::{DeviceGroup, group_of};
use crate::rows::Stored;
use crate::table::{IdMap, Layout, Source, TieredTable};

/// Rows of features, reached by id.
#[derive(Debug)]
pub struct Feature {
    source: Source,
    id2index: Option<IdMap>,
    /// None without a GPU.
    table: Option<TieredTable>,
}

/// How a [`Feature`] is made.
#[derive(Debug, Clone)]
pub struct FeatureOptions {
    /// Share of the rows in GPU memory, from 0 to 1.
    pub split_ratio: f64,
    /// GPUs that share a copy. Default: every GPU has one of its own.
    pub device_groups: Option<Vec<DeviceGroup>>,
    /// The row of every id. Default: the same number.
    pub id2index: Option<IdMap>,
    /// Whether a GPU reads the rows. Where there is none the CPU does, with a warning.
    pub with_gpu: bool,
    /// Which one.
    pub device: usize,
}

impl Default for FeatureOptions {
    fn default() -> Self {
        Self { split_ratio: 0.0, device_groups: None, id2index: None, with_gpu: true, device: 0 }
    }
}

impl Feature {
    /// Places rows as the options say. Rows in host memory are not copied.
    pub fn new(source: Source, options: FeatureOptions) -> Result<Self> {
        let ratio = options.split_ratio;
        if !(0.0..=1.0).contains(&ratio) {
            return Err(Error::Parameter { name: "split_ratio", value: ratio, expected: "from 0 to 1" });
        }
        if let Some(map) = &options.id2index {
            map.check(source.rows())?;
        }
        let table = if options.with_gpu { place(&source, &options)? } else { None };
        Ok(Self { source, id2index: options.id2index, table })
    }

    /// Rows and elements of a row.
    #[must_use]
    pub fn shape(&self) -> [u64; 2] {
        [self.source.rows(), self.source.format().elements as u64]
    }

    /// The table that a GPU reads, when one does.
    #[must_use]
    pub fn table(&self) -> Option<&TieredTable> {
        self.table.as_ref()
    }

    /// Queues `out[i] = row of ids[i]` on the GPU; see [`TieredTable::gather`].
    pub fn gather(&self, stream: &Stream, ids: &Span, id_type: IdType, out_type: Stored, out: &Span) -> Result<()> {
        let why = "is read by the CPU; ask for its rows with cpu_get, or make it with a GPU";
        self.table.as_ref().ok_or(Error::Table { why })?.gather(stream, ids, id_type, out_type, out)
    }

    /// `out[i] = row of ids[i]`, by the CPU.
    pub fn cpu_get(&self, ids: &[u64], out_type: Stored, out: &mut [u8]) -> Result<()> {
        match &self.id2index {
            Some(map) => self.source.gather(&map.rows(ids)?, out_type, out),
            None => self.source.gather(ids, out_type, out),
        }
    }
}

fn place(source: &Source, options: &FeatureOptions) -> Result<Option<TieredTable>> {
    let gpus = Gpu::count().unwrap_or(0);
    if gpus == 0 {
        log::warn!("there is no GPU; features are read by the CPU");
        return Ok(None);
    }
    let alone = || (0..gpus).map(|gpu| DeviceGroup { members: vec![gpu] }).collect();
    let groups = options.device_groups.clone().unwrap_or_else(alone);
    let group = group_of(&groups, gpus, options.device)?;
    let members = group.members.iter().map(|ordinal| Gpu::open(*ordinal)).collect::<Result<Vec<_>, _>>()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the rows")]
    let hot = (options.split_ratio * source.rows() as f64).round() as u64;
    let layout = Layout::new(source.rows(), 0, hot.min(source.rows()), members.len() as u64)?;
    let gpu = Gpu::open(options.device)?;
    let table = TieredTable::place(&gpu, &members, source, layout)?;
    Ok(Some(match &options.id2index {
        Some(map) => table.with_id_map(map.clone())?,
        None => table,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headwater_memory::{Buffer, Device, Foreign};

    use super::*;
    use crate::rows::{RowFormat, encode};

    /// Ten rows of 12; row k begins with k.
    fn source() -> Source {
        let rows: Vec<f32> = (0..120u8).map(|at| if at % 12 == 0 { f32::from(at / 12) } else { 0.5 }).collect();
        let format = RowFormat::packed(12, Stored::F32);
        Source::memory(Foreign::new(Arc::new(encode(&rows, &format).bytes)), Vec::new(), format).unwrap()
    }

    fn firsts(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks(48).map(|row| f32::from_le_bytes([row[0], row[1], row[2], row[3]])).collect()
    }

    fn by_cpu(feature: &Feature, ids: &[u64]) -> Result<Vec<f32>> {
        let mut out = vec![0; ids.len() * 48];
        feature.cpu_get(ids, Stored::F32, &mut out)?;
        Ok(firsts(&out))
    }

    #[test]
    fn without_a_gpu() {
        let id2index = Some(IdMap::U64(vec![3, 1, u64::MAX]));
        let options = FeatureOptions { with_gpu: false, id2index, ..FeatureOptions::default() };
        let feature = Feature::new(source(), options).unwrap();
        assert_eq!((feature.shape(), feature.table().is_none()), ([10, 12], true));
        assert_eq!(by_cpu(&feature, &[1, 0, 1]).unwrap(), [1.0, 3.0, 1.0]);
        assert!(matches!(by_cpu(&feature, &[0, 2]), Err(Error::NoRow { id: 2, known: 3 })));
        let plain = Feature::new(source(), FeatureOptions { with_gpu: false, ..FeatureOptions::default() }).unwrap();
        assert!(by_cpu(&plain, &[10]).unwrap_err().to_string().contains("id 10 at position 0"));
    }

    #[test]
    fn bad_options_are_named() {
        let new = |change: &dyn Fn(&mut FeatureOptions)| {
            let mut options = FeatureOptions { with_gpu: false, ..FeatureOptions::default() };
            change(&mut options);
            Feature::new(source(), options).map(|_| ())
        };
        for ratio in [-0.1, 1.1, f64::NAN] {
            let bad = new(&|options| options.split_ratio = ratio);
            assert!(matches!(bad, Err(Error::Parameter { name: "split_ratio", .. })));
        }
        let bad = new(&|options| options.id2index = Some(IdMap::U32(vec![0, 10])));
        assert!(matches!(bad, Err(Error::MapRow { id: 1, row: 10, rows: 10 })));
    }

    #[test]
    fn device_split_and_groups() {
        let Ok(gpu) = Gpu::open(0) else { return };
        let stream = Stream::new(&gpu).unwrap();
        let ids = [9u64, 0, 4, 5, 9];
        let rows_of_ids: Vec<u64> = (0..10).rev().collect();
        for (split_ratio, hot) in [(0.0, 0), (0.5, 3), (1.0, 5)] {
            // One GPU three times is three virtual members.
            let device_groups = Some(vec![DeviceGroup { members: vec![0, 0, 0] }]);
            let id2index = Some(IdMap::of(&rows_of_ids, 10));
            let options = FeatureOptions { split_ratio, device_groups, id2index, ..FeatureOptions::default() };
            let feature = Feature::new(source(), options).unwrap();
            let on_gpu = Buffer::<u64, Device>::from_slice(&stream, &ids).unwrap();
            let out = Buffer::<u8, Device>::on_stream(&stream, ids.len() * 48).unwrap();
            feature.gather(&stream, on_gpu.whole(), IdType::U64, Stored::F32, out.whole()).unwrap();
            assert_eq!(firsts(&out.to_vec(&stream).unwrap()), [0.0, 9.0, 5.0, 4.0, 0.0]);
            assert_eq!(by_cpu(&feature, &ids).unwrap(), [0.0, 9.0, 5.0, 4.0, 0.0]);
            let served = feature.table().unwrap().served(&stream).unwrap();
            assert_eq!((served.interleaved.rows, served.host.rows), (hot, 5 - hot));
        }
        let device_groups = Some(vec![DeviceGroup { members: vec![0, 99] }]);
        let bad = Feature::new(source(), FeatureOptions { device_groups, ..FeatureOptions::default() });
        assert!(matches!(bad, Err(Error::Group { group: 0, ordinal: 99, .. })));
    }
}
