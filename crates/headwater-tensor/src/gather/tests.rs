//! The same rows through the CPU and through every way the GPU has, compared byte by byte.

use std::ops::Range;

use super::plan::Plan;
use super::{GatherError, IdSlice, gather_host};

/// Bytes that differ from place to place.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0]).collect()
}

/// Ids in no order, with repeats, the first and the last row among them.
fn some_ids(count: usize, rows: u64) -> Vec<u64> {
    let random = |i: u64| (i.wrapping_mul(0xd134_2543_de82_ef95) >> 16) % rows;
    let mut ids: Vec<u64> = (0..count as u64).map(random).collect();
    for (at, id) in [(0, rows - 1), (1, 0), (2, rows - 1)] {
        if let Some(slot) = ids.get_mut(at) {
            *slot = id;
        }
    }
    ids
}

/// What a gather must give, written as plainly as possible.
fn expected(table: &[u8], width: usize, ids: &[u64]) -> Vec<u8> {
    let row = |id: &u64| -> Range<usize> {
        let start = usize::try_from(*id).unwrap() * width;
        start..start + width
    };
    ids.iter().flat_map(|id| table[row(id)].to_vec()).collect()
}

#[test]
fn the_cpu_gathers_any_width_and_any_id_type() {
    for width in [1, 3, 4, 44, 128, 400, 1028] {
        let (rows, count) = (50, 97);
        let table = pattern(rows * width);
        let ids = some_ids(count, rows as u64);
        let want = expected(&table, width, &ids);
        let u32s: Vec<u32> = ids.iter().map(|id| u32::try_from(*id).unwrap()).collect();
        let i32s: Vec<i32> = ids.iter().map(|id| i32::try_from(*id).unwrap()).collect();
        let i64s: Vec<i64> = ids.iter().map(|id| i64::try_from(*id).unwrap()).collect();
        let kinds = [IdSlice::U32(&u32s), IdSlice::U64(&ids), IdSlice::I32(&i32s), IdSlice::I64(&i64s)];
        for ids in kinds {
            let mut out = vec![0xee; count * width];
            gather_host(&table, width, ids, &mut out).unwrap();
            assert_eq!(out, want, "width {width}");
        }
    }
}

#[test]
fn large_outputs_take_the_streaming_path_and_agree() {
    let (rows, width, count) = (1000, 512, 20_000);
    let table = pattern(rows * width);
    let ids = some_ids(count, rows as u64);
    let mut out = vec![0; count * width];
    gather_host(&table, width, IdSlice::U64(&ids), &mut out).unwrap();
    assert!(out == expected(&table, width, &ids));
}

#[test]
fn bad_ids_and_sizes_are_named() {
    let table = pattern(10 * 8);
    let mut out = vec![0; 3 * 8];
    let bad = |ids: IdSlice<'_>, out: &mut [u8]| gather_host(&table, 8, ids, out).unwrap_err();
    let error = bad(IdSlice::I64(&[1, -3, 2]), &mut out);
    assert_eq!(error, GatherError::IdOutOfRange { position: 1, id: -3, rows: 10 });
    assert_eq!(error.to_string(), "id -3 at position 1 is out of range for a table of 10 rows");
    let error = bad(IdSlice::U64(&[1, 2, u64::MAX]), &mut out);
    assert_eq!(error, GatherError::IdOutOfRange { position: 2, id: i128::from(u64::MAX), rows: 10 });
    assert!(matches!(bad(IdSlice::U32(&[1, 2]), &mut out), GatherError::OutputSize { count: 2, .. }));
    assert_eq!(gather_host(&table, 0, IdSlice::U32(&[]), &mut []), Err(GatherError::ZeroWidth));
    assert_eq!(gather_host(&[], 8, IdSlice::U32(&[]), &mut []), Ok(()));
    let nothing = gather_host(&[], 8, IdSlice::U32(&[0]), &mut [0; 8]);
    assert_eq!(nothing, Err(GatherError::IdOutOfRange { position: 0, id: 0, rows: 0 }));
}

