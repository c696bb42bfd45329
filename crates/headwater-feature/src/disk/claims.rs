//! Who brings a unit that several callers miss at the same time.
//!
//! A call claims the units it wants. What is there it may read; what nobody has, it promises to bring; what another call
//! has promised, it waits for. Claims keep their slots pinned, and dropping them breaks their promises: those who wait are
//! woken and bring the unit themselves. A call keeps its promises before it waits for others, so nobody waits in a circle.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::cache::Sieve;

/// The units in the slots of a table, shared by its callers.
#[derive(Debug)]
pub(super) struct Residents {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    sieve: Sieve,
    /// One a slot.
    phases: Vec<Phase>,
    /// Callers that wait for others.
    waiting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Promised,
    Here,
    Broken,
}

/// What a call has found of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// In this slot.
    Here(u32),
    /// It will be in this slot; another call brings it.
    Promised(u32),
    /// This call is to bring it into this slot.
    Mine(u32),
    /// Nowhere, and no slot is kept for it.
    Nowhere,
}

/// The units of one call, by position.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    residents: &'a Residents,
    found: Vec<Found>,
}

impl Residents {
    pub(super) fn new(slots: u32) -> Self {
        let state = State { sieve: Sieve::new(slots), phases: vec![Phase::Broken; slots as usize], waiting: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn evictions(&self) -> u64 {
        self.lock().sieve.evictions()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Claims<'a> {
    /// What was found, in the order units were named.
    pub(super) fn found(&self) -> &[Found] {
        &self.found
    }

    /// Claims what there is of these units: what is here or promised is pinned, the rest is nowhere.
    ///
    /// All units of a call are looked at before room is made for any of them. Otherwise one would push out the next.
    pub(super) fn look(residents: &'a Residents, units: impl Iterator<Item = u64>) -> Self {
        let mut state = residents.lock();
        let found = units.map(|unit| state.find_and_pin(unit)).collect();
        Self { residents, found }
    }

    /// Promises to bring those of some units that are still nowhere. Without a slot for it a unit stays nowhere: the call
    /// brings it for itself alone.
    pub(super) fn promise(&mut self, positions: &[usize], unit_at: impl Fn(usize) -> u64) {
        let mut state = self.residents.lock();
        for &position in positions {
            let (found, unit) = (&mut self.found[position], unit_at(position));
            if *found != Found::Nowhere {
                continue;
            }
            *found = state.find_and_pin(unit);
            if *found == Found::Nowhere
                && let Some(slot) = state.sieve.insert(unit)
            {
                state.sieve.pin(slot);
                state.phases[slot as usize] = Phase::Promised;
                *found = Found::Mine(slot);
            }
        }
    }

    /// Says that these units are in their slots. Their pins are taken back.
    pub(super) fn keep(&mut self, positions: &[usize]) {
        let mut state = self.residents.lock();
        for &position in positions {
            if let Found::Mine(slot) = std::mem::replace(&mut self.found[position], Found::Nowhere) {
                state.phases[slot as usize] = Phase::Here;
                state.sieve.unpin(slot);
            }
        }
        if state.waiting > 0 {
            self.residents.changed.notify_all();
        }
    }

    /// Waits until the call that promised a unit has kept or broken its word; the slot if it is here.
    pub(super) fn wait(&self, position: usize) -> Option<u32> {
        let Found::Promised(slot) = self.found[position] else { return None };
        let mut state = self.residents.lock();
        state.waiting += 1;
        while state.phases[slot as usize] == Phase::Promised {
            state = self.residents.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        (state.phases[slot as usize] == Phase::Here).then_some(slot)
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        let mut state = self.residents.lock();
        for found in &self.found {
            match *found {
                Found::Nowhere => {}
                Found::Here(slot) | Found::Promised(slot) => state.sieve.unpin(slot),
                Found::Mine(slot) => {
                    state.phases[slot as usize] = Phase::Broken;
                    state.sieve.remove(slot);
                    state.sieve.unpin(slot);
                }
            }
        }
        if state.waiting > 0 {
            self.residents.changed.notify_all();
        }
    }
}

impl State {
    fn find_and_pin(&mut self, unit: u64) -> Found {
        let Some(slot) = self.sieve.lookup(unit) else { return Found::Nowhere };
        self.sieve.pin(slot);
        if self.phases[slot as usize] == Phase::Here { Found::Here(slot) } else { Found::Promised(slot) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim<'a>(residents: &'a Residents, units: &[u64]) -> Claims<'a> {
        let mut claims = Claims::look(residents, units.iter().copied());
        claims.promise(&Vec::from_iter(0..units.len()), |at| units[at]);
        claims
    }

    #[test]
    fn a_unit_is_promised_once() {
        let residents = Residents::new(4);
        let mut one = claim(&residents, &[5, 6]);
        let other = claim(&residents, &[6, 7]);
        assert_eq!(one.found(), [Found::Mine(0), Found::Mine(1)]);
        assert_eq!(other.found(), [Found::Promised(1), Found::Mine(2)]);
        one.keep(&[0, 1]);
        assert_eq!(other.wait(0), Some(1));
        drop((one, other));
        // What was promised and not kept is forgotten.
        assert_eq!(claim(&residents, &[5, 6, 7]).found(), [Found::Here(0), Found::Here(1), Found::Mine(2)]);
    }

    #[test]
    fn broken_promises_wake_who_waits() {
        let residents = Residents::new(1);
        let one = claim(&residents, &[5]);
        let other = claim(&residents, &[5]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| other.wait(0));
            drop(one);
            assert_eq!(waiting.join().unwrap(), None);
        });
        // The slot is not free before the last pin is gone.
        assert_eq!(claim(&residents, &[9]).found(), [Found::Nowhere]);
        drop(other);
        assert_eq!(claim(&residents, &[9]).found(), [Found::Mine(0)]);
    }

    #[test]
    fn more_units_than_slots_push_none_of_their_own_out() {
        let residents = Residents::new(2);
        claim(&residents, &[8]).keep(&[0]);
        let claims = claim(&residents, &[1, 2, 8]);
        assert_eq!(claims.found(), [Found::Mine(1), Found::Nowhere, Found::Here(0)]);
        assert_eq!(residents.evictions(), 0);
    }
}
