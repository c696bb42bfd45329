//! On a GPU, or on the emulator.
#![allow(unsafe_code, reason = "the test has a kernel of its own")]

use headwater_cuda::{
    Allocation, Defines, Element, Error as CudaError, FAULT_ID_OUT_OF_RANGE, Gpu, Graph, Grid, Kernel, Param, Scalar,
    Source, Span, Stream,
};
use headwater_graph::random::Key;

use super::super::{DeviceBlock, FAULT_FALLING_TARGETS, Lists, Room, Wants, explained};
use crate::adjacency::{Adjacency, Map, Members, RelationEdges, SelfLoops};
use crate::cuda::{DeviceGraph, Precision, emit};
use crate::error::Error;
use crate::inter::{Domain, Path, Side};
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::layer;

const SRC: Domain = Domain::Node(Side::Src);
const DST: Domain = Domain::Node(Side::Dst);
const WANTS: [Wants; 6] = [
    Wants { by_source: true, self_loops: SelfLoops::AsTheyAre },
    Wants { by_source: true, self_loops: SelfLoops::Added },
    Wants { by_source: true, self_loops: SelfLoops::Dropped },
    Wants { by_source: false, self_loops: SelfLoops::AsTheyAre },
    Wants { by_source: false, self_loops: SelfLoops::Added },
    Wants { by_source: false, self_loops: SelfLoops::Dropped },
];

fn stream() -> Option<Stream> {
    let stream = Gpu::open(0).and_then(|gpu| Stream::new(&gpu));
    stream.inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()
}

/// Edges of a block on the host.
#[derive(Debug, Clone, Default)]
struct Edges {
    src: u32,
    dst: u32,
    sources: Vec<u32>,
    targets: Vec<u32>,
}

impl Edges {
    /// Every third target has no edges, the second has many, and sources are few at one end.
    fn random(seed: u64, src: u32, dst: u32, most: u64) -> Self {
        let (key, mut found) = (Key::new(seed), Self { src, dst, ..Self::default() });
        for target in (0..dst).filter(|target| target % 3 != 0) {
            let own = key.of(u64::from(target));
            let count = if target == 1 { 20 * most } else { own.below(0, most + 1) };
            let source =
                |edge: u64| u32::try_from(own.of(1).below(edge, u64::from(src).div_ceil(1 + edge % 3))).unwrap();
            found.sources.extend((0..count).map(source));
            found.targets.resize(found.sources.len(), target);
        }
        found
    }

    fn adjacency(&self, wants: Wants) -> Adjacency {
        let (mut offsets, mut sources) = (vec![0], Vec::new());
        for target in 0..self.dst {
            let own =
                self.sources.iter().zip(&self.targets).filter(|(_, of)| **of == target).map(|(source, _)| *source);
            sources.extend(own.filter(|source| !wants.self_loops.drops() || *source != target));
            sources.extend(wants.self_loops.adds().then_some(target));
            offsets.push(sources.len());
        }
        let relation = RelationEdges { src_type: 0, dst_type: 0, offsets: &offsets, sources: &sources };
        Adjacency::new(&[self.src as usize], &[self.dst as usize], &[relation]).unwrap()
    }

    fn fill(&self, stream: &Stream, block: &DeviceBlock) {
        let [sources, targets] = [&self.sources, &self.targets].map(|list| upload(stream, list));
        let edges = u32::try_from(self.sources.len()).unwrap();
        let (src, dst) = (self.src, self.dst);
        block.fill(stream, &Lists { sources: &sources, targets: &targets, edges, src, dst }).unwrap();
    }
}

/// Words with more behind them that must not count.
fn upload(stream: &Stream, words: &[u32]) -> Span {
    let longer: Vec<u32> = words.iter().copied().chain([u32::MAX; 3]).collect();
    let span = Span::whole(Allocation::on_stream(stream, 4 * longer.len()).unwrap());
    stream.upload(bytemuck::cast_slice(&longer), &span).unwrap();
    span
}

