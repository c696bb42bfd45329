//! Which way to gather, decided from numbers alone.
//!
//! What binds a gather from host memory is the larger of two times: bytes over the link, and address translations over
//! the rate at which they are made. A translation covers 64 KiB of host memory, whatever the page size
//! behind it. Rows in random order need one for nearly every row; rows in address order need one for every piece of the
//! table that is touched at all. Ordering costs a few launches and a pass over the ids. The constants are measured; see
//! `docs/results`.

use headwater_cuda::SmShare;

/// Host memory covered by one translation.
const TRANSLATION_BYTES: f64 = 65_536.0;
/// Translations a microsecond, rows in address order.
const ORDERED_TRANSLATIONS_PER_US: f64 = 40.0;
/// Translations a microsecond when rows come in random order from a table of any size.
const RANDOM_TRANSLATIONS_PER_US: f64 = 30.0;
/// How many more there are when the table is one GiB; the rest falls with the table's size to the power of 1.5.
const RANDOM_EXTRA_PER_US: f64 = 67.0;
/// Translations that stay cached from one gather to the next.
const CACHED_TRANSLATIONS: f64 = 16_384.0;
/// Fixed cost of ordering: its launches and its scratch memory.
const ORDER_FIXED_US: f64 = 25.0;
/// Ids an SM orders in a microsecond.
const ORDER_IDS_PER_US: f64 = 200.0;
/// What an SM reads over the link in GB/s, rows in address order.
const ORDERED_SM_GB_PER_S: f64 = 11.8;
/// The same when rows come in random order.
const RANDOM_SM_GB_PER_S: f64 = 13.0;
/// SMs that fill the link. More only widen the window of addresses in flight; the kernel takes fewer where rows lie far
/// apart.
const LINK_SMS: u32 = 16;
/// Bytes a lane loads at a time.
const WORD_BYTES: u64 = 16;
/// Rows from this width on fill the link in any order.
const WIDE_ROW_BYTES: u64 = 2048;
/// Rows below this width need many threads to have enough lines in flight, aligned or not.
const NARROW_ROW_BYTES: u64 = 1024;

/// How rows are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// CPU threads collect rows into pinned memory, the copy engine moves them.
    Cpu,
    /// A thread an element, in output order.
    Naive,
    /// As naive, each row rotated to start on a line: the papers' circular shift.
    Shift,
    /// A group of lanes a row, starting on the row's first line.
    Aligned,
    /// As aligned, rows visited in address order.
    Sorted,
    /// As sorted, with CPU threads working from the other end of the table.
    Hybrid,
    /// Whatever is predicted to be fastest.
    Auto,
}

impl Variant {
    /// Every variant that can be asked for.
    pub const ALL: [Self; 7] =
        [Self::Cpu, Self::Naive, Self::Shift, Self::Aligned, Self::Sorted, Self::Hybrid, Self::Auto];

    /// Its name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Naive => "naive",
            Self::Shift => "shift",
            Self::Aligned => "aligned",
            Self::Sorted => "sorted",
            Self::Hybrid => "hybrid",
            Self::Auto => "auto",
        }
    }
}

/// What the caller wants of a gather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatherOptions {
    /// The way to do it.
    pub variant: Variant,
    /// How much of the GPU it may use.
    pub share: SmShare,
    /// CPU threads that may help; none unless asked.
    pub cpu_threads: usize,
}

impl Default for GatherOptions {
    fn default() -> Self {
        Self { variant: Variant::Auto, share: SmShare::All, cpu_threads: 0 }
    }
}

/// Where the table lies, seen from the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TablePlace {
    /// In GPU memory.
    Device,
    /// In host memory the GPU reads over its link.
    Host,
}

