//! Which nodes will be read most, by any of the core's scores.

use headwater::graph::sample::SampleOptions;
use headwater::graph::score::{
    DAMPING, NodeScores, Outgoing, RankOptions, Ranking, Score, Training, Workload, reverse_pagerank,
};
use headwater::graph::{Graph as Core, Result, Silent};
use pyo3::prelude::*;

use crate::array::Array;
use crate::column::wide;
use crate::dtype::Dtype;
use crate::error::of_graph;
use crate::graph::Graph;
use crate::source::chosen;
use crate::threads;

/// One array a node type. Degrees and counts are whole numbers; ranks and expected reads are floats.
#[pyfunction]
#[pyo3(signature = (graph, kind, train, fanout, batch, batches, seed, damping, iterations))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub fn score(
    py: Python<'_>,
    graph: &Graph,
    kind: &str,
    train: Vec<Option<Bound<'_, PyAny>>>,
    fanout: Vec<i64>,
    batch: usize,
    batches: Option<u64>,
    seed: u64,
    damping: Option<f64>,
    iterations: Option<u32>,
) -> PyResult<Vec<Array>> {
    graph.1.check(py, "graph")?;
    let score = chosen("kind", kind, &Score::ALL.map(|score| (score.name(), score)))?;
    let ids = |array: Option<&Bound<'_, PyAny>>| -> PyResult<Vec<u64>> {
        array.map_or_else(|| Ok(Vec::new()), |array| Ok(wide(array, "train")?.to_vec()))
    };
    let train = train.iter().map(|array| ids(array.as_ref())).collect::<PyResult<_>>()?;
    let found = threads::run(py, || {
        let training = Training { train, batch, options: SampleOptions::fanouts(&fanout)?, seed };
        of(score, &graph.0, training, batches, Ranking { damping: damping.unwrap_or(DAMPING), iterations })
    })?;
    Ok(found.map_err(of_graph)?.into_iter().map(|own| in_words(score, own)).collect())
}

/// The names of all scores.
#[pyfunction]
pub fn score_kinds() -> Vec<&'static str> {
    Score::ALL.map(Score::name).to_vec()
}

fn of(score: Score, graph: &Core, training: Training, batches: Option<u64>, ranking: Ranking) -> Result<NodeScores> {
    if score == Score::Pagerank {
        return reverse_pagerank(&Outgoing::of_sampling(graph, &Silent)?, &ranking.over(RankOptions::converged()));
    }
    if let Some(found) = score.of_graph(graph, &Silent)? {
        return Ok(found);
    }
    let run = Workload::new(graph.clone(), training)?;
    let batches = batches.unwrap_or_else(|| run.usual_batches());
    score.ranked(&run, &Outgoing::of_sampling(graph, &Silent)?, ranking, batches, &Silent)
}

fn in_words(score: Score, units: Vec<u64>) -> Array {
    let unit = score.unit();
    if unit < 1.0 {
        return Array::new(units.iter().map(|units| *units as f64 * unit).collect::<Vec<f64>>(), Dtype::F64);
    }
    Array::ids(units)
}
