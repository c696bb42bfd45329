//! A graph as kernels ask for it: rows of every domain, maps and lists of members, in one piece of memory.

use super::text::Table;
use crate::adjacency::{Adjacency, Map, Members};
use crate::error::{Error, Result};
use crate::inter::Domain;

/// Words of a map or a list of members, as `emitted.cuh` has them: the kind, a count, two arrays.
type Entry = (u64, u64, Option<usize>, Option<usize>);

/// The numbers of a graph, and where arrays begin among them.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Rows of every domain, then all arrays.
    pub all: Vec<u32>,
    maps: Vec<Entry>,
    members: Vec<Entry>,
}

impl Numbers {
    /// What a table names of a graph.
    pub fn new(graph: &Adjacency, table: &Table) -> Result<Self> {
        let mut found = Self::default();
        for domain in Domain::ALL {
            found.all.push(number(graph.rows(domain))?);
        }
        for (fine, coarse, path) in &table.maps {
            let map = graph.map(*fine, *coarse, *path).ok_or_else(|| no_way(*fine, *coarse))?;
            let entry = match map {
                Map::Same => (0, 0, None, None),
                Map::First => (1, 0, None, None),
                Map::Listed(list) => (2, list.len() as u64, Some(found.put(list)), None),
                Map::Stretches(starts) => (3, starts.len() as u64 - 1, None, Some(found.starts(starts)?)),
                Map::Ends(starts, ends, side) => {
                    let list: Vec<u32> = ends.iter().map(|ends| ends[side as usize]).collect();
                    (4, starts.len() as u64 - 1, Some(found.put(&list)), Some(found.starts(starts)?))
                }
            };
            found.maps.push(entry);
        }
        for (coarse, fine, path) in &table.members {
            let members = graph.members(*coarse, *fine, *path).ok_or_else(|| no_way(*fine, *coarse))?;
            let entry = match members {
                Members::All(count) => (0, count as u64, None, None),
                Members::Between(starts) => (1, 0, Some(found.starts(&starts)?), None),
                Members::Listed { starts, rows } => (2, 0, Some(found.starts(&starts)?), Some(found.put(&rows))),
            };
            found.members.push(entry);
        }
        Ok(found)
    }

    fn put(&mut self, list: &[u32]) -> usize {
        self.all.extend_from_slice(list);
        self.all.len() - list.len()
    }

    fn starts(&mut self, starts: &[usize]) -> Result<usize> {
        let first = self.all.len();
        for start in starts {
            self.all.push(number(*start)?);
        }
        Ok(first)
    }

    /// The words of the struct that kernels get, of the maps, and of the members, where `all` lies at an address and these
    /// words at another.
    pub fn words(&self, numbers: u64, own: u64) -> Vec<u64> {
        let place = |at: Option<usize>| at.map_or(0, |at| numbers + 4 * at as u64);
        let entry = |(kind, count, first, second): &Entry| [*kind, *count, place(*first), place(*second)];
        let maps = own + 3 * 8;
        let mut words = vec![numbers, maps, maps + 32 * self.maps.len() as u64];
        words.extend(self.maps.iter().chain(&self.members).flat_map(entry));
        words
    }

    /// How many words there are.
    pub fn count(&self) -> usize {
        3 + 4 * (self.maps.len() + self.members.len())
    }
}

fn number(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::Malformed {
        program: "kernels".to_owned(),
        at: "the graph".to_owned(),
        why: format!("{count} rows are more than kernels count"),
    })
}

fn no_way(fine: Domain, coarse: Domain) -> Error {
    let why = format!("rows of {fine} do not belong to rows of {coarse}");
    Error::Malformed { program: "kernels".to_owned(), at: "the graph".to_owned(), why }
}
