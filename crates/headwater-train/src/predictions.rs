//! What a network says of nodes, as an array that other programs read.

use std::io::{self, Write};
use std::path::Path;

use headwater_graph::Progress;
use headwater_tensor::DType;
use headwater_tensor::npy::{NpyType, header_bytes};

use crate::error::Result;
use crate::layerwise::Outputs;
use crate::loss::Loss;
use crate::metric::answer;
use crate::whole_file::{Real, put};

/// Rows that are written at a time.
const PIECE: usize = 1 << 16;

/// What is written of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// What it was trained to say: the class as int64, -1 where an output is not a number; 1 or 0 a question as int64; or the
    /// numbers themselves as float32.
    Answers,
    /// The outputs, as float32.
    Logits,
    /// What the loss makes of them, as float32.
    Probabilities,
}

/// Predictions to write.
#[derive(Debug, Clone, Copy)]
pub struct Predictions<'a> {
    /// What the network gave.
    pub outputs: &'a Outputs,
    /// The type of the nodes.
    pub node_type: usize,
    /// The nodes, in the order they are written in.
    pub nodes: &'a [u64],
    /// What is written.
    pub form: Form,
    /// What the network was trained with.
    pub loss: Loss,
}

impl Predictions<'_> {
    /// Puts a `.npy` file in its place: all of it, or nothing.
    pub fn write(&self, path: &Path, progress: &dyn Progress) -> Result<()> {
        progress.begin("writing", self.nodes.len() as u64);
        put(&Real, path, |sink| self.fill(sink, progress))
    }

    fn fill(&self, sink: &mut dyn Write, progress: &dyn Progress) -> io::Result<()> {
        let (count, width) = (self.nodes.len(), self.outputs.width());
        let header = match self.written() {
            Written::Class => header_bytes(NpyType::Tensor(DType::I64), &[count]),
            Written::YesOrNo => header_bytes(NpyType::Tensor(DType::I64), &[count, width]),
            Written::Numbers => header_bytes(NpyType::Tensor(DType::F32), &[count, width]),
        };
        sink.write_all(&header)?;
        let mut rows = vec![0.0; count.min(PIECE) * width];
        for nodes in self.nodes.chunks(PIECE) {
            let rows = &mut rows[..nodes.len() * width];
            self.outputs.gather(self.node_type, nodes, rows).map_err(io::Error::other)?;
            self.piece(rows, sink)?;
            progress.advance(nodes.len() as u64);
        }
        Ok(())
    }

    fn piece(&self, rows: &mut [f32], sink: &mut dyn Write) -> io::Result<()> {
        let width = self.outputs.width().max(1);
        if self.form == Form::Probabilities {
            self.loss.probabilities(rows, width).map_err(io::Error::other)?;
        }
        let class = |row: &[f32]| answer(row).and_then(|class| i64::try_from(class).ok()).unwrap_or(-1);
        let bytes: Vec<u8> = match self.written() {
            Written::Class => rows.chunks_exact(width).flat_map(|row| class(row).to_le_bytes()).collect(),
            Written::YesOrNo => rows.iter().flat_map(|value| i64::from(*value > 0.0).to_le_bytes()).collect(),
            Written::Numbers => rows.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        sink.write_all(&bytes)
    }

    fn written(&self) -> Written {
        match (self.form, self.loss) {
            (Form::Answers, Loss::CrossEntropy | Loss::Nll) => Written::Class,
            (Form::Answers, Loss::Bce) => Written::YesOrNo,
            _ => Written::Numbers,
        }
    }
}

/// What the file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Class,
    YesOrNo,
    Numbers,
}
