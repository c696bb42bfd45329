//! A graph in GPU memory, as kernels ask for it: rows of every domain, maps and lists of members.
//!
//! How many rows there are stands in GPU memory, beside the lists. Launches are made for a room that rows fit into, so a
//! graph whose lists are filled anew needs no new launch.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

use headwater_cuda::{Allocation, Span, Stream};

use super::block::{DeviceBlock, Room};
use super::table::{Chain, Cut, Table, Tiling};
use super::text::domain_number;
use crate::adjacency::{Adjacency, Map, Members, Tiles};
use crate::error::{Error, Result};
use crate::inter::{Domain, Path, Side};
use crate::intra::most_alone;

/// From one domain to another, along a path.
pub(super) type Way = (Domain, Domain, Path);

/// A map or a list of members as `emitted.cuh` has it: the kind, a count, two addresses.
pub(super) type Entry = [u64; 4];

/// Words before the entries: where counts, maps, members, tiles, orders and chains lie.
const WORDS: usize = 6;

/// More than the threads of a grid, by which kernels stride over rows.
const STRIDE: u32 = 1 << 20;

/// Rows that a thread block adds up in the time that it takes to begin and end a chunk: fewer are not worth one; as `sums.cuh` has it.
const ROWS_A_CHUNK: usize = 128;

/// The kinds of maps, as `emitted.cuh` numbers them.
pub(super) mod map {
    pub const SAME: u64 = 0;
    pub const FIRST: u64 = 1;
    pub const LISTED: u64 = 2;
    pub const STRETCHES: u64 = 3;
    pub const ENDS: u64 = 4;
}

/// The kinds of lists of members, as `emitted.cuh` numbers them.
pub(super) mod members {
    pub const BETWEEN: u64 = 1;
    pub const LISTED: u64 = 2;
    pub const FIRST: u64 = 3;
}

/// A graph, or room for one.
#[derive(Debug)]
pub struct DeviceGraph {
    /// Rows of every domain, in the order of [`Domain::ALL`].
    pub(super) counts: Span,
    /// The most rows of each.
    pub(super) room: [usize; Domain::ALL.len()],
    /// Whether there are always as many rows as there is room for.
    pub(super) is_fixed: bool,
    has_warpgroups: bool,
    pub(super) maps: BTreeMap<Way, Entry>,
    pub(super) members: BTreeMap<Way, Entry>,
    /// Lists of tiles of several types. Where there is one, or every row is one, there is no list.
    pub(super) tiles: BTreeMap<Tiling, Entry>,
    /// Rows of a domain by how many rows of another they have.
    pub(super) orders: BTreeMap<(Domain, Domain), Entry>,
    /// Where members lead to. Where there is no list, maps are followed.
    pub(super) chains: BTreeMap<Chain, Entry>,
    /// All memory that entries point into.
    pub(super) spans: Vec<Span>,
}

