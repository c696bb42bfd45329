//! Walks on the GPU: the launch, and the promise about the kernel's reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, KernelStruct, Param, Scalar, Source, Stream};
use headwater_memory::{Buffer, Device};

use super::super::lists::{GpuRelation, HEADER, LISTS, NEIGHBOURS, OFFSETS};
use super::{Plan, WalkOptions};
use crate::error::Result;
use crate::random::{CUDA_HEADER, Key};
use crate::scan::persistent_grid;

static TEXT: Source = Source { name: "walk.cu", text: include_str!("walk.cu"), headers: &[CUDA_HEADER, HEADER] };

// SAFETY: lists are read as `lists.cuh` bounds them; starts are read below `walks`, and of `out` each walk writes its own
// `nodes` elements.
static WALK: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "walk",
        &[
            LISTS,
            OFFSETS,
            NEIGHBOURS,
            Param::Struct("accept", size_of::<Accept>()),
            Param::Value("key", Scalar::U64),
            Param::Read("starts", Element::U64, &["walks"]),
            Param::Value("walks", Scalar::U64),
            Param::Value("nodes", Scalar::U64),
            Param::Write("out", Element::U64, &["walks", "nodes"]),
        ],
    )
};

const THREADS: u32 = 256;

/// As [`super::Accept`], in the words of the text.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Accept {
    back: u64,
    near: u64,
    far: u64,
    is_plain: u64,
}

// SAFETY: four words in the order of the text; none of them is an index.
unsafe impl KernelStruct for Accept {
    fn extents(&self) -> Vec<u64> {
        Vec::new()
    }
}

impl GpuRelation {
    /// What [`random_walks`](super::random_walks) returns, to the bit, in GPU memory. Starts are checked on the host and
    /// copied, which waits for what `stream` has to do; the walks themselves are queued on it.
    pub fn random_walks(
        &self,
        stream: &Stream,
        starts: &[u64],
        options: &WalkOptions,
        key: Key,
    ) -> Result<Buffer<u64, Device>> {
        self.placed().check_stream(stream)?;
        let Plan { nodes, total, accept } = Plan::new(self.topology(), starts, options)?;
        let super::Accept { back, near, far, is_plain } = accept;
        let walks = Buffer::<u64, Device>::on_stream(stream, total)?;
        let count = starts.len() as u64;
        let starts = Buffer::<u64, Device>::from_slice(stream, starts)?;
        let (defines, grid) = (defines(), persistent_grid(stream, count.div_ceil(u64::from(THREADS)), THREADS));
        self.bind(WALK.on(stream, &defines, grid))?
            .structure(&Accept { back, near, far, is_plain: u64::from(is_plain) })
            .u64(key.bits())
            .buffer(starts.whole(), Element::U64)
            .u64(count)
            .u64(nodes as u64)
            .buffer(walks.whole(), Element::U64)
            .go()?;
        Ok(walks)
    }
}

fn defines() -> Defines {
    Defines::new().with("THREADS", THREADS)
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&TEXT, defines())]
}
