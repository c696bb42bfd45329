//! How large batches may become before memory for them is made anew.

use headwater_compile::cuda::Room;

/// Spare room, as a part of what was seen: batches differ by a few percent.
const SPARE_PART: usize = 8;
/// Rooms are multiples of this, so that nearly equal ones are equal.
const STEP: usize = 256;

/// Room for the block of every layer, the one that runs first at the front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub blocks: Vec<Room>,
}

/// The rows of one block.
pub(crate) type Sizes = Room;

impl Capacity {
    /// For batches like one that was seen.
    pub fn like(seen: &[Sizes]) -> Self {
        Self { blocks: seen.iter().map(|sizes| spare(*sizes)).collect() }
    }

    /// Whether a batch fits.
    pub fn holds(&self, batch: &[Sizes]) -> bool {
        let fits = |(room, own): (&Room, &Sizes)| own.src <= room.src && own.dst <= room.dst && own.edges <= room.edges;
        self.blocks.len() == batch.len() && self.blocks.iter().zip(batch).all(fits)
    }

    /// Room for everything that had room, and for a batch that had none.
    pub fn grown(&self, batch: &[Sizes]) -> Self {
        let both = |(room, own): (&Room, &Sizes)| {
            let own = spare(*own);
            Room { src: room.src.max(own.src), dst: room.dst.max(own.dst), edges: room.edges.max(own.edges) }
        };
        Self { blocks: self.blocks.iter().zip(batch).map(both).collect() }
    }
}

fn spare(seen: Sizes) -> Room {
    let more = |count: usize| (count + count / SPARE_PART).next_multiple_of(STEP);
    Room { src: more(seen.src), dst: more(seen.dst), edges: more(seen.edges) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_are_a_little_larger_fit_and_others_make_room() {
        let sizes = |src, dst, edges| Room { src, dst, edges };
        let capacity = Capacity::like(&[sizes(9000, 800, 9600), sizes(800, 64, 900)]);
        assert!(capacity.holds(&[sizes(9500, 820, 10_000), sizes(820, 64, 950)]));
        let large = [sizes(9500, 820, 20_000), sizes(820, 64, 950)];
        assert!(!capacity.holds(&large));
        let grown = capacity.grown(&large);
        assert!(grown.holds(&large) && grown.holds(&[sizes(10_000, 800, 9600), sizes(800, 64, 900)]));
        assert!(!capacity.holds(&[]));
    }
}
