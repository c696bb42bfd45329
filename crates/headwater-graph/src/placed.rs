//! A graph where its sampler reads it: in host memory, in pinned memory a GPU reads, in a GPU's own memory, or spread over
//! the memories of a group of GPUs.
//!
//! Pinned means: large columns are registered where they lie, without a copy. Memory that cannot be registered (some file
//! mappings) is copied into memory that can. When neither goes, because the system limits what may be locked, the graph
//! steps down to the next storage and says so once. Everything is given back when the graph is dropped.

use headwater_cuda::{Allocation, Error as CudaError, Gpu, Span, Stream};
use headwater_memory::{Capacity, Foreign, Uploader, pin};

use crate::column::Ids;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::interleave::{Interleave, Interleaved};
use crate::place::{Storage, Wish, attempts};
use crate::topology::Topology;
use crate::width::IdWidth;

/// A graph in its place. Clones share it.
#[derive(Debug, Clone)]
pub struct PlacedGraph {
    graph: Graph,
    storage: Storage,
    gpu: Option<Gpu>,
    /// How every array is spread, when it is.
    spread: Option<Interleave>,
    /// Ordinals of the GPUs that read it, when it is spread over them.
    group: Vec<usize>,
    relations: Vec<PlacedRelation>,
}

/// The arrays of one relation as kernels read them.
#[derive(Debug, Clone)]
pub struct PlacedRelation {
    /// u64 each, one more than rows.
    pub offsets: PlacedArray,
    /// One an edge.
    pub neighbours: PlacedIds,
    /// One an edge, unless edges are named by their positions.
    pub edge_ids: Option<PlacedIds>,
    /// f32, one an edge.
    pub weights: Option<PlacedArray>,
    /// i64, one an edge.
    pub times: Option<PlacedArray>,
}

/// An array as kernels read it.
#[derive(Debug, Clone)]
pub enum PlacedArray {
    /// In one piece.
    Whole(Span),
    /// A share with every member of a group.
    Spread(Interleaved),
}

impl PlacedArray {
    /// The array, for kernels that read only what is in one piece.
    pub fn whole(&self) -> Result<&Span> {
        match self {
            Self::Whole(span) => Ok(span),
            Self::Spread(_) => Err(Error::Options { why: "this needs a graph that is not spread over a group" }),
        }
    }
}

/// Ids of either width.
#[derive(Debug, Clone)]
pub struct PlacedIds {
    /// The ids.
    pub array: PlacedArray,
    /// How wide they are.
    pub width: IdWidth,
}

impl PlacedGraph {
    /// Puts a graph where `wish` says, for `gpu`. Without a GPU only `Auto` and `Cpu` can be had.
    pub fn new(graph: &Graph, wish: Wish, gpu: Option<&Gpu>) -> Result<Self> {
        let Some(gpu) = gpu else {
            return match wish {
                Wish::Auto | Wish::In(Storage::Cpu) => Ok(Self::on_host(graph, None)),
                Wish::In(_) => Err(CudaError::NoDevice { asked: 0, count: 0 }.into()),
            };
        };
        let tried = attempts(wish, graph.bytes(), &Capacity::now(Some(gpu))?);
        let mut refused = None;
        for (at, storage) in tried.iter().enumerate() {
            match Self::try_in(graph, *storage, gpu) {
                Ok(placed) => {
                    if let Some(why) = refused {
                        log::warn!("the graph is kept in {storage} storage, because a better one has no room: {why}");
                    }
                    return Ok(placed);
                }
                Err(why) if at + 1 < tried.len() && is_out_of_memory(&why) => refused = Some(why),
                Err(why) => return Err(why),
            }
        }
        Ok(Self::on_host(graph, Some(gpu)))
    }

    /// Spreads a graph over the memories of a group of GPUs that read each other's, blocks of 2^`block_log2` elements
    /// in turn. Short blocks share hubs evenly; [`PlacedGraph::BLOCK_LOG2`] also keeps most lists in one piece.
    pub fn spread(graph: &Graph, group: &[Gpu], block_log2: u32) -> Result<Self> {
        let spread = |array: &Foreign, width| {
            Ok(PlacedArray::Spread(Interleaved::from_bytes(group, block_log2, width, array.as_slice())?))
        };
        let relations = place(graph, spread)?;
        let rule = Interleave::new(group.len(), block_log2);
        let gpu = group.first().cloned();
        let group = group.iter().map(Gpu::ordinal).collect();
        Ok(Self { graph: graph.clone(), storage: Storage::Cuda, gpu, spread: rule, group, relations })
    }

    /// 4 KiB of ids of 32 bits.
    pub const BLOCK_LOG2: u32 = 10;