/// A gather in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Rows of the table.
    pub table_rows: u64,
    /// Bytes a row.
    pub width_bytes: u64,
    /// Rows wanted.
    pub count: u64,
    /// Largest power of two, up to 128, that divides the address and the width of table and output.
    pub alignment_bytes: u64,
    /// Where the table is.
    pub place: TablePlace,
    /// Bandwidth of the link to it in GB/s.
    pub link_gb_per_s: f64,
    /// SMs that may be used.
    pub sms: u32,
}

/// Everything a launch needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Never `Auto`.
    pub variant: Variant,
    /// Whether rows are put into address order first.
    pub ordered: bool,
    /// How lanes are laid over rows.
    pub lanes: Lanes,
    /// Blocks of the gather.
    pub blocks: u32,
    /// Threads a block.
    pub threads: u32,
    /// Whether warps claim their work from all that is left; otherwise each block has its stretch of it.
    pub claims: bool,
    /// Bytes the shift variant takes for a line; 128 but for the papers' scaled-down example.
    pub line_bytes: u64,
}

/// How lanes are laid over rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    /// Lanes a row.
    pub per_row: u32,
    /// Bytes of whole lines that hold a row wherever it starts.
    pub span_bytes: u64,
    /// Loads a lane keeps in flight.
    pub depth: u32,
    /// Bytes that are stored together: 16, or less when rows are not aligned to that.
    pub piece_bytes: u32,
}

impl Lanes {
    /// Times the lanes of a row must step to cover it.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.span_bytes.div_ceil(u64::from(self.per_row) * WORD_BYTES)
    }
}

/// Decides.
#[must_use]
pub fn plan(shape: &Shape, options: &GatherOptions) -> Plan {
    let sms = options.share.sms(shape.sms);
    let shape = &Shape { sms, ..*shape };
    let variant = match options.variant {
        Variant::Auto => choose(shape, options),
        asked => asked,
    };
    let ordered = matches!(variant, Variant::Sorted | Variant::Hybrid) && shape.count > 1;
    let lanes = lanes(shape, ordered);
    let blocks = match (variant, shape.place) {
        // The naive kernels have one load in flight a thread, so they need many threads.
        (Variant::Naive | Variant::Shift, _) => sms * 2,
        // Rows in random order are only left so when the translations of a small table stay cached, and every part of
        // the GPU has its own cache; or when rows are wide and a few SMs fill the link.
        (Variant::Aligned, TablePlace::Host) if shape.width_bytes < WIDE_ROW_BYTES => sms,
        (_, TablePlace::Host) => sms.min(LINK_SMS),
        (_, TablePlace::Device) => sms * 2,
    };
    let items = shape.count.saturating_mul(lanes.chunks());
    let threads = if ordered || meets_its_lines(shape, &lanes) { 1024 } else { 512 };
    // One front that moves through the table keeps the addresses in flight close together, where a stretch for every block
    // would be a front for each. Rows in random order have no front, and need no counter.
    let claims = ordered;
    let tile = u64::from(threads / lanes.per_row * lanes.depth);
    let useful = u32::try_from(items.div_ceil(tile)).unwrap_or(u32::MAX).max(1);
    Plan { variant, ordered, lanes, blocks: blocks.min(useful), threads, claims, line_bytes: 128 }
}

/// Whether the lines a row touches are mostly its own. Otherwise threads that share a line or store small pieces get into
/// each other's way where every block has its stretch, and half as many are faster.
fn meets_its_lines(shape: &Shape, lanes: &Lanes) -> bool {
    lanes.piece_bytes == 16 && (shape.alignment_bytes >= 128 || shape.width_bytes < NARROW_ROW_BYTES)
}

fn choose(shape: &Shape, options: &GatherOptions) -> Variant {
    if shape.place == TablePlace::Device {
        return Variant::Aligned;
    }
    let (aligned_us, sorted_us) = (random_us(shape), ordered_us(shape));
    let best_us = aligned_us.min(sorted_us);
    // Threads pay only when translation, not the link, is what binds.
    if options.cpu_threads > 0 && best_us > 1.15 * link_us(shape, ORDERED_SM_GB_PER_S) && shape.count > 65_536 {
        Variant::Hybrid
    } else if sorted_us < aligned_us {
        Variant::Sorted
    } else {
        Variant::Aligned
    }
}

