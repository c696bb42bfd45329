//! Whether rows should begin on lines.
//!
//! The GPU asks for host memory line by line, 128 bytes at a time, and for no more of a line than the 32-byte sectors it
//! needs. A row that begins anywhere touches a line more than it must, most of the time; a row that begins on a line does
//! not, but takes more room, so that fewer rows fit in fast memory. What a request and a sector cost comes from the rates
//! that rows of 128 to 2408 bytes were gathered at over PCIe 5: about 36 and 26 bytes' worth of a plain copy.

use crate::error::Result;
use crate::plan::{Demand, Links, Room, TierPlan};
use crate::rows::RowFormat;

const LINE_BYTES: usize = 128;
const SECTOR_BYTES: usize = 32;
/// What a request for (part of) a line costs, in bytes of a plain copy.
const REQUEST_COST: f64 = 36.0;
/// And every sector of it.
const SECTOR_COST: f64 = 25.7;

/// Bytes of a plain copy over the link that take as long as one row of this format does, whatever row it is.
#[must_use]
pub fn link_cost(format: &RowFormat) -> f64 {
    // Where rows begin repeats after so many rows at most.
    let starts = (0..LINE_BYTES).map(|row| row * format.stride_bytes % LINE_BYTES);
    let touched = |start: usize, grain: usize| (start + format.row_bytes()).div_ceil(grain) - start / grain;
    let cost = starts.map(|start| {
        REQUEST_COST * touched(start, LINE_BYTES) as f64 + SECTOR_COST * touched(start, SECTOR_BYTES) as f64
    });
    if format.row_bytes() == 0 { 0.0 } else { cost.sum::<f64>() / LINE_BYTES as f64 }
}

/// The format, packed or on lines, whose epoch is shorter. `demand` is that of packed rows; its `row_bytes` is not used.
pub fn choose_padding(packed: RowFormat, demand: &Demand<'_>, room: &Room, links: &Links) -> Result<RowFormat> {
    let on_lines = RowFormat::on_lines(packed.elements, packed.stored);
    let seconds = |format: &RowFormat| -> Result<f64> {
        let stride = format.stride_bytes as u64;
        let plan = TierPlan::new(&Demand { row_bytes: stride, ..*demand }, room, links)?;
        let [replicated, interleaved, host, disk] = plan.forecast.map(|tier| tier.seconds_per_epoch);
        let host = host * link_cost(format) / stride.max(1) as f64;
        Ok(replicated.max(interleaved).max(host).max(disk))
    };
    let packed_s = seconds(&packed)?;
    // Padded rows may not fit where packed ones do.
    Ok(if seconds(&on_lines).is_ok_and(|padded_s| padded_s < packed_s) { on_lines } else { packed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Curve;
    use crate::rows::Stored;

    const LINKS: Links =
        Links { device_gb_per_s: 1600.0, peer_gb_per_s: 150.0, host_gb_per_s: 50.0, disk_gb_per_s: 3.0 };

    #[test]
    fn costs_are_what_was_measured() {
        // Width, and the share of the copy's rate at which such rows were gathered from 16 GiB.
        for (bytes, measured) in [(128, 0.906), (400, 0.835), (512, 0.920), (1028, 0.863), (2052, 0.897), (2408, 0.913)]
        {
            let share = f64::from(bytes) / link_cost(&RowFormat::packed(bytes as usize, Stored::Raw));
            assert!((share / measured - 1.0).abs() < 0.02, "{bytes}: {share} {measured}");
        }
        assert_eq!(link_cost(&RowFormat::packed(0, Stored::Raw)), 0.0);
    }

    #[test]
    fn rows_are_padded_where_that_pays() {
        let curve = Curve::of((0..1000u64).map(|at| 1_000_000 / (at + 1)).collect::<Vec<_>>().into_iter());
        let choose = |bytes: usize, device_rows: u64, host_bytes: u64| {
            let packed = RowFormat::packed(bytes, Stored::Raw);
            let demand = Demand { curve: &curve, row_bytes: bytes as u64, reads_per_epoch: 1e9 };
            let device_bytes = device_rows * bytes as u64;
            let room = Room { device_bytes, members: 1, host_bytes, has_disk: false };
            choose_padding(packed, &demand, &room, &LINKS).unwrap().stride_bytes
        };
        // Rows of 100 bytes mostly touch two lines, and padded ones touch one.
        assert_eq!(choose(100, 0, 1 << 30), 128);
        // Padded rows do not fit.
        assert_eq!(choose(100, 0, 100_000), 100);
        // Rows of whole lines, and rows whose last line they would touch anyway, gain nothing.
        assert_eq!((choose(512, 0, 1 << 30), choose(400, 0, 1 << 30)), (512, 400));
        // All rows in GPU memory: nothing crosses the link.
        assert_eq!(choose(100, 1000, 1 << 30), 100);
    }
}
