//! Room for batches of one node type and one relation: two, of which one is trained on while the other is filled.

use std::collections::BTreeMap;

use headwater_compile::cuda::{DeviceBlock, DeviceGraph, Lists, Wants};
use headwater_compile::inter::{Domain, Path, Side};
use headwater_cuda::{Allocation, Event, Span, Stream};

use super::capacity::Capacity;
use super::draw::Drawn;
use super::layers::{Activations, DeviceLayer};
use super::passes::Brought;
use super::site::{Ground, Shared, Site, rows};
use crate::blocks::SelfLoops;
use crate::blocks::scales::DeviceScales;
use crate::error::{Error, Result};

/// Batches that there is room for at a time.
pub(crate) const SLOTS: usize = 2;

/// Room for batches up to a capacity.
#[derive(Debug)]
pub(crate) struct Slots {
    pub capacity: Capacity,
    pub all: Vec<Slot>,
    _activations: Activations,
}

/// Room for one batch.
#[derive(Debug)]
pub(crate) struct Slot {
    pub site: Site,
    blocks: Vec<DeviceBlock>,
    x: Span,
    row_bytes: usize,
    scales: Vec<Option<DeviceScales>>,
    /// When the letter had been read.
    pub read: Option<Event>,
    /// When training was done with it.
    pub free: Option<Event>,
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
}

impl Slots {
    /// Memory and launches for batches up to a capacity.
    pub fn new(stream: &Stream, sizing: Sizing<'_>) -> Result<Self> {
        let made: Vec<Made> = (0..SLOTS).map(|_| Made::new(stream, &sizing)).collect::<Result<_>>()?;
        let graphs: Vec<&DeviceGraph> = made.first().map_or_else(Vec::new, |made| made.graphs.iter().collect());
        let activations = Activations::new(stream, sizing.shared.layers, &graphs)?;
        let all = made.into_iter().map(|made| made.slot(stream, &sizing, &activations)).collect::<Result<_>>()?;
        Ok(Self { capacity: sizing.capacity, all, _activations: activations })
    }

    /// Bytes that slots of a capacity take, without making them.
    pub fn bytes(stream: &Stream, sizing: &Sizing<'_>) -> Result<usize> {
        let made = Made::new(stream, sizing)?;
        let graphs: Vec<&DeviceGraph> = made.graphs.iter().collect();
        let edges: usize = made.blocks.iter().map(|block| 64 * block.most_edges()).sum();
        Ok(SLOTS * (made.x.bytes() + edges) + Activations::bytes(sizing.shared.layers, &graphs))
    }
}

/// A slot before it has a site.
struct Made {
    blocks: Vec<DeviceBlock>,
    graphs: Vec<DeviceGraph>,
    x: Span,
    scales: Vec<Option<DeviceScales>>,
}

impl Made {
    fn new(stream: &Stream, sizing: &Sizing<'_>) -> Result<Self> {
        let (mut blocks, mut graphs, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        for (layer, room) in sizing.shared.layers.iter().zip(&sizing.capacity.blocks) {
            let wants = Wants { by_source: asks_by_source(layer), self_loops: sizing.loops == SelfLoops::Added };
            let block = DeviceBlock::new(stream, *room, wants)?;
            graphs.push(DeviceGraph::of_block(&block));
            blocks.push(block);
            scales.push(if sizing.needs_scales { Some(DeviceScales::new(stream, *room)?) } else { None });
        }
        let most = sizing.capacity.blocks.first().map_or(0, |room| room.src);
        let x = Span::whole(Allocation::on_stream(stream, (4 * most * sizing.width).max(16))?);
        Ok(Self { blocks, graphs, x, scales })
    }

    fn slot(self, stream: &Stream, sizing: &Sizing<'_>, activations: &Activations) -> Result<Slot> {
        let Self { blocks, graphs, x, scales } = self;
        let graphs: Vec<&DeviceGraph> = graphs.iter().collect();
        let extras: Vec<BTreeMap<String, Span>> =
            scales.iter().map(|own| own.as_ref().map_or_else(BTreeMap::new, named)).collect();
        let letter = Site::letter(stream, sizing.shared, sizing.seeds)?;
        let keys = Site::keys(&letter, sizing.shared.layers.len())?;
        let brought = Brought { graphs: &graphs, x: rows(&x), extras: &extras, keys };
        let ground = Ground { brought, activations, first_row: 0, most_rows: sizing.seeds };
        let site = Site::new(stream, sizing.shared, letter, &ground)?;
        let row_bytes = 4 * sizing.width;
        Ok(Slot { site, blocks, x, row_bytes, scales, read: None, free: None })
    }
}

impl Slot {
    /// Queues the tables of a batch's blocks, and the scales of its nodes.
    pub fn fill(&self, stream: &Stream, drawn: &Drawn, degrees: Option<&Span>) -> Result<()> {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        for ((block, sizes), scales) in self.blocks.iter().zip(&drawn.sizes).zip(&self.scales) {
            let (edges, src, dst) = (number(sizes.edges), number(sizes.src), number(sizes.dst));
            let lists = Lists { sources: &drawn.sources, targets: &drawn.targets, edges, src, dst };
            block.fill(stream, &lists)?;
            if let (Some(scales), Some(degrees)) = (scales, degrees) {
                scales.fill(stream, degrees, &drawn.ids, block)?;
            }
        }
        Ok(())
    }

    /// Where the features of a batch go.
    pub fn rows(&self, drawn: &Drawn) -> Result<Span> {
        let bytes = drawn.ids.bytes() / 8 * self.row_bytes;
        let short = || Error::Length { what: "room for features".to_owned(), found: self.x.bytes(), expected: bytes };
        self.x.part(0, bytes).ok_or_else(short)
    }
}

/// Whether gradients of a layer run along the edges of each source.
fn asks_by_source(layer: &DeviceLayer) -> bool {
    let way = (Domain::Node(Side::Src), Domain::Edge, Path::Only);
    layer.tables().iter().any(|table| table.members.contains(&way))
}

fn named(scales: &DeviceScales) -> BTreeMap<String, Span> {
    scales.named().into_iter().map(|(name, span)| (name.to_owned(), span.clone())).collect()
}