/// Predicted time with rows in the order given.
#[must_use]
pub fn random_us(shape: &Shape) -> f64 {
    if stays_cached(shape) && as_f64(shape.count) <= 2.0 * CACHED_TRANSLATIONS {
        return link_us(shape, RANDOM_SM_GB_PER_S);
    }
    let table_gib = as_f64(shape.table_rows) * as_f64(shape.width_bytes) / (1u64 << 30) as f64;
    let rate = RANDOM_TRANSLATIONS_PER_US + RANDOM_EXTRA_PER_US / table_gib.max(0.01).powf(1.5);
    // A row that straddles two translations needs both.
    let translations = as_f64(shape.count) * (1.0 + as_f64(shape.width_bytes) / TRANSLATION_BYTES);
    link_us(shape, RANDOM_SM_GB_PER_S).max(translations / rate)
}

/// Predicted time with rows in address order, ordering included.
#[must_use]
pub fn ordered_us(shape: &Shape) -> f64 {
    let order_us = ORDER_FIXED_US + as_f64(shape.count) / (ORDER_IDS_PER_US * f64::from(shape.sms));
    let translations_us = if stays_cached(shape) { 0.0 } else { pieces_touched(shape) / ORDERED_TRANSLATIONS_PER_US };
    order_us + link_us(shape, ORDERED_SM_GB_PER_S).max(translations_us)
}

/// Whether one gather's translations are still cached when the next one comes, which asks for other rows.
fn stays_cached(shape: &Shape) -> bool {
    // More than the shared cache holds: each part of the GPU also has a cache of its own.
    pieces(shape) <= 1.6 * CACHED_TRANSLATIONS
}

/// Translations' worth of table.
fn pieces(shape: &Shape) -> f64 {
    (as_f64(shape.table_rows) * as_f64(shape.width_bytes) / TRANSLATION_BYTES).max(1.0)
}

/// Translations' worth of so many rows, for kernels.
#[expect(clippy::cast_possible_truncation, reason = "an estimate")]
pub(super) fn pieces_of(rows: u64, stride_bytes: u64) -> f32 {
    (as_f64(rows) * as_f64(stride_bytes) / TRANSLATION_BYTES) as f32
}

/// Expected number of translations' worth of table that uniformly random rows touch.
fn pieces_touched(shape: &Shape) -> f64 {
    let pieces = pieces(shape);
    let touches = as_f64(shape.count) * (1.0 + as_f64(shape.width_bytes) / TRANSLATION_BYTES);
    pieces * (1.0 - (-touches / pieces).exp())
}

fn link_us(shape: &Shape, sm_gb_per_s: f64) -> f64 {
    let rate = shape.link_gb_per_s.min(sm_gb_per_s * f64::from(shape.sms));
    as_f64(shape.count) * as_f64(shape.width_bytes) / 1e3 / rate
}

/// Lays lanes over rows so that each step of a group covers whole lines.
fn lanes(shape: &Shape, ordered: bool) -> Lanes {
    let piece_bytes = match shape.alignment_bytes {
        16.. => 16,
        4.. => 4,
        _ => 1,
    };
    // A row that may start anywhere in a line spans up to this many bytes of lines.
    let slack = if shape.alignment_bytes >= 128 { 0 } else { 128 - shape.alignment_bytes.max(1) };
    let span_bytes = (shape.width_bytes + slack).next_multiple_of(128);
    let wanted = (span_bytes / WORD_BYTES).next_power_of_two();
    let per_row = u32::try_from(wanted.clamp(8, 32)).unwrap_or(32);
    // In address order the window counts, and warps that claim have their next tile at hand.
    let depth = if ordered { 2 } else { 4 };
    Lanes { per_row, span_bytes, depth, piece_bytes }
}

