//! The tables of a dataset, and what batches read of them.

use anyhow::ensure;
use headwater::feature::{Curve, Demand, hit_rate};
use headwater::graph::Dataset;
use headwater::graph::reorder::Permutation;
use headwater::graph::score::{Reads, Workload, hottest_first, in_order};
use serde::Serialize;

/// Parts of the bytes at which curves are shown.
const SHARES: [f64; 12] = [0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.25, 0.35, 0.5, 0.75, 1.0];

/// The rows of one node type.
#[derive(Debug, Serialize)]
pub struct Table {
    /// Position of the type in the schema.
    #[serde(skip)]
    pub at: usize,
    pub node_type: String,
    pub rows: u64,
    pub row_bytes: u64,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// Part of all bytes, hottest rows first.
    pub share: f64,
    /// Part of all reads that go there.
    pub hit_rate: f64,
}

/// What batches read of the tables.
pub struct Seen<'a> {
    tables: &'a [Table],
    reads: Reads,
    batches_per_epoch: f64,
}

/// What is read of each table in the order its rows lie.
pub struct Curves<'a> {
    tables: &'a [Table],
    curves: Vec<Curve>,
    reads_per_epoch: Vec<f64>,
}

impl Table {
    /// One for every node type that has features, or for all with `row_bytes` for those that have none.
    pub fn all(dataset: &Dataset, row_bytes: Option<u64>) -> anyhow::Result<Vec<Self>> {
        let types = dataset.schema().node_types();
        let stored =
            |at: usize, rows: u64| dataset.features(at).map(|array| array.data().as_slice().len() as u64 / rows.max(1));
        let tables: Vec<Self> = types
            .iter()
            .enumerate()
            .filter_map(|(at, node_type)| {
                let row_bytes = stored(at, node_type.count).or(row_bytes)?;
                Some(Self { at, node_type: node_type.name.clone(), rows: node_type.count, row_bytes })
            })
            .collect();
        let has_all = (0..types.len()).all(|at| dataset.features(at).is_some());
        ensure!(row_bytes.is_none() || !has_all, "--row-bytes would change nothing: every node type has features");
        ensure!(!tables.is_empty(), "no node type has features: say how wide a row will be with --row-bytes");
        ensure!(
            tables.iter().all(|table| table.row_bytes > 0),
            "a row has at least one byte: --row-bytes is 0, or features are empty"
        );
        Ok(tables)
    }

    /// Bytes of all its rows.
    pub fn bytes(&self) -> u64 {
        self.rows.saturating_mul(self.row_bytes)
    }
}

impl<'a> Seen<'a> {
    /// Reads of a run.
    pub fn new(tables: &'a [Table], reads: Reads, run: &Workload) -> Self {
        Self { tables, reads, batches_per_epoch: run.batches_per_epoch() as f64 }
    }

    /// The curve of the order of these reads themselves.
    pub fn best(&self) -> anyhow::Result<Vec<Point>> {
        Ok(self.curves(&hottest_first(&self.reads.counts)?).points())
    }

    /// The curves of an order of the nodes of every type.
    pub fn curves(&self, order: &[Permutation]) -> Curves<'a> {
        let counts = |table: &Table| &self.reads.counts[table.at];
        let epochs = (self.reads.batches as f64 / self.batches_per_epoch).max(f64::MIN_POSITIVE);
        let curve = |table: &Table| Curve::of(in_order(&order[table.at], counts(table)));
        let per_epoch = |table: &Table| counts(table).iter().sum::<u64>() as f64 / epochs;
        Curves {
            tables: self.tables,
            curves: self.tables.iter().map(curve).collect(),
            reads_per_epoch: self.tables.iter().map(per_epoch).collect(),
        }
    }

    /// Bytes of the rows of one batch.
    pub fn batch_bytes(&self) -> f64 {
        let bytes = |table: &Table| (self.reads.counts[table.at].iter().sum::<u64>() as f64) * table.row_bytes as f64;
        self.tables.iter().map(bytes).sum::<f64>() / (self.reads.batches as f64).max(1.0)
    }
}

impl Curves<'_> {
    /// What a plan is made for.
    pub fn demands(&self) -> Vec<Demand<'_>> {
        let parts = self.tables.iter().zip(&self.curves).zip(&self.reads_per_epoch);
        let demand = |((table, curve), reads): ((&Table, _), &f64)| Demand {
            curve,
            row_bytes: table.row_bytes,
            reads_per_epoch: *reads,
        };
        parts.map(demand).collect()
    }

    /// Hit rates with more and more of the bytes.
    pub fn points(&self) -> Vec<Point> {
        let demands = self.demands();
        let all = self.tables.iter().map(Table::bytes).fold(0, u64::saturating_add);
        let of = |share: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the bytes")]
            let bytes = if share < 1.0 { (share * all as f64) as u64 } else { all };
            Point { share, hit_rate: hit_rate(&demands, bytes) }
        };
        SHARES.map(of).to_vec()
    }
}