impl DeviceGraph {
    /// What some programs ask of a graph, brought to the GPU.
    pub fn of(stream: &Stream, graph: &Adjacency, tables: &[&Table]) -> Result<Self> {
        let room = Domain::ALL.map(|domain| graph.rows(domain));
        let mut numbers = Numbers::default();
        for rows in room {
            numbers.all.push(number(rows)?);
        }
        let (mut maps, mut members) = (BTreeMap::new(), BTreeMap::new());
        for way in tables.iter().flat_map(|table| &table.maps) {
            if !maps.contains_key(way) {
                maps.insert(*way, numbers.map(graph, *way)?);
            }
        }
        for way in tables.iter().flat_map(|table| &table.members) {
            if !members.contains_key(way) {
                members.insert(*way, numbers.members(graph, *way)?);
            }
        }
        let (mut tiles, has_warpgroups) = (BTreeMap::new(), stream.gpu().has_warpgroups());
        for tiling in tables.iter().flat_map(|table| &table.tiles) {
            if let Some(list) = numbers.tiles(graph, *tiling, has_warpgroups)? {
                tiles.insert(*tiling, list);
            }
        }
        let mut orders = BTreeMap::new();
        for (rows, by) in tables.iter().flat_map(|table| &table.orders) {
            if let MapEntry::Vacant(place) = orders.entry((*rows, *by)) {
                place.insert(numbers.order(graph, *rows, *by)?);
            }
        }
        let mut chains = BTreeMap::new();
        for chain in tables.iter().flat_map(|table| &table.chains) {
            if !chains.contains_key(chain)
                && let Some(found) = numbers.chain(graph, chain)?
            {
                chains.insert(chain.clone(), found);
            }
        }
        let all = Span::whole(Allocation::on_stream(stream, 4 * numbers.all.len())?);
        stream.upload(bytemuck::cast_slice(&numbers.all), &all)?;
        let placed = |(kind, count, first, second): Found| {
            let address = |place: Option<usize>| place.map_or(0, |place| all.pointer() + 4 * place as u64);
            [kind, count, address(first), address(second)]
        };
        let maps = maps.into_iter().map(|(way, found)| (way, placed(found))).collect();
        let members = members.into_iter().map(|(way, found)| (way, placed(found))).collect();
        let tiles = tiles.into_iter().map(|(tiling, found)| (tiling, placed(found))).collect();
        let orders = orders.into_iter().map(|(rows, found)| (rows, placed(found))).collect();
        let chains = chains.into_iter().map(|(chain, found)| (chain, placed(found))).collect();
        let (counts, spans) = (all.clone(), vec![all]);
        Ok(Self { counts, room, is_fixed: true, has_warpgroups, maps, members, tiles, orders, chains, spans })
    }

    /// A block of a sample, whose tables are filled batch by batch: one node type, one relation, no pairs.
    #[must_use]
    pub fn of_block(block: &DeviceBlock) -> Self {
        use Domain::{Const, Edge, EdgeType, Node, NodeType, Pair};
        const SRC: Domain = Node(Side::Src);
        const DST: Domain = Node(Side::Dst);
        let (Room { src, dst, .. }, edges) = (block.room(), block.most_edges());
        let room = Domain::ALL.map(|domain| match domain {
            Const | NodeType | EdgeType => 1,
            SRC => src,
            DST => dst,
            Edge => edges,
            Pair(_) => 0,
        });
        let listed = |list: &Span| [map::LISTED, 0, list.pointer(), 0];
        let mut maps = BTreeMap::from([
            ((Edge, SRC, Path::Only), listed(block.src())),
            ((Edge, DST, Path::Only), listed(block.dst())),
            ((DST, SRC, Path::Only), [map::SAME, 0, 0, 0]),
        ]);
        let ranges = |place: u64| [members::BETWEEN, 0, block.ranges().pointer() + 8 * place, 0];
        let mut lists = BTreeMap::from([
            ((DST, Edge, Path::Only), [members::BETWEEN, 0, block.dst_starts().pointer(), 0]),
            ((SRC, DST, Path::Only), [members::FIRST, 0, block.ranges().pointer() + 8, 0]),
        ]);
        if let (Some(starts), Some(edges)) = (block.src_starts(), block.src_edges()) {
            lists.insert((SRC, Edge, Path::Only), [members::LISTED, 0, starts.pointer(), edges.pointer()]);
        }
        // Kernels look for hubs of a block, which change from batch to batch.
        let by_starts = |starts: &Span| [map::STRETCHES, 0, 0, starts.pointer()];
        let mut orders = BTreeMap::from([((DST, Edge), by_starts(block.dst_starts()))]);
        orders.extend(block.src_starts().map(|starts| ((SRC, Edge), by_starts(starts))));
        // A weight's own rows may be multiplied by another weight: every row is the row that it is.
        maps.extend(Domain::ALL.map(|own| ((own, own, Path::Only), [map::SAME, 0, 0, 0])));
        // There is one of each type, and every row is of it.
        let paths = [Path::Only, Path::By(Side::Src), Path::By(Side::Dst)];
        for (fine, coarse, path) in Domain::ALL.iter().flat_map(|fine| {
            [Const, NodeType, EdgeType].into_iter().flat_map(move |coarse| paths.map(|path| (*fine, coarse, path)))
        }) {
            if fine.maps_to(coarse, path) {
                maps.insert((fine, coarse, path), [map::FIRST, 0, 0, 0]);
                let place = [SRC, DST, Edge].iter().position(|domain| *domain == fine);
                place.map(|place| lists.insert((coarse, fine, path), ranges(place as u64)));
            }
        }
        let all = [block.counts(), block.ranges(), block.src(), block.dst(), block.dst_starts()];
        let spans = all.into_iter().chain(block.src_starts()).chain(block.src_edges()).cloned().collect();
        Self {
            counts: block.counts().clone(),
            room,
            is_fixed: false,
            has_warpgroups: block.counts().allocation().gpu().has_warpgroups(),
            maps,
            members: lists,
            tiles: BTreeMap::new(),
            orders,
            chains: BTreeMap::new(),
            spans,
        }
    }

