//! The talk of trainer and producer without a GPU: every order of events, time-outs, and the end of either.

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::link::{Link, Lost};
use super::produce::serve;
use super::protocol::{Answer, Ask, Awaited, Deed, News, Rows, Turns};
use super::shelf::Shelf;
use crate::error::Error;
use crate::gpu::capacity::Sizes;

fn sizes(nodes: usize) -> Vec<Sizes> {
    vec![Sizes { src: nodes, dst: 2, edges: 3 * nodes }]
}

fn pair() -> (Link, Link) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Link::new(ours).unwrap(), Link::new(theirs).unwrap())
}

/// An epoch of batches of these sizes, in plain memory. The trainer keeps `held` batches open. What was trained on, and how
/// often room was made.
fn epoch(nodes: &[usize], first: u64, held: usize) -> (Vec<(u64, usize)>, u32) {
    let count = nodes.len() as u64;
    let (mut turns, mut awaited) = (Turns::new(first, count), Awaited::new(first, count));
    let (mut room, mut slots) = (None, [0; 2]);
    let mut said: VecDeque<Answer> = VecDeque::new();
    let (mut open, mut trained, mut rooms) = (VecDeque::new(), Vec::new(), 0);
    let size = |batch: u64| nodes[usize::try_from(batch).unwrap()];
    let place = |batch: u64| usize::try_from(batch % 2).unwrap();
    let mut drawn = None;
    while awaited.is_under_way() || !open.is_empty() {
        // The producer goes on until it must listen.
        loop {
            let fits = drawn.zip(room).is_some_and(|(drawn, room)| drawn <= room);
            match turns.deed(fits) {
                Deed::Draw(batch) => {
                    drawn = Some(size(batch));
                    turns.drawn();
                }
                Deed::Outgrow(batch) => {
                    room = None;
                    said.push_back(Answer::Outgrown { batch, sizes: Rows::told(&sizes(size(batch))) });
                    turns.asked();
                }
                Deed::Fill(batch) => {
                    assert!(open.iter().all(|open| place(*open) != place(batch)), "{batch} overwrites {open:?}");
                    slots[place(batch)] = size(batch);
                    said.push_back(Answer::Ready { batch, sizes: Rows::told(&sizes(size(batch))) });
                    turns.filled();
                    drawn = None;
                }
                Deed::Listen | Deed::End => break,
            }
        }
        let close = |open: &mut VecDeque<u64>, turns: &mut Turns, trained: &mut Vec<_>, slots: &[usize; 2]| {
            let batch = open.pop_front().unwrap();
            trained.push((batch, slots[place(batch)]));
            turns.freed(batch).unwrap();
        };
        let Some(answer) = said.pop_front() else {
            close(&mut open, &mut turns, &mut trained, &slots);
            continue;
        };
        match awaited.see(&answer).unwrap() {
            News::Ready(..) => {
                let Answer::Ready { batch, .. } = answer else { unreachable!() };
                open.push_back(batch);
            }
            News::Outgrown(found) => {
                while !open.is_empty() {
                    close(&mut open, &mut turns, &mut trained, &slots);
                }
                (room, rooms) = (Some(found[0].src), rooms + 1);
                turns.room().unwrap();
            }
        }
        if open.len() > held {
            close(&mut open, &mut turns, &mut trained, &slots);
        }
    }
    assert_eq!(turns.deed(true), Deed::End);
    (trained, rooms)
}

#[test]
fn every_batch_is_trained_on_once_and_in_order() {
    let cases: [(&[usize], u64, u32); 7] = [
        (&[], 0, 0),
        (&[5], 0, 1),
        (&[5, 5, 5, 5, 5], 0, 1),
        (&[1, 2, 3, 4, 5], 0, 5),
        (&[5, 4, 9, 1, 9, 10], 0, 3),
        (&[9, 9, 3, 4], 2, 2),
        (&[9, 9], 2, 0),
    ];
    for (nodes, first, rooms) in cases {
        for held in [0, 1] {
            let from = usize::try_from(first).unwrap();
            let expected: Vec<_> = (first..).zip(nodes[from..].iter().copied()).collect();
            assert_eq!(epoch(nodes, first, held), (expected, rooms), "{nodes:?} from {first}, {held} held");
        }
    }
}

#[test]
fn a_producer_is_two_slots_ahead_and_no_more() {
    let mut turns = Turns::new(4, 9);
    for batch in [4, 5] {
        assert_eq!(turns.deed(true), Deed::Draw(batch));
        turns.drawn();
        assert_eq!(turns.deed(true), Deed::Fill(batch));
        turns.filled();
    }
    turns.drawn();
    assert_eq!(turns.deed(true), Deed::Listen);
    assert!(turns.room().is_err());
    for wrong in [3, 5, 6] {
        assert!(turns.freed(wrong).is_err(), "{wrong}");
    }
    turns.freed(4).unwrap();
    assert_eq!(turns.deed(true), Deed::Fill(6));
    turns.freed(5).unwrap();
    assert!(turns.freed(6).is_err(), "it was never filled");
}

