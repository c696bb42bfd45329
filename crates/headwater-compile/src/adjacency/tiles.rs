//! Rows cut into pieces of one type: what a thread block takes at a time.

use std::ops::Range;

use super::{Adjacency, Map};
use crate::inter::{Domain, Path, Side};

/// Neighbouring rows of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Node or edge type that all rows of the tile have.
    pub of_type: usize,
    /// Its first row, by its number in the domain.
    pub first: usize,
    /// How many.
    pub count: usize,
}

/// Tiles whose rows belong to the same neighbouring nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByNodes {
    /// The side of the nodes.
    pub to: Domain,
    /// How many neighbours.
    pub nodes: usize,
}

/// All rows of a domain, tiles of a type one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiles {
    /// In the order of types, and within one in the order of rows.
    pub all: Vec<Tile>,
    /// The first tile of each type, and the end of the last.
    pub starts: Vec<usize>,
}

impl Tiles {
    fn new(all: Vec<Tile>, types: usize) -> Self {
        let starts = (0..=types).map(|of_type| all.partition_point(|tile| tile.of_type < of_type)).collect();
        Self { all, starts }
    }
}

impl Adjacency {
    /// Rows of a domain in tiles of at most so many; `None` where rows of a type do not lie beside each other.
    #[must_use]
    pub fn tiles(&self, rows: Domain, types: Domain, path: Path, most: usize) -> Option<Tiles> {
        let mut all = Vec::new();
        for (of_type, bounds) in self.ranges_of_types(rows, types, path)? {
            let cuts = bounds.clone().step_by(most.max(1));
            all.extend(cuts.map(|first| Tile { of_type, first, count: most.min(bounds.end - first) }));
        }
        Some(Tiles::new(all, self.rows(types)))
    }

    /// Rows of a domain in at most `most` shares that take as long as each other, which are cut into tiles where the type changes: a tile
    /// takes as long as its rows and `begin` more. And the first tile of each share, and the end of the last. `None` as of `tiles`.
    #[must_use]
    pub fn shares(
        &self,
        rows: Domain,
        (types, path): (Domain, Path),
        most: usize,
        begin: usize,
    ) -> Option<(Tiles, Vec<usize>)> {
        let ranges = self.ranges_of_types(rows, types, path)?;
        // A share may end in the middle of a type, which makes a tile more.
        let most_tiles = ranges.iter().filter(|(_, bounds)| !bounds.is_empty()).count() + most;
        let each = (self.rows(rows) + begin * most_tiles).div_ceil(most.max(1)).max(2 * begin);
        let (mut all, mut shares, mut left) = (Vec::new(), Vec::new(), 0);
        for (of_type, mut bounds) in ranges {
            while !bounds.is_empty() {
                if left <= begin {
                    left = each;
                    shares.push(all.len());
                }
                let count = (left - begin).min(bounds.len());
                all.push(Tile { of_type, first: bounds.start, count });
                (bounds.start, left) = (bounds.start + count, left - begin - count);
            }
        }
        shares.push(all.len());
        Some((Tiles::new(all, self.rows(types)), shares))
    }

    /// Rows that lie beside each other and have one type, type after type.
    fn ranges_of_types(&self, rows: Domain, types: Domain, path: Path) -> Option<Vec<(usize, Range<usize>)>> {
        let (starts, type_of): (&[usize], &dyn Fn(usize) -> usize) = match self.map(rows, types, path)? {
            Map::Stretches(starts) => (starts, &|stretch| stretch),
            Map::Ends(starts, ends, side) => (starts, &move |stretch: usize| ends[stretch][side as usize] as usize),
            Map::Same | Map::First | Map::Listed(_) => return None,
        };
        let all = starts.windows(2).enumerate();
        let mut all: Vec<_> = all.map(|(stretch, bounds)| (type_of(stretch), bounds[0]..bounds[1])).collect();
        // Stable, so rows of a type stay in order.
        all.sort_by_key(|(of_type, _)| *of_type);
        Some(all)
    }

