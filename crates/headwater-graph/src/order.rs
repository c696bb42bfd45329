//! Lists in a known order, lists without what nobody wants, and what can be looked up in them.
//!
//! Rows are sorted each by itself, many at a time; a hub is sorted by all threads. The order of equal neighbours or
//! times is the one they had.

use std::ops::Range;

use headwater_tensor::parallel::{self, PIECE};
use rayon::prelude::*;

use crate::build::expect_room;
use crate::column::{Column, Id, Ids};
use crate::error::{Error, Result};
use crate::lane::{Carried, EdgeIds, Lane, Moved};
use crate::pieces::cut;
use crate::topology::{RowOrder, Topology, index};

/// Which edges to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaveOut {
    /// Edges from a node to itself. Only asked for where both ends are of one type.
    pub self_loops: bool,
    /// All but the first of several edges between the same nodes.
    pub repeats: bool,
}

/// Rows with as many edges are sorted where they lie, by all threads; shorter ones beside them, by one thread each.
const HUB_EDGES: usize = 1 << 18;

/// What ordering rows takes, known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortPlan {
    /// Bytes of the lists as they are.
    pub input_bytes: u64,
    /// Bytes of the lists in their order. The offsets stay those of the input.
    pub output_bytes: u64,
    /// The most bytes at any time, input and output included.
    pub peak_bytes: u64,
}

/// Decides nothing, but says what will be: a position an edge stands beside input and output. What threads sort in is
/// gone before the output is there, and is smaller than the output of all but small graphs.
#[must_use]
pub fn sort_plan(edges: u64, edge_bytes: u64, input_bytes: u64, threads: u64) -> SortPlan {
    let output_bytes = edges.saturating_mul(edge_bytes);
    let beside_bytes = edges.min(threads.saturating_mul(HUB_EDGES as u64)).saturating_mul(16);
    let positions_bytes = edges.saturating_mul(8);
    let peak_bytes = [input_bytes, positions_bytes, output_bytes.max(beside_bytes)];
    SortPlan { input_bytes, output_bytes, peak_bytes: peak_bytes.into_iter().fold(0, u64::saturating_add) }
}

impl Topology {
    /// What [`Topology::sorted`] will take.
    #[must_use]
    pub fn sort_plan(&self, edge_ids: EdgeIds) -> SortPlan {
        let carried: u64 = Carried::by(self, edge_ids).lane_bytes().iter().sum();
        let edge_bytes = self.neighbours().id_bytes() as u64 + carried;
        sort_plan(self.edges(), edge_bytes, self.bytes(), rayon::current_num_threads() as u64)
    }

    /// The same edges, each row in the order asked for. Ordering by time needs times.
    pub fn sorted(&self, order: RowOrder, edge_ids: EdgeIds) -> Result<Self> {
        self.check()?;
        let SortPlan { input_bytes, peak_bytes, .. } = self.sort_plan(edge_ids);
        match (order, self.times()) {
            (RowOrder::Any, _) => return Ok(self.clone()),
            (RowOrder::Time, None) => return Err(Error::NoTimes),
            _ => expect_room("ordering rows", peak_bytes - input_bytes)?,
        }
        let positions = match (order, self.times()) {
            (RowOrder::Time, Some(times)) => self.positions_by(&|at| ascending(times[at])),
            _ => match self.neighbours() {
                Ids::U32(ids) => self.positions_by(&|at| u64::from(ids[at])),
                Ids::U64(ids) => self.positions_by(&|at| ids[at]),
            },
        };
        Ok(self.picked(self.offsets().clone(), &positions, edge_ids)?.with_order(order))
    }

    /// With the time of its neighbour as the time of every edge.
    pub fn with_times_of_neighbours(self, node_times: &[i64]) -> Result<Self> {
        let (found, expected) = (node_times.len() as u64, self.columns());
        if found != expected {
            return Err(Error::Length { name: "node times", found, expected, of: "the neighbours" });
        }
        self.check()?;
        let times: Vec<i64> = match self.neighbours() {
            Ids::U32(ids) => parallel::map(ids, |id| node_times[*id as usize]),
            Ids::U64(ids) => parallel::map(ids, |id| node_times[index(*id)]),
        };
        self.with_times(Column::from(times))
    }

