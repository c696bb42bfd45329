//! The tests' own kernels, declared beside their text, and the GPU to run them on.

use headwater::cuda::{Defines, Element, Gpu, Grid, Kernel, KernelStruct, Param, Result, Scalar, Source, Span, Stream};

pub static STEPS: Source = Source { name: "steps.cu", text: include_str!("kernels/steps.cu"), headers: &[] };
pub static BROKEN: Source = Source {
    name: "broken.cu",
    text: "// A line before the mistake.\nextern \"C\" __global__ void broken(u32* out) {\n    *out = no_such_name;\n}\n",
    headers: &[],
};

const STEP_PARAMS: &[Param] = &[Param::Write("data", Element::U32, &["count"]), Param::Value("count", Scalar::U64)];

// SAFETY: add_step touches elements below `count`.
pub static ADD_STEP: Kernel = unsafe { Kernel::declare(&STEPS, "add_step", STEP_PARAMS) };
// SAFETY: scale touches elements below `count` of both.
pub static SCALE: Kernel = unsafe {
    Kernel::declare(
        &STEPS,
        "scale",
        &[
            Param::Read("in", Element::F32, &["count"]),
            Param::Write("out", Element::F32, &["count"]),
            Param::Value("count", Scalar::U64),
            Param::Value("factor", Scalar::F32),
            Param::Value("bias", Scalar::F64),
        ],
    )
};
// SAFETY: store_pair writes two elements, which is the extent of a Pair.
pub static STORE_PAIR: Kernel = unsafe {
    Kernel::declare(&STEPS, "store_pair", &[Param::Struct("pair", 8), Param::Write("out", Element::U32, &["pair.0"])])
};
// SAFETY: check_ids reads ids below `count`.
pub static CHECK_IDS: Kernel = unsafe {
    Kernel::declare(
        &STEPS,
        "check_ids",
        &[
            Param::Read("ids", Element::I64, &["count"]),
            Param::Value("count", Scalar::U64),
            Param::Value("rows", Scalar::U64),
            Param::Fault,
        ],
    )
};
// SAFETY: it does not compile, so it touches nothing.
pub static BREAKS: Kernel = unsafe { Kernel::declare(&BROKEN, "broken", &[Param::Write("out", Element::U32, &[])]) };
// SAFETY: never launched: its length rule names nothing.
pub static UNKNOWN_TERM: Kernel =
    unsafe { Kernel::declare(&STEPS, "add_step", &[Param::Write("data", Element::U32, &["NOWHERE"])]) };

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pair(pub u32, pub u32);

// SAFETY: two words, as in the text, which lets the kernel write two elements.
unsafe impl KernelStruct for Pair {
    fn extents(&self) -> Vec<u64> {
        vec![2]
    }
}

/// The first GPU, or a word that there is none.
pub fn gpu() -> Option<Gpu> {
    let gpu = Gpu::open(0);
    if let Err(why) = &gpu {
        eprintln!("no GPU: skipped ({})", why.to_string().lines().next().unwrap_or_default());
    }
    gpu.ok()
}

pub fn step(by: u32) -> Defines {
    Defines::new().with("STEP", by)
}

/// Threads for `count` elements, one each.
pub fn grid(count: usize) -> Grid {
    Grid { blocks: count.div_ceil(128).max(1) as u32, threads: 128, shared_bytes: 0 }
}

/// Queues an addition of `by` to every word of `data`.
pub fn add(stream: &Stream, data: &Span, by: u32) -> Result<()> {
    let count = data.bytes() / 4;
    ADD_STEP.on(stream, &step(by), grid(count)).buffer(data, Element::U32).u64(count as u64).go()
}

pub fn words(stream: &Stream, span: &Span) -> Vec<u32> {
    let mut bytes = vec![0; span.bytes()];
    stream.download(span, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}
