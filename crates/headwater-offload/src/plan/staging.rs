//! Host memory in the backward pass: what is read from disk early has to wait until there is room for it.

/// Bytes of host memory that are in use, and when they will not be.
pub(super) struct Staging {
    most: u64,
    used: u64,
    /// Moments at which bytes go, the latest first.
    goes: Vec<(f64, u64)>,
}

impl Staging {
    /// `most` bytes, of which those of `held` are in use until a moment each.
    pub fn new(most: u64, held: impl Iterator<Item = (f64, u64)>) -> Self {
        let mut made = Self { most, used: 0, goes: Vec::new() };
        held.for_each(|(until, bytes)| made.hold(until, bytes));
        made
    }

    /// The first moment from `from` on at which there is room for so many bytes; or at which all is free, if there never is.
    pub fn room_from(&mut self, from: f64, bytes: u64) -> f64 {
        let mut at = from;
        while let Some((until, gone)) = self.goes.last().copied() {
            if until > at && self.used.saturating_add(bytes) <= self.most {
                break;
            }
            at = at.max(until);
            self.used -= gone;
            self.goes.pop();
        }
        at
    }

    pub fn hold(&mut self, until: f64, bytes: u64) {
        let before = self.goes.partition_point(|(other, _)| *other > until);
        self.goes.insert(before, (until, bytes));
        self.used += bytes;
    }
}
