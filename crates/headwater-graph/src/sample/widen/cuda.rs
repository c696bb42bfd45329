//! Numbers made wider by the GPU.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use std::ops::Range;

use headwater_cuda::{Defines, Element, Kernel, Param, Scalar, Source, Span, Stream};

use crate::error::{Error, Result};
use crate::scan::persistent_grid;

static TEXT: Source = Source { name: "widen.cu", text: include_str!("widen.cu"), headers: &[] };

// SAFETY: numbers are read and written below `count`.
static WIDEN: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "widen",
        &[
            Param::Read("from", Element::U32, &["count"]),
            Param::Value("count", Scalar::U64),
            Param::Write("to", Element::U64, &["count"]),
        ],
    )
};

const THREADS: u32 = 256;

/// Queues the numbers of all pieces of `from` into `to`, one behind the other. Pieces that touch are one launch.
pub(crate) fn widen(stream: &Stream, from: &Span, pieces: &[Range<usize>], to: &Span) -> Result<()> {
    let expected = pieces.iter().map(|piece| 8 * piece.len()).sum::<usize>();
    if to.bytes() != expected {
        let (found, expected) = (to.bytes() as u64, expected as u64);
        return Err(Error::Length { name: "output, in bytes,", found, expected, of: "numbers of 64 bits" });
    }
    let (defines, mut at) = (defines(), 0);
    for piece in joined(pieces) {
        let outside = || Error::Options { why: "a piece of a sample lies outside it" };
        let read = from.part(4 * piece.start, 4 * piece.len()).ok_or_else(outside)?;
        let written = to.part(8 * at, 8 * piece.len()).ok_or_else(outside)?;
        let count = piece.len() as u64;
        let grid = persistent_grid(stream, count.div_ceil(u64::from(THREADS)), THREADS);
        let launch = WIDEN.on(stream, &defines, grid).buffer(&read, Element::U32).u64(count);
        launch.buffer(&written, Element::U64).go()?;
        at += piece.len();
    }
    Ok(())
}

/// Pieces that are not empty, those that touch made one.
pub(super) fn joined(pieces: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        match all.last_mut().filter(|last| last.end == piece.start) {
            Some(last) => last.end = piece.end,
            None => all.push(piece.clone()),
        }
    }
    all
}

fn defines() -> Defines {
    Defines::new()
}

/// The text of this folder with the defines it is launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&TEXT, defines())]
}
