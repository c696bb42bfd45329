//! Where the features of a run lie: in memory, in their file, or the most read rows here and the rest there.

use headwater_cuda::Stream;
use headwater_feature::{DiskOptions, HostServed, HostTable, HostTables, RowFormat, Stored};
use headwater_graph::dataset::Array;
use headwater_graph::sample::SampleOptions;
use headwater_graph::score::{
    self, End, Expected, NodeScores, Outgoing, Ranking, Score, Training, Workload, degrees, expected_reads,
    hottest_first,
};
use headwater_graph::{Dataset, Graph, PlacedGraph, Silent};

use crate::error::{Error, Result};
use crate::run_config::{DeviceName, Features, RunConfig};
use crate::task::Task;

/// Fewer bytes of features lie in the caches of a machine anyway.
const LEAST_COPIED_BYTES: u64 = 64 << 20;

/// What is done with the rows of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Placement {
    /// They are read where the dataset is mapped, or copied into memory of larger pages.
    Mapped,
    /// This share of them is copied into memory, the most read first; the others are read from the file.
    OnDisk {
        /// From 0 to 1.
        hot_share: f64,
    },
}

impl Placement {
    /// For features of so many bytes, where so many are available.
    #[must_use]
    pub fn new(features: Features, hot_share: f64, bytes: u64, available_bytes: u64) -> Self {
        match features {
            Features::Disk => Self::OnDisk { hot_share: 0.0 },
            Features::Tiered => Self::OnDisk { hot_share },
            // Half is left for everything else that a run holds.
            Features::Auto if bytes > available_bytes / 2 => {
                Self::OnDisk { hot_share: available_bytes as f64 / 2.0 / bytes as f64 }
            }
            _ => Self::Mapped,
        }
    }
}

/// What features are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Epochs of batches or of the whole graph.
    Training,
    /// Outputs of some nodes, once.
    Asking,
}

/// Puts the features of a task where its run wants them.
pub fn place(task: &mut Task, config: &RunConfig, dataset: &Dataset, purpose: Purpose) -> Result<()> {
    let arrays: Vec<_> = (0..task.node_counts().len()).filter_map(|at| Some((at, dataset.features(at)?))).collect();
    let bytes = arrays.iter().map(|(_, array)| array.data().as_slice().len() as u64).sum();
    let available = headwater_feature::host_bytes_available() as u64;
    // A GPU reads host memory, and holds the most read rows itself.
    let is_on_gpu = matches!(config.device, DeviceName::Cuda(_));
    let features = if is_on_gpu && config.features != Features::Disk { Features::Memory } else { config.features };
    let is_held = arrays.iter().any(|(_, array)| array.is_held());
    let features = if is_held { without_files(features)? } else { features };
    let Placement::OnDisk { hot_share } = Placement::new(features, config.hot_share, bytes, available) else {
        // A whole graph is read once and from front to back, and whoever asks about a few nodes should not wait for all rows.
        let is_sampled = purpose == Purpose::Training && !config.full_graph;
        let is_read_often = is_sampled && (LEAST_COPIED_BYTES..=available / 2).contains(&bytes);
        return if is_read_often { in_large_pages(task, &arrays) } else { Ok(()) };
    };
    let hottest = if hot_share > 0.0 { hottest_first(&scores(task, config, None)?)? } else { Vec::new() };
    let tables = HostTables::new(DiskOptions::default())?;
    for (at, array) in arrays {
        let hot: Vec<u64> = match hottest.get(at) {
            Some(order) => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the rows")]
                let rows = (hot_share * order.len() as f64).round() as usize;
                order.old_of_new().iter().take(rows).collect()
            }
            None => Vec::new(),
        };
        let stored = Stored::of(array.kind().dtype().map_err(headwater_tensor::Error::from)?)?;
        task.features[at] = Some(tables.open(array.path(), stored, &hot)?);
    }
    Ok(())
}

/// Where features of a dataset in memory lie: there, since there is no file to leave some of them in.
fn without_files(features: Features) -> Result<Features> {
    match features {
        Features::Disk | Features::Tiered => Err(Error::Setting {
            field: "features",
            value: features.name().to_owned(),
            expected: "auto or memory: the dataset is in memory, and has no file to read rows from until it is saved"
                .to_owned(),
        }),
        _ => Ok(Features::Memory),
    }
}

