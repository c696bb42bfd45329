//! Static allocation: which part of one piece of memory each buffer gets when all lifetimes are known. Two buffers share bytes only
//! where their lifetimes do not overlap.

/// How long a buffer is, and from which step of a program to which it is needed, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Length in bytes.
    pub bytes: usize,
    /// The first step that touches it.
    pub first: usize,
    /// The last one.
    pub last: usize,
}

/// Buffers begin at multiples of this, so that rows can be read in the largest pieces.
const ALIGN_BYTES: usize = 256;

/// Offset of each buffer, and how many bytes all of them take together. The largest choose first; each takes the first gap that is
/// free for its whole lifetime.
#[must_use]
pub fn place_by_lifetime(lives: &[Lifetime]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(lives[*at].bytes));
    let mut begins = vec![0; lives.len()];
    let mut placed: Vec<usize> = Vec::new();
    for at in order {
        let own = lives[at];
        let meets = |other: &Lifetime| own.first <= other.last && other.first <= own.last;
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(|other| meets(&lives[**other]))
            .map(|other| (begins[*other], begins[*other] + padded(lives[*other].bytes)))
            .collect();
        taken.sort_unstable();
        for (begin, end) in taken {
            if begins[at] + padded(own.bytes) <= begin {
                break;
            }
            begins[at] = begins[at].max(end);
        }
        placed.push(at);
    }
    let total = (0..lives.len()).map(|at| begins[at] + padded(lives[at].bytes)).max().unwrap_or(0);
    (begins, total)
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(bytes: usize, first: usize, last: usize) -> Lifetime {
        Lifetime { bytes, first, last }
    }

    #[test]
    fn buffers_share_bytes_only_when_their_lives_do_not_meet() {
        let lives: Vec<Lifetime> =
            (0..40).map(|at| life(97 * (at * 7 % 11), at * 5 % 13, at * 5 % 13 + at % 4)).collect();
        let (begins, total) = place_by_lifetime(&lives);
        for (a, one) in lives.iter().enumerate() {
            assert!(begins[a] + one.bytes <= total);
            for (b, other) in lives.iter().enumerate().skip(a + 1) {
                let apart = begins[a] + one.bytes <= begins[b] || begins[b] + other.bytes <= begins[a];
                assert!(apart || one.last < other.first || other.last < one.first, "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_chain_of_buffers_takes_the_room_of_two() {
        let lives: Vec<Lifetime> = (0..10).map(|at| life(1024, at, at + 1)).collect();
        assert_eq!(place_by_lifetime(&lives).1, 2048);
        assert_eq!(place_by_lifetime(&[]).1, 0);
    }
}
