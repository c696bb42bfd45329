//! What goes into GPU memory, decided from numbers.
//!
//! A batch needs its working set; that was measured. What is left goes to rows of features, the most read first.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run_config::Features;

/// Part of what is free that nobody plans with: the driver and libraries take memory of their own.
const SPARE_PART: u64 = 16;

/// Where features are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// CPU threads collect rows, copies bring them.
    Dma,
    /// Host memory, an element a thread.
    Naive,
    /// Host memory, in the order of addresses.
    ZeroCopy,
    /// So many of the most read rows in GPU memory, the others in host memory.
    Tiered {
        /// How many.
        hot_rows: u64,
    },
    /// GPU memory.
    AllGpu,
}

/// What a plan is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Needs {
    /// What was asked for.
    pub features: Features,
    /// The share of rows that a tiered table was asked to hold.
    pub hot_share: f64,
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of one.
    pub row_bytes: u64,
    /// Bytes that are free on the GPU, the graph being there already if it is to be there.
    pub free_bytes: u64,
    /// Bytes that batches take.
    pub working_bytes: u64,
}

impl Mode {
    /// The mode for these needs. A share that does not fit becomes one that does.
    #[must_use]
    pub fn plan(needs: &Needs) -> Self {
        let free = needs.free_bytes - needs.free_bytes / SPARE_PART;
        let fits = free.saturating_sub(needs.working_bytes) / needs.row_bytes.max(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the rows")]
        let wanted = (needs.hot_share * needs.rows as f64).round() as u64;
        match needs.features {
            Features::Dma => Self::Dma,
            Features::Naive => Self::Naive,
            Features::ZeroCopy => Self::ZeroCopy,
            Features::AllGpu if fits >= needs.rows => Self::AllGpu,
            Features::Tiered => Self::Tiered { hot_rows: wanted.min(fits) },
            _ if fits >= needs.rows => Self::AllGpu,
            _ => Self::Tiered { hot_rows: fits },
        }
    }

    /// The same with less in GPU memory, after there was not enough; `None` where nothing is left to give up.
    #[must_use]
    pub fn smaller(self, rows: u64) -> Option<Self> {
        match self {
            Self::AllGpu => Some(Self::Tiered { hot_rows: rows - rows / 4 }),
            Self::Tiered { hot_rows: 0 } => None,
            // A few rows are not worth another attempt.
            Self::Tiered { hot_rows } if hot_rows < 1024 => Some(Self::Tiered { hot_rows: 0 }),
            Self::Tiered { hot_rows } => Some(Self::Tiered { hot_rows: hot_rows / 4 * 3 }),
            Self::Dma | Self::Naive | Self::ZeroCopy => None,
        }
    }

    /// Whether a GPU reads rows of host memory in the order of their addresses.
    #[must_use]
    pub fn reads_host_in_order(self) -> bool {
        matches!(self, Self::ZeroCopy | Self::Tiered { .. })
    }

    /// The same without host memory that a GPU reads, after none could be pinned; `None` where nothing was.
    #[must_use]
    pub fn by_copy(self) -> Option<Self> {
        (self != Self::Dma).then_some(Self::Dma)
    }

    /// Rows in GPU memory, of so many.
    #[must_use]
    pub fn hot_rows(self, rows: u64) -> u64 {
        match self {
            Self::AllGpu => rows,
            Self::Tiered { hot_rows } => hot_rows.min(rows),
            Self::Dma | Self::Naive | Self::ZeroCopy => 0,
        }
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dma => "dma",
            Self::Naive => "naive",
            Self::ZeroCopy => "zero-copy",
            Self::Tiered { .. } => "tiered",
            Self::AllGpu => "all-gpu",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tiered { hot_rows } => write!(f, "tiered with {hot_rows} hot rows"),
            other => f.write_str(other.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(features: Features) -> Needs {
        Needs { features, hot_share: 0.25, rows: 1000, row_bytes: 16, free_bytes: 16_000, working_bytes: 5_000 }
    }

    #[test]
    fn what_is_left_goes_to_rows() {
        // A sixteenth stays free, and the working set comes first: 10,000 bytes are 625 rows.
        for (asked, mode) in [
            (needs(Features::Auto), Mode::Tiered { hot_rows: 625 }),
            (needs(Features::AllGpu), Mode::Tiered { hot_rows: 625 }),
            (needs(Features::Tiered), Mode::Tiered { hot_rows: 250 }),
            (Needs { hot_share: 0.9, ..needs(Features::Tiered) }, Mode::Tiered { hot_rows: 625 }),
            (Needs { free_bytes: 64_000, ..needs(Features::Auto) }, Mode::AllGpu),
            (Needs { free_bytes: 64_000, ..needs(Features::AllGpu) }, Mode::AllGpu),
            (Needs { free_bytes: 4_000, ..needs(Features::Auto) }, Mode::Tiered { hot_rows: 0 }),
            (needs(Features::ZeroCopy), Mode::ZeroCopy),
            (needs(Features::Naive), Mode::Naive),
            (needs(Features::Dma), Mode::Dma),
        ] {
            assert_eq!(Mode::plan(&asked), mode, "{asked:?}");
        }
    }

    #[test]
    fn less_and_less_until_nothing_is_left_to_give_up() {
        let (mut mode, mut steps) = (Mode::AllGpu, 0);
        while let Some(next) = mode.smaller(1_000_000) {
            (mode, steps) = (next, steps + 1);
        }
        assert_eq!(mode, Mode::Tiered { hot_rows: 0 });
        assert!(steps < 40, "{steps}");
        assert_eq!(Mode::Dma.smaller(10), None);
    }

    #[test]
    fn what_cannot_be_pinned_comes_by_copy() {
        for mode in [Mode::Naive, Mode::ZeroCopy, Mode::Tiered { hot_rows: 5 }] {
            assert_eq!(mode.by_copy(), Some(Mode::Dma));
        }
        assert_eq!(Mode::Dma.by_copy(), None);
    }
}
