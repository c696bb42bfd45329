//! The papers' examples of memory requests, counted on the emulator.
//!
//! A request is one line asked for by one warp at once. PyTorch-Direct draws its example with lines of 16 bytes and warps
//! of 4 threads: rows of 44 bytes, of which row 2 is read second. The other paper reads the second row of 480 bytes.

use headwater::cuda::{SmShare, Stream};
use headwater::memory::{Buffer, Device, Pinned};
use headwater::tensor::gather::{GatherOptions, GpuGather, IdType, Variant};

use crate::emulator;
use crate::kernels::gpu;

/// Requests of a gather of `ids` out of a table of `rows` rows of `width` bytes.
fn requests(width: usize, rows: usize, ids: &[u32], variant: Variant, line_bytes: u32, warp: u32) -> Option<u64> {
    let gpu = gpu()?;
    let stream = Stream::new(&gpu).unwrap();
    let table = Buffer::<u8, Pinned>::new(&gpu, width * rows).unwrap();
    let device_ids = Buffer::<u32, Device>::from_slice(&stream, ids).unwrap();
    let out = Buffer::<u8, Device>::on_stream(&stream, width * ids.len()).unwrap();
    let gather = GpuGather {
        stream: &stream,
        table: table.whole(),
        host_table: None,
        rows: rows as u64,
        width_bytes: width as u64,
        ids: device_ids.whole(),
        id_type: IdType::U32,
        out: out.whole(),
        options: GatherOptions { variant, share: SmShare::AtMost(1), cpu_threads: 0 },
    };
    let mut plan = gather.plan();
    plan.line_bytes = u64::from(line_bytes);
    emulator::count_requests(line_bytes, warp)?;
    gather.run_plan(&plan).unwrap();
    stream.synchronize().unwrap();
    emulator::requests()
}

#[test]
fn forty_four_bytes_take_seven_requests_and_five_when_shifted() {
    // What row 2 adds to row 0. They meet in one warp, threads 8 to 11, in different lines.
    let row = |variant| {
        let both = requests(44, 100, &[0, 2], variant, 16, 4)?;
        Some(both - requests(44, 100, &[0], variant, 16, 4)?)
    };
    let (Some(naive), Some(shifted)) = (row(Variant::Naive), row(Variant::Shift)) else { return };
    assert_eq!((naive, shifted), (7, 5));
}

#[test]
fn four_hundred_and_eighty_bytes_take_eight_requests_and_five_when_shifted() {
    let second_row = |variant| requests(480, 4, &[1], variant, 128, 32);
    let (Some(naive), Some(shifted)) = (second_row(Variant::Naive), second_row(Variant::Shift)) else { return };
    assert_eq!((naive, shifted), (8, 5));
}

#[test]
fn starting_on_the_line_asks_for_each_line_once() {
    for (width, row, lines) in [(480, 1, 5), (44, 2, 2), (128, 3, 1), (2052, 1, 17), (1028, 3, 9), (400, 1, 4)] {
        for variant in [Variant::Aligned, Variant::Sorted] {
            let Some(found) = requests(width, 8, &[row], variant, 128, 32) else { return };
            assert_eq!(found, lines, "row {row} of width {width}, {variant:?}");
        }
    }
}
