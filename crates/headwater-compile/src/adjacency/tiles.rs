//! Rows cut into pieces of one type: what a thread block takes at a time.

use super::{Adjacency, Map};
use crate::inter::{Domain, Path};

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

/// All rows of a domain, tiles of a type one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiles {
    /// In the order of types, and within one in the order of rows.
    pub all: Vec<Tile>,
    /// The first tile of each type, and the end of the last.
    pub starts: Vec<usize>,
}

impl Adjacency {
    /// Rows of a domain in tiles of at most so many; `None` where rows of a type do not lie beside each other.
    #[must_use]
    pub fn tiles(&self, rows: Domain, types: Domain, path: Path, most: usize) -> Option<Tiles> {
        let (starts, type_of): (&[usize], &dyn Fn(usize) -> usize) = match self.map(rows, types, path)? {
            Map::Stretches(starts) => (starts, &|stretch| stretch),
            Map::Ends(starts, ends, side) => (starts, &move |stretch: usize| ends[stretch][side as usize] as usize),
            Map::Same | Map::First | Map::Listed(_) => return None,
        };
        let mut all = Vec::new();
        for (stretch, bounds) in starts.windows(2).enumerate() {
            let of_type = type_of(stretch);
            let cuts = (bounds[0]..bounds[1]).step_by(most.max(1));
            all.extend(cuts.map(|first| Tile { of_type, first, count: most.min(bounds[1] - first) }));
        }
        // Stable, so rows of a type stay in order.
        all.sort_by_key(|tile| tile.of_type);
        let starts = (0..=self.rows(types)).map(|of_type| all.partition_point(|tile| tile.of_type < of_type)).collect();
        Some(Tiles { all, starts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inter::Side;
    use crate::testing::Recipe;

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