fn download(stream: &Stream, span: &Span, count: usize) -> Vec<u32> {
    let mut found = vec![0u32; count];
    stream.download(&span.part(0, 4 * count).unwrap(), bytemuck::cast_slice_mut(&mut found)).unwrap();
    found
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap()
}

fn listed(graph: &Adjacency, coarse: Domain) -> Vec<u32> {
    match graph.map(Domain::Edge, coarse, Path::Only).unwrap() {
        Map::Listed(list) => list.to_vec(),
        other => panic!("edges have {other:?}"),
    }
}

/// Where members begin, and all of them.
fn members(graph: &Adjacency, coarse: Domain) -> (Vec<u32>, Vec<u32>) {
    let narrow = |starts: &[usize]| starts.iter().map(|start| number(*start)).collect();
    match graph.members(coarse, Domain::Edge, Path::Only).unwrap() {
        Members::Between(starts) => (narrow(&starts), (0..number(graph.rows(Domain::Edge))).collect()),
        Members::Listed { starts, rows } => (narrow(&starts), rows.to_vec()),
        Members::All(_) => panic!("a node has all edges"),
    }
}

fn check(stream: &Stream, block: &DeviceBlock, graph: &Adjacency, case: &str) {
    let (src, dst, edges) = (graph.rows(SRC), graph.rows(DST), graph.rows(Domain::Edge));
    // Layers of one relation have no use for pairs.
    let rows = |domain| if matches!(domain, Domain::Pair(_)) { 0 } else { number(graph.rows(domain)) };
    assert_eq!(download(stream, block.counts(), 8), Domain::ALL.map(rows), "{case}");
    assert_eq!(download(stream, block.ranges(), 6), [0, number(src), 0, number(dst), 0, number(edges)], "{case}");
    assert!(download(stream, block.src(), edges) == listed(graph, SRC), "{case}: sources");
    assert!(download(stream, block.dst(), edges) == listed(graph, DST), "{case}: targets");
    assert!(download(stream, block.dst_starts(), dst + 1) == members(graph, DST).0, "{case}: starts of targets");
    if let (Some(starts), Some(list)) = (block.src_starts(), block.src_edges()) {
        let wanted = members(graph, SRC);
        assert!(download(stream, starts, src + 1) == wanted.0, "{case}: starts of sources");
        assert!(download(stream, list, edges) == wanted.1, "{case}: edges by source");
    }
}

/// Blocks of every size, filled one after the other into the same memory.
#[test]
fn blocks_are_what_the_host_makes() {
    let Some(stream) = stream() else { return };
    let all = [
        Edges::random(1, 70_000, 900, 40),
        Edges { src: 5, dst: 5, ..Edges::default() },
        Edges::random(2, 300, 300, 9),
        Edges { src: 1, dst: 1, sources: vec![0, 0], targets: vec![0, 0] },
        Edges::default(),
        Edges::random(3, 1000, 7, 30),
        Edges::random(7, 2, 2, 500),
        Edges { src: 40_000, dst: 2, sources: vec![39_999, 1, 0], targets: vec![0, 1, 1] },
    ];
    for (at, wants) in WANTS.into_iter().enumerate() {
        // The last memory is exactly large enough.
        for (first, room) in
            [(0, Room { src: 70_000, dst: 900, edges: 20_000 }), (7, Room { src: 40_000, dst: 2, edges: 3 })]
        {
            let block = DeviceBlock::new(&stream, room, wants).unwrap();
            for (number, edges) in all.iter().enumerate().skip(first) {
                edges.fill(&stream, &block);
                check(&stream, &block, &edges.adjacency(wants), &format!("wants {at}, block {number}"));
            }
            assert_eq!(block.src_edges().is_some(), wants.by_source);
        }
    }
}

