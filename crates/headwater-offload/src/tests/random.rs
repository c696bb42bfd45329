//! Random calls, on disks with random faults.

use headwater_memory::io::ram::{Fault, FaultPlan, Order};
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Call {
    Store(usize),
    Load(usize),
    Prefetch(usize),
    Release(usize),
    Pass(u64),
    Drained,
    Follow(usize),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        4 => (1..4 * SLOT).prop_map(Call::Store),
        3 => any::<usize>().prop_map(Call::Load),
        2 => any::<usize>().prop_map(Call::Prefetch),
        2 => any::<usize>().prop_map(Call::Release),
        2 => (0..4u64).prop_map(Call::Pass),
        2 => Just(Call::Drained),
        1 => (0..3 * SLOT).prop_map(Call::Follow),
    ];
    prop::collection::vec(call, 1..80)
}

fn faults() -> impl Strategy<Value = FaultPlan> {
    let fault = prop_oneof![
        (1..SLOT).prop_map(|bytes| Fault::Short { bytes }),
        (1..4u64).prop_map(|period| Fault::Interrupted { period: period + 1 }),
        (0..20u64).prop_map(|slots| Fault::NoSpaceAfter { bytes: slots * SLOT as u64 }),
        (0..40u64).prop_map(|step| Fault::DeviceAtStep { step }),
        (0..40u64).prop_map(|slot| Fault::DeviceAtOffset { offset: slot * SLOT as u64 }),
    ];
    (prop::collection::vec(fault, 0..3), any::<u64>()).prop_map(|(faults, seed)| FaultPlan {
        faults,
        order: Order::Shuffled { seed },
        ..FaultPlan::default()
    })
}

/// A block as the test knows it: its bytes, the memory that its owner still holds, and whether it was told to give that up.
struct Known {
    block: BlockId,
    bytes: Vec<u8>,
    owner: Option<Bytes>,
}

fn give_up(known: &mut [Known], told: &[BlockId]) {
    for own in known.iter_mut().filter(|own| told.contains(&own.block)) {
        if let Some(memory) = own.owner.take() {
            memory.lock().unwrap().fill(0xee);
        }
    }
}

fn play(calls: &[Call], slots: usize, disk: Option<DiskConfig>, may_fail: bool) {
    let (offloader, lane) = offloader(slots, disk);
    let mut known: Vec<Known> = Vec::new();
    for (seed, call) in calls.iter().enumerate() {
        match call {
            Call::Store(bytes) => {
                let (bytes, owner) = (content(seed, *bytes), memory(content(seed, *bytes)));
                if let StoreOutcome::Leaving(block) = offloader.store(owner.clone(), &()).unwrap() {
                    known.push(Known { block, bytes, owner: Some(owner) });
                }
            }
            Call::Load(at) if !known.is_empty() => {
                let own = &known[at % known.len()];
                match loaded(&offloader, own.block, own.bytes.len()) {
                    Ok(bytes) => assert!(bytes == own.bytes, "other bytes"),
                    Err(Error::NotLeft { .. }) => assert!(own.owner.is_some(), "its memory was given up"),
                    Err(why) => assert!(may_fail, "{why}"),
                }
            }
            Call::Prefetch(at) if !known.is_empty() => {
                offloader.prefetch(known[at % known.len()].block).unwrap();
            }
            Call::Release(at) if !known.is_empty() => {
                let own = known.swap_remove(at % known.len());
                offloader.release(own.block).unwrap();
            }
            Call::Pass(count) => lane.pass(*count),
            Call::Drained => give_up(&mut known, &offloader.drained().unwrap()),
            Call::Follow(most) => give_up(&mut known, &offloader.follow(&(), *most).unwrap()),
            _ => {}
        }
    }
    lane.pass_all();
    give_up(&mut known, &offloader.drained().unwrap());
    for own in known.drain(..) {
        match loaded(&offloader, own.block, own.bytes.len()) {
            Ok(bytes) => assert!(bytes == own.bytes, "other bytes"),
            Err(Error::NotLeft { .. }) => assert!(own.owner.is_some()),
            Err(why) => assert!(may_fail, "{why}"),
        }
        offloader.release(own.block).unwrap();
    }
    // A disk may still have memory of blocks that nobody wants.
    for _ in 0..500 {
        offloader.drained().unwrap();
        if offloader.held().unwrap() == (0, 0) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("blocks are left: {:?}", offloader.held());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn host_memory_alone(calls in calls(), slots in 1..9usize) {
        play(&calls, slots, None, false);
    }

    #[test]
    fn a_disk_that_works(calls in calls(), slots in 2..9usize, units in 1..40u64) {
        let folder = tempfile::tempdir().unwrap();
        play(&calls, slots, Some(disk(folder.path(), units * SLOT as u64, Choice::Auto)), false);
    }

    #[test]
    fn a_disk_that_fails(calls in calls(), slots in 2..9usize, plan in faults()) {
        let folder = tempfile::tempdir().unwrap();
        play(&calls, slots, Some(disk(folder.path(), 1 << 20, Choice::Ram(plan))), true);
    }
}
