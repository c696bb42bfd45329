//! Runs that answer several questions of a node, and runs that guess numbers.

use std::path::Path;

use headwater_graph::Dataset;

use super::super::{Quiet, Summary, Trainer};
use super::{config, data};
use crate::error::Result;
use crate::loss::Loss;
use crate::metric::Metric;
use crate::run_config::{Architecture, RunConfig};
use crate::task::{Inverse, Task};

const WIDTHS: [Option<usize>; 3] = [Some(8), Some(5), None];
const PAPERS: usize = data::COUNTS[0];

/// Three questions about a paper's community.
fn questions(path: &Path) -> Dataset {
    let of = |community: usize| [u8::from(community == 0), u8::from(community < 2), u8::from(community % 2 == 1)];
    let labels: Vec<u8> = (0..PAPERS).flat_map(|node| of(data::community(node))).collect();
    data::write_with(
        path,
        WIDTHS,
        |_, _| {},
        |writer| {
            writer.array("labels", &[PAPERS as u64, 3], &labels).unwrap();
            None
        },
    )
}

/// Numbers that depend on it.
fn numbers(path: &Path, columns: usize) -> Dataset {
    let of = |community: usize| [community as f32 - 1.5, if community > 1 { 2.5 } else { -0.5 }];
    let labels: Vec<f32> = (0..PAPERS).flat_map(|node| of(data::community(node))[..columns].to_vec()).collect();
    let shape = [PAPERS as u64, columns as u64];
    let shape = if columns == 1 { &shape[..1] } else { &shape };
    data::write_with(
        path,
        WIDTHS,
        |_, _| {},
        |writer| {
            writer.array("labels", shape, &labels).unwrap();
            None
        },
    )
}

fn run(config: &RunConfig, dataset: &Dataset, folder: &Path) -> Result<Summary> {
    let mut trainer = Trainer::open(config.clone(), Task::open(dataset, Inverse::Off)?, folder)?;
    Ok(trainer.run(&Quiet)?.0)
}

#[test]
fn several_questions_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = questions(&folder.path().join("data"));
    // Whoever always says yes has an F1 of 0.6, and a guess has an area of a half.
    for (name, is_full, metric, least) in [
        ("f1", false, None, 0.65),
        ("macro", true, Some(Metric::F1Macro), 0.6),
        ("area", true, Some(Metric::RocAuc), 0.7),
    ] {
        let epochs = if is_full { 25 } else { 6 };
        let config = RunConfig { epochs, dropout: 0.1, metric, ..config(Architecture::Rgcn, is_full) };
        let summary = run(&config, &dataset, &folder.path().join(name)).unwrap();
        assert!(summary.test > Some(least), "{name}: {summary:?}");
    }
    let wrong = RunConfig { loss: Some(Loss::CrossEntropy), ..config(Architecture::Rgcn, true) };
    let said = run(&wrong, &dataset, &folder.path().join("wrong")).unwrap_err().to_string();
    assert!(said.contains("cross_entropy takes one class"), "{said}");
}

#[test]
fn numbers_are_guessed() {
    let folder = tempfile::tempdir().unwrap();
    for (columns, is_full) in [(1, false), (2, true)] {
        let dataset = numbers(&folder.path().join(format!("data-{columns}")), columns);
        let epochs = if is_full { 50 } else { 8 };
        let config = RunConfig { epochs, dropout: 0.0, ..config(Architecture::Rgcn, is_full) };
        let summary = run(&config, &dataset, &folder.path().join(format!("run-{columns}"))).unwrap();
        // The mean explains nothing of it.
        assert!(summary.test > Some(0.3), "{columns}: {summary:?}");
    }
}
