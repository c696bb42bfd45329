//! The sum where the memory is.
#![allow(unsafe_code, reason = "declares a kernel")]

use headwater_cuda::{Allocation, Defines, Element, Gpu, Grid, Kernel, Param, Scalar, Source, Span, Stream};

use super::folded;
use crate::error::Result;

static SOURCE: Source = Source { name: "sum.cu", text: include_str!("sum.cu"), headers: &[] };

// SAFETY: sum.cu reads `bytes` of `data` and adds to one number.
static SUM: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "sum_words",
        &[
            Param::Read("data", Element::Bytes, &["bytes"]),
            Param::Value("bytes", Scalar::U64),
            Param::Write("sum", Element::U64, &[]),
        ],
    )
};

const THREADS: u32 = 256;

/// The kernel of this folder, for tests that compile every one.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&SOURCE, defines())]
}

fn defines() -> Defines {
    Defines::new().with("THREADS", THREADS)
}

/// Adds up memory on a stream of its own.
pub(crate) struct DeviceSum {
    stream: Stream,
    sum: Span,
    defines: Defines,
    blocks: u32,
}

impl DeviceSum {
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let stream = Stream::new(gpu)?;
        let sum = Span::whole(Allocation::on_stream(&stream, size_of::<u64>())?);
        Ok(Self { stream, sum, defines: defines(), blocks: 2 * gpu.facts().sms })
    }

    /// The checksum of memory that nothing else writes now. Waits for it.
    pub fn of(&self, memory: &Span) -> Result<u32> {
        self.stream.fill(&self.sum, 0)?;
        let grid = Grid { blocks: self.blocks, threads: THREADS, shared_bytes: 0 };
        let launch = SUM.on(&self.stream, &self.defines, grid).bytes(memory).u64(memory.bytes() as u64);
        launch.buffer(&self.sum, Element::U64).go()?;
        let mut sum = [0; size_of::<u64>()];
        self.stream.download(&self.sum, &mut sum)?;
        Ok(folded(u64::from_ne_bytes(sum)))
    }
}
