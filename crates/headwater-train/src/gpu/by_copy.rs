//! Rows that CPU threads collect and copies bring to the GPU: through pinned memory, or through ordinary memory where none can
//! be pinned.

use headwater_cuda::{Span, Stream};
use headwater_feature::{HostTable, Stored};
use headwater_memory::{Buffer, Pinned};
use headwater_tensor::gather::{IdSlice, StagedGather};

use crate::error::{Error, Result};

/// What rows are collected in.
#[derive(Debug, Default)]
pub(super) struct ByCopy {
    /// Two pieces that take turns: one is on its way while the other is filled.
    pieces: Vec<Buffer<u8, Pinned>>,
    turn: usize,
    /// Whether pinned memory was refused. It is not asked for again.
    is_refused: bool,
}

impl ByCopy {
    /// Queues the rows of some nodes, as float32.
    pub fn bring(&mut self, stream: &Stream, table: &HostTable, nodes: &[u64], out: &Span) -> Result<()> {
        if !self.is_refused {
            match self.through_pinned(stream, table, nodes, out) {
                Err(why) if why.is_unpinned() => {
                    log::warn!("no host memory can be pinned, so features come through ordinary memory: {why}");
                    self.is_refused = true;
                }
                brought => return brought,
            }
        }
        let mut rows = vec![0; out.bytes()];
        table.gather(nodes, Stored::F32, &mut rows)?;
        Ok(stream.upload(&rows, out)?)
    }

    #[expect(unsafe_code, reason = "one piece is filled while a copy reads the other")]
    fn through_pinned(&mut self, stream: &Stream, table: &HostTable, nodes: &[u64], out: &Span) -> Result<()> {
        // Rows as they are go in parts: some are on their way while others are collected.
        if let Some(values) = table.in_place() {
            let (table, width_bytes) = (bytemuck::cast_slice(values), table.source().format().stride_bytes);
            let ids = IdSlice::U64(nodes);
            return Ok(StagedGather { stream, table, width_bytes, ids, out }.run(0)?);
        }
        let piece = self.next_piece(stream, out.bytes())?;
        // SAFETY: only the copy below is ever queued on a piece, and this borrows it alone.
        table.gather(nodes, Stored::F32, &mut unsafe { piece.as_mut_slice() }?[..out.bytes()])?;
        let short = || Error::Length { what: "pinned memory".to_owned(), found: piece.len(), expected: out.bytes() };
        Ok(stream.copy(&piece.whole().part(0, out.bytes()).ok_or_else(short)?, out)?)
    }

    /// The piece whose turn it is, at least so long.
    fn next_piece(&mut self, stream: &Stream, bytes: usize) -> Result<&mut Buffer<u8, Pinned>> {
        self.turn = (self.turn + 1) % 2;
        while self.pieces.len() < 2 || self.pieces[self.turn].len() < bytes {
            let room = Buffer::<u8, Pinned>::new(stream.gpu(), bytes.next_power_of_two())?;
            if self.pieces.len() < 2 {
                self.pieces.push(room);
            } else {
                self.pieces[self.turn] = room;
            }
        }
        Ok(&mut self.pieces[self.turn])
    }
}