    /// Without some of the edges. Leaving out repeats puts rows in ascending order.
    pub fn without(&self, what: LeaveOut, edge_ids: EdgeIds) -> Result<Self> {
        self.check()?;
        let ordered = what.repeats && self.order() != RowOrder::Neighbour;
        let sorted = if ordered { self.sorted(RowOrder::Neighbour, edge_ids)? } else { self.clone() };
        let neighbours = sorted.neighbours();
        let stays = |row: u64, at: usize, begin: usize| {
            let neighbour = neighbours.at(at);
            let repeats = what.repeats && at > begin && neighbours.at(at - 1) == neighbour;
            !(repeats || (what.self_loops && neighbour == row))
        };
        let kept = |row: u64| {
            let list = sorted.list(row);
            let begin = list.start;
            list.filter(move |at| stays(row, *at, begin))
        };
        let degrees: Vec<u64> = parallel::tabulate(index(sorted.rows()), |row| kept(row as u64).count() as u64);
        let offsets = offsets_of(&degrees);
        let mut positions = vec![0; index(offsets[offsets.len() - 1])];
        let groups = row_groups(&offsets);
        let lengths = groups.iter().map(|rows| index(offsets[rows.end] - offsets[rows.start]));
        parallel::for_each(cut(&mut positions, lengths).into_iter().zip(&groups), |_, (out, rows)| {
            let all = rows.clone().flat_map(|row| kept(row as u64));
            out.iter_mut().zip(all).for_each(|(out, at)| *out = at as u64);
        });
        let order = sorted.order();
        Ok(sorted.picked(offsets.into(), &positions, edge_ids)?.with_order(order))
    }

    /// Length of every list.
    #[must_use]
    pub fn degrees(&self) -> Vec<u64> {
        let offsets = self.offsets().as_slice();
        parallel::tabulate(index(self.rows()), |row| offsets[row + 1].saturating_sub(offsets[row]))
    }

    /// Whether a row has a neighbour. A binary search where rows are ordered by neighbour, otherwise a scan.
    #[must_use]
    pub fn has_edge(&self, row: u64, neighbour: u64) -> bool {
        fn has<T: Id>(list: &[T], neighbour: u64, order: RowOrder) -> bool {
            match order {
                RowOrder::Neighbour => list.binary_search_by(|id| id.wide().cmp(&neighbour)).is_ok(),
                RowOrder::Any | RowOrder::Time => list.iter().any(|id| id.wide() == neighbour),
            }
        }
        if row >= self.rows() {
            return false;
        }
        match self.neighbours() {
            Ids::U32(ids) => ids.get(self.list(row)).is_some_and(|list| has(list, neighbour, self.order())),
            Ids::U64(ids) => ids.get(self.list(row)).is_some_and(|list| has(list, neighbour, self.order())),
        }
    }

    /// Where each edge of the sorted rows stands now.
    fn positions_by(&self, key: &(dyn Fn(usize) -> u64 + Sync)) -> Vec<u64> {
        let offsets = self.offsets();
        let mut positions = vec![0; index(self.edges())];
        let groups = row_groups(offsets);
        let lengths = groups.iter().map(|rows| index(offsets[rows.end] - offsets[rows.start]));
        parallel::for_each(cut(&mut positions, lengths).into_iter().zip(&groups), |_, (mut out, rows)| {
            let mut pairs = Vec::new();
            for row in rows.clone() {
                let list = self.list(row as u64);
                let sorted = crate::pieces::take(&mut out, list.len());
                // The position makes equal keys different, so that the order of equals is the one they had.
                if list.len() < HUB_EDGES {
                    pairs.clear();
                    pairs.extend(list.map(|at| (key(at), at as u64)));
                    pairs.sort_unstable();
                    sorted.iter_mut().zip(pairs.iter()).for_each(|(out, pair)| *out = pair.1);
                } else {
                    sorted.iter_mut().zip(list).for_each(|(out, at)| *out = at as u64);
                    sorted.par_sort_unstable_by_key(|at| (key(index(*at)), *at));
                }
            }
        });
        positions
    }

