//! The texts of this folder with the defines they are launched with, so that a test can compile every one.

use headwater_cuda::{Defines, Source};

use super::IdType;
use super::cuda::{LineLists, SOURCES, line_defines, order_defines, unit_defines};
use super::plan::{Lanes, Plan, Variant};

/// Every type of id with every unit and piece, in order and not, with places and without.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let id_types = [IdType::U32, IdType::U64, IdType::I32, IdType::I64];
    let of = |name: &str| SOURCES.iter().copied().find(|source| source.name == name);
    let pairs = |source: Option<&'static Source>, defines: fn(IdType) -> Vec<Defines>| {
        source.into_iter().flat_map(move |source| id_types.into_iter().flat_map(defines).map(move |set| (source, set)))
    };
    let texts = pairs(of("elements.cu"), elements).chain(pairs(of("gather.cu"), gathers));
    texts.chain(pairs(of("order.cu"), orders)).collect()
}

fn elements(id_type: IdType) -> Vec<Defines> {
    [1, 2, 4].map(|unit_bytes| unit_defines(id_type, unit_bytes, 128)).into()
}

fn gathers(id_type: IdType) -> Vec<Defines> {
    let mut sets = Vec::new();
    for piece_bytes in [1, 4, 16] {
        for (per_row, in_order, placed) in [(8, false, false), (16, false, true), (32, true, true)] {
            let lanes = Lanes { per_row, span_bytes: 128, depth: if placed { 2 } else { 4 }, piece_bytes };
            let (variant, ordered, claims) = (Variant::Sorted, placed, placed);
            let plan = Plan { variant, ordered, lanes, blocks: 1, threads: 1024, claims, line_bytes: 128 };
            sets.push(line_defines(id_type, &plan, LineLists { in_order, placed, with_ends: placed && !in_order }));
        }
    }
    sets
}

fn orders(id_type: IdType) -> Vec<Defines> {
    [IdType::U32, IdType::U64].map(|row_type| order_defines(id_type, row_type)).into()
}
