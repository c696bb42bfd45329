//! Rows out of every mix of memories, against the rows themselves.

use super::HostRows;
use crate::Error;
use crate::rows::{RowFormat, Stored, encode};

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

mod device {
    use std::sync::Arc;

    use headwater_cuda::{Error as CudaError, Gpu, Span, Stream};
    use headwater_memory::{Buffer, Device, Foreign};
    use headwater_tensor::gather::IdType;

    use crate::rows::{Encoded, RowFormat, Stored, encode};
    use crate::table::{HostRows, Layout, Served, TieredTable};
    use crate::{Error, Result};

    /// Where there is no GPU, real or emulated, there is nothing to test.
    fn stream() -> Option<Stream> {
        Gpu::open(0).ok().map(|gpu| Stream::new(&gpu).unwrap())
    }

    fn features(rows: usize, elements: usize) -> Vec<f32> {
        (0..rows * elements).map(|at| ((at * 7919) % 1013) as f32 * 0.125 - 60.0).collect()
    }

    fn table(stream: &Stream, encoded: &Encoded, format: RowFormat, layout: Layout) -> Result<TieredTable> {
        let group = vec![stream.gpu().clone(); usize::try_from(layout.members).unwrap()];
        let rows = Foreign::new(Arc::new(encoded.bytes.clone()));
        TieredTable::place(stream.gpu(), &group, &rows, &encoded.scales, format, layout)
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

    #[test]
    fn every_mix_of_tiers() {
        let Some(stream) = stream() else { return };
        let (rows, elements) = (300, 12);
        let format = RowFormat::packed(elements, Stored::F32);
        let encoded = encode(&features(rows, elements), &format);
        let ids: Vec<u64> = (0..500u64).map(|at| (at * at * 31 + at) % 300).collect();
        let wanted = expected(&encoded, &format, &ids, Stored::F32);
        for (replicated, interleaved, members) in
            [(0, 0, 1), (300, 300, 1), (0, 300, 3), (50, 200, 3), (50, 50, 1), (0, 120, 1), (299, 300, 8)]
        {
            let layout = Layout::new(300, replicated, interleaved, members).unwrap();
            let table = table(&stream, &encoded, format, layout).unwrap();
            assert!(gather(&stream, &table, &ids, Stored::F32).unwrap() == wanted, "{layout:?}");
            let below = |end: u64| ids.iter().filter(|id| **id < end).count() as u64;
            let (hot, warm) = (below(replicated), below(interleaved));
            let counted = Served { replicated: hot, interleaved: warm - hot, host: 500 - warm };
            assert_eq!(table.served(&stream).unwrap(), counted, "{layout:?}");
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
                let table = table(&stream, &encoded, format, layout).unwrap();
                for out in [Stored::F32, Stored::F16, Stored::Bf16] {
                    let found = gather(&stream, &table, &ids, out).unwrap();
                    assert!(found == expected(&encoded, &format, &ids, out), "{format:?} as {out:?}");
                }
            }
        }
    }

    #[test]
    fn ids_through_a_map() {
        let Some(stream) = stream() else { return };
        let format = RowFormat::packed(5, Stored::F16);
        let encoded = encode(&features(30, 5), &format);
        let layout = Layout::new(30, 4, 10, 1).unwrap();
        let map: Vec<u32> = (0..30).map(|id| (id * 7 + 3) % 30).collect();
        let table = table(&stream, &encoded, format, layout).unwrap().with_id_map(&stream, &map).unwrap();
        let ids: Vec<u64> = (0..30).chain([3, 3, 29]).collect();
        let rows: Vec<u64> = ids.iter().map(|id| u64::from(map[usize::try_from(*id).unwrap()])).collect();
        let found = gather(&stream, &table, &ids, Stored::F16).unwrap();
        assert!(found == expected(&encoded, &format, &rows, Stored::F16));
        let hole = table.clone().with_id_map(&stream, &[0, 30]);
        assert!(matches!(hole, Err(Error::Parameter { name: "id map", .. })));
    }

    #[test]
    fn bad_ids_are_named_and_bad_sizes_refused() {
        let Some(stream) = stream() else { return };
        let format = RowFormat::packed(4, Stored::F32);
        let encoded = encode(&features(20, 4), &format);
        for (replicated, interleaved) in [(5, 10), (20, 20)] {
            let layout = Layout::new(20, replicated, interleaved, 1).unwrap();
            let table = table(&stream, &encoded, format, layout).unwrap();
            let bad = gather(&stream, &table, &[3, 20, 1], Stored::F32).unwrap_err();
            let Error::Memory(headwater_memory::Error::Cuda(CudaError::Fault { position, value, limit, .. })) = bad
            else {
                panic!("{bad}")
            };
            assert_eq!((position, value, limit), (1, 20, 20));
            let good = gather(&stream, &table, &[3, 19], Stored::F32).unwrap();
            assert!(good == expected(&encoded, &format, &[3, 19], Stored::F32), "the table stays usable");
            let ids = Buffer::<u64, Device>::from_slice(&stream, &[1]).unwrap();
            let short: &Span = ids.whole();
            assert!(matches!(
                table.gather(&stream, short, IdType::U64, Stored::F32, short),
                Err(Error::Bytes { name: "the output", found: 8, expected: 16 })
            ));
        }
        let layout = Layout::new(21, 0, 0, 1).unwrap();
        assert!(matches!(table(&stream, &encoded, format, layout), Err(Error::Bytes { name: "the table", .. })));
        let int8 = RowFormat::packed(16, Stored::I8);
        let layout = Layout::new(20, 0, 0, 1).unwrap();
        assert!(matches!(table(&stream, &encoded, int8, layout), Err(Error::Bytes { name: "scales", .. })));
    }
}
