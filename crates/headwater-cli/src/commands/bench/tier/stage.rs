//! Batches in GPU memory, the place their rows come out at, and the clock.

use anyhow::{Context, ensure};
use headwater::cuda::{Gpu, Span, Stream};
use headwater::feature::Stored;
use headwater::memory::{Buffer, Device};
use headwater::tensor::gather::{GatherOptions, GpuGather, IdType};

use super::source::Source;
use super::timing::{Timed, Work};
use super::traffic::Lists;
use crate::args::{BenchTierArgs, Caches};

/// Where gathers run.
pub struct Stage {
    pub stream: Stream,
    /// Long enough for the longest batch.
    out: Buffer<u8, Device>,
    out_row_bytes: usize,
    out_type: Stored,
    rounds: usize,
    /// Written before every gather, where caches are to hold what other work left there.
    other_work: Option<Buffer<u8, Device>>,
}

/// What is written between gathers, in caches of the second level: enough that nothing else is left there.
const CACHES_WRITTEN: usize = 4;

/// Lists of rows where the GPU reads them.
pub struct DeviceLists<'a> {
    pub host: &'a Lists,
    device: Vec<Buffer<u64, Device>>,
    outs: Vec<Span>,
}

/// Queues the gather of one batch: its position, its ids and its output.
pub type Gather<'a> = dyn Fn(usize, &Span, &Span) -> anyhow::Result<()> + 'a;

impl Stage {
    /// For batches of at most as many rows as the longest of `lists`, which come out as the file has them.
    pub fn new(gpu: &Gpu, lists: &Lists, source: &Source, args: &BenchTierArgs) -> anyhow::Result<Self> {
        let stream = Stream::new(gpu)?;
        let (out_row_bytes, out_type) = (source.format.row_bytes(), source.format.stored);
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let out = Buffer::on_stream(&stream, longest * out_row_bytes).context("making room for a batch")?;
        let other_work = match args.caches {
            Caches::Cold => Some(Buffer::on_stream(&stream, CACHES_WRITTEN * gpu.facts().l2_bytes.max(1))?),
            Caches::Warm => None,
        };
        Ok(Self { stream, out, out_row_bytes, out_type, rounds: args.rounds, other_work })
    }

    /// Puts lists into GPU memory, one buffer a batch.
    pub fn upload<'a>(&self, host: &'a Lists) -> anyhow::Result<DeviceLists<'a>> {
        let device = host.iter().map(|list| Ok(Buffer::from_slice(&self.stream, list)?));
        let out = |list: &Vec<u64>| self.out.part(0..list.len() * self.out_row_bytes).context("a batch is too long");
        let outs = host.iter().map(out).collect::<anyhow::Result<_>>()?;
        Ok(DeviceLists { host, device: device.collect::<anyhow::Result<_>>()?, outs })
    }

    /// Gathers the first batch, compares it with the rows of `source`, and times all of them.
    pub fn checked(
        &self,
        what: &str,
        source: &Source,
        lists: &DeviceLists<'_>,
        gather: &Gather<'_>,
    ) -> anyhow::Result<Timed> {
        self.check(what, source, lists, gather)?;
        self.time(lists, gather)
    }

    /// Compares the first batch with the rows of `source`, to the bit.
    pub fn check(
        &self,
        what: &str,
        source: &Source,
        lists: &DeviceLists<'_>,
        gather: &Gather<'_>,
    ) -> anyhow::Result<()> {
        let (ids, out) = (&lists.device[0], &lists.outs[0]);
        self.stream.fill(self.out.whole(), 0xa5)?;
        gather(0, ids.whole(), out)?;
        let mut found = vec![0u8; out.bytes()];
        self.stream.download(out, &mut found)?;
        let wanted = source.rows_of(&lists.host[0], self.out_type)?;
        let wrong = found.chunks(self.out_row_bytes).zip(wanted.chunks(self.out_row_bytes)).position(|(a, b)| a != b);
        ensure!(wrong.is_none(), "{what} gathered row {} of the first batch wrongly", wrong.unwrap_or(0));
        Ok(())
    }

    /// Times all batches.
    pub fn time(&self, lists: &DeviceLists<'_>, gather: &Gather<'_>) -> anyhow::Result<Timed> {
        let bytes = lists.outs.iter().map(|out| out.bytes() as u64).sum();
        let work = Work { rounds: self.rounds, batches: lists.device.len(), bytes };
        let before = || match &self.other_work {
            Some(other) => Ok(self.stream.fill(other.whole(), 0)?),
            None => Ok(()),
        };
        work.on_stream(&self.stream, &before, &|at| gather(at, lists.device[at].whole(), &lists.outs[at]))
    }

    /// Gathers of each batch in one `time`.
    pub fn gathers_a_batch(&self) -> u64 {
        self.rounds as u64 + 1
    }

    /// A plain gather out of a table in one memory.
    pub fn plain(&self, table: &Span, rows: u64, ids: &Span, out: &Span) -> anyhow::Result<()> {
        let gather = GpuGather {
            stream: &self.stream,
            table,
            host_table: None,
            rows,
            width_bytes: self.out_row_bytes as u64,
            ids,
            id_type: IdType::U64,
            out,
            options: GatherOptions::default(),
        };
        gather.run()?;
        Ok(())
    }
}
