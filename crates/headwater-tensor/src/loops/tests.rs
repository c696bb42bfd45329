//! Merged loops visit the same indices in the same order as the layouts they came from.

use proptest::prelude::*;

use super::*;

fn indices(layout: &Layout) -> Vec<usize> {
    let shape = layout.shape();
    (0..layout.count())
        .map(|number| {
            let mut rest = number;
            let mut index = layout.offset();
            for axis in (0..layout.rank()).rev() {
                index += rest % shape[axis] * layout.strides()[axis];
                rest /= shape[axis];
            }
            index
        })
        .collect()
}

proptest! {
    #[test]
    fn runs_cover_a_range_in_order(
        axes in prop::collection::vec((0usize..5, 0usize..7, any::<bool>()), 0..5),
        bounds in (0usize..700, 0usize..700),
    ) {
        let shape: Vec<usize> = axes.iter().map(|a| a.0).collect();
        let strides: Vec<usize> = axes.iter().map(|a| a.1).collect();
        let packed = Layout::contiguous(&shape).unwrap();
        let a = if axes.iter().any(|a| a.2) { Layout::new(&shape, &strides, 3).unwrap() } else { packed };
        let loops = Loops::new([&a, &packed]);
        let (low, high) = (bounds.0.min(bounds.1).min(a.count()), bounds.0.max(bounds.1).min(a.count()));
        let mut seen = vec![];
        loops.for_each_run(low..high, &mut |run| {
            assert_eq!(run.first, seen.len());
            assert!(run.len > 0);
            seen.extend((0..run.len).map(|i| [0, 1].map(|n| run.offsets[n] + i * run.strides[n])));
        });
        let expected: Vec<[usize; 2]> =
            indices(&a).into_iter().zip(indices(&packed)).map(|(x, y)| [x, y]).collect();
        prop_assert_eq!(&seen[..], &expected[low..high]);
    }
}

#[test]
fn packed_axes_merge() {
    let packed = Layout::contiguous(&[2, 3, 4]).unwrap();
    assert_eq!(Loops::new([&packed, &packed]).shape(), [24]);
    let row = Layout::contiguous(&[4]).unwrap().broadcast_to(packed.shape()).unwrap();
    let loops = Loops::new([&packed, &row]);
    assert_eq!((loops.shape(), loops.strides(1)), (&[6, 4][..], &[0, 1][..]));
    let huge = Layout::contiguous(&[1 << 40, 1 << 40, 0]).unwrap();
    assert_eq!(Loops::new([&huge]).shape(), [0]);
    assert_eq!(Loops::new([&Layout::contiguous(&[]).unwrap()]).shape(), [1]);
}

#[test]
fn the_argument_is_as_wide_as_its_words() {
    let arg = LoopsArg::from(&Loops::new([&Layout::contiguous(&[2, 3]).unwrap()]));
    assert_eq!(size_of_val(&arg), 8 * (2 + 8 + 8 + 1));
    assert_eq!((arg.rank, arg.count, arg.shape[0]), (1, 6, 6));
}

#[test]
fn a_kernels_reach_is_the_end_of_the_layout() {
    use crate::ops::testing::Random;
    let mut random = Random(17);
    for shape in [&[][..], &[1], &[7], &[4, 3], &[0, 5], &[2, 3, 4]] {
        let (a, b) = (random.layout(shape), random.layout(shape));
        let arg = LoopsArg::from(&Loops::new([&a, &b]));
        assert_eq!([arg.reach(0), arg.reach(1)], [a.end() as u64, b.end() as u64], "{shape:?}");
        let more = LoopsArg { count: arg.count + 1, ..arg };
        assert_eq!(more.reach(0), u64::MAX);
        let deeper = LoopsArg { rank: 9, count: 1, ..arg };
        assert_eq!(deeper.reach(1), u64::MAX);
    }
}
