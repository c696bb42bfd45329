//! Properties of the parts that decide: aligned windows, merged reads, progress after short transfers.

use proptest::prelude::*;
use rustix::io::Errno;

use super::align::{MAX_OFFSET, Window, aligned_window};
use super::merge::{MergeOptions, plan_reads};
use super::progress::{KERNEL_MAX_BYTES, Progress, Verdict};
use super::*;

fn alignments() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1u64), Just(8), Just(512), Just(4096)]
}

proptest! {
    #[test]
    fn an_aligned_window_covers_and_is_the_smallest(
        offset in 0u64..1 << 50, len in 0u64..1 << 30, alignment in alignments()
    ) {
        let found = aligned_window(offset, len, alignment).unwrap();
        let Window { offset: start, len: bytes } = found.window;
        prop_assert!(start % alignment == 0 && bytes % alignment == 0);
        prop_assert_eq!(start + found.head_bytes, offset);
        prop_assert!(found.head_bytes < alignment);
        if len == 0 {
            prop_assert_eq!(bytes, 0);
        } else {
            prop_assert!(start + bytes >= offset + len && start + bytes < offset + len + alignment);
        }
    }

    #[test]
    fn windows_never_wrap(offset in any::<u64>(), len in any::<u64>(), alignment in alignments()) {
        match aligned_window(offset, len, alignment) {
            Ok(found) if len > 0 => prop_assert!(found.window.end() <= MAX_OFFSET),
            Ok(_) => {}
            Err(error) => prop_assert!(matches!(error, Error::OutOfRange { .. }), "{}", error),
        }
    }

    #[test]
    fn merged_windows_hold_every_row_once(
        rows in prop::collection::vec((0u64..40_000, 0u64..3000), 0..60),
        alignment in alignments(),
        max_gap_bytes in 0u64..10_000,
        slack_bytes in 0u64..20_000,
    ) {
        let rows: Vec<Window> = rows.into_iter().map(|(offset, len)| Window { offset, len }).collect();
        let options = MergeOptions { alignment, max_gap_bytes, max_window_bytes: alignment + slack_bytes };
        check_plan(&rows, &options)?;
    }

    #[test]
    fn any_sequence_of_short_transfers_moves_each_byte(
        asked in 1usize..50_000,
        granule in prop_oneof![Just(1usize), Just(512), Just(4096)],
        max_step in 1usize..20_000,
        moves in prop::collection::vec(0usize..9000, 1..20),
    ) {
        let asked = asked.next_multiple_of(granule);
        let mut progress = Progress::new(Op::Read, asked, granule);
        let mut covered = vec![false; asked];
        for turn in 0.. {
            prop_assert!(turn < 200_000);
            let (from, len) = progress.next_step(max_step);
            prop_assert!(from % granule == 0 && len > 0 && from + len <= asked);
            prop_assert!(granule == 1 || len % granule == 0);
            prop_assert!(len <= max_step.max(granule));
            // Enough to get on: a partial block that comes back unchanged would mean the end of the file.
            let moved = (moves[turn % moves.len()] + progress.done_bytes() - from + 1).min(len);
            covered[from..from + moved].fill(true);
            match progress.advance(from, len, Ok(moved)) {
                Verdict::Finished => break,
                Verdict::Continue | Verdict::Short => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert!(covered.into_iter().all(|byte| byte));
        prop_assert_eq!(progress.done_bytes(), asked);
    }
}

fn check_plan(rows: &[Window], options: &MergeOptions) -> Result<(), TestCaseError> {
    let plan = plan_reads(rows, options).unwrap();
    // Each byte of the file stands for its own offset.
    let mut arena = Vec::new();
    let mut end = 0;
    for planned in &plan.windows {
        let Window { offset, len } = planned.window;
        prop_assert!(offset % options.alignment == 0 && len % options.alignment == 0);
        prop_assert!(len > 0 && len <= options.max_window_bytes && offset >= end);
        prop_assert_eq!(planned.arena_start, arena.len() as u64);
        end = offset + len;
        arena.extend(offset..end);
    }
    prop_assert_eq!(plan.arena_bytes(), arena.len() as u64);
    prop_assert_eq!(plan.rows.len(), rows.len());
    for (index, row) in rows.iter().enumerate() {
        let mut found = Vec::new();
        for piece in plan.pieces(index) {
            let window = plan.windows[piece.window].window;
            prop_assert!(piece.start + piece.len <= window.len);
            found.extend(window.offset + piece.start..window.offset + piece.start + piece.len);
        }
        let wanted: Vec<u64> = (row.offset..row.offset + row.len).collect();
        prop_assert_eq!(&found, &wanted);
        let start = usize::try_from(plan.rows[index].arena_start).unwrap();
        prop_assert_eq!(&arena[start..start + wanted.len()], &wanted[..]);
    }
    Ok(())
}

#[test]
fn neighbours_merge_and_strangers_do_not() {
    let rows = [(0, 100), (200, 100), (9000, 100), (100_000, 50)].map(|(offset, len)| Window { offset, len });
    let options = |max_gap_bytes| MergeOptions { alignment: 4096, max_gap_bytes, max_window_bytes: 1 << 20 };
    let count = |gap| plan_reads(&rows, &options(gap)).unwrap().windows.len();
    assert_eq!((count(0), count(4096), count(1 << 20)), (3, 2, 1));
}

#[test]
fn a_row_longer_than_a_window_spans_several() {
    let options = MergeOptions { alignment: 512, max_gap_bytes: 0, max_window_bytes: 1100 };
    let plan = plan_reads(&[Window { offset: 700, len: 2000 }], &options).unwrap();
    assert_eq!(plan.windows.len(), 3);
    assert_eq!(plan.pieces(0).map(|piece| piece.len).collect::<Vec<_>>(), [836, 1024, 140]);
    assert_eq!(plan.pieces(1).count(), 0);
    // A short row inside a long one that was cut.
    let rows = [Window { offset: 0, len: 5000 }, Window { offset: 600, len: 10 }];
    let plan = plan_reads(&rows, &options).unwrap();
    assert_eq!((plan.windows.len(), plan.rows[1].window, plan.rows[1].start), (5, 0, 600));
}

#[test]
fn merge_options_and_ranges_are_checked() {
    let row = [Window { offset: u64::MAX - 5, len: 3 }];
    let options = MergeOptions { alignment: 512, max_gap_bytes: 0, max_window_bytes: 512 };
    assert!(matches!(plan_reads(&row, &options), Err(Error::OutOfRange { .. })));
    let small = MergeOptions { max_window_bytes: 511, ..options };
    assert!(matches!(plan_reads(&[], &small), Err(Error::Config { field: "max_window_bytes", .. })));
    let odd = MergeOptions { alignment: 0, ..options };
    assert!(matches!(plan_reads(&[], &odd), Err(Error::Config { field: "alignment", .. })));
}

#[test]
fn steps_stay_below_the_kernels_limit() {
    let asked = 5 * KERNEL_MAX_BYTES / 2;
    let mut progress = Progress::new(Op::Write, asked, 1);
    assert_eq!(progress.next_step(usize::MAX), (0, KERNEL_MAX_BYTES));
    assert_eq!(progress.advance(0, KERNEL_MAX_BYTES, Ok(KERNEL_MAX_BYTES)), Verdict::Continue);
    assert_eq!(progress.next_step(usize::MAX), (KERNEL_MAX_BYTES, KERNEL_MAX_BYTES));
}

#[test]
fn answers_are_judged() {
    let fresh = |op| Progress::new(op, 8192, 4096);
    let cases = [
        (Op::Read, Ok(8192), Verdict::Finished),
        (Op::Read, Ok(4096), Verdict::Short),
        (Op::Read, Ok(0), Verdict::End),
        (Op::Write, Ok(0), Verdict::Stuck),
        (Op::Write, Err(Errno::INTR), Verdict::Retry),
        (Op::Write, Err(Errno::AGAIN), Verdict::Retry),
        (Op::Write, Err(Errno::NOSPC), Verdict::Failed(Errno::NOSPC)),
    ];
    for (op, answer, verdict) in cases {
        assert_eq!(fresh(op).advance(0, 8192, answer), verdict, "{op} {answer:?}");
    }
    // A block that was cut short is moved again; nothing new in it means that the file ended there.
    let mut progress = fresh(Op::Read);
    assert_eq!(progress.advance(0, 8192, Ok(5000)), Verdict::Short);
    assert_eq!(progress.next_step(usize::MAX), (4096, 4096));
    assert_eq!(progress.advance(4096, 4096, Ok(904)), Verdict::End);
    assert_eq!(progress.done_bytes(), 5000);
}