    /// Some of the edges, at these positions and in this order.
    fn picked(&self, offsets: Column<u64>, positions: &[u64], edge_ids: EdgeIds) -> Result<Self> {
        let neighbours = pick(&Lane::of(self.neighbours()), positions);
        let (lanes, labels) = Carried::by(self, edge_ids).into_lanes();
        let moved = lanes.iter().map(|lane| pick(lane, positions));
        labels.attach(moved, Self::trusted(self.layout(), self.columns(), offsets, neighbours.into())?)
    }
}

fn pick(lane: &Lane<'_>, positions: &[u64]) -> Moved {
    fn all<T: Id + Default>(fill: &crate::lane::Fill<'_, T>, positions: &[u64]) -> Vec<T> {
        let one = |at: &u64| {
            let mut value = [T::default()];
            fill(index(*at), &mut value);
            value[0]
        };
        parallel::map(positions, one)
    }
    match lane {
        Lane::Four(fill) => Moved::Four(all(fill, positions)),
        Lane::Eight(fill) => Moved::Eight(all(fill, positions)),
    }
}

/// Where lists of these lengths begin, and after the last one where it ends.
pub(crate) fn offsets_of(degrees: &[u64]) -> Vec<u64> {
    let mut offsets = vec![0; degrees.len() + 1];
    let pieces: Vec<&[u64]> = degrees.chunks(PIECE).collect();
    let sums: Vec<u64> = parallel::collect(pieces.len(), |at| pieces[at].iter().sum());
    let mut total = 0;
    let begins: Vec<u64> = sums.iter().map(|sum| (total, total += sum).0).collect();
    parallel::for_parts(&mut offsets[1..], PIECE, &|start, offsets| {
        let mut end = begins[start / PIECE];
        for (offset, degree) in offsets.iter_mut().zip(&degrees[start..]) {
            end += degree;
            *offset = end;
        }
    });
    offsets
}

/// Neighbouring rows with some ten thousand edges together, or one with more.
pub(crate) fn row_groups(offsets: &[u64]) -> Vec<Range<usize>> {
    const EDGES: u64 = 1 << 14;
    let (rows, edges) = (offsets.len() - 1, offsets[offsets.len() - 1]);
    let first_row = |group: usize| offsets[..rows].partition_point(|offset| *offset < group as u64 * EDGES);
    let mut bounds: Vec<usize> = parallel::tabulate(index(edges / EDGES) + 1, first_row);
    bounds.push(rows);
    bounds.windows(2).map(|pair| pair[0]..pair[1]).filter(|rows| !rows.is_empty()).collect()
}

