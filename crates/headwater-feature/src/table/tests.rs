//! Rows out of every mix of memories, against the rows themselves.

mod device;
mod device_disk;
mod device_moves;

use std::sync::Arc;

use headwater_cuda::{Gpu, Stream};
use headwater_memory::{Buffer, Device, Foreign};
use headwater_tensor::gather::IdType;

use super::{HostRows, IdMap, Placement, Source, TieredTable};
use crate::rows::{Encoded, RowFormat, Stored, encode};
use crate::{Error, Result};

#[test]
fn the_cpu_gives_rows_in_any_type_and_names_bad_ids() {
    // Halves of small numbers are exact in every type; int8 rows have the scale 1.
    let features: Vec<f32> = [127.0, -3.0, 0.0, 127.0, 5.0, -8.0].to_vec();
    for stored in Stored::ALL {
        let format = RowFormat::on_lines(3, stored);
        let encoded = encode(&features, &format);
        let rows = HostRows { bytes: &encoded.bytes, scales: &encoded.scales, format };
        let mut out = [0u8; 3 * 12];
        rows.gather(&[1, 0, 1], Stored::F32, &mut out).unwrap();
        let found: Vec<f32> = out.chunks(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect();
        assert_eq!(found, [127.0, 5.0, -8.0, 127.0, -3.0, 0.0, 127.0, 5.0, -8.0], "{stored:?}");
        let bad = rows.gather(&[0, 1, 2], Stored::F32, &mut out).unwrap_err();
        assert!(bad.to_string().contains("id 2 at position 2"), "{bad}");
        assert!(matches!(rows.gather(&[0], Stored::F16, &mut out), Err(Error::Bytes { expected: 6, .. })));
    }
}

#[test]
fn maps_name_ids_without_rows() {
    for map in [IdMap::U32(vec![2, 0, u32::MAX]), IdMap::U64(vec![2, 0, u64::MAX])] {
        assert_eq!(map.rows(&[1, 0, 1]).unwrap(), [0, 2, 0]);
        assert!(matches!(map.rows(&[0, 2]), Err(Error::NoRow { id: 2, known: 3 })));
        assert!(matches!(map.rows(&[3]), Err(Error::NoRow { id: 3, known: 3 })));
        assert!(map.check(3).is_ok());
        assert!(matches!(map.check(2), Err(Error::MapRow { id: 0, row: 2, rows: 2 })));
    }
    assert_eq!(IdMap::of(&[5, u64::MAX], 6), IdMap::U32(vec![5, u32::MAX]));
    assert_eq!(IdMap::of(&[5], 1 << 40), IdMap::U64(vec![5]));
}

#[test]
fn rows_that_begin_between_two_elements_are_refused() {
    let rows = |stride_bytes, from: usize| {
        let format = RowFormat { elements: 2, stored: Stored::F32, stride_bytes };
        let bytes = Foreign::new(Arc::new(vec![0u8; 64])).part(from..64).unwrap();
        Source::memory(bytes, Vec::new(), format).map(|_| ())
    };
    assert!(matches!(rows(10, 0), Err(Error::Parameter { name: "stride_bytes", .. })));
    assert!(matches!(rows(4, 0), Err(Error::Parameter { name: "stride_bytes", .. })));
    assert!(matches!(rows(8, 1), Err(Error::Alignment { name: "the table", .. })));
    assert!(rows(8, 8).is_ok() && rows(12, 0).is_ok());
}

/// Where there is no GPU, real or emulated, there is nothing to test.
fn stream() -> Option<Stream> {
    Gpu::open(0).ok().map(|gpu| Stream::new(&gpu).unwrap())
}

fn features(rows: usize, elements: usize) -> Vec<f32> {
    (0..rows * elements).map(|at| ((at * 7919) % 1013) as f32 * 0.125 - 60.0).collect()
}

fn source(encoded: &Encoded, format: RowFormat) -> Source {
    Source::memory(Foreign::new(Arc::new(encoded.bytes.clone())), encoded.scales.clone(), format).unwrap()
}

/// A table whose group is one GPU, as often as the layout has members.
fn table(stream: &Stream, source: &Source, placement: impl Into<Placement>) -> Result<TieredTable> {
    let placement = placement.into();
    let group = vec![stream.gpu().clone(); usize::try_from(placement.layout.members).unwrap()];
    TieredTable::place(stream.gpu(), &group, source, placement)
}

/// What a gather should give.
fn expected(encoded: &Encoded, format: &RowFormat, ids: &[u64], out_type: Stored) -> Vec<u8> {
    let mut wanted = vec![0u8; ids.len() * format.elements * out_type.bytes()];
    let rows = HostRows { bytes: &encoded.bytes, scales: &encoded.scales, format: *format };
    rows.gather(ids, out_type, &mut wanted).unwrap();
    wanted
}

fn gather(stream: &Stream, table: &TieredTable, ids: &[u64], out: Stored) -> Result<Vec<u8>> {
    let ids = Buffer::<u64, Device>::from_slice(stream, ids)?;
    let bytes = ids.len() * table.format().elements * out.bytes();
    let rows = Buffer::<u8, Device>::on_stream(stream, bytes)?;
    stream.fill(rows.whole(), 0xaa)?;
    table.gather(stream, ids.whole(), IdType::U64, out, rows.whole())?;
    Ok(rows.to_vec(stream)?)
}
