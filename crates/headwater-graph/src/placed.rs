//! A graph where its sampler reads it: in host memory, in pinned memory a GPU reads, or in a GPU's own memory.
//!
//! Pinned means: large columns are registered where they lie, without a copy. Memory that cannot be registered (some file
//! mappings) is copied into memory that can. When neither goes, because the system limits what may be locked, the graph
//! steps down to the next storage and says so once. Everything is given back when the graph is dropped.

use headwater_cuda::{Allocation, Error as CudaError, Gpu, Span, Stream};
use headwater_memory::{Buffer, Capacity, Foreign, Pinned};
use rayon::prelude::*;

use crate::column::Ids;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::place::{Storage, Wish, attempts};
use crate::topology::Topology;
use crate::upload::Uploader;
use crate::width::IdWidth;

/// A graph in its place. Clones share it.
#[derive(Debug, Clone)]
pub struct PlacedGraph {
    graph: Graph,
    storage: Storage,
    gpu: Option<Gpu>,
    relations: Vec<PlacedRelation>,
}

/// The arrays of one relation as kernels read them.
#[derive(Debug, Clone)]
pub struct PlacedRelation {
    /// u64 each, one more than rows.
    pub offsets: Span,
    /// One an edge.
    pub neighbours: PlacedIds,
    /// One an edge, unless edges are named by their positions.
    pub edge_ids: Option<PlacedIds>,
    /// f32, one an edge.
    pub weights: Option<Span>,
    /// i64, one an edge.
    pub times: Option<Span>,
}

/// Ids of either width.
#[derive(Debug, Clone)]
pub struct PlacedIds {
    /// The ids.
    pub span: Span,
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
        Self { graph: graph.clone(), storage: Storage::Cpu, gpu: gpu.cloned(), relations: Vec::new() }
    }

    fn try_in(graph: &Graph, storage: Storage, gpu: &Gpu) -> Result<Self> {
        let relations = match storage {
            Storage::Cpu => return Ok(Self::on_host(graph, Some(gpu))),
            Storage::ZeroCopy => place(graph, |array| pinned(gpu, array))?,
            Storage::Cuda => uploaded(graph, gpu)?,
        };
        Ok(Self { graph: graph.clone(), storage, gpu: Some(gpu.clone()), relations })
    }
}

/// Places every array of every relation by `array`.
fn place(graph: &Graph, mut array: impl FnMut(&Foreign) -> Result<Span>) -> Result<Vec<PlacedRelation>> {
    graph.relations().iter().map(|topology| place_relation(topology, &mut array)).collect()
}

fn place_relation(topology: &Topology, array: &mut dyn FnMut(&Foreign) -> Result<Span>) -> Result<PlacedRelation> {
    Ok(PlacedRelation {
        offsets: array(topology.offsets().foreign())?,
        neighbours: place_ids(topology.neighbours(), array)?,
        edge_ids: topology.edge_ids().map(|ids| place_ids(ids, array)).transpose()?,
        weights: topology.weights().map(|weights| array(weights.foreign())).transpose()?,
        times: topology.times().map(|times| array(times.foreign())).transpose()?,
    })
}

fn place_ids(ids: &Ids, array: &mut dyn FnMut(&Foreign) -> Result<Span>) -> Result<PlacedIds> {
    let bytes = match ids {
        Ids::U32(ids) => ids.foreign(),
        Ids::U64(ids) => ids.foreign(),
    };
    Ok(PlacedIds { span: array(bytes)?, width: IdWidth::of(ids) })
}

/// Smaller arrays are copied. Registering takes whole pages, and the ends of a small array in the heap share theirs with
/// other data, which the driver would then no longer copy: it refuses ranges that are registered in part.
const WORTH_REGISTERING_BYTES: usize = 1 << 20;

/// An array where it lies, or a pinned copy of it.
fn pinned(gpu: &Gpu, array: &Foreign) -> Result<Span> {
    match array.as_slice() {
        [] => nothing(gpu),
        small if small.len() < WORTH_REGISTERING_BYTES => pinned_copy(gpu, small),
        large => array
            .map_into(gpu)
            .map_err(Error::from)
            .or_else(|why| if is_out_of_memory(&why) { pinned_copy(gpu, large) } else { Err(why) }),
    }
}

fn pinned_copy(gpu: &Gpu, bytes: &[u8]) -> Result<Span> {
    const COPY_BYTES: usize = 1 << 20;
    let mut copy = Buffer::<u8, Pinned>::new(gpu, bytes.len())?;
    let parts = copy.as_mut_slice()?.par_chunks_mut(COPY_BYTES).zip(bytes.par_chunks(COPY_BYTES));
    parts.for_each(|(to, from)| to.copy_from_slice(from));
    Ok(copy.whole().clone())
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
    let placed = place(graph, |array| {
        let span = Span::whole(Allocation::shareable(gpu, array.as_slice().len())?);
        uploader.copy(array.as_slice(), &span)?;
        Ok(span)
    })?;
    uploader.finish()?;
    Ok(placed)
}

/// An array without elements has no address to register, but kernels want one.
fn nothing(gpu: &Gpu) -> Result<Span> {
    Ok(Span::whole(Allocation::shareable(gpu, 0)?))
}

fn is_out_of_memory(why: &Error) -> bool {
    match why {
        Error::Cuda(why) => why.is_out_of_memory(),
        Error::Memory(why) => why.is_out_of_memory(),
        _ => false,
    }
}
