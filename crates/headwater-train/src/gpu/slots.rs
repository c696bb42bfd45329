//! Room for batches of one node type and one relation: two, of which one is trained on while the other is filled.

use std::collections::BTreeMap;

use headwater_compile::cuda::{DeviceBlock, DeviceGraph, Lists, Wants};
use headwater_compile::inter::{Domain, Path, Side};
use headwater_cuda::{Allocation, Event, Span, Stream};

use super::beside::shelf::Shelf;
use super::capacity::Capacity;
use super::draw::Drawn;
use super::layers::{Activations, DeviceLayer};
use super::passes::Brought;
use super::site::{Ground, Shared, Site, rows};
use super::step_memory::StepMemory;
use crate::blocks::SelfLoops;
use crate::blocks::scales::DeviceScales;
use crate::error::Result;

/// Batches that there is room for at a time.
pub(crate) const SLOTS: usize = 2;

/// Room for batches up to a capacity.
#[derive(Debug)]
pub(crate) struct Slots {
    pub capacity: Capacity,
    pub shelf: Shelf,
    pub all: Vec<Slot>,
    _activations: Activations,
}

/// Room for one batch.
#[derive(Debug)]
pub(crate) struct Slot {
    pub site: Site,
    blocks: Vec<DeviceBlock>,
    room: Span,
    shelf: Shelf,
    scales: Vec<Option<DeviceScales>>,
    /// When the letter had been read.
    pub read: Option<Event>,
    /// When training was done with it.
    pub free: Option<Event>,
}

/// Where features of a slot lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// In memory that this process alone uses.
    Own,
    /// In memory that another process maps, together with the lists of a batch.
    Shared,
}

/// What slots are for.
pub(crate) struct Sizing<'a> {
    pub shared: &'a Shared<'a>,
    pub capacity: Capacity,
    pub loops: SelfLoops,
    /// Elements of a row of features.
    pub width: usize,
    /// Seeds of a batch.
    pub seeds: usize,
    /// Whether layers ask for scales of a graph convolution.
    pub needs_scales: bool,
    pub home: Home,
}

impl Sizing<'_> {
    fn shelf(&self) -> Shelf {
        Shelf::of(&self.capacity.blocks, self.width)
    }
}

impl Slots {
    /// Memory and launches for batches up to a capacity.
    pub fn new(stream: &Stream, sizing: Sizing<'_>) -> Result<Self> {
        let made: Vec<Made> = (0..SLOTS).map(|_| Made::new(stream, &sizing)).collect::<Result<_>>()?;
        let graphs: Vec<&DeviceGraph> = made.first().map_or_else(Vec::new, |made| made.graphs.iter().collect());
        let activations = Activations::new(stream, sizing.shared.layers, &graphs)?;
        let all = made.into_iter().map(|made| made.slot(stream, &sizing, &activations)).collect::<Result<_>>()?;
        Ok(Self { shelf: sizing.shelf(), capacity: sizing.capacity, all, _activations: activations })
    }

    /// Bytes that slots of a capacity take, without making them.
    pub fn bytes(stream: &Stream, sizing: &Sizing<'_>) -> Result<usize> {
        let made = Made::new(stream, sizing)?;
        let graphs: Vec<&DeviceGraph> = made.graphs.iter().collect();
        let edges: usize = made.blocks.iter().map(|block| 64 * block.most_edges()).sum();
        Ok(SLOTS * (made.room.bytes() + edges) + Activations::bytes(sizing.shared.layers, &graphs))
    }
}

/// A slot before it has a site.
struct Made {
    blocks: Vec<DeviceBlock>,
    graphs: Vec<DeviceGraph>,
    room: Span,
    scales: Vec<Option<DeviceScales>>,
}

impl Made {
    fn new(stream: &Stream, sizing: &Sizing<'_>) -> Result<Self> {
        let (mut blocks, mut graphs, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        for (layer, room) in sizing.shared.layers.iter().zip(&sizing.capacity.blocks) {
            let wants = Wants { by_source: asks_by_source(layer), self_loops: sizing.loops };
            let block = DeviceBlock::new(stream, *room, wants)?;
            graphs.push(DeviceGraph::of_block(&block));
            blocks.push(block);
            scales.push(if sizing.needs_scales { Some(DeviceScales::new(stream, *room)?) } else { None });
        }
        let shelf = sizing.shelf();
        let room = Span::whole(match sizing.home {
            Home::Own => Allocation::on_stream(stream, (4 * shelf.nodes * shelf.width).max(16))?,
            Home::Shared => Allocation::shareable(stream.gpu(), shelf.bytes())?,
        });
        Ok(Self { blocks, graphs, room, scales })
    }

    fn slot(self, stream: &Stream, sizing: &Sizing<'_>, activations: &Activations) -> Result<Slot> {
        let Self { blocks, graphs, room, scales } = self;
        let shelf = sizing.shelf();
        let graphs: Vec<&DeviceGraph> = graphs.iter().collect();
        let extras: Vec<BTreeMap<String, Span>> =
            scales.iter().map(|own| own.as_ref().map_or_else(BTreeMap::new, named)).collect();
        let letter = Site::letter(stream, sizing.shared, sizing.seeds)?;
        let keys = Site::keys(&letter, sizing.shared.layers.len())?;
        let brought = Brought { graphs: &graphs, x: rows(&shelf.all_rows(&room)?), extras: &extras, keys };
        let ground = Ground { brought, memory: StepMemory::Kept(activations), first_row: 0, most_rows: sizing.seeds };
        let site = Site::new(stream, sizing.shared, letter, &ground)?;
        Ok(Slot { site, blocks, room, shelf, scales, read: None, free: None })
    }
}

impl Slot {
    /// Queues the tables of a batch's blocks, and the scales of its nodes.
    pub fn fill(&self, stream: &Stream, drawn: &Drawn, degrees: Option<&Span>) -> Result<()> {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let own = match drawn.own_lists() {
            Some(own) => own.clone(),
            None => self.shelf.lists(&self.room, drawn.nodes())?,
        };
        for ((block, sizes), scales) in self.blocks.iter().zip(&drawn.sizes).zip(&self.scales) {
            let (edges, src, dst) = (number(sizes.edges), number(sizes.src), number(sizes.dst));
            let lists = Lists { sources: &own.sources, targets: &own.targets, edges, src, dst };
            block.fill(stream, &lists)?;
            if let (Some(scales), Some(degrees)) = (scales, degrees) {
                scales.fill(stream, degrees, &own.ids, block)?;
            }
        }
        Ok(())
    }

    /// Where the features of a batch go.
    pub fn rows(&self, drawn: &Drawn) -> Result<Span> {
        self.shelf.rows(&self.room, drawn.nodes())
    }

    /// Its memory.
    pub fn room(&self) -> &Span {
        &self.room
    }
}

/// Which slot a batch has.
pub(crate) fn place(at: u64) -> usize {
    usize::try_from(at % SLOTS as u64).unwrap_or(0)
}

/// Whether gradients of a layer run along the edges of each source.
fn asks_by_source(layer: &DeviceLayer) -> bool {
    let way = (Domain::Node(Side::Src), Domain::Edge, Path::Only);
    layer.tables().iter().any(|table| table.members.contains(&way))
}

fn named(scales: &DeviceScales) -> BTreeMap<String, Span> {
    scales.named().into_iter().map(|(name, span)| (name.to_owned(), span.clone())).collect()
}
