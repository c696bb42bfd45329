//! Rows of features on their way to a GPU: from its own memory, out of host memory, or by the CPU.

use headwater_cuda::{Gpu, SmShare, Span, Stream};
use headwater_feature::{HostTable, Layout, Stored, TieredTable};
use headwater_graph::PlacedGraph;
use headwater_memory::pin;
use headwater_tensor::gather::{GatherOptions, GpuGather, IdType, Variant};
use serde::{Deserialize, Serialize};

use super::by_copy::ByCopy;
use super::plan::Mode;
use crate::error::{Error, Result};
use crate::placement::scores;
use crate::run_config::RunConfig;
use crate::task::Task;

/// Rows of features that were brought to a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BroughtRows {
    /// From its own memory.
    pub gpu_rows: u64,
    /// From host memory, and through it from disk.
    pub host_rows: u64,
    /// Bytes of these, as they crossed the link: as they are stored where a GPU reads them, as they are used where a CPU collects
    /// them.
    pub link_bytes: u64,
}

impl BroughtRows {
    /// The share that was in the GPU's memory; 1 where there were none.
    #[must_use]
    pub fn hit_rate(self) -> f64 {
        let all = self.gpu_rows + self.host_rows;
        if all == 0 { 1.0 } else { self.gpu_rows as f64 / all as f64 }
    }
}

/// Rows of the one node type that a GPU trains on, and how many were asked for.
#[derive(Debug)]
pub(crate) struct DeviceFeatures {
    way: Way,
    rows: u64,
    /// Of these rows, as they came out.
    bytes: u64,
}

/// How they are brought.
#[derive(Debug)]
enum Way {
    /// The most read rows in GPU memory, or all, or none; the others in host memory, read from there in the order of
    /// addresses.
    Tiered(Box<TieredTable>),
    /// All rows in host memory, an element a thread.
    Naive { table: Span, rows: u64, width_bytes: u64, share: SmShare },
    /// CPU threads collect rows, copies bring them. The table is the task's own.
    Dma(ByCopy),
}

/// What features are placed for.
pub(crate) struct Placing<'a> {
    pub gpu: &'a Gpu,
    pub task: &'a Task,
    pub config: &'a RunConfig,
    /// Where the graph lies, which scores are made of.
    pub graph: Option<&'a PlacedGraph>,
}

impl Placing<'_> {
    /// Puts the rows where a mode wants them.
    pub fn place(&self, mode: Mode) -> Result<DeviceFeatures> {
        let table = table_of(self.task)?;
        let (source, rows) = (table.source(), table.shape()[0]);
        let (share, group) = (share_of(self.config.gather_sms), [self.gpu.clone()]);
        let tiered = |hot: u64| -> Result<TieredTable> {
            let mut table = TieredTable::place(self.gpu, &group, source, Layout::new(rows, hot, hot, 1)?)?;
            table.set_share(share);
            if self.config.gather_window > 0 {
                table.set_window(self.config.gather_window);
            }
            Ok(table)
        };
        let way = match mode {
            Mode::AllGpu => Way::Tiered(Box::new(tiered(rows)?)),
            Mode::ZeroCopy => Way::Tiered(Box::new(tiered(0)?)),
            Mode::Tiered { hot_rows } if hot_rows == 0 || hot_rows >= rows => {
                Way::Tiered(Box::new(tiered(hot_rows.min(rows))?))
            }
            Mode::Tiered { hot_rows } => {
                let reads = scores(self.task, self.config, self.graph)?.swap_remove(0);
                let mut table = tiered(hot_rows)?;
                // Rows that lie in that order already stay where they are.
                if !reads.is_sorted_by(|a, b| a >= b) {
                    table.retier(&Stream::new(self.gpu)?, &reads)?;
                }
                Way::Tiered(Box::new(table))
            }
            Mode::Naive => {
                let refused =
                    || Error::Model { why: "naive reads of features need rows of float32 in memory".to_owned() };
                let bytes = source.bytes().filter(|_| source.format().stored == Stored::F32).ok_or_else(refused)?;
                let width_bytes = source.format().stride_bytes as u64;
                Way::Naive { table: pin(self.gpu, bytes)?, rows, width_bytes, share }
            }
            Mode::Dma => Way::Dma(ByCopy::default()),
        };
        Ok(DeviceFeatures { way, rows: 0, bytes: 0 })
    }
}

impl DeviceFeatures {
    /// Nothing in GPU memory.
    pub fn none() -> Self {
        Self { way: Way::Dma(ByCopy::default()), rows: 0, bytes: 0 }
    }

    /// Queues the rows of these ids, u64 each, as float32.
    pub fn gather(&mut self, stream: &Stream, task: &Task, ids: &Span, out: &Span) -> Result<()> {
        self.rows += (ids.bytes() / 8) as u64;
        self.bytes += out.bytes() as u64;
        match &mut self.way {
            Way::Tiered(tiers) => Ok(tiers.gather(stream, ids, IdType::U64, Stored::F32, out)?),
            Way::Naive { table, rows, width_bytes, share } => {
                let (rows, width_bytes) = (*rows, *width_bytes);
                let options = GatherOptions { variant: Variant::Naive, share: *share, ..GatherOptions::default() };
                let id_type = IdType::U64;
                let gather =
                    GpuGather { stream, table, host_table: None, rows, width_bytes, ids, id_type, out, options };
                gather.run()?;
                Ok(())
            }
            Way::Dma(copies) => {
                let mut nodes = vec![0u64; ids.bytes() / 8];
                stream.download(ids, bytemuck::cast_slice_mut(&mut nodes))?;
                copies.bring(stream, table_of(task)?, &nodes, out)
            }
        }
    }

    /// Whether CPU threads collect rows before [`gather`](Self::gather) returns.
    pub fn gathers_on_host(&self) -> bool {
        matches!(self.way, Way::Dma(_))
    }

    /// Gathers out of host memory have so many translations under way from now on.
    pub fn set_window(&mut self, translations: u64) {
        if let Way::Tiered(tiers) = &mut self.way {
            tiers.set_window(translations);
        }
    }

    /// Translations that a gather has under way.
    pub fn window(&self) -> Option<u64> {
        match &self.way {
            Way::Tiered(tiers) => Some(tiers.window()),
            _ => None,
        }
    }

    /// What was brought so far.
    pub fn brought(&self, stream: &Stream) -> Result<BroughtRows> {
        match &self.way {
            Way::Tiered(tiers) => {
                let served = tiers.served(stream)?;
                let host_rows = served.host.rows + served.disk.rows;
                Ok(BroughtRows { gpu_rows: served.replicated.rows, host_rows, link_bytes: served.host_link_bytes() })
            }
            // Whatever the rows are stored as, float32 is copied, and naive reads are of nothing else.
            _ => Ok(BroughtRows { gpu_rows: 0, host_rows: self.rows, link_bytes: self.bytes }),
        }
    }
}

/// How much of a GPU so many SMs are; none are all of it.
fn share_of(sms: u32) -> SmShare {
    if sms == 0 { SmShare::All } else { SmShare::AtMost(sms) }
}

fn table_of(task: &Task) -> Result<&HostTable> {
    let none = || Error::Model { why: "nodes have no features that a GPU could gather".to_owned() };
    task.features.first().and_then(Option::as_ref).ok_or_else(none)
}
