//! A relation's lists as kernel arguments.
#![allow(unsafe_code, reason = "the struct is what kernels bound their reads by")]

use headwater_cuda::{Element, KernelStruct, Launch, Param};

use super::GpuRelation;
use crate::error::Result;
use crate::topology::RowOrder;

/// The twin of this folder, for the sources of kernels that read lists.
pub(crate) const HEADER: (&str, &str) = ("lists.cuh", include_str!("lists.cuh"));

/// The parameters that [`GpuRelation::bind`] fills, in its order.
pub(crate) const LISTS: Param = Param::Struct("lists", size_of::<Lists>());
pub(crate) const OFFSETS: Param = Param::Read("offsets", Element::U64, &["lists.0"]);
pub(crate) const NEIGHBOURS: Param = Param::Read("neighbours", Element::Bytes, &["lists.1"]);

/// The same struct stands in `lists.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Lists {
    rows: u64,
    edges: u64,
    id_bytes: u64,
    is_sorted: u64,
}

// SAFETY: four words in the order of the text, which reads offsets up to `rows` and ids below `edges`.
unsafe impl KernelStruct for Lists {
    fn extents(&self) -> Vec<u64> {
        vec![self.rows.saturating_add(1), self.edges.saturating_mul(self.id_bytes)]
    }
}

impl GpuRelation {
    /// Adds the lists to a launch.
    pub(crate) fn bind<'a>(&self, launch: Launch<'a>) -> Result<Launch<'a>> {
        let (topology, arrays) = (self.topology(), self.arrays());
        let lists = Lists {
            rows: topology.rows(),
            edges: topology.edges(),
            id_bytes: arrays.neighbours.width.bytes() as u64,
            is_sorted: u64::from(topology.order() == RowOrder::Neighbour),
        };
        let launch = launch.structure(&lists).buffer(arrays.offsets.whole()?, Element::U64);
        Ok(launch.bytes(arrays.neighbours.array.whole()?))
    }
}
