//! Host memory in pieces of one length.

use crate::error::Result;
use crate::lane::Lane;

/// Pieces that are free, and how many there may be.
pub(crate) struct Slots<S> {
    free: Vec<S>,
    /// Pieces that there are.
    made: usize,
    /// Pieces that there may be; less than at first once the system has refused some.
    most: usize,
    bytes: usize,
    /// Pieces that are asked for at a time; fewer once the system has refused so many.
    at_once: usize,
    most_used: usize,
    /// Pieces beyond the limit, as many as were needed at once: those that nobody has, and how many there are. They are kept apart: memory is
    /// had in stretches, and goes when no piece of its stretch is left.
    spare: Vec<S>,
    overdrawn: usize,
}

/// Memory that is asked for at a time, as long as the system has so much.
const GROWTH_BYTES: usize = 256 << 20;

impl<S> Slots<S> {
    /// None yet, and at most `most` of `bytes` each.
    pub fn new(most: usize, bytes: usize) -> Self {
        let at_once = GROWTH_BYTES.checked_div(bytes).unwrap_or(0).max(1);
        Self { free: Vec::new(), made: 0, most, bytes, at_once, most_used: 0, spare: Vec::new(), overdrawn: 0 }
    }

    /// Length of one.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many hold so many bytes.
    pub fn for_bytes(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.bytes)
    }

    /// How many there may be.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Free ones.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Free ones, and those that may still be made.
    pub fn left(&self) -> usize {
        self.free.len() + self.most.saturating_sub(self.made)
    }

    /// Bytes of those that there are, and the most that were in use at once.
    pub fn used(&self) -> (u64, u64) {
        (((self.made + self.overdrawn) * self.bytes) as u64, (self.most_used * self.bytes) as u64)
    }

    /// Makes new ones until so many are free, or there are as many as there may be. What is refused is asked for by halves, down to a single
    /// piece: then there are as many as the system has memory for.
    pub fn grow<L: Lane<Slot = S>>(&mut self, lane: &L, count: usize) {
        while self.free.len() < count && self.made < self.most {
            let asked = self.at_once.min(self.most - self.made);
            match lane.slots(asked, self.bytes) {
                Ok(mut slots) => {
                    self.made += slots.len();
                    self.free.append(&mut slots);
                }
                Err(why) if asked > 1 => {
                    log::debug!("{asked} times {} bytes of memory are refused at once: {why}", self.bytes);
                    self.at_once = asked / 2;
                }
                Err(why) => {
                    let got = self.made * self.bytes;
                    log::warn!("activations get {got} bytes of memory on their way, not more: {why}");
                    self.most = self.made;
                }
            }
        }
    }

    /// So many free ones.
    pub fn take(&mut self, count: usize) -> Option<Vec<S>> {
        let first = self.free.len().checked_sub(count)?;
        let taken = self.free.split_off(first);
        self.note_most();
        Some(taken)
    }

    /// So many beyond the limit.
    pub fn overdraw<L: Lane<Slot = S>>(&mut self, lane: &L, count: usize) -> Result<Vec<S>> {
        let missing = count.saturating_sub(self.spare.len());
        if missing > 0 {
            self.spare.append(&mut lane.slots(missing, self.bytes)?);
            self.overdrawn += missing;
        }
        let taken = self.spare.split_off(self.spare.len() - count);
        self.note_most();
        Ok(taken)
    }

    fn note_most(&mut self) {
        let used = (self.made + self.overdrawn).saturating_sub(self.free.len() + self.spare.len());
        self.most_used = self.most_used.max(used);
    }

    /// Takes some back: those beyond the limit for the next that are needed beyond it.
    pub fn give(&mut self, mut slots: Vec<S>, is_overdrawn: bool) {
        if is_overdrawn { &mut self.spare } else { &mut self.free }.append(&mut slots);
    }

    /// One will not come back.
    pub fn lose(&mut self, is_overdrawn: bool) {
        let made = if is_overdrawn { &mut self.overdrawn } else { &mut self.made };
        *made = made.saturating_sub(1);
    }
}
