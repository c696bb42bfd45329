//! How many rows in which memory: the core's plan, from numbers alone.

use headwater::feature::{Curve, Demand, Error, Forecast, Links, Room, SharedPlan, Tier, TierPlan};
use headwater::graph::Column;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;

use crate::column::list;
use crate::dtype::Dtype;
use crate::error::of_graph;
use crate::threads;

/// The largest score that is no whole number becomes this one.
const LARGEST: f64 = (1u64 << 40) as f64;

/// A table to plan for: the score of every row, bytes of a row, and rows read in an epoch where that is not their sum.
type Table<'py> = (Bound<'py, PyAny>, u64, Option<f64>);
/// What is expected of a tier: its name, rows, share of the reads, bytes and seconds an epoch.
type Expected = (&'static str, u64, f64, f64, f64);
/// Ends of the first three tiers of a table, what is expected of all four, and seconds an epoch.
type Planned = ([u64; 3], Vec<Expected>, f64);

/// Where rows lie and what that costs: for every table, and for all of them together.
#[pyfunction]
pub fn plan(
    py: Python<'_>,
    tables: Vec<Table<'_>>,
    room: (u64, u64, u64, bool),
    links: Option<[f64; 4]>,
    in_order: bool,
) -> PyResult<(Vec<Planned>, Vec<Expected>, f64)> {
    let (device_bytes, members, host_bytes, has_disk) = room;
    let room = Room { device_bytes, members, host_bytes, has_disk };
    let links = links.map_or(Ok(Links::TYPICAL), links_of)?;
    let mut wanted = Vec::new();
    for (array, row_bytes, reads_per_epoch) in &tables {
        let scores = Scores::read(array)?;
        let reads_per_epoch = reads_per_epoch.unwrap_or_else(|| scores.sum());
        wanted.push((scores, *row_bytes, reads_per_epoch));
    }
    let found = threads::run(py, || {
        let curves: Vec<Curve> = wanted.iter().map(|(scores, ..)| scores.curve(in_order)).collect();
        let demand = |(curve, (_, row_bytes, reads)): (_, &(Scores, u64, f64))| Demand {
            curve,
            row_bytes: *row_bytes,
            reads_per_epoch: *reads,
        };
        SharedPlan::new(&curves.iter().zip(&wanted).map(demand).collect::<Vec<_>>(), &room, &links)
    })?;
    let found = found.map_err(|why| match why {
        Error::NoRoom { .. } => PyMemoryError::new_err(why.to_string()),
        _ => PyValueError::new_err(why.to_string()),
    })?;
    let table = |own: &TierPlan| {
        let ends = [own.replicated_end, own.interleaved_end, own.host_end];
        (ends, own.forecast.iter().map(expected).collect(), own.seconds_per_epoch)
    };
    let all = found.forecast.iter().map(expected).collect();
    Ok((found.tables.iter().map(table).collect(), all, found.seconds_per_epoch))
}

fn links_of(rates: [f64; 4]) -> PyResult<Links> {
    if let Some(rate) = rates.iter().find(|rate| rate.is_nan() || **rate <= 0.0) {
        return Err(PyValueError::new_err(format!("links has {rate}; rates are GB/s above 0")));
    }
    let [device_gb_per_s, peer_gb_per_s, host_gb_per_s, disk_gb_per_s] = rates;
    Ok(Links { device_gb_per_s, peer_gb_per_s, host_gb_per_s, disk_gb_per_s })
}

fn expected(tier: &Forecast) -> Expected {
    let name = match tier.tier {
        Tier::Replicated => "replicated",
        Tier::Interleaved => "interleaved",
        Tier::Host => "host",
        Tier::Disk => "disk",
    };
    (name, tier.rows, tier.hit_rate, tier.bytes_per_epoch, tier.seconds_per_epoch)
}

/// Scores of rows, where they lie.
enum Scores {
    Whole(Column<u64>),
    Real(Column<f64>),
}

impl Scores {
    fn read(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (bytes, dtype) = list(array, "scores")?;
        let bad = |at: usize, score: &dyn std::fmt::Display| {
            PyValueError::new_err(format!("scores[{at}] is {score}; scores are finite and not negative"))
        };
        match dtype {
            Dtype::I64 | Dtype::U64 => {
                let scores: Column<u64> = Column::over(bytes, "scores").map_err(of_graph)?;
                match scores.iter().position(|score| dtype == Dtype::I64 && score.cast_signed() < 0) {
                    Some(at) => Err(bad(at, &scores[at].cast_signed())),
                    None => Ok(Self::Whole(scores)),
                }
            }
            Dtype::F64 => {
                let scores: Column<f64> = Column::over(bytes, "scores").map_err(of_graph)?;
                match scores.iter().position(|score| !score.is_finite() || *score < 0.0) {
                    Some(at) => Err(bad(at, &scores[at])),
                    None => Ok(Self::Real(scores)),
                }
            }
            other => {
                let why = format!("scores has elements of {other:?}; it should have int64 or float64");
                Err(PyValueError::new_err(why))
            }
        }
    }

    fn sum(&self) -> f64 {
        match self {
            Self::Whole(scores) => scores.iter().map(|score| *score as f64).sum(),
            Self::Real(scores) => scores.iter().sum(),
        }
    }

    /// How many of all reads the first rows get, the hottest first unless they are in order already.
    fn curve(&self, in_order: bool) -> Curve {
        let mut reads: Vec<u64> = match self {
            Self::Whole(scores) => scores.to_vec(),
            Self::Real(scores) => {
                let scale = LARGEST / scores.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the largest")]
                let whole = |score: &f64| (score * scale).round() as u64;
                scores.iter().map(whole).collect()
            }
        };
        if !in_order {
            reads.sort_unstable_by(|a, b| b.cmp(a));
        }
        Curve::of(reads.into_iter())
    }
}
