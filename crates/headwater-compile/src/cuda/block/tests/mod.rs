//! Blocks made on the device against [`Adjacency`](crate::adjacency::Adjacency) made on the host.

mod device;

use super::passes;

#[test]
fn as_many_passes_as_numbers_have_digits() {
    let cases =
        [(0, 1), (1, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 3), (1 << 24, 3), ((1 << 24) + 1, 4), (u32::MAX, 4)];
    for (src, wanted) in cases {
        assert_eq!(passes(src), wanted, "{src}");
    }
}
