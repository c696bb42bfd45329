//! The same numbers on both sides.
#![expect(clippy::single_range_in_vec_init, reason = "one piece is what is meant")]

use headwater_cuda::{Gpu, Stream};
use headwater_memory::{Buffer, Device};

use super::cuda::joined;
use super::{widen, widen_on_cpu};

#[test]
fn pieces_that_touch_are_one() {
    assert_eq!(joined(&[0..3, 3..3, 3..7, 9..10]), [0..7, 9..10]);
    assert_eq!(joined(&[2..2, 4..5]), [4..5]);
    assert!(joined(&[]).is_empty());
}

#[test]
fn device_numbers_keep_their_value() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let stream = Stream::new(&gpu).unwrap();
    let numbers: Vec<u32> = (0..5000u32).map(|at| at.wrapping_mul(0x9E37_79B9)).collect();
    let from = Buffer::<u32, Device>::from_slice(&stream, &numbers).unwrap();
    for pieces in [vec![0..5000], vec![0..1, 1..40, 4000..5000], vec![7..7], vec![]] {
        let want = widen_on_cpu(&numbers, &pieces);
        let to = Buffer::<i64, Device>::on_stream(&stream, want.len()).unwrap();
        widen(&stream, from.whole(), &pieces, to.whole()).unwrap();
        assert_eq!(to.to_vec(&stream).unwrap(), want);
        let short = Buffer::<i64, Device>::on_stream(&stream, want.len() + 1).unwrap();
        assert!(widen(&stream, from.whole(), &pieces, short.whole()).is_err());
    }
}
