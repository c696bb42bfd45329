//! What is found, as it is printed.

use headwater::feature::{Stored, TierPlan};
use serde::{Serialize, Serializer};

use super::timing::Timed;
use crate::args::{ColdOrder, stored_name};

/// A table with some of its rows in GPU memory.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    #[serde(serialize_with = "by_name")]
    pub stored: Stored,
    pub order: ColdOrder,
    /// Percent of the rows in GPU memory, as asked for.
    pub share_percent: f64,
    /// That in rows.
    pub gpu_rows: u64,
    /// Part of the rows of a batch that came from GPU memory.
    pub hit_rate: f64,
    /// Bytes a batch over the link to host memory: on a GPU as the table counted them, else as the ids say.
    pub host_link_bytes: f64,
    /// The same as the plan has it.
    pub predicted_host_link_bytes: f64,
    pub off_by_percent: f64,
    /// Bytes over the link, as a part of those of the file's type at the same share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_file_type: Option<f64>,
    /// Absent without a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<Timed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// A batch one after the other: its cold rows gathered alone, then its hot rows at the rate of GPU memory. A table reads both
/// at once, so it may be faster; but with warm caches the cold rows alone find their page tables there, and beside the hot
/// ones they do not.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Bound {
    pub cold_alone_ms: f64,
    pub hot_ms: f64,
    pub bound_ms: f64,
    /// Measured over that.
    pub ratio: f64,
}

/// The same batches without tiers. What there is no room or no GPU for is absent.
#[derive(Debug, Default, Serialize)]
pub struct Baselines {
    /// CPU threads gather; on a GPU the rows are then copied there.
    pub cpu: Option<Timed>,
    /// One kernel reads all rows in pinned host memory.
    pub zero_copy: Option<Timed>,
    /// Whether that memory is the mapped file itself. Small files, and files that cannot be registered, are copied.
    pub is_pinned_in_place: Option<bool>,
    /// The plain gather of rows in GPU memory.
    pub hbm: Option<Hbm>,
}

/// A plain gather in GPU memory.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Hbm {
    /// Rows of that table: all, or as many of the hottest as there was room for.
    pub rows: u64,
    pub is_whole: bool,
    #[serde(flatten)]
    pub timed: Timed,
}

/// What was left out.
#[derive(Debug, Serialize)]
pub struct Skipped {
    pub what: String,
    pub why: String,
}

/// All that gathers gave.
#[derive(Debug, Default, Serialize)]
pub struct Gathers {
    pub baselines: Baselines,
    pub cases: Vec<Case>,
    pub skipped: Vec<Skipped>,
}

/// What the figures amount to. Each is absent where something of it was not measured.
#[derive(Debug, Serialize)]
pub struct Claims {
    /// The largest difference of forecast and counted bytes over the link.
    pub most_off_by_percent: f64,
    /// Time at 10% over that of cold and hot rows one after the other.
    pub over_bound_at_10: Option<f64>,
    /// Time at 10% with cold rows in random order, over hotness order.
    pub random_over_hotness_at_10: Option<f64>,
    /// Time with all rows in GPU memory over the plain gather there.
    pub all_in_gpu_over_hbm: Option<f64>,
    /// Link bytes of int8 rows over those of the file's type.
    pub int8_bytes_of_file_type: Option<f64>,
}

/// Where rows came from.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    pub gpu_rows: u64,
    pub host_rows: u64,
    /// Gathers that the rows were for.
    pub gathers: u64,
}

/// A case that is decided and not run.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    pub stored: Stored,
    pub order: ColdOrder,
    pub share_percent: f64,
    pub plan: &'a TierPlan,
    pub row_bytes: u64,
}

impl Planned<'_> {
    /// The case with what was counted.
    pub fn counted(&self, traffic: Traffic, timed: Option<Timed>) -> Case {
        let rows = (traffic.gpu_rows + traffic.host_rows).max(1);
        let host_link_bytes = (traffic.host_rows * self.row_bytes) as f64 / traffic.gathers.max(1) as f64;
        let predicted_host_link_bytes = self.plan.host_link_bytes();
        // Nothing told and nothing read is no difference.
        let is_nothing = predicted_host_link_bytes < 1.0 && host_link_bytes < 1.0;
        let off = if is_nothing { 0.0 } else { predicted_host_link_bytes / host_link_bytes.max(1.0) - 1.0 };
        Case {
            stored: self.stored,
            order: self.order,
            share_percent: self.share_percent,
            gpu_rows: self.plan.replicated_end,
            hit_rate: traffic.gpu_rows as f64 / rows as f64,
            host_link_bytes,
            predicted_host_link_bytes,
            off_by_percent: 100.0 * off,
            of_file_type: None,
            timed,
            bound: None,
        }
    }
}

impl Gathers {
    /// Compares cases of other types with those of the file's.
    pub fn compare(&mut self, file_type: Stored) {
        let of_file: Vec<(f64, f64)> = self.hotness(file_type).map(|c| (c.share_percent, c.host_link_bytes)).collect();
        for case in self.cases.iter_mut().filter(|case| case.stored != file_type) {
            let same = of_file.iter().find(|(share, _)| *share == case.share_percent);
            case.of_file_type = same.filter(|(_, bytes)| *bytes > 0.0).map(|(_, bytes)| case.host_link_bytes / bytes);
        }
    }

    /// The cases of a type in the order of heat.
    pub fn hotness(&self, stored: Stored) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(move |case| case.stored == stored && case.order == ColdOrder::Hotness)
    }

    /// What it amounts to.
    pub fn claims(&self, file_type: Stored) -> Claims {
        let at = |share: f64| self.hotness(file_type).find(|case| case.share_percent == share);
        let is_random = |case: &&Case| case.order == ColdOrder::Random && case.share_percent == 10.0;
        let ms = |case: &Case| case.timed.map(|timed| timed.ms_per_batch);
        let over = |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one / other);
        let hbm = self.baselines.hbm.filter(|hbm| hbm.is_whole).map(|hbm| hbm.timed.ms_per_batch);
        Claims {
            most_off_by_percent: self.cases.iter().map(|case| case.off_by_percent.abs()).fold(0.0, f64::max),
            over_bound_at_10: at(10.0).and_then(|case| case.bound).map(|bound| bound.ratio),
            random_over_hotness_at_10: over(self.cases.iter().find(is_random).and_then(ms), at(10.0).and_then(ms)),
            all_in_gpu_over_hbm: over(at(100.0).and_then(ms), hbm),
            int8_bytes_of_file_type: self.hotness(Stored::I8).find_map(|case| case.of_file_type),
        }
    }
}

/// As the option that asks for it names it.
pub fn by_name<S: Serializer>(stored: &Stored, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(stored_name(*stored))
}
