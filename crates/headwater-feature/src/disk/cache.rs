//! Which units stay in memory: SIEVE.
//!
//! Units stand in the order they came. A unit that is asked for again is marked, and does not move. When room is needed, a
//! hand walks from the oldest to the newest, takes marks away and evicts the first unit without one; the next walk goes on
//! from there. Units read once leave soon, and a hit costs one bit, no list operation. On the skewed accesses of samplers
//! it keeps more of the right units than LRU.
//!
//! Pure: it names slots by number and touches no memory of theirs.

use hashbrown::HashMap;

/// No slot.
const NONE: u32 = u32::MAX;

/// Which unit lies in which slot.
#[derive(Debug)]
pub struct Sieve {
    index: HashMap<u64, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    /// Where the next walk begins; at the oldest if nowhere.
    hand: u32,
    /// Units that are in use and may not leave.
    pinned: usize,
    evictions: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    unit: u64,
    older: u32,
    newer: u32,
    pins: u32,
    is_marked: bool,
    /// Whether the slot holds a unit, or at least is to hold it.
    is_taken: bool,
}

impl Sieve {
    /// An empty cache of so many slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let empty = Entry { unit: 0, older: NONE, newer: NONE, pins: 0, is_marked: false, is_taken: false };
        Self {
            index: HashMap::new(),
            entries: vec![empty; slots as usize],
            free: (0..slots).rev().collect(),
            oldest: NONE,
            newest: NONE,
            hand: NONE,
            pinned: 0,
            evictions: 0,
        }
    }

    /// The slot of a unit, which is marked as asked for.
    pub fn lookup(&mut self, unit: u64) -> Option<u32> {
        let slot = *self.index.get(&unit)?;
        self.entry(slot).is_marked = true;
        Some(slot)
    }

    /// A slot for a unit, taken from another one if need be. None when all are in use.
    pub fn insert(&mut self, unit: u64) -> Option<u32> {
        if let Some(&slot) = self.index.get(&unit) {
            return Some(slot);
        }
        if self.free.is_empty() {
            self.evict()?;
        }
        let slot = self.free.pop()?;
        let older = std::mem::replace(&mut self.newest, slot);
        *self.entry(slot) = Entry { unit, older, newer: NONE, pins: 0, is_marked: false, is_taken: true };
        match older {
            NONE => self.oldest = slot,
            _ => self.entry(older).newer = slot,
        }
        self.index.insert(unit, slot);
        Some(slot)
    }

    /// Keeps a unit where it is until it is unpinned as often.
    pub fn pin(&mut self, slot: u32) {
        let entry = self.entry(slot);
        entry.pins += 1;
        let is_first = entry.is_taken && entry.pins == 1;
        self.pinned += usize::from(is_first);
    }

    /// Takes one pin back.
    pub fn unpin(&mut self, slot: u32) {
        let entry = self.entry(slot);
        entry.pins = entry.pins.saturating_sub(1);
        match (entry.pins, entry.is_taken) {
            (0, true) => self.pinned = self.pinned.saturating_sub(1),
            (0, false) => self.free.push(slot),
            _ => {}
        }
    }

    /// Forgets the unit in a slot. Nobody finds it any more; the slot is free once nobody has it pinned.
    pub fn remove(&mut self, slot: u32) {
        let Entry { unit, older, newer, pins, is_taken, .. } = *self.entry(slot);
        if !is_taken {
            return;
        }
        self.index.remove(&unit);
        match older {
            NONE => self.oldest = newer,
            _ => self.entry(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.entry(newer).older = older,
        }
        if self.hand == slot {
            self.hand = newer;
        }
        self.entry(slot).is_taken = false;
        match pins {
            0 => self.free.push(slot),
            _ => self.pinned -= 1,
        }
    }

    /// Units there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Units that had to leave.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    fn evict(&mut self) -> Option<()> {
        if self.pinned == self.len() {
            return None;
        }
        let mut at = if self.hand == NONE { self.oldest } else { self.hand };
        // Some unit is not in use, so at the latest the second round finds it without its mark.
        loop {
            let entry = self.entry(at);
            let newer = entry.newer;
            if entry.pins == 0 && !std::mem::take(&mut entry.is_marked) {
                self.hand = newer;
                self.remove(at);
                self.evictions += 1;
                return Some(());
            }
            at = if newer == NONE { self.oldest } else { newer };
        }
    }

    fn entry(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same rules over a plain list, oldest first.
    struct Naive {
        slots: usize,
        units: Vec<(u64, bool)>,
        pinned: Vec<u64>,
        hand: usize,
    }

    impl Naive {
        fn lookup(&mut self, unit: u64) -> bool {
            let found = self.units.iter_mut().find(|entry| entry.0 == unit);
            found.map(|entry| entry.1 = true).is_some()
        }

        fn insert(&mut self, unit: u64) -> bool {
            if self.units.len() == self.slots {
                if self.units.iter().all(|entry| self.pinned.contains(&entry.0)) {
                    return false;
                }
                loop {
                    self.hand %= self.units.len();
                    let (unit, marked) = self.units[self.hand];
                    if !self.pinned.contains(&unit) && !marked {
                        self.units.remove(self.hand);
                        break;
                    }
                    self.units[self.hand].1 &= self.pinned.contains(&unit);
                    self.hand += 1;
                }
                // Past the newest it begins again at the oldest, not at what comes next.
                self.hand = if self.hand == self.units.len() { 0 } else { self.hand };
            }
            self.units.push((unit, false));
            true
        }

        fn remove(&mut self, unit: u64) {
            let Some(at) = self.units.iter().position(|entry| entry.0 == unit) else { return };
            self.units.remove(at);
            self.pinned.retain(|&pinned| pinned != unit);
            self.hand -= usize::from(at < self.hand);
            self.hand = if self.hand == self.units.len() { 0 } else { self.hand };
        }
    }

    /// One step on both, and whether they answered the same.
    fn step(sieve: &mut Sieve, naive: &mut Naive, action: u8, unit: u64) {
        let found = sieve.lookup(unit);
        assert_eq!(found.is_some(), naive.lookup(unit));
        let is_pinned = naive.pinned.contains(&unit);
        match (found, action) {
            (None, _) => assert_eq!(sieve.insert(unit).is_some(), naive.insert(unit)),
            (Some(slot), 0) if !is_pinned => {
                sieve.pin(slot);
                naive.pinned.push(unit);
            }
            (Some(slot), 1) if is_pinned => {
                sieve.unpin(slot);
                naive.pinned.retain(|&pinned| pinned != unit);
            }
            (Some(slot), 2) => {
                sieve.remove(slot);
                if is_pinned {
                    sieve.unpin(slot);
                }
                naive.remove(unit);
            }
            _ => {}
        }
        let mut units: Vec<u64> = sieve.index.keys().copied().collect();
        let mut want: Vec<u64> = naive.units.iter().map(|entry| entry.0).collect();
        units.sort_unstable();
        want.sort_unstable();
        assert_eq!(units, want);
        assert_eq!(sieve.pinned, naive.pinned.len());
    }

    proptest! {
        #[test]
        fn it_keeps_what_a_plain_list_keeps(
            slots in 1u32..9,
            actions in proptest::collection::vec((0u8..8, 0u64..16), 1..300),
        ) {
            let mut sieve = Sieve::new(slots);
            let mut naive = Naive { slots: slots as usize, units: Vec::new(), pinned: Vec::new(), hand: 0 };
            for (action, unit) in actions {
                step(&mut sieve, &mut naive, action, unit);
            }
        }
    }

    #[test]
    fn a_removed_slot_is_free_only_when_nobody_has_it_pinned() {
        let mut sieve = Sieve::new(1);
        let slot = sieve.insert(7).unwrap();
        sieve.pin(slot);
        sieve.pin(slot);
        assert_eq!(sieve.insert(8), None);
        sieve.remove(slot);
        assert!(sieve.is_empty());
        sieve.unpin(slot);
        assert_eq!(sieve.insert(8), None);
        sieve.unpin(slot);
        assert_eq!(sieve.insert(8), Some(slot));
        assert_eq!(sieve.evictions(), 0);
        assert_eq!(Sieve::new(0).insert(1), None);
    }

    #[test]
    fn units_asked_for_again_outlive_a_scan() {
        let mut sieve = Sieve::new(64);
        for hot in 0..32 {
            sieve.insert(hot);
        }
        for scanned in 1000..1640 {
            for hot in 0..32 {
                assert!(sieve.lookup(hot).is_some(), "{hot} left at {scanned}");
            }
            sieve.insert(scanned);
        }
        assert_eq!(sieve.evictions(), 640 - 32);
    }
}