    /// Rows of a domain in tiles of at most so many, of one type and of neighbouring nodes; `starts` has the first tile of the first nodes, of
    /// the next ones, and so on. `None` where rows do not lie by type and node.
    #[must_use]
    pub fn tiles_by_nodes(&self, rows: Domain, by: ByNodes, types: (Domain, Path), most: usize) -> Option<Tiles> {
        let (to, of_type) = (self.map(rows, by.to, Path::Only)?, self.map(rows, types.0, types.1)?);
        let mut all = Vec::new();
        for bounds in self.sorted(rows)?.windows(2) {
            let mut first = bounds[0];
            while first < bounds[1] {
                let place = to.get(first) / by.nodes.max(1);
                let is_in = |row: &usize| to.get(*row) / by.nodes.max(1) == place;
                let count = (first..bounds[1]).take(most.max(1)).take_while(is_in).count();
                all.push((place, Tile { of_type: of_type.get(first), first, count }));
                first += count;
            }
        }
        // Stable, so that rows of a node are added in order.
        all.sort_by_key(|(place, _)| *place);
        let places = self.rows(by.to).div_ceil(by.nodes.max(1));
        let starts = (0..=places).map(|place| all.partition_point(|(own, _)| *own < place)).collect();
        Some(Tiles { all: all.into_iter().map(|(_, tile)| tile).collect(), starts })
    }

    /// Runs of pairs of one edge type whose nodes lie within the same so many neighbours.
    #[must_use]
    pub fn pair_runs(&self, side: Side, nodes: usize) -> usize {
        let pairs = self.pairs(side);
        let in_type = |bounds: &[usize]| {
            let own = &pairs.nodes[bounds[0]..bounds[1]];
            own.chunk_by(|a, b| *a as usize / nodes == *b as usize / nodes).count()
        };
        pairs.types.windows(2).map(in_type).sum()
    }

    /// Where stretches of rows begin that have one type each and lie by node; `None` where there are none.
    fn sorted(&self, rows: Domain) -> Option<&[usize]> {
        match rows {
            Domain::Pair(side) => Some(&self.pairs(side).types),
            Domain::Node(Side::Src) => Some(&self.src_types),
            Domain::Node(Side::Dst) => Some(&self.dst_types),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Recipe;

    /// Shares have every row once, in tiles of one type, and take as long as each other.
    #[test]
    fn shares_are_even() {
        let relations = vec![(0, 1), (1, 0), (0, 0), (1, 1), (1, 0)];
        let graph = Recipe { nodes: vec![(30, 20), (9, 9)], relations, most_edges: 7, empty_every: 4 }.graph(3);
        let edge = Domain::Edge;
        let ways = [(edge, (Domain::EdgeType, Path::Only)), (edge, (Domain::NodeType, Path::By(Side::Dst)))];
        let sizes = [(1, 0), (7, 0), (7, 3), (1000, 0), (1000, 2)];
        for ((rows, types), (most, begin)) in ways.into_iter().flat_map(|way| sizes.map(|size| (way, size))) {
            let (tiles, shares) = graph.shares(rows, types, most, begin).unwrap();
            let of_type = graph.map(rows, types.0, types.1).unwrap();
            let own = |tile: &Tile| tile.first..tile.first + tile.count;
            assert!(tiles.all.iter().all(|tile| own(tile).all(|row| of_type.get(row) == tile.of_type)));
            let mut all: Vec<usize> = tiles.all.iter().flat_map(own).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..graph.rows(rows)));
            let takes = |tile: &Tile| tile.count + begin;
            let shares: Vec<&[Tile]> = shares.windows(2).map(|two| &tiles.all[two[0]..two[1]]).collect();
            let times: Vec<usize> = shares.iter().map(|share| share.iter().map(takes).sum()).collect();
            let (longest, others) = (*times.iter().max().unwrap(), &times[..times.len() - 1]);
            // One ends early rather than begin a tile that has no room for a row.
            assert!(others.iter().all(|time| *time + begin >= longest), "{times:?}");
            assert!(times.len() <= most, "{times:?}");
            let is_of = |(of_type, two): (usize, &[usize])| {
                tiles.all[two[0]..two[1]].iter().all(|tile| tile.of_type == of_type)
            };
            assert!(tiles.starts.windows(2).enumerate().all(is_of));
            assert_eq!((tiles.starts[0], tiles.starts.last()), (0, Some(&tiles.all.len())));
        }
    }