/// Counts of rows and bytes stay far below 2^53, or need no more precision than that.
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(table_gib: u64, width_bytes: u64, count: u64) -> Shape {
        let alignment_bytes = 1 << width_bytes.trailing_zeros().min(7);
        let place = TablePlace::Host;
        let table_rows = (table_gib << 30) / width_bytes;
        Shape { table_rows, width_bytes, count, alignment_bytes, place, link_gb_per_s: 55.0, sms: 132 }
    }

    #[test]
    fn large_tables_are_sorted_small_ones_are_not() {
        let auto = GatherOptions::default();
        assert_eq!(plan(&host(16, 512, 1 << 20), &auto).variant, Variant::Sorted);
        assert_eq!(plan(&host(1, 256, 8192), &auto).variant, Variant::Aligned);
        assert_eq!(plan(&host(16, 512, 4), &auto).variant, Variant::Aligned);
        let device = Shape { place: TablePlace::Device, ..host(16, 512, 1 << 20) };
        assert_eq!(plan(&device, &auto).variant, Variant::Aligned);
    }

    #[test]
    fn the_cpu_helps_only_when_asked_and_when_translation_binds() {
        let asked = GatherOptions { cpu_threads: 8, ..GatherOptions::default() };
        assert_eq!(plan(&host(64, 128, 4 << 20), &asked).variant, Variant::Hybrid);
        assert_ne!(plan(&host(16, 4096, 1 << 17), &asked).variant, Variant::Hybrid);
        assert_eq!(plan(&host(64, 128, 4 << 20), &GatherOptions::default()).variant, Variant::Sorted);
    }

    #[test]
    fn lanes_cover_a_row_wherever_it_starts() {
        for width_bytes in 1..3000u64 {
            for alignment_bytes in (0..=7).map(|log| 1u64 << log).filter(|a| width_bytes % a == 0) {
                let lanes = lanes(&Shape { alignment_bytes, ..host(1, width_bytes, 10) }, false);
                let reach = lanes.chunks() * u64::from(lanes.per_row) * WORD_BYTES;
                let last_start = 128 - alignment_bytes;
                assert!(reach >= width_bytes + if alignment_bytes == 128 { 0 } else { last_start });
                assert!(lanes.per_row.is_power_of_two() && (8..=32).contains(&lanes.per_row));
                assert!(alignment_bytes % u64::from(lanes.piece_bytes) == 0);
            }
        }
    }

    #[test]
    fn a_cap_on_sms_is_kept_and_tiny_gathers_use_few_blocks() {
        let capped = GatherOptions { share: SmShare::AtMost(3), ..GatherOptions::default() };
        assert_eq!(plan(&host(16, 512, 1 << 20), &capped).blocks, 3);
        assert_eq!(plan(&host(16, 512, 1), &GatherOptions::default()).blocks, 1);
        assert!(plan(&host(16, 512, 1 << 20), &GatherOptions::default()).blocks <= LINK_SMS);
    }

    #[test]
    fn few_sms_do_not_order_wide_rows() {
        // What was measured faster, by SMs and row width; 512 MiB out of 16 GiB.
        for (sms, width_bytes, faster) in [
            (1, 128, Variant::Sorted),
            (1, 512, Variant::Aligned),
            (1, 1024, Variant::Aligned),
            (2, 512, Variant::Sorted),
            (2, 1024, Variant::Aligned),
            (4, 1024, Variant::Sorted),
        ] {
            let options = GatherOptions { share: SmShare::AtMost(sms), ..GatherOptions::default() };
            let chosen = plan(&host(16, width_bytes, (512 << 20) / width_bytes), &options).variant;
            assert_eq!(chosen, faster, "{sms} SMs, {width_bytes} B");
        }
    }
}
