//! The memory of a cache, in slots of one unit.
//!
//! Slots lie in segments, each with a lock of its own: many are read at a time, and writing one holds up its segment for
//! the length of a copy. Who may use which slot when is decided by claims; the locks let safe code do it.

use std::sync::{PoisonError, RwLock};

use headwater_memory::{Buffer, Host, host_bytes_available, stream_copy, stream_fence};

use crate::error::{Error, Result};

/// The least a segment has: a huge page.
const SEGMENT_BYTES: usize = 2 << 20;
/// The most segments, far below the number of mappings a process may have.
const MOST_SEGMENTS: usize = 4096;

/// Slots of equal size.
#[derive(Debug)]
pub(super) struct Slots {
    segments: Vec<RwLock<Buffer<u8, Host>>>,
    unit_bytes: usize,
    slots_per_segment: usize,
}

impl Slots {
    /// So many slots of so many bytes, resident.
    pub(super) fn new(slots: u32, unit_bytes: usize) -> Result<Self> {
        let bytes = (slots as usize).saturating_mul(unit_bytes);
        let available = host_bytes_available();
        if bytes > available {
            return Err(Error::Budget { memory: "host memory", asked_bytes: bytes as u64, bytes: available as u64 });
        }
        let segment_bytes = bytes.div_ceil(MOST_SEGMENTS).max(SEGMENT_BYTES);
        let slots_per_segment = segment_bytes.div_ceil(unit_bytes);
        let left = |first: usize| slots_per_segment.min(slots as usize - first);
        let segments = (0..slots as usize)
            .step_by(slots_per_segment)
            .map(|first| Ok(RwLock::new(Buffer::<u8, Host>::new(left(first) * unit_bytes)?)))
            .collect::<Result<_>>()?;
        Ok(Self { segments, unit_bytes, slots_per_segment })
    }

    /// Shows the bytes of a slot.
    pub(super) fn read(&self, slot: u32, show: impl FnOnce(&[u8])) -> Result<()> {
        let (segment, start) = self.place(slot);
        let segment = self.segments[segment].read().unwrap_or_else(PoisonError::into_inner);
        show(&segment.as_slice()[start..start + self.unit_bytes]);
        Ok(())
    }

    /// Replaces the bytes of a slot.
    pub(super) fn write(&self, slot: u32, unit: &[u8]) -> Result<()> {
        let (segment, start) = self.place(slot);
        let mut segment = self.segments[segment].write().unwrap_or_else(PoisonError::into_inner);
        // Who missed the unit has it in the cache of the CPU; the next to ask for it comes much later.
        stream_copy(&mut segment.as_mut_slice()[start..start + self.unit_bytes], unit);
        stream_fence();
        Ok(())
    }

    fn place(&self, slot: u32) -> (usize, usize) {
        let slot = slot as usize;
        (slot / self.slots_per_segment, slot % self.slots_per_segment * self.unit_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_apart() {
        // Two segments and a bit.
        let slots = Slots::new(1030, 4096).unwrap();
        assert_eq!(slots.segments.len(), 3);
        for slot in [0, 511, 512, 1029] {
            slots.write(slot, &[u8::try_from(slot % 251).unwrap(); 4096]).unwrap();
        }
        for slot in [0, 511, 512, 1029] {
            let want = u8::try_from(slot % 251).unwrap();
            slots.read(slot, |bytes| assert_eq!(bytes, [want; 4096])).unwrap();
        }
        slots.read(1, |bytes| assert_eq!(bytes, [0; 4096])).unwrap();
    }

    #[test]
    fn more_than_there_is_is_refused() {
        let Err(Error::Budget { asked_bytes, .. }) = Slots::new(u32::MAX - 1, 1 << 20) else { panic!("it was taken") };
        assert_eq!(asked_bytes, (u64::from(u32::MAX) - 1) << 20);
    }
}
