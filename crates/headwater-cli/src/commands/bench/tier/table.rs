//! The tiered table as this benchmark uses it. Every call to it stands here.

use headwater::cuda::{Gpu, Span, Stream};
use headwater::feature::{Layout, Stored, TierPlan, TieredTable};
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
        let table = TieredTable::place(gpu, group, &source.bytes, &source.scales, source.format, layout)?;
        Ok(Self { table, out_type })
    }

    /// Queues a gather.
    pub fn gather(&self, stream: &Stream, ids: &Span, out: &Span) -> anyhow::Result<()> {
        Ok(self.table.gather(stream, ids, IdType::U64, self.out_type, out)?)
    }

    /// Rows served so far.
    pub fn served(&self, stream: &Stream) -> anyhow::Result<Traffic> {
        let served = self.table.served(stream)?;
        Ok(Traffic { gpu_rows: served.replicated + served.interleaved, host_rows: served.host, gathers: 0 })
    }
}
