//! What a network says of nodes, as an array in memory or in a file that other programs read.

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

/// What was said of some nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// Classes, or 1 and 0.
    Whole(Vec<i64>),
    /// Numbers.
    Real(Vec<f32>),
}

impl Predictions<'_> {
    /// Puts a `.npy` file in its place: all of it, or nothing.
    pub fn write(&self, path: &Path, progress: &dyn Progress) -> Result<()> {
        progress.begin("writing", self.nodes.len() as u64);
        put(&Real, path, |sink| self.fill(sink, progress))
    }

    /// All of them in memory, and their shape.
    pub fn collect(&self) -> Result<(Said, Vec<usize>)> {
        let mut rows = vec![0.0; self.nodes.len() * self.outputs.width()];
        self.outputs.gather(self.node_type, self.nodes, &mut rows)?;
        Ok((self.said(rows)?, self.shape()))
    }

    fn shape(&self) -> Vec<usize> {
        let (count, width) = (self.nodes.len(), self.outputs.width());
        if self.written() == Written::Class { vec![count] } else { vec![count, width] }
    }

    fn fill(&self, sink: &mut dyn Write, progress: &dyn Progress) -> io::Result<()> {
        let kind = if self.written() == Written::Numbers { DType::F32 } else { DType::I64 };
        sink.write_all(&header_bytes(NpyType::Tensor(kind), &self.shape()))?;
        for nodes in self.nodes.chunks(PIECE) {
            let mut rows = vec![0.0; nodes.len() * self.outputs.width()];
            self.outputs.gather(self.node_type, nodes, &mut rows).map_err(io::Error::other)?;
            let bytes: Vec<u8> = match self.said(rows).map_err(io::Error::other)? {
                Said::Whole(all) => all.iter().flat_map(|value| value.to_le_bytes()).collect(),
                Said::Real(all) => all.iter().flat_map(|value| value.to_le_bytes()).collect(),
            };
            sink.write_all(&bytes)?;
            progress.advance(nodes.len() as u64);
        }
        Ok(())
    }

    /// What outputs of some nodes say.
    fn said(&self, mut rows: Vec<f32>) -> Result<Said> {
        let width = self.outputs.width().max(1);
        if self.form == Form::Probabilities {
            self.loss.probabilities(&mut rows, width)?;
        }
        let class = |row: &[f32]| answer(row).and_then(|class| i64::try_from(class).ok()).unwrap_or(-1);
        Ok(match self.written() {
            Written::Class => Said::Whole(rows.chunks_exact(width).map(class).collect()),
            Written::YesOrNo => Said::Whole(rows.iter().map(|value| i64::from(*value > 0.0)).collect()),
            Written::Numbers => Said::Real(rows),
        })
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
