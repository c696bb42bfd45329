//! How many neighbours nodes have: the shape of a graph in a few numbers.

use headwater_tensor::parallel;
use serde::Serialize;

use crate::topology::{Topology, index};

/// Rows counted together by one thread.
const ROWS: usize = 1 << 16;
/// Degree 0, and one bucket for each bit that a degree can have.
const BUCKETS: usize = 65;

/// The degrees of a relation's rows: in-degrees in CSC, out-degrees in CSR.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Degrees {
    /// Rows.
    pub rows: u64,
    /// Edges.
    pub edges: u64,
    /// The smallest degree; 0 when there are no rows.
    pub min: u64,
    /// Edges a row.
    pub mean: f64,
    /// The largest degree.
    pub max: u64,
    /// Rows without neighbours.
    pub empty: u64,
    /// Rows of degree 0, of 1, of 2 and 3, of 4 to 7, and so on up to the largest.
    pub histogram: Vec<u64>,
}

impl Degrees {
    /// Counts them, reading the offsets once.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let offsets = topology.offsets().as_slice();
        let starts = &offsets[..offsets.len() - 1];
        let chunks: Vec<&[u64]> = starts.chunks(ROWS).collect();
        let counted = parallel::collect(chunks.len(), |chunk| {
            let ends = &offsets[chunk * ROWS + 1..];
            // Offsets of a mapped file are not known to rise; where they fall there is no list.
            chunks[chunk]
                .iter()
                .zip(ends)
                .fold(Count::new(), |count, (start, end)| count.with(end.saturating_sub(*start)))
        });
        let count = counted.into_iter().fold(Count::new(), Count::join);
        let (rows, edges) = (topology.rows(), topology.edges());
        let used = count.buckets.iter().rposition(|rows| *rows > 0).map_or(0, |last| last + 1);
        Self {
            rows,
            edges,
            min: if rows == 0 { 0 } else { count.min },
            mean: if rows == 0 { 0.0 } else { edges as f64 / rows as f64 },
            max: count.max,
            empty: count.buckets[0],
            histogram: count.buckets[..used].to_vec(),
        }
    }

    /// The degrees that a bucket of the histogram counts, both ends included.
    #[must_use]
    pub fn bucket(at: usize) -> (u64, u64) {
        match at {
            0 => (0, 0),
            _ => (1 << (at - 1).min(63), u64::MAX >> (BUCKETS - 1 - at.min(BUCKETS - 1))),
        }
    }
}

struct Count {
    min: u64,
    max: u64,
    buckets: [u64; BUCKETS],
}

impl Count {
    fn new() -> Self {
        Self { min: u64::MAX, max: 0, buckets: [0; BUCKETS] }
    }

    fn with(mut self, degree: u64) -> Self {
        self.min = self.min.min(degree);
        self.max = self.max.max(degree);
        self.buckets[index(u64::from(u64::BITS - degree.leading_zeros()))] += 1;
        self
    }

    fn join(mut self, other: Self) -> Self {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(own, other)| *own += other);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn buckets_double() {
        assert_eq!([0, 1, 2, 3, 64].map(Degrees::bucket), [(0, 0), (1, 1), (2, 3), (4, 7), (1 << 63, u64::MAX)]);
    }

    #[test]
    fn every_row_is_counted_once() {
        let degrees = [0u64, 1, 2, 3, 4, 0, 7, 8].into_iter().cycle().take(2 * ROWS + 8);
        let offsets: Vec<u64> = std::iter::once(0)
            .chain(degrees.scan(0, |sum, degree| {
                *sum += degree;
                Some(*sum)
            }))
            .collect();
        let (rows, edges) = (offsets.len() as u64 - 1, offsets[offsets.len() - 1]);
        let neighbours = vec![0u32; index(edges)];
        let found = Degrees::of(&Topology::new(Layout::Csc, 1, offsets.into(), neighbours.into()).unwrap());
        let eighth = rows / 8;
        assert_eq!(found.histogram, [2, 1, 2, 2, 1].map(|share| share * eighth));
        assert_eq!((found.rows, found.edges, found.min, found.max), (rows, edges, 0, 8));
        assert_eq!((found.empty, found.mean), (2 * eighth, edges as f64 / rows as f64));
    }

    #[test]
    fn no_rows_have_no_degrees() {
        let none = Topology::new(Layout::Csr, 0, vec![0u64].into(), Vec::<u32>::new().into()).unwrap();
        let found = Degrees::of(&none);
        assert_eq!((found.min, found.max, found.mean, found.histogram.len()), (0, 0, 0.0, 0));
    }
}
