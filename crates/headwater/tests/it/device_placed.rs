//! Graphs in every storage: what kernels read there, what happens without room, and that all of it is given back.

use std::sync::Arc;

use headwater::cuda::{Error as CudaError, Gpu, Span, Stream};
use headwater::graph::random::mix;
use headwater::graph::{
    Column, Error, Graph, Ids, Layout, NodeType, PlacedGraph, Relation, Schema, Storage, Topology, Wish,
};
use headwater::memory::{Buffer, Foreign, Managed, RegistryUse, registry_use};

use crate::child::in_child;
use crate::emulator;
use crate::kernels::gpu;

const NONE: RegistryUse = RegistryUse { chunks: 0, bytes: 0 };

/// One relation with every array there can be, and one with no edges.
fn graph(edges: u64) -> Graph {
    let (rows, columns) = (edges / 4, 1000);
    let node_types = [("a", columns), ("b", rows)].map(|(name, count)| NodeType { name: name.into(), count });
    let relation = |name: &str| Relation { source: 0, name: name.into(), target: 1 };
    let schema = Schema::new(node_types.into(), vec![relation("full"), relation("empty")]).unwrap();
    let offsets: Vec<u64> = (0..=rows).map(|row| row * edges / rows).collect();
    let neighbours: Vec<u32> = (0..edges).map(|edge| (mix(edge) % columns) as u32).collect();
    let full = Topology::new(Layout::Csc, columns, offsets.into(), neighbours.into()).unwrap();
    let full = full.with_edge_ids((0..edges).map(mix).collect::<Vec<u64>>().into()).unwrap();
    let full = full.with_weights((0..edges).map(|edge| edge as f32).collect::<Vec<f32>>().into()).unwrap();
    let full = full.with_times((0..edges).map(|edge| mix(edge).cast_signed()).collect::<Vec<i64>>().into()).unwrap();
    let empty = vec![0u64; rows as usize + 1];
    let empty = Topology::new(Layout::Csc, columns, empty.into(), Vec::<u32>::new().into()).unwrap();
    Graph::new(schema, vec![full, empty]).unwrap()
}

fn id_bytes(ids: &Ids) -> &[u8] {
    match ids {
        Ids::U32(ids) => ids.foreign().as_slice(),
        Ids::U64(ids) => ids.foreign().as_slice(),
    }
}

/// The bytes of every array, in the order of the struct.
fn arrays(topology: &Topology) -> Vec<&[u8]> {
    let mut all = vec![topology.offsets().foreign().as_slice(), id_bytes(topology.neighbours())];
    all.extend(topology.edge_ids().map(id_bytes));
    all.extend(topology.weights().map(|weights| weights.foreign().as_slice()));
    all.extend(topology.times().map(|times| times.foreign().as_slice()));
    all
}

/// Compares what the GPU sees with what the columns hold.
fn check(placed: &PlacedGraph) {
    let stream = Stream::new(placed.gpu().unwrap()).unwrap();
    assert_eq!(placed.relations().len(), placed.graph().relations().len());
    for (relation, topology) in placed.relations().iter().zip(placed.graph().relations()) {
        let mut all = vec![&relation.offsets, &relation.neighbours.array];
        all.extend(relation.edge_ids.as_ref().map(|ids| &ids.array));
        all.extend(relation.weights.iter().chain(&relation.times));
        let spans: Vec<&Span> = all.into_iter().map(|array| array.whole().unwrap()).collect();
        let wanted = arrays(topology);
        assert_eq!(spans.len(), wanted.len());
        for (span, want) in spans.into_iter().zip(wanted) {
            let mut got = vec![0; span.bytes()];
            stream.download(span, &mut got).unwrap();
            assert!(got == want);
        }
    }
}

#[test]
fn every_storage_holds_the_arrays_and_gives_its_memory_back() {
    let Some(_) = gpu() else { return };
    let test = "device_placed::every_storage_holds_the_arrays_and_gives_its_memory_back";
    in_child(test, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let alive = || ["device_bytes", "host_allocations", "registrations"].map(live);
        // Large enough for several pieces of an upload, and for times on pages of their own; spare streams stay alive, so one
        // round warms up.
        let graph = graph(4_500_000);
        drop(PlacedGraph::new(&graph, Wish::In(Storage::Cuda), Some(&gpu)).unwrap());
        let before = alive();
        for storage in [Storage::Cuda, Storage::ZeroCopy, Storage::Cpu] {
            let placed = PlacedGraph::new(&graph, Wish::In(storage), Some(&gpu)).unwrap();
            assert_eq!(placed.storage(), storage);
            match storage {
                Storage::Cpu => assert!(placed.relations().is_empty()),
                _ => check(&placed),
            }
            if storage == Storage::ZeroCopy {
                let seen = placed.relations()[0].times.as_ref().unwrap().whole().unwrap();
                let times = graph.relation(0).times().unwrap().as_ptr();
                assert!(std::ptr::eq(seen.host_pointer().unwrap().as_ptr(), times.cast()), "registered, not copied");
            }
            drop(placed);
            assert_eq!(registry_use(), NONE);
            assert_eq!(alive(), before, "{storage}");
        }
        assert_eq!(PlacedGraph::new(&graph, Wish::Auto, Some(&gpu)).unwrap().storage(), Storage::Cuda);
    });
}