    /// Tiles of neighbouring nodes have every row once, of one type and of these nodes, and runs are what tiles of any length would be.
    #[test]
    fn tiles_by_nodes_have_every_row_once() {
        let (pair, dst) = (Domain::Pair(Side::Dst), Domain::Node(Side::Dst));
        for graph in [Recipe::block().graph(3), Recipe { nodes: vec![(40, 40), (9, 9)], ..Recipe::block() }.graph(1)] {
            for (rows, to, types) in [
                (pair, dst, (Domain::EdgeType, Path::Only)),
                (Domain::Pair(Side::Src), Domain::SRC, (Domain::EdgeType, Path::Only)),
                (dst, Domain::SRC, (Domain::Const, Path::Only)),
                (dst, dst, (Domain::NodeType, Path::Only)),
            ] {
                for (nodes, most) in [(1, 1), (4, 2), (7, 64), (1000, 3), (1000, 1000)] {
                    let Tiles { all, starts } = graph.tiles_by_nodes(rows, ByNodes { to, nodes }, types, most).unwrap();
                    let map = graph.map(rows, to, Path::Only).unwrap();
                    let of_type = graph.map(rows, types.0, types.1).unwrap();
                    let mut seen: Vec<usize> =
                        all.iter().flat_map(|tile| tile.first..tile.first + tile.count).collect();
                    seen.sort_unstable();
                    assert_eq!(seen, (0..graph.rows(rows)).collect::<Vec<_>>(), "{rows} {nodes} {most}");
                    assert_eq!(starts.len(), graph.rows(to).div_ceil(nodes) + 1);
                    for (place, bounds) in starts.windows(2).enumerate() {
                        for tile in &all[bounds[0]..bounds[1]] {
                            assert!((1..=most).contains(&tile.count));
                            let own = || tile.first..tile.first + tile.count;
                            assert!(own().all(|row| map.get(row) / nodes == place && of_type.get(row) == tile.of_type));
                            assert!(own().skip(1).all(|row| map.get(row - 1) < map.get(row)), "two of one node");
                        }
                    }
                    if let (Domain::Pair(side), true) = (rows, most >= graph.rows(rows)) {
                        assert_eq!(graph.pair_runs(side, nodes), all.len());
                    }
                }
            }
        }
        let graph = Recipe::block().graph(3);
        assert_eq!(
            graph.tiles_by_nodes(Domain::Edge, ByNodes { to: dst, nodes: 4 }, (Domain::EdgeType, Path::Only), 8),
            None
        );
    }

    #[test]
    fn tiles_have_every_row_once_and_types_in_order() {
        let graph = Recipe::block().graph(3);
        for (rows, types, path) in [
            (Domain::Edge, Domain::EdgeType, Path::Only),
            (Domain::Pair(Side::Dst), Domain::EdgeType, Path::Only),
            (Domain::SRC, Domain::NodeType, Path::Only),
            (Domain::Edge, Domain::NodeType, Path::By(Side::Src)),
        ] {
            for most in [1, 7, 128] {
                let Tiles { all, starts } = graph.tiles(rows, types, path, most).unwrap();
                let map = graph.map(rows, types, path).unwrap();
                let mut seen: Vec<usize> = all.iter().flat_map(|tile| tile.first..tile.first + tile.count).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..graph.rows(rows)).collect::<Vec<_>>(), "{rows} {most}");
                assert_eq!(starts.len(), graph.rows(types) + 1);
                for (of_type, bounds) in starts.windows(2).enumerate() {
                    for tile in &all[bounds[0]..bounds[1]] {
                        assert!((1..=most).contains(&tile.count));
                        assert!((tile.first..tile.first + tile.count).all(|row| map.get(row) == of_type));
                    }
                }
            }
        }
        assert_eq!(graph.tiles(Domain::Edge, Domain::Const, Path::Only, 8), None, "one type needs no list");
    }
}