/// Rows that batches read here and there, in memory of large pages. Where there is none, they stay as they are mapped.
fn in_large_pages(task: &mut Task, arrays: &[(usize, &Array)]) -> Result<()> {
    for (at, array) in arrays.iter().filter(|(_, array)| !array.is_held()) {
        let elements = array.shape().iter().skip(1).product::<usize>();
        let stored = Stored::of(array.kind().dtype().map_err(headwater_tensor::Error::from)?)?;
        let format = RowFormat::packed(elements, stored);
        match HostTable::read(array.path(), array.data().as_slice().len(), format) {
            Ok(table) => task.features[*at] = Some(table),
            Err(headwater_feature::Error::Memory(_)) => {}
            // Pages that are not as they were written would be the same ones in the mapping.
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

/// What the features of a task were read, and from where.
#[must_use]
pub fn served(task: &Task) -> HostServed {
    task.features.iter().flatten().map(headwater_feature::HostTable::served).sum()
}

/// What a run reads of a graph of one node type.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// Every node is a seed once an epoch.
    pub train: &'a [u64],
    /// Seeds a batch.
    pub batch: usize,
    /// Neighbours a hop.
    pub fanout: &'a [i64],
}

/// How often each node of a graph will be read, in units of 2^-20; by a GPU where one has the graph.
pub fn reads(graph: &Graph, placed: Option<&PlacedGraph>, reading: &Reading<'_>) -> Result<Vec<u64>> {
    let outgoing = match placed.and_then(|placed| Some((placed, placed.gpu()?))) {
        Some((placed, gpu)) => Outgoing::of_placed(placed, &Stream::new(gpu)?)?,
        None => Outgoing::of_sampling(graph, &Silent)?,
    };
    let options = SampleOptions::fanouts(reading.fanout)?;
    let expected = Expected { train: &[reading.train], batch: reading.batch, options: &options };
    Ok(expected_reads(&outgoing, &expected)?.swap_remove(0))
}

/// How much each node of a run's graph will be read, by the score that the run names; made by a GPU where one has the graph.
pub(crate) fn scores(task: &Task, config: &RunConfig, placed: Option<&PlacedGraph>) -> Result<NodeScores> {
    // A whole graph is read alike, and whoever has nothing to train on reads from nowhere.
    if config.full_graph || task.train.is_empty() {
        return Ok(degrees(&task.graph, End::Source));
    }
    let end = match config.scores {
        Score::OutDegree => Some(End::Source),
        Score::InDegree => Some(End::Target),
        _ => None,
    };
    if let Some(end) = end {
        return Ok(degrees(&task.graph, end));
    }
    let mut train = vec![Vec::new(); task.node_counts().len()];
    train[task.node_type] = task.train.clone();
    let options = SampleOptions::fanouts(&config.fanout)?;
    let run = Workload::new(task.graph.clone(), Training { train, batch: config.batch, options, seed: config.seed })?;
    let there = placed.and_then(|placed| Some((placed, placed.gpu()?)));
    let there = there.map(|(placed, gpu)| Ok::<_, Error>((placed, Stream::new(gpu)?))).transpose()?;
    let batches = if config.score_batches > 0 { config.score_batches } else { run.usual_batches() };
    if config.scores == Score::Presampled {
        let run = match &there {
            Some((placed, stream)) => run.on_gpu(placed, stream)?,
            None => run,
        };
        return Ok(run.reads(score::Purpose::Scoring, batches, &Silent)?.counts);
    }
    let outgoing = match &there {
        Some((placed, stream)) => Outgoing::of_placed(placed, stream)?,
        None => Outgoing::of_sampling(&task.graph, &Silent)?,
    };
    let ranking =
        Ranking { damping: config.score_damping, iterations: Some(config.score_iterations).filter(|count| *count > 0) };
    Ok(config.scores.ranked(&run, &outgoing, ranking, batches, &Silent)?)
}

#[cfg(test)]
mod tests {
    use headwater_graph::generate::Planted;
    use headwater_graph::score::{RankOptions, Stop, reverse_pagerank};

    use super::*;
    use crate::run_config::RunFile;
    use crate::task::Inverse;

    #[test]
    fn what_is_in_memory_stays_there() {
        assert_eq!(without_files(Features::Auto).unwrap(), Features::Memory);
        for features in [Features::Disk, Features::Tiered] {
            let refused = without_files(features).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("features is {}", features.name())), "{refused}");
        }
    }

    #[test]
    fn rows_are_hot_by_the_score_that_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let recipe = Planted { nodes: 300, edges_per_node: 6, classes: 3, features: 4, ..Planted::default() };
        recipe.recipe().unwrap().write(&folder.path().join("data"), &Silent).unwrap();
        let task = Task::open(&Dataset::open(&folder.path().join("data")).unwrap(), Inverse::Off).unwrap();
        let flags = RunFile { fanout: Some(vec![3, 2]), batch: Some(20), seed: Some(7), ..RunFile::default() };
        let base = RunConfig::resolve(flags, RunFile::default()).unwrap();
        let outgoing = Outgoing::of_sampling(&task.graph, &Silent).unwrap();
        let (train, options) = (vec![task.train.clone()], SampleOptions::fanouts(&base.fanout).unwrap());
        let run = Workload::new(task.graph.clone(), Training { train, batch: 20, options, seed: 7 }).unwrap();
        let of = |config: RunConfig| scores(&task, &config, None).unwrap();
        for score in Score::ALL {
            let wanted = score.of(&run, &outgoing, 16, &Silent).unwrap();
            assert_eq!(of(RunConfig { scores: score, ..base.clone() }), wanted, "{}", score.name());
        }
        let rank =
            RunConfig { scores: Score::WeightedPagerank, score_damping: 0.5, score_iterations: 2, ..base.clone() };
        let lists = [task.train.as_slice()];
        let options = RankOptions { damping: 0.5, stop: Stop::After(2), ..RankOptions::weighted(&lists) };
        assert_eq!(of(rank), reverse_pagerank(&outgoing, &options).unwrap());
        let drawn = |score_batches| {
            of(RunConfig { scores: Score::Presampled, score_batches, ..base.clone() })[0].iter().sum::<u64>()
        };
        assert!(drawn(40) > drawn(3) && drawn(3) > 60);
        let whole = RunConfig { full_graph: true, ..base.clone() };
        assert_eq!(of(whole), degrees(&task.graph, End::Source));
    }

    #[test]
    fn placements() {
        let of = |features, bytes| Placement::new(features, 0.2, bytes, 1000);
        for (features, bytes, wanted) in [
            (Features::Memory, 5000, Placement::Mapped),
            (Features::Disk, 5, Placement::OnDisk { hot_share: 0.0 }),
            (Features::Tiered, 5, Placement::OnDisk { hot_share: 0.2 }),
            (Features::Auto, 500, Placement::Mapped),
            (Features::Auto, 5000, Placement::OnDisk { hot_share: 0.1 }),
        ] {
            assert_eq!(of(features, bytes), wanted);
        }
    }
}