fn live(kind: &str) -> Option<u64> {
    emulator::live(&std::ffi::CString::new(kind).unwrap())
}

#[test]
fn a_graph_too_large_to_pin_steps_down() {
    if !emulator::here() {
        return;
    }
    let test = "device_placed::a_graph_too_large_to_pin_steps_down";
    in_child(test, &[("HWEMU_REGISTER_BYTES", "65536")], || {
        let gpu = Gpu::open(0).unwrap();
        let placed = PlacedGraph::new(&graph(40_000), Wish::In(Storage::ZeroCopy), Some(&gpu)).unwrap();
        assert_eq!(placed.storage(), Storage::Cuda);
        // The upload had nothing to pin either.
        check(&placed);
        assert_eq!(registry_use(), NONE);
        let placed = PlacedGraph::new(&graph(400), Wish::In(Storage::ZeroCopy), Some(&gpu)).unwrap();
        assert_eq!(placed.storage(), Storage::ZeroCopy);
        check(&placed);
    });
}

#[test]
fn a_graph_too_large_for_the_gpu_is_an_error_or_stays_on_the_host() {
    if !emulator::here() {
        return;
    }
    let test = "device_placed::a_graph_too_large_for_the_gpu_is_an_error_or_stays_on_the_host";
    in_child(test, &[("HWEMU_DEVICE_BYTES", "1048576"), ("HWEMU_REGISTER_BYTES", "2097152")], || {
        let gpu = Gpu::open(0).unwrap();
        let storage = |edges, wish| PlacedGraph::new(&graph(edges), wish, Some(&gpu)).map(|placed| placed.storage());
        let large = graph(60_000);
        let error = PlacedGraph::new(&large, Wish::In(Storage::Cuda), Some(&gpu)).unwrap_err();
        let Error::Cuda(CudaError::OutOfMemory { asked_bytes, free_bytes, .. }) = error else { panic!("{error}") };
        assert!(asked_bytes as u64 == large.bytes() && free_bytes < asked_bytes);
        assert_eq!(storage(10_000, Wish::Auto).unwrap(), Storage::Cuda);
        assert_eq!(storage(60_000, Wish::Auto).unwrap(), Storage::ZeroCopy);
        assert_eq!(storage(200_000, Wish::Auto).unwrap(), Storage::Cpu);
        assert_eq!(storage(200_000, Wish::In(Storage::ZeroCopy)).unwrap(), Storage::Cpu);
        assert_eq!(registry_use(), NONE);
    });
}

/// Memory that the driver refuses to register, because it is the driver's own.
struct Unpinnable(Buffer<u8, Managed>);

impl AsRef<[u8]> for Unpinnable {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: nothing is queued on it: it cannot be registered, which is what it is for.
        unsafe { self.0.as_slice() }.unwrap()
    }
}

#[test]
fn what_cannot_be_registered_is_copied() {
    let Some(_) = gpu() else { return };
    in_child("device_placed::what_cannot_be_registered_is_copied", &[], || {
        // Large enough to be worth registering.
        const EDGES: u32 = 300_000;
        let gpu = Gpu::open(0).unwrap();
        let mut managed = Buffer::<u8, Managed>::new(&gpu, 4 * EDGES as usize).unwrap();
        managed.write(0, &(0..EDGES).flat_map(|id| (id % 7).to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let neighbours = Column::over(Foreign::new(Arc::new(Unpinnable(managed))), "neighbours").unwrap();
        let offsets = Column::from((0..=7).map(|row| row * u64::from(EDGES) / 7).collect::<Vec<u64>>());
        let topology = Topology::new(Layout::Csr, 7, offsets, Ids::U32(neighbours)).unwrap();
        let graph = Graph::homogeneous(topology).unwrap();
        let placed = PlacedGraph::new(&graph, Wish::In(Storage::ZeroCopy), Some(&gpu)).unwrap();
        assert_eq!(placed.storage(), Storage::ZeroCopy);
        check(&placed);
        drop(placed);
        assert_eq!(registry_use(), NONE);
    });
}

#[test]
fn without_a_gpu_a_graph_stays_where_it_is() {
    let graph = graph(40);
    assert_eq!(PlacedGraph::new(&graph, Wish::Auto, None).unwrap().storage(), Storage::Cpu);
    let error = PlacedGraph::new(&graph, Wish::In(Storage::ZeroCopy), None).unwrap_err();
    assert!(matches!(error, Error::Cuda(CudaError::NoDevice { .. })));
}