/// What runs on a GPU, real or emulated.
mod device {
    use headwater_cuda::{Error as CudaError, FAULT_ID_OUT_OF_RANGE, Gpu, Graph, SmShare, Span, Stream};
    use headwater_memory::{Buffer, Device, Pinned};

    use super::super::{GatherOptions, GpuGather, IdType, Variant};
    use super::*;
    use crate::error::Error;

    fn gpu() -> Option<Gpu> {
        let gpu = Gpu::open(0);
        if let Err(why) = &gpu {
            eprintln!("no GPU: skipped ({why})");
        }
        gpu.ok()
    }

    /// A gather to be done in every way.
    struct Case {
        width: usize,
        rows: usize,
        /// Bytes by which table and output miss a line.
        offset: usize,
        ids: Vec<u64>,
        id_type: IdType,
        on_device: bool,
    }

    impl Case {
        fn new(width: usize, rows: usize, count: usize) -> Self {
            let ids = some_ids(count, rows as u64);
            Self { width, rows, offset: 0, ids, id_type: IdType::U32, on_device: false }
        }
    }

    fn id_bytes(ids: &[u64], id_type: IdType) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()[..id_type.size_bytes()].to_vec()).collect()
    }

    /// Runs `case` in one way and returns the output, or the stream's complaint.
    fn run(gpu: &Gpu, case: &Case, options: GatherOptions) -> Result<(Vec<u8>, Plan), Error> {
        let stream = Stream::new(gpu)?;
        let table = pattern(case.rows * case.width);
        let mut pinned = Buffer::<u8, Pinned>::new(gpu, table.len() + case.offset)?;
        pinned.write(case.offset, &table)?;
        #[expect(unsafe_code, reason = "CPU threads gather from the table that kernels read")]
        // SAFETY: gathers read their table.
        let host_table = unsafe { pinned.as_slice() }?;
        let copy = Buffer::<u8, Device>::from_slice(&stream, host_table)?;
        let part = |span: &Span| span.part(case.offset, table.len()).unwrap();
        let span = if case.on_device { part(copy.whole()) } else { part(pinned.whole()) };
        let ids = Buffer::<u8, Device>::from_slice(&stream, &id_bytes(&case.ids, case.id_type))?;
        let out_bytes = case.ids.len() * case.width;
        let out = Buffer::<u8, Device>::from_slice(&stream, &vec![0x77; out_bytes + 2 * case.offset])?;
        let gather = GpuGather {
            stream: &stream,
            table: &span,
            host_table: Some(&host_table[case.offset..]),
            rows: case.rows as u64,
            width_bytes: case.width as u64,
            ids: ids.whole(),
            id_type: case.id_type,
            out: &out.part(case.offset..case.offset + out_bytes).unwrap(),
            options,
        };
        let plan = gather.run()?;
        stream.synchronize()?;
        let all = out.to_vec(&stream)?;
        let (before, rest) = all.split_at(case.offset);
        let (rows, after) = rest.split_at(out_bytes);
        assert!(before.iter().chain(after).all(|byte| *byte == 0x77), "the gather wrote around its output");
        Ok((rows.to_vec(), plan))
    }

    fn every_way(gpu: &Gpu, case: &Case) {
        let want = expected(&pattern(case.rows * case.width), case.width, &case.ids);
        for variant in Variant::ALL {
            if case.on_device && matches!(variant, Variant::Cpu | Variant::Hybrid) {
                continue;
            }
            let options = GatherOptions { variant, share: SmShare::AtMost(3), cpu_threads: 2 };
            let (got, plan) = run(gpu, case, options).unwrap();
            let (width, offset, count) = (case.width, case.offset, case.ids.len());
            assert!(got == want, "{variant:?} of width {width}, offset {offset}, {count} ids, plan {plan:?}");
        }
    }

    #[test]
    fn every_width_in_every_way() {
        let Some(gpu) = gpu() else { return };
        for width in [1, 2, 3, 4, 6, 8, 16, 44, 101, 128, 256, 400, 480, 512, 1028, 2052] {
            every_way(&gpu, &Case::new(width, 37, 61));
        }
    }

    #[test]
    fn every_alignment_of_table_and_output() {
        let Some(gpu) = gpu() else { return };
        for (offset, width) in [(1, 44), (1, 128), (2, 100), (4, 132), (8, 64), (16, 256), (60, 3), (127, 130)] {
            every_way(&gpu, &Case { offset, ..Case::new(width, 29, 40) });
        }
    }

    #[test]
    fn every_id_type_and_count() {
        let Some(gpu) = gpu() else { return };
        for id_type in [IdType::U32, IdType::U64, IdType::I32, IdType::I64] {
            for count in [0, 1, 2, 33, 700] {
                every_way(&gpu, &Case { id_type, ..Case::new(36, 19, count) });
            }
        }
    }

    #[test]
    fn a_table_in_device_memory() {
        let Some(gpu) = gpu() else { return };
        every_way(&gpu, &Case { on_device: true, ..Case::new(52, 300, 500) });
        let cpu = GatherOptions { variant: Variant::Cpu, ..GatherOptions::default() };
        let auto = GatherOptions::default();
        assert!(run(&gpu, &Case { on_device: true, ..Case::new(128, 30, 50) }, auto).is_ok());
        assert!(run(&gpu, &Case::new(128, 30, 50), cpu).is_ok());
    }

    #[test]
    fn more_rows_than_buckets_come_out_in_place() {
        let Some(gpu) = gpu() else { return };
        let case = Case::new(8, 20_000, 9_000);
        let options = GatherOptions { variant: Variant::Sorted, ..GatherOptions::default() };
        let (got, plan) = run(&gpu, &case, options).unwrap();
        assert!(plan.ordered);
        assert!(got == expected(&pattern(case.rows * case.width), case.width, &case.ids));
    }

    #[test]
    fn a_bad_id_is_named_and_its_row_is_zero() {
        let Some(gpu) = gpu() else { return };
        let cases =
            [(IdType::U32, 37u64, 37i64), (IdType::I64, (-1i64).cast_unsigned(), -1), (IdType::U64, 1 << 40, 1 << 40)];
        for (id_type, bits, id) in cases {
            let mut case = Case { id_type, ..Case::new(20, 37, 64) };
            case.ids[5] = bits;
            for variant in [Variant::Naive, Variant::Shift, Variant::Aligned, Variant::Sorted] {
                let options = GatherOptions { variant, ..GatherOptions::default() };
                let error = run(&gpu, &case, options).unwrap_err();
                let Error::Cuda(CudaError::Fault { code, position, limit, value }) = error else {
                    panic!("{variant:?} gave {error}")
                };
                let named = (code, position, limit, value);
                assert_eq!(named, (FAULT_ID_OUT_OF_RANGE, 5, 37, id), "{variant:?}");
            }
            for variant in [Variant::Cpu, Variant::Hybrid] {
                let options = GatherOptions { variant, cpu_threads: 2, ..GatherOptions::default() };
                let text = run(&gpu, &case, options).unwrap_err().to_string();
                assert!(text.contains(&format!("id {id} at position 5 ")), "{variant:?}: {text}");
            }
        }
    }

    #[test]
    fn an_empty_table_has_no_rows_to_give() {
        let Some(gpu) = gpu() else { return };
        for variant in [Variant::Naive, Variant::Shift, Variant::Aligned, Variant::Sorted] {
            let case = Case { ids: vec![0, 7], ..Case::new(16, 1, 0) };
            let options = GatherOptions { variant, ..GatherOptions::default() };
            let error = run(&gpu, &Case { rows: 0, ..case }, options).unwrap_err();
            assert!(matches!(error, Error::Cuda(CudaError::Fault { limit: 0, .. })), "{variant:?}: {error}");
        }
    }

    #[test]
    fn two_threads_gather_at_once_through_the_cpu() {
        let Some(gpu) = gpu() else { return };
        let case = Case::new(1024, 300, 6000);
        let want = expected(&pattern(case.rows * case.width), case.width, &case.ids);
        for variant in [Variant::Cpu, Variant::Hybrid] {
            let options = GatherOptions { variant, cpu_threads: 2, ..GatherOptions::default() };
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| assert!(run(&gpu, &case, options).unwrap().0 == want, "{variant:?}"));
                }
            });
        }
    }

    #[test]
    fn a_captured_gather_reads_its_ids_anew() {
        let Some(gpu) = gpu() else { return };
        let stream = Stream::new(&gpu).unwrap();
        let table = Buffer::<u8, Device>::from_slice(&stream, &pattern(100 * 48)).unwrap();
        let ids = Buffer::<u32, Device>::from_slice(&stream, &[1, 2, 3]).unwrap();
        let out = Buffer::<u8, Device>::on_stream(&stream, 3 * 48).unwrap();
        let options = GatherOptions { variant: Variant::Sorted, ..GatherOptions::default() };
        let gather = GpuGather {
            stream: &stream,
            table: table.whole(),
            host_table: None,
            rows: 100,
            width_bytes: 48,
            ids: ids.whole(),
            id_type: IdType::U32,
            out: out.whole(),
            options,
        };
        // Once outside, so that the kernels are loaded.
        gather.run().unwrap();
        let captured = Graph::capture(&stream, |_| {
            let refused = |why: Error| CudaError::Unsupported { what: "the gather", why: why.to_string() };
            gather.run().map(|_| ()).map_err(refused)
        });
        let mut graph = captured.unwrap();
        for wanted in [[5u32, 0, 99], [7, 7, 7]] {
            stream.upload(bytemuck::cast_slice(&wanted), ids.whole()).unwrap();
            graph.launch(&stream).unwrap();
            let rows: Vec<u64> = wanted.iter().map(|id| u64::from(*id)).collect();
            assert_eq!(out.to_vec(&stream).unwrap(), expected(&pattern(100 * 48), 48, &rows));
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_before_anything_runs() {
        let Some(gpu) = gpu() else { return };
        let stream = Stream::new(&gpu).unwrap();
        let table = Buffer::<u8, Device>::from_slice(&stream, &pattern(100)).unwrap();
        let ids = Buffer::<u32, Device>::from_slice(&stream, &[1, 2]).unwrap();
        let out = Buffer::<u8, Device>::on_stream(&stream, 20).unwrap();
        let gather = GpuGather {
            stream: &stream,
            table: table.whole(),
            host_table: None,
            rows: 10,
            width_bytes: 10,
            ids: ids.whole(),
            id_type: IdType::U32,
            out: out.whole(),
            options: GatherOptions::default(),
        };
        assert!(gather.run().is_ok());
        assert!(matches!(
            GpuGather { rows: 11, ..gather }.run(),
            Err(Error::Gather(GatherError::TableSize { rows: 11, .. }))
        ));
        assert!(matches!(GpuGather { width_bytes: 0, ..gather }.run(), Err(Error::Gather(GatherError::ZeroWidth))));
        assert!(matches!(
            GpuGather { width_bytes: 5, ..gather }.run(),
            Err(Error::Gather(GatherError::OutputSize { .. }))
        ));
        let on_cpu = GatherOptions { variant: Variant::Cpu, ..GatherOptions::default() };
        assert!(matches!(
            GpuGather { options: on_cpu, ..gather }.run(),
            Err(Error::Gather(GatherError::TableNotOnHost { .. }))
        ));
        let odd = ids.whole().part(1, 4).unwrap();
        let short = out.part(0..10).unwrap();
        assert!(matches!(
            GpuGather { ids: &odd, out: &short, ..gather }.run(),
            Err(Error::Gather(GatherError::IdAlignment { id_bytes: 4, .. }))
        ));
        stream.synchronize().unwrap();
    }
}
