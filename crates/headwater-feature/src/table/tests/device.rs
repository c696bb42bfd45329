//! Every mix of memories, type and map on a GPU, real or emulated.

use headwater_cuda::{Error as CudaError, Span};
use headwater_memory::{Buffer, Device};
use headwater_tensor::gather::IdType;

use super::{expected, features, gather, source, stream, table};
use crate::Error;
use crate::rows::{RowFormat, Stored, encode};
use crate::table::{IdMap, Layout, Placement, TieredTable};

#[test]
fn every_mix_of_tiers() {
    let Some(stream) = stream() else { return };
    let (rows, elements) = (300, 12);
    let format = RowFormat::packed(elements, Stored::F32);
    let encoded = encode(&features(rows, elements), &format);
    let ids: Vec<u64> = (0..500u64).map(|at| (at * at * 31 + at) % 300).collect();
    let wanted = expected(&encoded, &format, &ids, Stored::F32);
    for (replicated, interleaved, members) in
        [(0, 0, 3), (300, 300, 3), (0, 300, 3), (50, 200, 3), (50, 50, 1), (0, 120, 1), (299, 300, 3)]
    {
        let layout = Layout::new(300, replicated, interleaved, members).unwrap();
        let table = table(&stream, &source(&encoded, format), layout).unwrap();
        assert!(gather(&stream, &table, &ids, Stored::F32).unwrap() == wanted, "{layout:?}");
        let below = |end: u64| ids.iter().filter(|id| **id < end).count() as u64;
        let (hot, warm) = (below(replicated), below(interleaved));
        let served = table.served(&stream).unwrap();
        assert_eq!(served.tiers().map(|tier| tier.rows), [hot, warm - hot, 500 - warm, 0], "{layout:?}");
        assert_eq!(served.host_link_bytes(), (500 - warm) * 48);
        assert!((served.hit_rates().iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let is_busy = served.tiers().map(|tier| !tier.busy.is_zero());
        // Tiers in GPU memory are timed together, and only where some block reads them.
        assert_eq!((is_busy[0], is_busy[2]), (interleaved > 0, interleaved < 300), "{layout:?}");
    }
}

#[test]
fn every_type_in_and_out() {
    let Some(stream) = stream() else { return };
    let layout = Layout::new(40, 10, 25, 2).unwrap();
    let ids: Vec<u64> = (0..64u64).map(|at| at * 17 % 40).collect();
    for stored in Stored::ALL {
        for (elements, on_lines) in [(24, false), (9, true)] {
            let format =
                if on_lines { RowFormat::on_lines(elements, stored) } else { RowFormat::packed(elements, stored) };
            let encoded = encode(&features(40, elements), &format);
            let table = table(&stream, &source(&encoded, format), layout).unwrap();
            // Every build is compiled; odd widths go by element whatever comes out.
            let outs: &[Stored] = if on_lines { &[Stored::F32] } else { &[Stored::F32, Stored::F16, Stored::Bf16] };
            for &out in outs {
                let found = gather(&stream, &table, &ids, out).unwrap();
                assert!(found == expected(&encoded, &format, &ids, out), "{format:?} as {out:?}");
            }
        }
    }
}

#[test]
fn ids_through_a_map() {
    let Some(stream) = stream() else { return };
    let format = RowFormat::packed(12, Stored::F32);
    let encoded = encode(&features(30, 12), &format);
    let layout = Layout::new(30, 4, 10, 3).unwrap();
    let rows_of_ids: Vec<u64> = (0..30).map(|id| if id == 17 { u64::MAX } else { (id * 7 + 3) % 30 }).collect();
    let narrow = IdMap::of(&rows_of_ids, 30);
    for map in [narrow, IdMap::U64(rows_of_ids.clone())] {
        let table = table(&stream, &source(&encoded, format), layout).unwrap().with_id_map(map).unwrap();
        let ids: Vec<u64> = (0..17).chain([3, 3, 29]).collect();
        let rows: Vec<u64> = ids.iter().map(|id| rows_of_ids[usize::try_from(*id).unwrap()]).collect();
        let found = gather(&stream, &table, &ids, Stored::F32).unwrap();
        assert!(found == expected(&encoded, &format, &rows, Stored::F32));
        // An id without a row and an id that the map does not reach are named as they were written.
        for bad in [17, 30] {
            let why = gather(&stream, &table, &[1, bad], Stored::F32).unwrap_err();
            assert_eq!(fault(&why), (1, bad, 30), "{why}");
        }
        assert!(matches!(table.with_id_map(IdMap::U32(vec![0, 30])), Err(Error::MapRow { id: 1, row: 30, rows: 30 })));
    }
}

#[test]
fn parts_with_stretches_of_rows() {
    let Some(stream) = stream() else { return };
    let format = RowFormat::packed(12, Stored::F32);
    let encoded = encode(&features(50, 12), &format);
    let ids: Vec<u64> = (0..90).map(|at| at * 37 % 50).collect();
    for lengths in [&[10u64, 0, 25][..], &[20, 5, 25]] {
        let layout = Layout::in_stretches(50, lengths).unwrap();
        let table = table(&stream, &source(&encoded, format), layout).unwrap();
        let found = gather(&stream, &table, &ids, Stored::F32).unwrap();
        assert!(found == expected(&encoded, &format, &ids, Stored::F32), "{lengths:?}");
    }
}

#[test]
fn bytes_of_other_types_and_padded_rows() {
    let Some(stream) = stream() else { return };
    let ids: Vec<u64> = (0..70).map(|at| at * 13 % 40).collect();
    for (row_bytes, on_lines) in [(24, false), (130, true)] {
        let format = RowFormat::packed(row_bytes, Stored::Raw);
        let bytes: Vec<u8> = (0..40 * row_bytes).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
        let encoded = crate::rows::Encoded { bytes, scales: Vec::new() };
        let placement = Placement { on_lines, ..Layout::new(40, 5, 20, 3).unwrap().into() };
        let table = table(&stream, &source(&encoded, format), placement).unwrap();
        let found = gather(&stream, &table, &ids, Stored::Raw).unwrap();
        assert!(found == expected(&encoded, &format, &ids, Stored::Raw), "{row_bytes} {on_lines}");
        assert!(matches!(gather(&stream, &table, &ids, Stored::F32), Err(Error::Bytes { .. })));
    }
}

#[test]
fn every_id_type() {
    let Some(stream) = stream() else { return };
    let format = RowFormat::packed(12, Stored::F32);
    let encoded = encode(&features(40, 12), &format);
    let table = table(&stream, &source(&encoded, format), Layout::new(40, 5, 20, 3).unwrap()).unwrap();
    let ids: Vec<u64> = (0..30).map(|at| at * 7 % 40).collect();
    let wanted = expected(&encoded, &format, &ids, Stored::F32);
    let out = Buffer::<u8, Device>::on_stream(&stream, 30 * 48).unwrap();
    let narrow: Vec<u32> = ids.iter().map(|id| u32::try_from(*id).unwrap()).collect();
    let (narrow, wide) = (bytemuck::cast_slice::<u32, u8>(&narrow), bytemuck::cast_slice::<u64, u8>(&ids));
    for (id_type, bytes) in [(IdType::U32, narrow), (IdType::I32, narrow), (IdType::U64, wide), (IdType::I64, wide)] {
        let ids = Buffer::<u8, Device>::from_slice(&stream, bytes).unwrap();
        table.gather(&stream, ids.whole(), id_type, Stored::F32, out.whole()).unwrap();
        assert!(out.to_vec(&stream).unwrap() == wanted, "{id_type:?}");
    }
    let negative = Buffer::<i64, Device>::from_slice(&stream, &[1, -1]).unwrap();
    let two = out.whole().part(0, 96).unwrap();
    table.gather(&stream, negative.whole(), IdType::I64, Stored::F32, &two).unwrap();
    assert_eq!(fault(&stream.synchronize().unwrap_err().into()).0, 1);
    // Between two ids, and between two elements.
    let off = negative.whole().part(4, 8).unwrap();
    let bad = table.gather(&stream, &off, IdType::I64, Stored::F32, &out.whole().part(0, 48).unwrap());
    assert!(matches!(bad, Err(Error::Alignment { name: "ids", off_bytes: 4, .. })));
    let one = negative.whole().part(0, 8).unwrap();
    let bad = table.gather(&stream, &one, IdType::I64, Stored::F32, &out.whole().part(2, 48).unwrap());
    assert!(matches!(bad, Err(Error::Alignment { name: "the output", off_bytes: 2, .. })));
}

#[test]
fn layouts_that_nobody_checked_are_refused() {
    let Some(stream) = stream() else { return };
    let format = RowFormat::packed(12, Stored::F32);
    let source = source(&encode(&features(40, 12), &format), format);
    let good = Layout::new(40, 5, 20, 1).unwrap();
    for bad in [
        Layout { members: 9, ..good },
        Layout { members: 0, ..good },
        Layout { replicated_end: 21, ..good },
        Layout { host_end: 10, ..good },
    ] {
        let group = vec![stream.gpu().clone(); usize::try_from(bad.members).unwrap()];
        let placed = TieredTable::place(stream.gpu(), &group, &source, bad);
        assert!(matches!(placed, Err(Error::Parameter { .. })), "{bad:?}");
    }
}

#[test]
fn bad_ids_are_named_and_bad_sizes_refused() {
    let Some(stream) = stream() else { return };
    let format = RowFormat::packed(12, Stored::F32);
    let encoded = encode(&features(20, 12), &format);
    for (replicated, interleaved) in [(5, 10), (20, 20)] {
        let layout = Layout::new(20, replicated, interleaved, 3).unwrap();
        let table = table(&stream, &source(&encoded, format), layout).unwrap();
        let bad = gather(&stream, &table, &[3, 20, 1], Stored::F32).unwrap_err();
        assert_eq!(fault(&bad), (1, 20, 20), "{bad}");
        let good = gather(&stream, &table, &[3, 19], Stored::F32).unwrap();
        assert!(good == expected(&encoded, &format, &[3, 19], Stored::F32), "the table stays usable");
        let ids = Buffer::<u64, Device>::from_slice(&stream, &[1]).unwrap();
        let short: &Span = ids.whole();
        assert!(matches!(
            table.gather(&stream, short, IdType::U64, Stored::F32, short),
            Err(Error::Bytes { name: "the output", found: 8, expected: 48 })
        ));
    }
    let source = source(&encoded, format);
    let layout = Layout::new(21, 0, 0, 1).unwrap();
    assert!(matches!(table(&stream, &source, layout), Err(Error::Bytes { name: "the table", .. })));
    let layout = Layout::new(20, 0, 0, 1).unwrap();
    assert!(matches!(table(&stream, &source, layout.with_disk_from(5).unwrap()), Err(Error::Table { .. })));
    let none = TieredTable::place(stream.gpu(), &[], &source, layout);
    assert!(matches!(none, Err(Error::Bytes { name: "the group, in members,", .. })));
}

/// Position, value and limit of a fault that a kernel reported.
fn fault(why: &Error) -> (u64, u64, u64) {
    let (Error::Memory(headwater_memory::Error::Cuda(why)) | Error::Cuda(why)) = why else { panic!("{why}") };
    let CudaError::Fault { position, value, limit, .. } = why else { panic!("{why}") };
    (*position, value.cast_unsigned(), *limit)
}
