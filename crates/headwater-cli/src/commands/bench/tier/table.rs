//! The tiered table as this benchmark uses it, and its twin in host memory. Every call to them stands here.

use headwater::cuda::{Gpu, Span, Stream};
use headwater::feature::table::HostRows;
use headwater::feature::{self, Layout, Stored, TierPlan, TieredTable};
use headwater::tensor::gather::IdType;

use super::figures::Traffic;
use super::source::Source;

/// A table in its place, for one GPU alone.
pub struct Placed {
    table: TieredTable,
    out_type: Stored,
}

impl Placed {
    /// Puts the rows where the plan says.
    pub fn new(gpu: &Gpu, source: &Source, plan: &TierPlan, out_type: Stored) -> anyhow::Result<Self> {
        let (layout, group) = (Layout::of_plan(plan, 1)?, std::slice::from_ref(gpu));
        let rows = feature::Source::memory(source.bytes.clone(), source.scales.clone(), source.format)?;
        let table = TieredTable::place(gpu, group, &rows, layout)?;
        Ok(Self { table, out_type })
    }

    /// Queues a gather.
    pub fn gather(&self, stream: &Stream, ids: &Span, out: &Span) -> anyhow::Result<()> {
        Ok(self.table.gather(stream, ids, IdType::U64, self.out_type, out)?)
    }

    /// Rows served so far.
    pub fn served(&self, stream: &Stream) -> anyhow::Result<Traffic> {
        let served = self.table.served(stream)?;
        let gpu_rows = served.replicated.rows + served.interleaved.rows;
        Ok(Traffic { gpu_rows, host_rows: served.host.rows, gathers: 0 })
    }
}

impl Source {
    /// What a gather of `ids` should give.
    pub fn rows_of(&self, ids: &[u64], out_type: Stored) -> anyhow::Result<Vec<u8>> {
        let mut wanted = vec![0u8; ids.len() * self.format.elements * out_type.bytes()];
        let rows = HostRows { bytes: self.bytes.as_slice(), scales: &self.scales, format: self.format };
        rows.gather(ids, out_type, &mut wanted)?;
        Ok(wanted)
    }
}
