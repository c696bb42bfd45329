//! A step as it was: what was saved and needed, in the order of the program, with marks whose moments are known when they have passed.

use crate::error::Result;
use crate::lane::Lane;
use crate::plan::{SavedBlock, StepTrace};
use crate::step::DeviceUse;

/// What happened to a block.
enum Happening {
    Saved,
    Needed,
}

/// Marks of a step. `M` is a lane's.
pub(super) struct StepRecorder<M> {
    bytes: Vec<u64>,
    /// What happened to which block, and when.
    events: Vec<(Happening, usize, M)>,
    /// For each block, how many events there were when it was released.
    released: Vec<Option<usize>>,
    /// Before how many events a stream waited, from when to when.
    waits: Vec<(usize, M, M)>,
}

impl<M> StepRecorder<M> {
    pub fn new() -> Self {
        Self { bytes: Vec::new(), events: Vec::new(), released: Vec::new(), waits: Vec::new() }
    }

    pub fn save(&mut self, bytes: u64, mark: M) {
        self.events.push((Happening::Saved, self.bytes.len(), mark));
        self.bytes.push(bytes);
        self.released.push(None);
    }

    pub fn need(&mut self, block: usize, mark: M) {
        self.events.push((Happening::Needed, block, mark));
    }

    pub fn wait(&mut self, from: M, to: M) {
        self.waits.push((self.events.len(), from, to));
    }

    pub fn release(&mut self, block: usize) {
        if let Some(released) = self.released.get_mut(block) {
            *released = Some(self.events.len());
        }
    }

    /// Whether the device has come to the last mark.
    pub fn has_ended<L: Lane<Mark = M>>(&self, lane: &L) -> Result<bool> {
        self.events.last().map_or(Ok(true), |(_, _, mark)| lane.has_passed(mark))
    }

    /// The step without the time that streams waited for copies, and with what was allocated at each event of one like it; `None` when nothing
    /// was needed.
    pub fn trace<L: Lane<Mark = M>>(&self, lane: &L, uses: &[DeviceUse]) -> Result<Option<StepTrace>> {
        let (Some((_, _, first)), Some((_, _, end))) = (self.events.first(), self.events.last()) else {
            return Ok(None);
        };
        let (mut moments, mut waited, mut waits, mut last) = (Vec::new(), 0.0, self.waits.iter().peekable(), 0.0_f64);
        for at in 0..=self.events.len() {
            while let Some((_, from, to)) = waits.next_if(|(before, ..)| *before <= at) {
                waited += lane.seconds(from, to)?.max(0.0);
            }
            let mark = self.events.get(at).map_or(end, |(_, _, mark)| mark);
            // Several streams need not agree.
            last = last.max(lane.seconds(first, mark)? - waited);
            moments.push(last);
        }
        let step_s = last;
        let mut blocks: Vec<SavedBlock> = self
            .bytes
            .iter()
            .map(|bytes| SavedBlock { bytes: *bytes, saved_s: 0.0, needed_s: step_s, freed_s: step_s })
            .collect();
        let mut is_needed = vec![false; blocks.len()];
        for ((what, block, ..), moment) in self.events.iter().zip(&moments) {
            match what {
                Happening::Saved => blocks[*block].saved_s = *moment,
                Happening::Needed if !is_needed[*block] => {
                    is_needed[*block] = true;
                    blocks[*block].needed_s = *moment;
                }
                Happening::Needed => {}
            }
        }
        for (block, released) in blocks.iter_mut().zip(&self.released) {
            let freed_s = released.map_or(step_s, |at| moments[at]);
            block.freed_s = freed_s.max(block.saved_s);
            // One that nobody needed is needed, if at all, when it goes.
            block.needed_s = block.needed_s.clamp(block.saved_s, block.freed_s);
        }
        let found = StepTrace { blocks, step_s, beside: beside(uses, &moments) };
        Ok(is_needed.contains(&true).then_some(found))
    }
}

/// Bytes that were allocated beside blocks, above those at the beginning; nothing where the steps had other events.
fn beside(uses: &[DeviceUse], moments: &[f64]) -> Vec<(f64, u64)> {
    if uses.len() + 1 != moments.len() {
        return Vec::new();
    }
    let most = |of: fn(&DeviceUse) -> u64| uses.iter().map(of).max().unwrap_or(0);
    // What comes and goes between two blocks is not seen, but for the most that there was.
    let unseen = most(|used| used.peak).saturating_sub(most(|used| used.allocated));
    let others = |used: &DeviceUse| used.allocated.saturating_sub(used.blocks);
    let least = uses.first().map_or(0, others);
    uses.iter().zip(moments).map(|(used, moment)| (*moment, others(used).saturating_sub(least) + unseen)).collect()
}