/// What was recorded fills the block again from lists that changed.
#[test]
fn a_filling_can_be_recorded() {
    let Some(stream) = stream() else { return };
    let block = DeviceBlock::new(&stream, Room { src: 300, dst: 60, edges: 5000 }, WANTS[1]).unwrap();
    let (one, mut other) = (Edges::random(4, 300, 60, 9), Edges::random(5, 300, 60, 9));
    one.fill(&stream, &block);
    let edges = one.sources.len().min(other.sources.len());
    other.sources.truncate(edges);
    other.targets.truncate(edges);
    let [sources, targets] = [&one.sources, &one.targets].map(|list| upload(&stream, list));
    let lists = Lists { sources: &sources, targets: &targets, edges: number(edges), src: 300, dst: 60 };
    let record = |stream: &Stream| {
        block.fill(stream, &lists).map_err(|_| CudaError::Unsupported { what: "", why: String::new() })
    };
    let mut graph = Graph::capture(&stream, record).unwrap();
    for (list, to) in [(&other.sources, &sources), (&other.targets, &targets)] {
        stream.upload(bytemuck::cast_slice(list), &to.part(0, 4 * edges).unwrap()).unwrap();
    }
    graph.launch(&stream).unwrap();
    check(&stream, &block, &other.adjacency(WANTS[1]), "replayed");
}

#[test]
fn bad_lists_are_reported_and_leave_a_block_without_edges() {
    let Some(stream) = stream() else { return };
    let good = Edges::random(6, 50, 20, 5);
    let none = Edges { src: 50, dst: 20, ..Edges::default() };
    for wants in WANTS {
        let block = DeviceBlock::new(&stream, Room { src: 60, dst: 30, edges: 400 }, wants).unwrap();
        for (code, source, target) in [
            (FAULT_ID_OUT_OF_RANGE, 50, 5),
            (FAULT_ID_OUT_OF_RANGE, u32::MAX, 5),
            (FAULT_ID_OUT_OF_RANGE, 3, 20),
            (FAULT_FALLING_TARGETS, 3, 0),
        ] {
            good.fill(&stream, &block);
            stream.synchronize().unwrap();
            let mut bad = good.clone();
            let at = bad.sources.len() - 1;
            (bad.sources[at], bad.targets[at]) = (source, target);
            bad.fill(&stream, &block);
            let fault = stream.synchronize().unwrap_err();
            let CudaError::Fault { code: found, position, .. } = fault else { panic!("{fault}") };
            assert_eq!((found, position), (code, at as u64));
            let said = explained(fault).to_string();
            assert_eq!(said.contains("targets do not fall"), code == FAULT_FALLING_TARGETS, "{said}");
            check(
                &stream,
                &block,
                &none.adjacency(Wants { self_loops: SelfLoops::AsTheyAre, ..wants }),
                "after bad lists",
            );
        }
        good.fill(&stream, &block);
        check(&stream, &block, &good.adjacency(wants), "after that");
    }
}

static LOOK_BACK_TEXT: Source = Source {
    name: "look_back.cu",
    text: "extern \"C\" __global__ void look_backs(const u32* words, u32 tiles, u32* sums) {\n\
           for (u32 tile = 0; tile < tiles; tile++) sums[tile * DIGITS + threadIdx.x] = look_back(words, tile);\n}\n",
    headers: &[("sort.cu", include_str!("../sort.cu"))],
};
// SAFETY: words and sums are touched below `tiles` times DIGITS.
static LOOK_BACKS: Kernel = unsafe {
    Kernel::declare(
        &LOOK_BACK_TEXT,
        "look_backs",
        &[
            Param::Read("words", Element::U32, &["tiles", "DIGITS"]),
            Param::Value("tiles", Scalar::U32),
            Param::Write("sums", Element::U32, &["tiles", "DIGITS"]),
        ],
    )
};

