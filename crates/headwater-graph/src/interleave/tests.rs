//! Addresses by arithmetic, by dealing out blocks, and through several memories of one GPU.

use super::{Interleave, Place, Spread};

/// A member's share, read in two pieces that meet inside a block.
fn share(spread: &Spread<'_>, member: usize, count: u64) -> Vec<u64> {
    let mut share = vec![7; usize::try_from(spread.rule.share_len(count)).unwrap()];
    let (first, second) = share.split_at_mut(7);
    spread.read(Place { member, offset: 0 }, bytemuck::cast_slice_mut(first));
    spread.read(Place { member, offset: 7 }, bytemuck::cast_slice_mut(second));
    share
}

#[test]
fn every_position_has_a_place_of_its_own() {
    for members in 1..=8 {
        for block_log2 in [0, 1, 5] {
            let rule = Interleave::new(members, block_log2).unwrap();
            let all: Vec<u64> = (1..334).collect();
            let spread = Spread { bytes: bytemuck::cast_slice(&all), element_bytes: 8, rule };
            let shares: Vec<Vec<u64>> = (0..members).map(|member| share(&spread, member, 333)).collect();
            let kept = |share: &Vec<u64>| share.iter().filter(|element| **element > 0).count();
            assert_eq!(shares.iter().map(kept).sum::<usize>(), all.len());
            for position in 0..333 {
                let place = rule.at(position);
                assert_eq!(rule.position(place), position);
                assert_eq!(shares[place.member][usize::try_from(place.offset).unwrap()], position + 1, "{rule:?}");
            }
        }
    }
    assert!([(0, 0), (9, 0), (2, 32)].into_iter().all(|(members, log2)| Interleave::new(members, log2).is_none()));
    let last = Interleave::new(3, 31).unwrap().at(u64::MAX);
    assert_eq!((last.member, last.offset % (1 << 31)), (1, (1 << 31) - 1));
}

/// What runs on a GPU, real or emulated.
mod device {
    use bytemuck::Pod;
    use headwater_cuda::{Error as CudaError, Stream};
    use headwater_memory::{Buffer, Device};

    use super::super::Interleaved;
    use crate::error::{Error, Result};
    use crate::random::mix;
    use crate::testing::stream;

    fn read<T: Pod>(stream: &Stream, array: &Interleaved, positions: &[u64]) -> Result<Vec<T>> {
        let positions = Buffer::<u64, Device>::from_slice(stream, positions)?;
        let out = Buffer::<T, Device>::on_stream(stream, positions.len())?;
        array.read(stream, positions.whole(), out.whole())?;
        stream.synchronize()?;
        Ok(out.to_vec(stream)?)
    }

    #[test]
    fn rows_read_through_members_are_the_rows() {
        let Some(stream) = stream() else { return };
        // Rows of any length, hubs and empty ones among them.
        let degrees = (0..400u64).map(|row| if row % 90 == 7 { 300 } else { mix(row) % 6 });
        let mut offsets = vec![0u64];
        offsets.extend(degrees.scan(0, |end, degree| {
            *end += degree;
            Some(*end)
        }));
        let edges = *offsets.last().unwrap();
        let neighbours: Vec<u32> = (0..edges).map(|edge| (mix(edge) >> 40) as u32).collect();
        for (members, block_log2) in [(3, 4), (8, 0)] {
            let group = vec![stream.gpu().clone(); members];
            let far_offsets = Interleaved::new(&group, block_log2, &offsets).unwrap();
            let far_neighbours = Interleaved::new(&group, block_log2, &neighbours).unwrap();
            let rows: Vec<u64> = (0..200).map(|i| mix(i) % 400).collect();
            let ends: Vec<u64> = rows.iter().flat_map(|row| [*row, row + 1]).collect();
            let bounds: Vec<u64> = read(&stream, &far_offsets, &ends).unwrap();
            let positions: Vec<u64> = bounds.chunks(2).flat_map(|ends| ends[0]..ends[1]).collect();
            let plain = |row: &u64| {
                let row = usize::try_from(*row).unwrap();
                neighbours[usize::try_from(offsets[row]).unwrap()..usize::try_from(offsets[row + 1]).unwrap()].to_vec()
            };
            let want: Vec<u32> = rows.iter().flat_map(plain).collect();
            assert!(read::<u32>(&stream, &far_neighbours, &positions).unwrap() == want, "{members} members");
        }
    }

    #[test]
    fn a_position_that_is_none_is_reported() {
        let Some(stream) = stream() else { return };
        let group = vec![stream.gpu().clone(); 2];
        let array = Interleaved::new(&group, 1, &[5u32, 6, 7]).unwrap();
        // Position 3 has a place, in the last block's missing half.
        for position in [3, u64::MAX] {
            let error = read::<u32>(&stream, &array, &[0, position]).unwrap_err();
            let Error::Cuda(CudaError::Fault { position: 1, value, limit: 3, .. }) = error else { panic!("{error}") };
            assert_eq!(value, position.cast_signed());
        }
        assert!(matches!(Interleaved::new::<u32>(&[], 0, &[]), Err(Error::Length { name: "members", .. })));
        let nothing = Interleaved::new::<u64>(&group, 3, &[]).unwrap();
        assert!(read::<u64>(&stream, &nothing, &[]).unwrap().is_empty());
    }
}
