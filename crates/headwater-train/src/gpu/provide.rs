//! Who draws the batches of a run and brings their features: in the trainer's process or in one beside it.

use headwater_cuda::{Gpu, Stream};
use headwater_graph::sample::{EdgeIds, GpuNeighbourSampler, SampleOptions};
use headwater_graph::{PlacedGraph, Storage, Wish};

use super::draw::Drawer;
use super::features::{DeviceFeatures, Placing};
use super::plan::{Mode, Needs};
use crate::error::{Error, Result};
use crate::run_config::{RunConfig, SamplerName};
use crate::task::Task;

/// What a GPU always has taken costs a few rows; less than this part of a table is not worth a word.
const WORTH_A_WORD: u64 = 8;

/// What draws, and where features are read from.
#[derive(Debug)]
pub(crate) struct Provider {
    pub drawer: Drawer,
    pub features: DeviceFeatures,
    placed: Option<PlacedGraph>,
    /// Where features lie.
    pub mode: Mode,
}

/// What it provides for.
#[derive(Clone, Copy)]
pub(crate) struct Provision<'a> {
    pub gpu: &'a Gpu,
    pub config: &'a RunConfig,
    pub task: &'a Task,
}

impl Provider {
    /// With as much in GPU memory as there is room for beside batches that take so many bytes.
    pub fn new(own: &Provision<'_>, working_bytes: u64) -> Result<Self> {
        let placed = match own.config.sampler {
            SamplerName::Cpu => None,
            _ => {
                let placed = PlacedGraph::new(&own.task.graph, Wish::Auto, Some(own.gpu))?;
                Some(placed).filter(|placed| placed.storage() != Storage::Cpu)
            }
        };
        let drawer = match &placed {
            Some(placed) => {
                let options = SampleOptions::fanouts(&own.config.fanout)?;
                let options = SampleOptions { edge_ids: EdgeIds::Dropped, ..options };
                Drawer::Gpu(Box::new(GpuNeighbourSampler::new(placed.clone(), options)?))
            }
            None if own.config.sampler == SamplerName::Gpu => {
                let expected = "auto or cpu, because the graph fits in no memory that this GPU reads".to_owned();
                return Err(Error::Setting { field: "sampler", value: "gpu".to_owned(), expected });
            }
            None => Drawer::Cpu,
        };
        let mode = planned(own, working_bytes)?;
        let mut made = Self { drawer, features: DeviceFeatures::none(), placed, mode };
        made.place(own, mode)?;
        Ok(made)
    }

    /// Places features; where there is not enough memory after all, fewer of them.
    pub fn place(&mut self, own: &Provision<'_>, mode: Mode) -> Result<()> {
        let Provision { gpu, config, task } = *own;
        gpu.trim(0)?;
        self.mode = mode;
        let placing = Placing { gpu, task, config, graph: self.placed.as_ref() };
        loop {
            match placing.place(self.mode) {
                Ok(features) => {
                    self.features = features;
                    return Ok(());
                }
                Err(why) => self.mode = step_down(self.mode, task, why)?,
            }
        }
    }

    /// Nothing of the features stays in GPU memory, until they are placed again.
    pub fn give_up(&mut self) {
        self.features = DeviceFeatures::none();
    }
}

fn planned(own: &Provision<'_>, working_bytes: u64) -> Result<Mode> {
    Stream::new(own.gpu)?.synchronize()?;
    own.gpu.trim(0)?;
    let table = own.task.features.first().and_then(Option::as_ref);
    let none = || Error::Model { why: "nodes have no features".to_owned() };
    let source = table.ok_or_else(none)?.source();
    let RunConfig { features, hot_share, .. } = *own.config;
    let memory = own.gpu.memory()?;
    let (free_bytes, total_bytes) = (memory.free_bytes as u64, memory.total_bytes as u64);
    let (rows, row_bytes) = (source.rows(), source.format().stride_bytes as u64);
    let needs = Needs { features, hot_share, rows, row_bytes, free_bytes, working_bytes };
    let mode = Mode::plan(&needs);
    let emptied = Mode::plan(&Needs { free_bytes: total_bytes, ..needs });
    if emptied.hot_rows(rows) - mode.hot_rows(rows) > rows / WORTH_A_WORD {
        let taken = total_bytes - free_bytes;
        log::warn!("{taken} of {total_bytes} bytes of GPU memory are taken, so features are {mode}, not {emptied}");
    }
    Ok(mode)
}

/// The next mode after one did not fit or could not be pinned, said in a line; any other error stays one.
pub(crate) fn step_down(mode: Mode, task: &Task, why: Error) -> Result<Mode> {
    let rows = task.features.first().and_then(Option::as_ref).map_or(0, |table| table.shape()[0]);
    let (next, reason) = if why.is_unpinned() {
        (mode.by_copy(), "host memory cannot be pinned")
    } else if why.is_out_of_memory() {
        (mode.smaller(rows), "GPU memory is short")
    } else {
        return Err(why);
    };
    match next {
        Some(next) => {
            log::warn!("{reason}, so features go from {mode} to {next}: {why}");
            Ok(next)
        }
        None if why.is_unpinned() || matches!(why, Error::NoRoom { .. }) => Err(why),
        None => Err(Error::NoRoom { mode: mode.to_string(), why: why.to_string() }),
    }
}