    /// The same graph for another member of its group. Fails for a GPU that is none.
    pub fn seen_from(&self, member: &Gpu) -> Result<Self> {
        if !self.group.contains(&member.ordinal()) {
            return Err(Error::Options { why: "the graph is not spread over a group that this GPU is a member of" });
        }
        Ok(Self { gpu: Some(member.clone()), ..self.clone() })
    }

    /// The graph in host memory.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Where it lies.
    #[must_use]
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// The GPU it was placed for.
    #[must_use]
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref()
    }

    /// How its arrays are spread over a group, when they are.
    #[must_use]
    pub fn spread_rule(&self) -> Option<Interleave> {
        self.spread
    }

    /// What kernels read, in the schema's order; nothing in [`Storage::Cpu`].
    #[must_use]
    pub fn relations(&self) -> &[PlacedRelation] {
        &self.relations
    }

    /// Fails when work on `stream` cannot read the graph.
    pub(crate) fn check_stream(&self, stream: &Stream) -> Result<()> {
        if self.storage == Storage::Cpu {
            return Err(Error::Options { why: "a GPU reads graphs in cuda or zero-copy storage only" });
        }
        if self.gpu.as_ref().is_some_and(|gpu| gpu.ordinal() == stream.gpu().ordinal()) {
            return Ok(());
        }
        Err(Error::Options { why: "the stream belongs to another GPU than the graph was placed for" })
    }

    fn on_host(graph: &Graph, gpu: Option<&Gpu>) -> Self {
        let (graph, gpu) = (graph.clone(), gpu.cloned());
        Self { graph, storage: Storage::Cpu, gpu, spread: None, group: Vec::new(), relations: Vec::new() }
    }

    fn try_in(graph: &Graph, storage: Storage, gpu: &Gpu) -> Result<Self> {
        let relations = match storage {
            Storage::Cpu => return Ok(Self::on_host(graph, Some(gpu))),
            Storage::ZeroCopy => place(graph, |array, _| Ok(PlacedArray::Whole(pin(gpu, array)?)))?,
            Storage::Cuda => uploaded(graph, gpu)?,
        };
        let (graph, gpu) = (graph.clone(), Some(gpu.clone()));
        Ok(Self { graph, storage, gpu, spread: None, group: Vec::new(), relations })
    }
}

/// Puts an array, whose elements are so wide, in its place.
type Put<'a> = dyn FnMut(&Foreign, IdWidth) -> Result<PlacedArray> + 'a;

/// Puts every array of every relation in its place.
fn place(graph: &Graph, mut put: impl FnMut(&Foreign, IdWidth) -> Result<PlacedArray>) -> Result<Vec<PlacedRelation>> {
    graph.relations().iter().map(|topology| place_relation(topology, &mut put)).collect()
}

fn place_relation(topology: &Topology, put: &mut Put<'_>) -> Result<PlacedRelation> {
    Ok(PlacedRelation {
        offsets: put(topology.offsets().foreign(), IdWidth::U64)?,
        neighbours: place_ids(topology.neighbours(), put)?,
        edge_ids: topology.edge_ids().map(|ids| place_ids(ids, put)).transpose()?,
        weights: topology.weights().map(|weights| put(weights.foreign(), IdWidth::U32)).transpose()?,
        times: topology.times().map(|times| put(times.foreign(), IdWidth::U64)).transpose()?,
    })
}

fn place_ids(ids: &Ids, put: &mut Put<'_>) -> Result<PlacedIds> {
    let bytes = match ids {
        Ids::U32(ids) => ids.foreign(),
        Ids::U64(ids) => ids.foreign(),
    };
    let width = IdWidth::of(ids);
    Ok(PlacedIds { array: put(bytes, width)?, width })
}

/// Every array in the GPU's memory. What all of them need is compared with what is free before the first is copied.
fn uploaded(graph: &Graph, gpu: &Gpu) -> Result<Vec<PlacedRelation>> {
    let (memory, asked_bytes) = (gpu.memory()?, crate::topology::index(graph.bytes()));
    let (free_bytes, total_bytes) = (memory.free_bytes, memory.total_bytes);
    if asked_bytes > free_bytes {
        let what = "device memory";
        return Err(CudaError::OutOfMemory { what, asked_bytes, free_bytes, total_bytes }.into());
    }
    let mut uploader = Uploader::new(gpu, asked_bytes)?;
    let placed = place(graph, |array, _| {
        let span = Span::whole(Allocation::shareable(gpu, array.as_slice().len())?);
        uploader.copy(array.as_slice(), &span)?;
        Ok(PlacedArray::Whole(span))
    })?;
    uploader.wait()?;
    Ok(placed)
}

fn is_out_of_memory(why: &Error) -> bool {
    match why {
        Error::Cuda(why) => why.is_out_of_memory(),
        Error::Memory(why) => why.is_out_of_memory(),
        _ => false,
    }
}
