//! Layouts against plain index arithmetic: each view is compared with the list of storage indices it should give.

use proptest::prelude::*;

use super::*;

/// Every position of a shape in row-major order.
fn positions(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &size in shape {
        all = all.iter().flat_map(|p| (0..size).map(move |i| [p.clone(), vec![i]].concat())).collect();
    }
    all
}

/// The storage index of every element, by the definition.
fn indices(layout: &Layout) -> Vec<usize> {
    positions(layout.shape()).iter().map(|p| layout.index_of(p).unwrap()).collect()
}

fn any_layout() -> impl Strategy<Value = Layout> {
    prop::collection::vec((0usize..5, 0usize..9), 0..5).prop_flat_map(|axes| {
        let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
        (0usize..10).prop_map(move |offset| Layout::new(&shape, &strides, offset).unwrap())
    })
}

/// Layouts as users make them: a packed array, permuted and sliced.
fn derived_layout() -> impl Strategy<Value = Layout> {
    (prop::collection::vec(1usize..5, 1..5), any::<u64>()).prop_map(|(shape, code)| {
        let mut layout = Layout::contiguous(&shape).unwrap();
        for axis in 0..shape.len() {
            let bits = usize::try_from(code >> (axis * 8) & 255).unwrap();
            let other = bits % shape.len();
            layout = if bits & 64 > 0 { layout.transpose(axis, other).unwrap() } else { layout };
            let length = layout.shape()[axis];
            if bits & 128 > 0 {
                layout = layout.slice(axis, Slice { start: bits % length, end: length, step: 1 + bits % 2 }).unwrap();
            }
        }
        layout
    })
}

proptest! {
    #[test]
    fn end_is_the_largest_index_plus_one(layout in any_layout()) {
        let largest = indices(&layout).into_iter().max();
        prop_assert_eq!(layout.end(), largest.map_or(0, |last| last + 1));
        prop_assert!(layout.check_within(layout.end()).is_ok());
        prop_assert!(layout.end() == 0 || layout.check_within(layout.end() - 1).is_err());
        prop_assert_eq!(layout.count(), indices(&layout).len());
    }

    #[test]
    fn contiguous_means_consecutive(layout in any_layout()) {
        let expected: Vec<usize> = (layout.offset()..layout.offset() + layout.count()).collect();
        prop_assert_eq!(layout.is_contiguous(), indices(&layout) == expected);
    }

    #[test]
    fn slices_pick_positions(layout in any_layout(), axis in 0usize..4, a in 0usize..6, b in 0usize..6, step in 0usize..4) {
        let result = layout.slice(axis, Slice { start: a, end: b, step });
        let legal = axis < layout.rank() && step > 0 && a <= b && b <= layout.shape()[axis];
        prop_assert_eq!(result.is_ok(), legal);
        let Ok(result) = result else { return Ok(()) };
        let kept: Vec<usize> = positions(layout.shape()).iter()
            .filter(|p| (a..b).step_by(step).any(|i| i == p[axis]))
            .map(|p| layout.index_of(p).unwrap()).collect();
        prop_assert_eq!(indices(&result), kept);
    }

    #[test]
    fn permuting_moves_positions(layout in any_layout(), seed in any::<u64>()) {
        let mut axes: Vec<usize> = (0..layout.rank()).collect();
        axes.sort_by_key(|&axis| (seed >> (axis * 7)) & 127);
        let result = layout.permute(&axes).unwrap();
        for p in positions(result.shape()) {
            let mut original = vec![0; p.len()];
            for (to, &from) in axes.iter().enumerate() {
                original[from] = p[to];
            }
            prop_assert_eq!(result.index_of(&p), layout.index_of(&original));
        }
    }

    #[test]
    fn broadcasting_repeats(layout in any_layout(), extra in prop::collection::vec(1usize..4, 0..3)) {
        let mut target = extra.clone();
        target.extend(layout.shape().iter().map(|&s| if s == 1 { 3 } else { s }));
        let result = layout.broadcast_to(&Shape::new(&target).unwrap()).unwrap();
        for p in positions(&target) {
            let own: Vec<usize> = p[extra.len()..].iter().zip(layout.shape().iter())
                .map(|(&i, &s)| if s == 1 { 0 } else { i }).collect();
            prop_assert_eq!(result.index_of(&p), layout.index_of(&own));
        }
    }

    #[test]
    fn reshaped_views_keep_the_order(layout in derived_layout(), cuts in prop::collection::vec(1usize..5, 0..4)) {
        let mut rest = layout.count();
        let mut target: Vec<usize> = vec![];
        for cut in cuts {
            if rest > 0 && rest % cut == 0 {
                target.push(cut);
                rest /= cut;
            }
        }
        target.push(rest);
        let viewed = layout.reshape(&target).unwrap();
        if let Some(viewed) = viewed {
            prop_assert_eq!(indices(&viewed), indices(&layout));
        }
        prop_assert!(viewed.is_some() || !layout.is_contiguous());
        // Splitting nothing is always possible.
        prop_assert!(layout.reshape(layout.shape()).unwrap().is_some());
    }
}