#[test]
fn an_answer_out_of_turn_is_refused() {
    let ready = |batch| Answer::Ready { batch, sizes: Vec::new() };
    let outgrown = |batch| Answer::Outgrown { batch, sizes: Vec::new() };
    let mut awaited = Awaited::new(0, 2);
    assert!(awaited.see(&ready(1)).is_err());
    assert!(awaited.see(&Answer::Stopped).is_err());
    assert!(awaited.see(&outgrown(0)).is_ok() && awaited.see(&outgrown(0)).is_err());
    assert!(awaited.see(&ready(0)).is_ok() && awaited.see(&ready(0)).is_err());
    let why = awaited.see(&Answer::Failed { why: "out of paper".to_owned() }).unwrap_err();
    assert_eq!(why, "out of paper");
}

#[test]
fn parts_of_a_slot_do_not_touch() {
    for (nodes, edges, width) in [(1, 0, 1), (256, 256, 1), (257, 1000, 33), (0, 0, 0)] {
        let shelf = Shelf { nodes, edges, width }.checked().unwrap();
        assert!(shelf.bytes() >= 4 * nodes * width + 8 * nodes + 8 * edges, "{shelf:?}");
    }
    for wrong in [Shelf { nodes: usize::MAX, edges: 1, width: 1 }, Shelf { nodes: 1, edges: 1 << 40, width: 1 }] {
        assert!(wrong.checked().is_err());
    }
}

#[test]
fn messages_arrive_whole() {
    let (ours, theirs) = pair();
    let asks = [Ask::Epoch { epoch: 3, first: 7 }, Ask::Room { blocks: Rows::told(&sizes(3)), width: 3 }, Ask::Stop];
    asks.iter().for_each(|ask| ours.send(ask).unwrap());
    for ask in asks {
        assert_eq!(theirs.receive::<Ask>(Duration::from_secs(1), &mut || true).unwrap(), ask);
    }
}

#[test]
fn who_is_silent_is_not_waited_for_without_end() {
    let (ours, _theirs) = pair();
    let begun = Instant::now();
    let most = Duration::from_millis(50);
    assert_eq!(ours.receive::<Ask>(most, &mut || true).unwrap_err(), Lost::Silent(most));
    // One that is known to be gone is not waited for either, though somebody holds its socket.
    assert_eq!(ours.receive::<Ask>(Duration::from_secs(60), &mut || false).unwrap_err(), Lost::Gone);
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[test]
fn the_end_of_one_is_heard_by_the_other() {
    let (ours, theirs) = pair();
    let begun = Instant::now();
    theirs.send(&Answer::Failed { why: "its last word".to_owned() }).unwrap();
    drop(theirs);
    let last: Answer = ours.receive(Duration::from_secs(60), &mut || true).unwrap();
    assert_eq!(last, Answer::Failed { why: "its last word".to_owned() });
    assert_eq!(ours.receive::<Answer>(Duration::from_secs(60), &mut || true).unwrap_err(), Lost::Gone);
    assert_eq!(ours.send(&Ask::Stop).unwrap_err(), Lost::Gone);
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[test]
fn what_is_no_message_is_refused() {
    for bytes in [&[255, 255, 255, 255][..], &[2, 0, 0, 0, b'{', b'{'], &[1, 0, 0, 0, b'7']] {
        let (ours, theirs) = pair();
        ours.socket().write_all(bytes).unwrap();
        assert!(
            matches!(theirs.receive::<Ask>(Duration::from_secs(1), &mut || true), Err(Lost::Broken(_))),
            "{bytes:?}"
        );
    }
    let (ours, theirs) = pair();
    ours.socket().write_all(&[9, 0]).unwrap();
    drop(ours);
    assert_eq!(theirs.receive::<Ask>(Duration::from_secs(1), &mut || true).unwrap_err(), Lost::Gone);
}

#[test]
fn a_producer_ends_with_its_trainer_and_says_what_it_cannot_do() {
    let nothing = |_: &_| Err(Error::Model { why: "nothing to open".to_owned() });
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(ours);
    serve(theirs, &nothing).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let ours = Link::new(ours).unwrap();
    ours.send(&Ask::Count).unwrap();
    serve(theirs, &nothing).unwrap();
    let last: Answer = ours.receive(Duration::from_secs(1), &mut || true).unwrap();
    assert!(matches!(&last, Answer::Failed { why } if why.contains("Count")), "{last:?}");
}
