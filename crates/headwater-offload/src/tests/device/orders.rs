//! Every order that the offloader makes between streams and the host is needed: without any one of them, random programs notice.
//!
//! The emulator takes the wait away, so nothing in what ships knows of this. Most of these are faults that others have published:
//! `python/tests/public_bugs.py` puts those back under the hooks, where torch's models notice.

use super::emulator::Handle;
use super::schedules::Bench;

/// Programs that notice at the latest.
const MOST: u64 = 300;

/// Who no longer waits for whom.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Waits {
    Host,
    Compute,
    Down,
    Up,
}

/// The order, and what is wrong without it.
const ORDERS: [(Waits, Waits, &str); 8] = [
    (Waits::Down, Waits::Compute, "bytes leave before they are computed"),
    (Waits::Up, Waits::Down, "bytes come back before they have left"),
    (Waits::Down, Waits::Up, "a slot is written while it is on its way back"),
    (Waits::Up, Waits::Compute, "bytes come back to memory that is not free yet"),
    (Waits::Compute, Waits::Up, "bytes are used before they are back"),
    (Waits::Compute, Waits::Down, "memory is used again while it is read"),
    (Waits::Host, Waits::Down, "memory is given up, and slots go to disk, before bytes are there"),
    (Waits::Host, Waits::Up, "a disk fills a slot that is on its way back"),
];

#[test]
fn an_order_that_is_lost_is_noticed() {
    let Some(bench) = Bench::new().filter(Bench::is_held) else { return };
    for (waiter, awaited, what) in ORDERS {
        let found = (0..MOST).find_map(|seed| {
            lose(&bench, waiter, awaited);
            let why = bench.noticed(seed);
            why.map(|why| (seed, why))
        });
        let (seed, why) = found.unwrap_or_else(|| panic!("{waiter:?} behind {awaited:?}: nobody noticed that {what}"));
        println!("{what}: program {seed}: {why}");
    }
    assert_eq!(bench.noticed(0), None, "all is as it should be again");
}

fn lose(bench: &Bench, waiter: Waits, awaited: Waits) {
    let emulator = bench.emulator.as_ref().unwrap();
    for by in handles(bench, waiter) {
        handles(bench, awaited).into_iter().for_each(|of| emulator.lose(by, of));
    }
}

fn handles(bench: &Bench, who: Waits) -> Vec<Handle> {
    match who {
        Waits::Host => vec![std::ptr::null_mut()],
        Waits::Compute => bench.compute.clone(),
        Waits::Down => vec![bench.down],
        Waits::Up => vec![bench.up],
    }
}
