//! The launch that carries words.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, KernelStruct, Param, Source, Span, Stream};

use crate::error::{Error, Result};

static TEXT: Source = Source { name: "tell.cu", text: include_str!("tell.cu"), headers: &[] };

// SAFETY: words are written below `count`, which is the extent of a Told.
static TELL: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "tell",
        &[Param::Struct("told", size_of::<Told>()), Param::Write("to", Element::U64, &["told.0"])],
    )
};

/// Words of one launch. Four kilobytes of parameters are the most that every GPU takes.
pub(super) const MOST_WORDS: usize = 128;
const THREADS: u32 = 128;

/// The same struct stands in `tell.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Told {
    words: [u64; MOST_WORDS],
    count: u64,
}

// SAFETY: 64-bit words in the order of the text, which writes below the count.
unsafe impl KernelStruct for Told {
    fn extents(&self) -> Vec<u64> {
        vec![self.count]
    }
}

/// Queues words to the beginning of `to`.
pub(crate) fn tell(stream: &Stream, words: &[u64], to: &Span) -> Result<()> {
    let defines = defines();
    for (at, piece) in words.chunks(MOST_WORDS).enumerate() {
        let mut told = Told { words: [0; MOST_WORDS], count: piece.len() as u64 };
        told.words[..piece.len()].copy_from_slice(piece);
        let (expected, found) = (words.len(), to.bytes() / 8);
        let short = || Error::Binding { name: "words of the host".to_owned(), expected, found };
        let own = to.part(8 * at * MOST_WORDS, 8 * piece.len()).ok_or_else(short)?;
        let grid = Grid { blocks: 1, threads: THREADS, shared_bytes: 0 };
        TELL.on(stream, &defines, grid).structure(&told).buffer(&own, Element::U64).go()?;
    }
    Ok(())
}

fn defines() -> Defines {
    Defines::new().with("MOST_WORDS", MOST_WORDS)
}

/// The text of this folder with the defines it is launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&TEXT, defines())]
}