#[test]
fn reshape_finds_every_view() {
    let transposed = Layout::contiguous(&[4, 6]).unwrap().transpose(0, 1).unwrap();
    assert_eq!(transposed.reshape(&[2, 3, 2, 2]).unwrap().unwrap().strides(), [3, 1, 12, 6]);
    assert_eq!(transposed.reshape(&[24]).unwrap(), None);
    assert_eq!(transposed.reshape(&[6, 1, 4]).unwrap().unwrap().shape()[..], [6, 1, 4]);
    let error = transposed.reshape(&[5, 5]).unwrap_err().to_string();
    assert_eq!(error, "shape [6, 4] has 24 elements and cannot become [5, 5] with 25");
}

#[test]
fn shapes_broadcast_together() {
    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
    let joined = Shape::broadcast(&[&shape(&[3, 1]), &shape(&[4]), &shape(&[2, 1, 1])]).unwrap();
    assert_eq!(joined[..], [2, 3, 4]);
    assert_eq!(Shape::broadcast(&[&shape(&[0, 1]), &shape(&[5])]).unwrap()[..], [0, 5]);
    assert_eq!(Shape::broadcast(&[&shape(&[]), &shape(&[])]).unwrap()[..], [] as [usize; 0]);
    let error = Shape::broadcast(&[&shape(&[2, 3]), &shape(&[2, 4])]).unwrap_err().to_string();
    assert_eq!(error, "shapes [2, 3] and [2, 4] do not broadcast: axis 1 of the result is 3 and 4");
    let error = Layout::contiguous(&[2, 3]).unwrap().broadcast_to(&shape(&[3])).unwrap_err();
    assert!(matches!(error, Error::Broadcast { .. }));
    assert!(Layout::contiguous(&[2]).unwrap().broadcast_to(&shape(&[0])).is_err());
}

#[test]
fn sizes_are_checked() {
    assert_eq!(Layout::contiguous(&[1 << 20, 1 << 20]).unwrap().count(), 1 << 40);
    assert!(matches!(Layout::contiguous(&[1 << 40, 1 << 40]), Err(Error::TooLarge { .. })));
    assert!(matches!(Layout::contiguous(&[1; 9]), Err(Error::TooManyDims { rank: 9 })));
    let empty = Layout::contiguous(&[1 << 40, 1 << 40, 0]).unwrap();
    assert_eq!((empty.count(), empty.end(), empty.is_contiguous()), (0, 0, true));
    assert!(empty.slice(0, Slice { start: 1 << 39, end: 1 << 40, step: 1 << 30 }).is_ok());
    assert!(matches!(Layout::new(&[2], &[usize::MAX], 1), Err(Error::TooLarge { .. })));
    assert!(matches!(Layout::new(&[2], &[1, 1], 0), Err(Error::Length { .. })));
    assert!(Layout::contiguous(&[2, 3]).unwrap().permute(&[0, 0]).is_err());
    assert!(Layout::contiguous(&[2, 3]).unwrap().transpose(0, 2).is_err());
}

#[test]
fn axes_come_and_go() {
    let layout = Layout::contiguous(&[2, 3]).unwrap();
    let wider = layout.insert_axis(1).unwrap();
    assert_eq!(wider.shape()[..], [2, 1, 3]);
    assert_eq!(wider.remove_axis(1).unwrap(), layout);
    assert_eq!(layout.remove_axis(0).unwrap(), Layout::contiguous(&[3]).unwrap());
    assert!(layout.insert_axis(3).is_err() && layout.remove_axis(2).is_err());
}
