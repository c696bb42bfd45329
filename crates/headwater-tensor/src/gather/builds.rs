//! The texts of this folder with the defines they are launched with, so that a test can compile every one.

use headwater_cuda::{Defines, Source};

use super::IdType;
use super::cuda::{BUCKETS_LOG2, GATHER, ORDER, ORDER_ITEMS, ORDER_THREADS};

/// Every type of id with every width of unit and word, in order and not, with places and without.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    [IdType::U32, IdType::U64, IdType::I32, IdType::I64].into_iter().flat_map(for_ids).collect()
}

fn for_ids(id_type: IdType) -> Vec<(&'static Source, Defines)> {
    let ids = || Defines::new().with("ID", id_type.in_kernels()).with("ID_BYTES", id_type.size_bytes());
    let units = [("u8", 1), ("u16", 2), ("u32", 4)]
        .map(|(unit, bytes)| ids().with("UNIT", unit).with("UNIT_BYTES", bytes).with("LINE_UNITS", 128 / bytes));
    let mut builds: Vec<(&'static Source, Defines)> = units.map(|defines| (&GATHER, defines)).into();
    for (word_bytes, bytewise, depth) in [(4, 0, 4), (4, 1, 4), (16, 0, 2)] {
        for (lanes, in_order, place_bytes) in [(8, 0, 0), (16, 0, 4), (32, 1, 4)] {
            let lines = ids().with("IN_ORDER", in_order).with("LANES", lanes).with("WORD_BYTES", word_bytes);
            let lines = lines.with("DEPTH", depth).with("BYTEWISE", bytewise).with("PLACE_BYTES", place_bytes);
            builds.push((&GATHER, lines));
        }
    }
    for row_type in [IdType::U32, IdType::U64] {
        let order = ids().with("ROW", row_type.in_kernels()).with("ROW_BYTES", row_type.size_bytes());
        let order =
            order.with("BUCKETS", 1u32 << BUCKETS_LOG2).with("ITEMS", ORDER_ITEMS).with("THREADS", ORDER_THREADS);
        builds.push((&ORDER, order));
    }
    builds
}
