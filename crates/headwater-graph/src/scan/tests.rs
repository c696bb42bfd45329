//! The same counts through both, and the look-back alone, whose waiting an emulator never sees.

use super::scan_on_cpu;

#[test]
fn the_loop_sums_what_came_before() {
    let mut offsets = [0u64; 3];
    assert_eq!((scan_on_cpu(&[3, 0, u32::MAX], &mut offsets), offsets), (u64::from(u32::MAX) + 3, [0, 3, 3]));
    assert_eq!(scan_on_cpu::<u32>(&[], &mut []), 0);
}

/// What runs on a GPU, real or emulated.
mod device {
    #![allow(unsafe_code, reason = "the test has a kernel of its own")]

    use headwater_cuda::{Defines, Element, Error as CudaError, Grid, Kernel, Param, Scalar, Source, Stream};
    use headwater_memory::{Buffer, Device};

    use super::super::{GpuScan, HEADER};
    use super::*;
    use crate::column::Id;
    use crate::error::{Error, Result};
    use crate::random::Key;
    use crate::testing::stream;
    use crate::width::IdWidth;

    /// Offsets and total of the first `count` counts, with room for `spare` offsets more than counts.
    fn run<O: Id>(stream: &Stream, width: IdWidth, counts: &[u32], count: u64, spare: usize) -> Result<(Vec<O>, u64)> {
        let untouched = O::narrow(0x7777_7777);
        let offsets = Buffer::<O, Device>::from_slice(stream, &vec![untouched; counts.len() + spare + 1])?;
        let counts = Buffer::<u32, Device>::from_slice(stream, counts)?;
        let count = Buffer::<u64, Device>::from_slice(stream, &[count])?;
        let total = Buffer::<u64, Device>::from_slice(stream, &[0x77])?;
        let room = offsets.part(0..offsets.len() - 1).unwrap();
        let (counts, count) = (counts.whole(), count.whole());
        GpuScan { stream, counts, count, offsets: &room, width, total: total.whole() }.run()?;
        stream.synchronize()?;
        let mut written = offsets.to_vec(stream)?;
        assert_eq!(written.pop(), Some(untouched), "the scan wrote behind its offsets");
        Ok((written, total.to_vec(stream)?[0]))
    }

    fn agrees<O: Id>(stream: &Stream, width: IdWidth, counts: &[u32], used: usize) {
        let mut want = vec![O::narrow(0); used];
        let want_total = scan_on_cpu(&counts[..used], &mut want);
        want.push(O::narrow(want_total));
        want.resize(counts.len() + 1, O::narrow(0x7777_7777));
        let (got, total) = run::<O>(stream, width, counts, used as u64, 1).unwrap();
        assert!(got == want && total == want_total, "{used} of {} counts as {width:?}", counts.len());
        let (got, _) = run::<O>(stream, width, counts, used as u64, 0).unwrap();
        assert!(got[..] == want[..counts.len()]);
    }

    #[test]
    fn every_length_agrees_with_the_loop() {
        let Some(stream) = stream() else { return };
        let random = Key::new(1);
        for (capacity, used) in
            [(0, 0), (1, 0), (1, 1), (33, 33), (4096, 4096), (4097, 4097), (4097, 31), (20_000, 12_289)]
        {
            let counts: Vec<u32> = (0..capacity as u64).map(|i| u32::narrow(random.below(i, 40))).collect();
            agrees::<u32>(&stream, IdWidth::U32, &counts, used);
            let large: Vec<u32> = (0..capacity as u64).map(|i| u32::narrow(random.draw(i))).collect();
            agrees::<u64>(&stream, IdWidth::U64, &large, used);
        }
    }

    #[test]
    fn what_does_not_fit_is_reported() {
        let Some(stream) = stream() else { return };
        let fault = |error| match error {
            Error::Cuda(CudaError::Fault { value, limit, .. }) => (value, limit),
            other => panic!("{other}"),
        };
        let counts = [u32::MAX, 1, 0];
        let error = run::<u32>(&stream, IdWidth::U32, &counts, 3, 1).unwrap_err();
        assert_eq!(fault(error), (1 << 32, u64::from(u32::MAX)));
        assert_eq!(run::<u64>(&stream, IdWidth::U64, &counts, 3, 1).unwrap().1, 1 << 32);
        let error = run::<u64>(&stream, IdWidth::U64, &counts, 5, 1).unwrap_err();
        assert_eq!(fault(error), (5, 3));
    }

    static LOOK_BACK_TEXT: Source = Source {
        name: "look_back.cu",
        text: "extern \"C\" __global__ void look_back(const u64* words, u64 tiles, u64* sums) {\n\
               for (u64 tile = 0; tile < tiles; tile++) {\n\
               const u64 sum = hw_look_back(words, tile, threadIdx.x);\n\
               if (threadIdx.x == 0) sums[tile] = sum;\n}\n}\n",
        headers: &[HEADER],
    };
    // SAFETY: words and sums are touched below `tiles`.
    static LOOK_BACK: Kernel = unsafe {
        Kernel::declare(
            &LOOK_BACK_TEXT,
            "look_back",
            &[
                Param::Read("words", Element::U64, &["tiles"]),
                Param::Value("tiles", Scalar::U64),
                Param::Write("sums", Element::U64, &["tiles"]),
            ],
        )
    };

    #[test]
    fn a_tile_adds_what_earlier_tiles_have_published() {
        let Some(stream) = stream() else { return };
        let (own, up_to) = (1u64 << 62, 2u64 << 62);
        // Every seventh, or only the first, tile knows the sum up to its end; all own sums are different.
        for knows in [7usize, 40, usize::MAX] {
            let sums: Vec<u64> = (0..100).map(|tile| 1000 + tile * tile).collect();
            let before: Vec<u64> = (0..=100).map(|tile| sums[..tile].iter().sum()).collect();
            let word =
                |tile: usize| if tile.is_multiple_of(knows) { up_to | before[tile + 1] } else { own | sums[tile] };
            let words = Buffer::<u64, Device>::from_slice(&stream, &(0..100).map(word).collect::<Vec<_>>()).unwrap();
            let found = Buffer::<u64, Device>::from_slice(&stream, &[0; 100]).unwrap();
            let grid = Grid { blocks: 1, threads: 32, shared_bytes: 0 };
            let defines = Defines::new().with("THREADS", 32).with("ITEMS", 1);
            let launch = LOOK_BACK.on(&stream, &defines, grid).buffer(words.whole(), Element::U64).u64(100);
            launch.buffer(found.whole(), Element::U64).go().unwrap();
            assert_eq!(found.to_vec(&stream).unwrap(), before[..100]);
        }
    }
}
