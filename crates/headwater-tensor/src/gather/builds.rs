//! The texts of this folder with defines like those they are launched with, so that a test can compile every one.
//!
//! The launches choose among more numbers than are listed here; a text that compiles with these compiles with those.

use headwater_cuda::{Defines, Source};

use super::IdType;
use super::cuda::SOURCES;

/// Every type of id with every width of unit and word, in order and not, with places and without.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let id_types = [IdType::U32, IdType::U64, IdType::I32, IdType::I64];
    let of = |name: &str| SOURCES.iter().copied().find(|source| source.name == name);
    let pairs = |source: Option<&'static Source>, defines: fn(IdType) -> Vec<Defines>| {
        source.into_iter().flat_map(move |source| id_types.into_iter().flat_map(defines).map(move |set| (source, set)))
    };
    pairs(of("gather.cu"), gathers).chain(pairs(of("order.cu"), orders)).collect()
}

fn ids(id_type: IdType) -> Defines {
    Defines::new().with("ID", id_type.in_kernels()).with("ID_BYTES", id_type.size_bytes())
}

fn gathers(id_type: IdType) -> Vec<Defines> {
    let mut sets: Vec<Defines> = [("u8", 1), ("u16", 2), ("u32", 4)]
        .map(|(unit, bytes)| ids(id_type).with("UNIT", unit).with("UNIT_BYTES", bytes).with("LINE_UNITS", 128 / bytes))
        .into();
    for (word_bytes, bytewise, depth) in [(4, 0, 4), (4, 1, 4), (16, 0, 2)] {
        for (lanes, in_order, place_bytes) in [(8, 0, 0), (16, 0, 4), (32, 1, 4)] {
            let lines = ids(id_type).with("IN_ORDER", in_order).with("LANES", lanes).with("WORD_BYTES", word_bytes);
            sets.push(lines.with("DEPTH", depth).with("BYTEWISE", bytewise).with("PLACE_BYTES", place_bytes));
        }
    }
    sets
}

fn orders(id_type: IdType) -> Vec<Defines> {
    let of = |row: IdType| ids(id_type).with("ROW", row.in_kernels()).with("ROW_BYTES", row.size_bytes());
    let sets = [IdType::U32, IdType::U64].map(of);
    sets.map(|set| set.with("BUCKETS", 4096).with("ITEMS", 16).with("THREADS", 1024)).into()
}