/// Tiles of an emulated launch always find the one before them done. On a GPU they add up what is published so far.
#[test]
fn a_tile_adds_what_earlier_tiles_have_published() {
    let Some(stream) = stream() else { return };
    let (own, up_to) = (1u32 << 30, 2u32 << 30);
    let count = |tile: u32, digit: u32| 1 + tile * tile + digit;
    let before = |tile: u32, digit: u32| (0..tile).map(|earlier| count(earlier, digit)).sum::<u32>();
    for knows in [1, 7, 40] {
        let word = |tile: u32, digit: u32| match tile % knows {
            0 => up_to | before(tile + 1, digit),
            _ => own | count(tile, digit),
        };
        let all = |of: &dyn Fn(u32, u32) -> u32| (0..40 * 256).map(|at| of(at / 256, at % 256)).collect::<Vec<u32>>();
        let (words, sums) = (upload(&stream, &all(&word)), upload(&stream, &[0; 40 * 256]));
        let defines = Defines::new().with("DIGITS", 256).with("THREADS", 256).with("ITEMS", 1).with("PASSES", 1);
        let launch = LOOK_BACKS.on(&stream, &defines, Grid { blocks: 1, threads: 256, shared_bytes: 0 });
        launch.buffer(&words, Element::U32).u32(40).buffer(&sums, Element::U32).go().unwrap();
        assert!(download(&stream, &sums, 40 * 256) == all(&before), "every {knows}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(stream) = stream() else { return };
    let block = DeviceBlock::new(&stream, Room { src: 10, dst: 5, edges: 4 }, Wants::default()).unwrap();
    let list = upload(&stream, &[0; 4]);
    let lists = Lists { sources: &list, targets: &list, edges: 4, src: 10, dst: 5 };
    block.fill(&stream, &lists).unwrap();
    for wrong in
        [Lists { edges: 5, ..lists }, Lists { src: 11, ..lists }, Lists { dst: 6, ..lists }, Lists { src: 4, ..lists }]
    {
        let said = block.fill(&stream, &wrong).unwrap_err().to_string();
        assert!(said.contains("room for 4 of 5 and 10"), "{said}");
    }
    let short = list.part(0, 8).unwrap();
    assert!(matches!(
        block.fill(&stream, &Lists { targets: &short, ..lists }),
        Err(Error::Cuda(CudaError::Launch { .. }))
    ));
    for room in [
        Room { src: 4, dst: 5, edges: 1 },
        Room { src: 5, dst: 5, edges: usize::MAX },
        Room { src: 1 << 33, dst: 5, edges: 1 },
    ] {
        let said = DeviceBlock::new(&stream, room, WANTS[1]).unwrap_err().to_string();
        assert!(said.contains("less than 2^30 edges"), "{said}");
    }
}

/// Whatever order of products is cheapest at a width, and whether or not pairs of nodes and types are few.
#[test]
fn blocks_have_what_layers_of_any_width_ask_for() {
    let Some(stream) = stream() else { return };
    let block = DeviceBlock::new(&stream, Room { src: 400, dst: 200, edges: 3000 }, WANTS[0]).unwrap();
    let graph = DeviceGraph::of_block(&block);
    let plain = Statistics::of_one_relation(400, 200, 3000);
    for statistics in [plain, Statistics { source_pairs: 300.0, destination_pairs: 180.0, ..plain }] {
        let names = ["gcn", "sage", "gin", "gat", "rgcn", "rgat", "hgt"];
        let cases = names.map(|name| (name, 8)).into_iter().chain([3, 16, 48].map(|width| ("hgt", width)));
        for (name, width) in cases {
            let sizes = ["d_in", "d_out", "d_hidden"].map(|size| (size, width));
            let program = layer(name, &[&sizes[..], &[("heads", 1)]].concat(), &[]);
            for on in [Optimisations::GPU, Optimisations::ALL] {
                let compiled = compile(&program, &statistics, on).unwrap();
                for kernels in [&compiled.inference, &compiled.forward, &compiled.backward] {
                    let table = emit(kernels, Precision::default()).table;
                    assert!(graph.serves(&table), "{}, {width} wide: {table:?}", kernels.name);
                }
            }
        }
    }
}
