//! One tensor over parts in several memories, as GraphLearn-for-PyTorch has it: stretches of rows, each with a GPU, and one
//! in host memory.

use headwater_cuda::{Allocation, Gpu, Span, Stream};
use headwater_memory::{Foreign, pin, upload};
use headwater_tensor::gather::IdType;

use super::layout::Layout;
use super::parts::{Parts, connect, open_all};
use super::tiered::TieredTable;
use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored};

/// Rows over several memories, numbered through.
#[derive(Debug)]
pub struct UnifiedTensor {
    table: TieredTable,
}

impl UnifiedTensor {
    /// Rows of the first part, of the second, and so on. `devices` names the GPU that holds each part; the last one may be
    /// none, and is then read where it lies in host memory. Read by `gpu`.
    pub fn init_from(gpu: &Gpu, parts: &[Foreign], devices: &[Option<usize>], format: RowFormat) -> Result<Self> {
        let lengths = check(parts, devices, &format)?;
        let rows = lengths.iter().sum();
        let (on_gpus, host) = match devices.split_last() {
            Some((None, on_gpus)) => (on_gpus, parts.last()),
            _ => (devices, None),
        };
        // A group has at least one member.
        let ordinals: Vec<usize> = on_gpus.iter().flatten().copied().collect();
        let layout = Layout::in_stretches(rows, &lengths[..ordinals.len()])?;
        let mut group = open_all(gpu, &ordinals)?;
        let mut members =
            group.iter().zip(parts).map(|(gpu, part)| Ok(upload(gpu, part.as_slice())?)).collect::<Result<Vec<_>>>()?;
        if group.is_empty() {
            group.push(gpu.clone());
            members.push(nothing(gpu)?);
        }
        connect(gpu, &group)?;
        let host = host.map_or_else(|| nothing(gpu), |part| Ok(pin(gpu, part)?))?;
        let parts = Parts { replicated: nothing(gpu)?, members, host, shared: None, scales: nothing(gpu)? };
        Ok(Self { table: TieredTable::over(gpu, &group, format, layout, parts, None, None)? })
    }

    /// Rows and elements of a row.
    #[must_use]
    pub fn shape(&self) -> [u64; 2] {
        [self.table.layout().rows, self.table.format().elements as u64]
    }

    /// The GPU that reads it.
    #[must_use]
    pub fn device(&self) -> usize {
        self.table.gpu().ordinal()
    }

    /// The table behind it.
    #[must_use]
    pub fn table(&self) -> &TieredTable {
        &self.table
    }

    /// Queues `out[i] = row of ids[i]`; see [`TieredTable::gather`].
    pub fn gather(&self, stream: &Stream, ids: &Span, id_type: IdType, out: &Span) -> Result<()> {
        self.table.gather(stream, ids, id_type, self.table.format().stored, out)
    }
}

/// Rows of each part.
fn check(parts: &[Foreign], devices: &[Option<usize>], format: &RowFormat) -> Result<Vec<u64>> {
    if parts.len() != devices.len() {
        let (found, expected) = (devices.len() as u64, parts.len() as u64);
        return Err(Error::Bytes { name: "the list of devices, in entries,", found, expected });
    }
    format.check()?;
    if format.stored == Stored::I8 {
        return Err(Error::Table { why: "is made of rows as they are, without scales" });
    }
    if devices.iter().rev().skip(1).any(Option::is_none) {
        return Err(Error::Table { why: "has its part in host memory last, and only one" });
    }
    let rows = |part: &Foreign| {
        let found = part.as_slice().len() as u64;
        let stride = format.stride_bytes as u64;
        let expected = found / stride * stride;
        if found == expected { Ok(found / stride) } else { Err(Error::Bytes { name: "a part", found, expected }) }
    };
    parts.iter().map(rows).collect()
}

fn nothing(gpu: &Gpu) -> Result<Span> {
    Ok(Span::whole(Allocation::shareable(gpu, 0)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headwater_memory::{Buffer, Device};

    use super::*;

    const FORMAT: RowFormat = RowFormat { elements: 48, stored: Stored::Raw, stride_bytes: 48 };

    fn part(rows: u8, first: u8) -> Foreign {
        Foreign::new(Arc::new((0..rows).flat_map(|row| [first + row; 48]).collect::<Vec<u8>>()))
    }

    #[test]
    fn device_parts_are_one_tensor() {
        let Ok(gpu) = Gpu::open(0) else { return };
        let stream = Stream::new(&gpu).unwrap();
        let [a, b, c] = [part(5, 0), part(2, 5), part(9, 7)];
        for devices in [[Some(0), Some(0), None], [Some(0), Some(0), Some(0)]] {
            let tensor = UnifiedTensor::init_from(&gpu, &[a.clone(), b.clone(), c.clone()], &devices, FORMAT).unwrap();
            assert_eq!((tensor.shape(), tensor.device()), ([16, 48], 0));
            let ids: Vec<u64> = (0..40).map(|at| at * 7 % 16).collect();
            let on_gpu = Buffer::<u64, Device>::from_slice(&stream, &ids).unwrap();
            let out = Buffer::<u8, Device>::on_stream(&stream, 40 * 48).unwrap();
            tensor.gather(&stream, on_gpu.whole(), IdType::U64, out.whole()).unwrap();
            let out = out.to_vec(&stream).unwrap();
            assert!(out.chunks(48).zip(&ids).all(|(row, id)| row.iter().all(|byte| u64::from(*byte) == *id)));
        }
        let only_host = UnifiedTensor::init_from(&gpu, std::slice::from_ref(&a), &[None], FORMAT).unwrap();
        assert_eq!(only_host.table().layout().host_rows(), 5);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let parts = [part(5, 0), part(2, 5)];
        assert!(matches!(check(&parts, &[None], &FORMAT), Err(Error::Bytes { found: 1, expected: 2, .. })));
        assert!(matches!(check(&parts, &[None, Some(0)], &FORMAT), Err(Error::Table { .. })));
        assert!(matches!(check(&parts, &[None, None], &FORMAT), Err(Error::Table { .. })));
        let odd = RowFormat { elements: 50, stored: Stored::Raw, stride_bytes: 50 };
        assert!(matches!(check(&parts, &[Some(0), None], &odd), Err(Error::Bytes { name: "a part", .. })));
        assert_eq!(check(&parts, &[Some(0), None], &FORMAT).unwrap(), [5, 2]);
    }
}