    /// The most rows that a domain can have.
    #[must_use]
    pub fn room(&self, domain: Domain) -> usize {
        self.room[domain_number(domain)]
    }

    /// Bytes of its lists.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.spans.iter().map(Span::bytes).sum()
    }

    /// Where the number of rows of a domain lies: 32 bits.
    #[must_use]
    pub fn count(&self, domain: Domain) -> Option<Span> {
        self.counts.part(4 * domain_number(domain), 4)
    }

    /// The most pieces that rows are cut into.
    pub(super) fn most_tiles(&self, tiling: Tiling) -> usize {
        let rows = self.room(tiling.rows);
        match (self.tiles.get(&tiling), tiling.cut) {
            (Some([_, count, ..]), _) => usize::try_from(*count).unwrap_or(usize::MAX),
            (None, _) if tiling.rows == tiling.types => rows,
            (None, Cut::Chunks(most)) => rows.min(most),
            (None, cut) => rows.div_ceil(cut.most(self.has_warpgroups).max(1)),
        }
    }

    /// Rows that are known to be so long that each has a thread block.
    pub(super) fn hub_count(&self, rows: Domain, by: Domain) -> usize {
        match self.orders.get(&(rows, by)) {
            Some([map::LISTED, count, ..]) => usize::try_from(*count).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    /// Whether it has everything that a program asks for.
    #[must_use]
    pub fn serves(&self, table: &Table) -> bool {
        let has = |ways: &[Way], known: &BTreeMap<Way, Entry>| ways.iter().all(|way| known.contains_key(way));
        let has_tiles = table.tiles.iter().all(|tiling| self.tile_entry(*tiling).is_some());
        let has_orders = table.orders.iter().all(|rows| self.orders.contains_key(rows));
        has(&table.maps, &self.maps) && has(&table.members, &self.members) && has_tiles && has_orders
    }

    /// What kernels are told of rows in pieces: a list, or that there is one type, or that every row is a type.
    fn tile_entry(&self, tiling: Tiling) -> Option<Entry> {
        let most = tiling.cut.most(self.has_warpgroups) as u64;
        match self.tiles.get(&tiling) {
            Some(list) => Some(*list),
            // Such tiles are always a list.
            None if matches!(tiling.cut, Cut::ByNodes(..)) => None,
            None if tiling.rows == tiling.types => Some([map::SAME, most, 0, 0]),
            None if tiling.types == Domain::Const || !self.is_fixed => Some([map::FIRST, most, 0, 0]),
            None => None,
        }
    }

    /// How many words [`Self::words`] has.
    pub(super) fn word_count(table: &Table) -> usize {
        let entries =
            table.maps.len() + table.members.len() + table.tiles.len() + table.orders.len() + table.chains.len();
        WORDS + size_of::<Entry>() / 8 * entries
    }

    /// Kinds of the entries of [`Self::words`], and which buffers are rows of larger tables: those of the first of every sort, of the
    /// second and so on, as `emitted.cuh` reads them.
    pub(super) fn kinds(&self, table: &Table, is_picked: &[bool]) -> String {
        let kind = |entry: Option<&Entry>| entry.map_or(map::SAME, |entry| entry[0]);
        let sorts: [Vec<u64>; 6] = [
            table.maps.iter().map(|way| kind(self.maps.get(way))).collect(),
            table.members.iter().map(|way| kind(self.members.get(way))).collect(),
            table.tiles.iter().map(|tiling| kind(self.tile_entry(*tiling).as_ref())).collect(),
            table.orders.iter().map(|rows| kind(self.orders.get(rows))).collect(),
            table.chains.iter().map(|chain| kind(self.chains.get(chain))).collect(),
            is_picked.iter().map(|is_picked| u64::from(*is_picked)).collect(),
        ];
        let longest = sorts.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let one = |at: usize| sorts.iter().map(move |sort| sort.get(at).copied().unwrap_or(0).to_string());
        (0..longest).flat_map(one).collect::<Vec<_>>().join(",")
    }

    /// Words of the struct that kernels get, of maps, members, tiles and orders, where these words lie at an address.
    pub(super) fn words(&self, table: &Table, own: u64) -> Result<Vec<u64>> {
        let maps = own + 8 * WORDS as u64;
        let members = maps + (size_of::<Entry>() * table.maps.len()) as u64;
        let tiles = members + (size_of::<Entry>() * table.members.len()) as u64;
        let orders = tiles + (size_of::<Entry>() * table.tiles.len()) as u64;
        let chains = orders + (size_of::<Entry>() * table.orders.len()) as u64;
        let mut words = vec![self.counts.pointer(), maps, members, tiles, orders, chains];
        for (way, known) in
            table.maps.iter().map(|way| (way, &self.maps)).chain(table.members.iter().map(|way| (way, &self.members)))
        {
            words.extend(known.get(way).ok_or_else(|| no_way(*way))?);
        }
        for tiling in &table.tiles {
            let way = (tiling.rows, tiling.types, tiling.path);
            words.extend(self.tile_entry(*tiling).ok_or_else(|| no_way(way))?);
        }
        for (rows, by) in &table.orders {
            words.extend(self.orders.get(&(*rows, *by)).ok_or_else(|| no_way((*rows, *by, Path::Only)))?);
        }
        for chain in &table.chains {
            words.extend(self.chains.get(chain).unwrap_or(&[map::SAME, 0, 0, 0]));
        }
        Ok(words)
    }
}

/// The kind, a count, and where two arrays begin among the numbers.
type Found = (u64, u64, Option<usize>, Option<usize>);

/// Rows of every domain, then all arrays.
#[derive(Default)]
struct Numbers {
    all: Vec<u32>,
}

impl Numbers {
    fn map(&mut self, graph: &Adjacency, way: Way) -> Result<Found> {
        Ok(match graph.map(way.0, way.1, way.2).ok_or_else(|| no_way(way))? {
            Map::Same => (map::SAME, 0, None, None),
            Map::First => (map::FIRST, 0, None, None),
            Map::Listed(list) => (map::LISTED, list.len() as u64, Some(self.put(list)), None),
            Map::Stretches(starts) => (map::STRETCHES, starts.len() as u64 - 1, None, Some(self.starts(starts)?)),
            Map::Ends(starts, ends, side) => {
                let list: Vec<u32> = ends.iter().map(|ends| ends[side as usize]).collect();
                (map::ENDS, starts.len() as u64 - 1, Some(self.put(&list)), Some(self.starts(starts)?))
            }
        })
    }

    fn members(&mut self, graph: &Adjacency, way: Way) -> Result<Found> {
        Ok(match graph.members(way.0, way.1, way.2).ok_or_else(|| no_way(way))? {
            Members::All(count) => (members::BETWEEN, 0, Some(self.starts(&[0, count])?), None),
            Members::Between(starts) => (members::BETWEEN, 0, Some(self.starts(&starts)?), None),
            Members::Listed { starts, rows } => {
                (members::LISTED, 0, Some(self.starts(&starts)?), Some(self.put(&rows)))
            }
        })
    }

    /// A list of tiles, where there may be several types.
    fn tiles(&mut self, graph: &Adjacency, tiling: Tiling, has_warpgroups: bool) -> Result<Option<Found>> {
        let Tiling { rows, types, path, cut } = tiling;
        let whole = |tiles: Option<Tiles>| tiles.map(|tiles| (tiles, Vec::new()));
        let tiles = match cut {
            Cut::Tiles(_) | Cut::GroupTiles => whole(graph.tiles(rows, types, path, cut.most(has_warpgroups))),
            Cut::Chunks(most) => graph.shares(rows, (types, path), most, ROWS_A_CHUNK),
            Cut::ByNodes(by, most) => whole(graph.tiles_by_nodes(rows, by, (types, path), most)),
        };
        let Some((tiles, shares)) = tiles else { return Ok(None) };
        let mut words = Vec::with_capacity(3 * tiles.all.len());
        for tile in &tiles.all {
            words.extend([number(tile.of_type)?, number(tile.first)?, number(tile.count)?]);
        }
        // Behind the tiles, of those that are chunks: how many shares there are, and the first tile of each.
        if let Some(count) = shares.len().checked_sub(1) {
            words.push(number(count)?);
            shares.iter().try_for_each(|first| number(*first).map(|first| words.push(first)))?;
        }
        let (count, all) = (tiles.all.len() as u64, self.put(&words));
        Ok(Some((map::LISTED, count, Some(all), Some(self.starts(&tiles.starts)?))))
    }

    /// All rows by how many rows of another domain they have. The longest, each of which a thread block has, one after the other; others by
    /// powers of two, so that neighbours that are about as long stay neighbours.
    fn order(&mut self, graph: &Adjacency, rows: Domain, by: Domain) -> Result<Found> {
        let missing = || no_way((rows, by, Path::Only));
        let lengths: Vec<usize> = if by == Domain::Edge {
            let starts = graph.edge_starts(rows).ok_or_else(missing)?;
            starts.windows(2).map(|bounds| bounds[1] - bounds[0]).collect()
        } else {
            let members = graph.members(rows, by, Path::Only).ok_or_else(missing)?;
            (0..graph.rows(rows)).map(|row| members.count(row)).collect()
        };
        let alone = most_alone(by, graph.rows(rows) as f64, graph.rows(by) as f64);
        let (mut hubs, mut others) = (Vec::new(), vec![Vec::new(); 1 + usize::BITS as usize]);
        for (row, length) in lengths.iter().enumerate() {
            let bits = (usize::BITS - length.leading_zeros()) as usize;
            let list = if *length as f64 > alone { &mut hubs } else { &mut others[bits] };
            list.push(number(row)?);
        }
        hubs.sort_by_key(|row| Reverse(lengths[*row as usize]));
        let (count, list) = (hubs.len() as u64, self.put(&hubs));
        others.iter().rev().for_each(|rows| _ = self.put(rows));
        Ok((map::LISTED, count, Some(list), None))
    }

    /// Where members lead to, member after member; `None` where a map has that list already.
    fn chain(&mut self, graph: &Adjacency, chain: &Chain) -> Result<Option<Found>> {
        let (coarse, mut domain, path) = chain.members;
        let members = graph.members(coarse, domain, path).ok_or_else(|| no_way(chain.members))?;
        let mut maps = Vec::with_capacity(chain.hops.len());
        for hop in &chain.hops {
            let way = (domain, hop.to, hop.path);
            maps.push(graph.map(domain, hop.to, hop.path).ok_or_else(|| no_way(way))?);
            domain = hop.to;
        }
        let led_to = |member: usize| number(maps.iter().fold(member, |row, map| map.get(row)));
        let list: Vec<u32> = match (&members, maps.as_slice()) {
            (_, [Map::First]) => return Ok(None),
            (Members::Listed { rows, .. }, _) => {
                rows.iter().map(|member| led_to(*member as usize)).collect::<Result<_>>()?
            }
            (_, [Map::Listed(_) | Map::Same]) => return Ok(None),
            _ => (0..graph.rows(chain.members.1)).map(led_to).collect::<Result<_>>()?,
        };
        Ok(Some((map::LISTED, list.len() as u64, Some(self.put(&list)), None)))
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
}

/// A number that kernels can count to, and a stride behind it.
fn number(count: usize) -> Result<u32> {
    u32::try_from(count).ok().filter(|count| *count < u32::MAX - STRIDE).ok_or_else(|| Error::Malformed {
        program: "kernels".to_owned(),
        at: "the graph".to_owned(),
        why: format!("{count} rows are more than kernels count"),
    })
}

fn no_way((from, to, _): Way) -> Error {
    let why = format!("there is no way between rows of {from} and rows of {to}");
    Error::Malformed { program: "kernels".to_owned(), at: "the graph".to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intra::Hop;
    use crate::testing::Recipe;

    const PAIR: Domain = Domain::Pair(Side::Dst);

    /// All rows once: hubs by how long they are, others by powers of two, and neighbours as they were.
    #[test]
    fn the_longest_rows_come_first() {
        let recipe = Recipe { nodes: vec![(60, 60)], relations: vec![(0, 0); 20], most_edges: 40, empty_every: 5 };
        let (graph, mut most_hubs) = (recipe.graph(2), 0);
        for rows in [Domain::Node(Side::Dst), Domain::Node(Side::Src), PAIR] {
            let mut numbers = Numbers::default();
            let (_, hubs, ..) = numbers.order(&graph, rows, Domain::Edge).unwrap();
            let list: Vec<usize> = numbers.all.iter().map(|row| *row as usize).collect();
            let starts = graph.edge_starts(rows).unwrap();
            let length = |row: usize| starts[row + 1] - starts[row];
            let alone = most_alone(Domain::Edge, graph.rows(rows) as f64, graph.rows(Domain::Edge) as f64);
            let hubs = usize::try_from(hubs).unwrap();
            most_hubs = most_hubs.max(hubs);
            assert_eq!(hubs, (0..graph.rows(rows)).filter(|row| length(*row) as f64 > alone).count());
            assert!(list[..hubs].windows(2).all(|two| length(two[0]) >= length(two[1])));
            let bits = |row: usize| usize::BITS - length(row).leading_zeros();
            let key = |row: usize| (Reverse(bits(row)), row);
            assert!(list[hubs..].windows(2).all(|two| key(two[0]) < key(two[1])), "{rows}: {list:?}");
            let mut sorted = list;
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..graph.rows(rows)));
        }
        assert!(most_hubs > 1);
    }

    /// A list has what maps say of each member; where a map is such a list already there is none.
    #[test]
    fn chains_lead_where_maps_do() {
        let graph = Recipe::block().graph(2);
        let hop = |to: Domain| Hop { to, path: Path::Only };
        let (src, dst) = (Domain::Node(Side::Src), Domain::Node(Side::Dst));
        for (coarse, hops) in
            [(src, vec![hop(dst)]), (src, vec![hop(PAIR), hop(Domain::EdgeType)]), (PAIR, vec![hop(Domain::EdgeType)])]
        {
            let chain = Chain { members: (coarse, Domain::Edge, Path::Only), hops };
            let mut numbers = Numbers::default();
            assert!(numbers.chain(&graph, &chain).unwrap().is_some());
            let mut wanted = Vec::new();
            let members = graph.members(coarse, Domain::Edge, Path::Only).unwrap();
            for row in 0..graph.rows(coarse) {
                members.visit(row, |edge| {
                    let (mut domain, mut at) = (Domain::Edge, edge);
                    for hop in &chain.hops {
                        at = graph.map(domain, hop.to, hop.path).unwrap().get(at);
                        domain = hop.to;
                    }
                    wanted.push(number(at).unwrap());
                });
            }
            assert_eq!(numbers.all, wanted, "{chain:?}");
        }
        let known = Chain { members: (PAIR, Domain::Edge, Path::Only), hops: vec![hop(src)] };
        assert_eq!(Numbers::default().chain(&graph, &known).unwrap(), None);
    }
}