/// Times as numbers that ascend with them.
fn ascending(time: i64) -> u64 {
    time.cast_unsigned() ^ (1 << 63)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, reason = "the numbers are small")]

    use proptest::prelude::*;

    use super::*;
    use crate::build::{BuildOptions, Coo};
    use crate::progress::Silent;
    use crate::random::Key;

    fn random(nodes: u64, edges: u64, seed: u64) -> Topology {
        let key = Key::new(seed);
        let ends = |salt| (0..edges).map(|at| key.of(salt).below(at, nodes) as u32).collect::<Vec<_>>();
        let mut coo = Coo::new(ends(1).into(), ends(2).into(), nodes, nodes);
        coo.times = Some((0..edges).map(|at| key.of(3).below(at, 5) as i64 - 2).collect::<Vec<_>>().into());
        coo.build(BuildOptions::default(), &Silent).unwrap()
    }

    fn row(topology: &Topology, row: u64) -> Vec<(u64, u64, i64)> {
        let entry = |at| (topology.neighbours().at(at), topology.edge_id(at), topology.times().unwrap()[at]);
        topology.list(row).map(entry).collect()
    }

    proptest! {
        #[test]
        fn rows_are_sorted_and_stable((nodes, edges, seed) in (1u64..60, 0u64..400, any::<u64>())) {
            let given = random(nodes, edges, seed);
            let by_id = given.sorted(RowOrder::Neighbour, EdgeIds::Kept).unwrap();
            let by_time = given.sorted(RowOrder::Time, EdgeIds::Kept).unwrap();
            for at in 0..nodes {
                let mut expected = row(&given, at);
                expected.sort_by_key(|entry| entry.0);
                prop_assert_eq!(row(&by_id, at), &expected[..]);
                let mut expected = row(&given, at);
                expected.sort_by_key(|entry| entry.2);
                prop_assert_eq!(row(&by_time, at), expected);
                for neighbour in 0..nodes + 1 {
                    let expected = given.list(at).any(|at| given.neighbours().at(at) == neighbour);
                    let found = [&given, &by_id, &by_time].map(|topology| topology.has_edge(at, neighbour));
                    prop_assert_eq!(found, [expected; 3]);
                }
            }
            let degrees: Vec<u64> = (0..nodes).map(|row| given.degree(row)).collect();
            prop_assert_eq!(given.degrees(), degrees);
        }

        #[test]
        fn what_is_left_out_is_what_was_named((nodes, edges, seed) in (1u64..12, 0u64..200, any::<u64>())) {
            let given = random(nodes, edges, seed);
            let simple = given.without(LeaveOut { self_loops: true, repeats: true }, EdgeIds::Kept).unwrap();
            let no_loops = given.without(LeaveOut { self_loops: true, repeats: false }, EdgeIds::Kept).unwrap();
            for at in 0..nodes {
                let mut expected: Vec<_> = row(&given, at).into_iter().filter(|entry| entry.0 != at).collect();
                prop_assert_eq!(row(&no_loops, at), &expected[..]);
                expected.sort_by_key(|entry| entry.0);
                expected.dedup_by_key(|entry| entry.0);
                prop_assert_eq!(row(&simple, at), expected);
            }
        }
    }

    #[test]
    fn what_ordering_takes_is_known() {
        let given = random(50, 4000, 1);
        let plan = given.sort_plan(EdgeIds::Kept);
        // Neighbour, id, time.
        assert_eq!((plan.input_bytes, plan.output_bytes), (given.bytes(), 4000 * (4 + 4 + 8)));
        assert_eq!(plan.peak_bytes, given.bytes() + 4000 * (8 + 16));
        assert_eq!(given.sort_plan(EdgeIds::Dropped).output_bytes, 4000 * 12);
        let large = sort_plan(1 << 32, 20, 1 << 37, 16);
        assert_eq!(large.peak_bytes, (1 << 37) + (1 << 35) + (20 << 32));
        assert_eq!(sort_plan(u64::MAX, u64::MAX, 1, 1).peak_bytes, u64::MAX);
    }

    #[test]
    fn hubs_are_sorted_by_all_threads() {
        let edges = 300_000;
        let key = Key::new(1);
        let sources: Vec<u32> = (0..edges).map(|at| key.below(at, 1000) as u32).collect();
        let hub = Coo::new(sources.into(), vec![1u32; edges as usize].into(), 1000, 3);
        let sorted = hub.build(BuildOptions::default(), &Silent).unwrap();
        let sorted = sorted.sorted(RowOrder::Neighbour, EdgeIds::Kept).unwrap();
        let entries: Vec<(u64, u64)> =
            sorted.list(1).map(|at| (sorted.neighbours().at(at), sorted.edge_id(at))).collect();
        assert!(entries.len() == 300_000 && entries.is_sorted());
    }

    #[test]
    fn times_come_from_edges_or_neighbours() {
        let bare = || Topology::new(crate::Layout::Csc, 3, vec![0, 3].into(), vec![2u32, 0, 1].into()).unwrap();
        assert!(matches!(bare().sorted(RowOrder::Time, EdgeIds::Kept), Err(Error::NoTimes)));
        assert!(matches!(bare().with_times_of_neighbours(&[1]), Err(Error::Length { expected: 3, .. })));
        let timed = bare().with_times_of_neighbours(&[5, -7, 9]).unwrap().sorted(RowOrder::Time, EdgeIds::Kept);
        assert_eq!(row(&timed.unwrap(), 0), [(1, 2, -7), (0, 1, 5), (2, 0, 9)]);
    }
}
