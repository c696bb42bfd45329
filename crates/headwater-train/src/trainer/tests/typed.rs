//! Runs over node types of different widths, and of none.

use std::cell::Cell;
use std::path::Path;

use headwater_graph::Dataset;
use headwater_graph::dataset::{DatasetWriter, Description, NodeFiles, Splits};
use headwater_graph::generate::Planted;

use super::super::{Ending, Quiet, Summary, Trainer};
use super::{StopAfter, config, data};
use crate::checkpoint::Checkpoints;
use crate::error::{Error, Result};
use crate::features::Fetched;
use crate::run_config::{Architecture, RunConfig};
use crate::task::{Inverse, Task};

const WIDTHS: [Option<usize>; 3] = [Some(8), Some(5), None];

fn run(config: &RunConfig, dataset: &Dataset, folder: &Path) -> Result<Summary> {
    let mut trainer = Trainer::open(config.clone(), Task::open(dataset, Inverse::Off)?, folder)?;
    Ok(trainer.run(&Quiet)?.0)
}

#[test]
fn types_of_different_widths_are_learnt_from() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = data::write(&folder.path().join("data"), WIDTHS, |_, _| {});
    for (model, is_full, epochs) in [
        (Architecture::Rgcn, false, 6),
        (Architecture::Rgat, false, 6),
        (Architecture::Rgat, true, 25),
        (Architecture::Hgt, true, 30),
    ] {
        let config = RunConfig { epochs, dropout: 0.2, embedding: 6, ..config(model, is_full) };
        let out = folder.path().join(format!("{model:?}-{is_full}"));
        let summary = run(&config, &dataset, &out).unwrap();
        assert!(summary.test > Some(0.5), "{model:?} {is_full}: {summary:?}");
    }
}

#[test]
fn a_stopped_run_goes_on_with_its_tables() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = data::write(&folder.path().join("data"), WIDTHS, |_, _| {});
    for is_full in [false, true] {
        let config = RunConfig { epochs: 4, batch: 50, clip: 1.0, ..config(Architecture::Rgcn, is_full) };
        let (whole, parts) = (folder.path().join(format!("whole-{is_full}")), folder.path().join(format!("{is_full}")));
        run(&config, &dataset, &whole).unwrap();
        let task = Task::open(&dataset, Inverse::Off).unwrap();
        let mut trainer = Trainer::open(config.clone(), task, &parts).unwrap();
        assert_eq!(trainer.run(&StopAfter(Cell::new(3))).unwrap().1, Ending::Stopped);
        drop(trainer);
        run(&config, &dataset, &parts).unwrap();
        let newest = |run: &Path| Checkpoints::new(&run.join("checkpoints"), 2).newest().unwrap().unwrap();
        let (found, wanted) = (newest(&parts), newest(&whole));
        let moments = found.optimiser.iter().find(|array| array.name == "input.venue.embedding/mean").unwrap();
        assert!(moments.shape == [12, 16] && moments.values.iter().any(|value| *value != 0.0));
        assert_eq!((found.parameters, found.optimiser), (wanted.parameters, wanted.optimiser), "{is_full}");
    }
}

/// A graph of communities without its features.
fn bare(folder: &Path) -> Dataset {
    let recipe = Planted { nodes: 600, edges_per_node: 16, classes: 4, features: 4, ..Planted::default() };
    let with = folder.join("with");
    recipe.recipe().unwrap().write(&with, &headwater_graph::Silent).unwrap();
    let with = Dataset::open(&with).unwrap();
    let path = folder.join("bare");
    let writer = DatasetWriter::create(&path).unwrap();
    writer.relation(0, with.graph().unwrap().relation(0)).unwrap();
    let labels = with.labels(0).unwrap().column::<i64>().unwrap();
    writer.array("labels", &[600], &labels).unwrap();
    let split = |name: &str, from: u32, to: u32| {
        writer.array(name, &[u64::from(to - from)], &(from..to).collect::<Vec<u32>>()).unwrap();
        Some(name.to_owned())
    };
    let splits =
        Splits { train: split("train", 0, 300), valid: split("valid", 300, 400), test: split("test", 400, 600) };
    let nodes = NodeFiles { labels: Some("labels".to_owned()), classes: Some(4), splits, ..NodeFiles::default() };
    let description = Description::new("bare", with.schema().clone(), with.manifest().layout, "made by a test");
    writer.finish(Description { nodes: vec![nodes], ..description }).unwrap();
    Dataset::open(&path).unwrap()
}

#[test]
fn learnt_rows_alone_find_communities() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = bare(folder.path());
    for (model, is_full, epochs) in
        [(Architecture::Sage, false, 10), (Architecture::Gcn, true, 60), (Architecture::Rgcn, false, 10)]
    {
        let config = RunConfig { epochs, dropout: 0.2, fanout: vec![10, 10], ..config(model, is_full) };
        let out = folder.path().join(format!("{model:?}-{is_full}"));
        let summary = run(&config, &dataset, &out).unwrap();
        assert!(summary.test > Some(0.5), "{model:?} {is_full}: {summary:?}");
    }
}

#[test]
fn a_feature_that_is_not_a_number_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (name, widths, is_full) in [
        ("apart", WIDTHS, true),
        ("apart", WIDTHS, false),
        ("together", [Some(5); 3], true),
        ("together", [Some(5); 3], false),
    ] {
        let path = folder.path().join(format!("{name}-{is_full}"));
        let dataset = data::write(&path, widths, |at, rows| {
            if at == 1 {
                rows[5 * 7 + 2] = f32::NAN;
            }
        });
        let found = run(&config(Architecture::Rgcn, is_full), &dataset, &path.join("run"));
        assert!(is_named(&found, 7), "{name} {is_full}: {found:?}");
    }
}

fn is_named<T>(found: &Result<T>, wanted: u64) -> bool {
    let Err(Error::BadFeature { node_type, node, column: 2, value }) = found else { return false };
    node_type == "author" && *node == wanted && value.is_nan()
}

/// The rows of a batch are looked through when its loss is none; a table that was changed under a run has them.
#[test]
fn features_of_a_batch_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (name, widths) in [("apart", WIDTHS), ("together", [Some(5); 3])] {
        let path = folder.path().join(name);
        let dataset = data::write(&path, widths, |_, _| {});
        let task = Task::open(&dataset, Inverse::Off).unwrap();
        let trainer = Trainer::open(config(Architecture::Rgcn, false), task, &path.join("run")).unwrap();
        let ids: [&[u64]; 3] = [&[4, 9], &[11, 30, 5], &[0]];
        let reader = trainer.reader();
        let mut rows = reader.read(&ids, &mut |len| vec![0.0; len]).unwrap();
        reader.check(&rows, &ids).unwrap();
        let (array, first) = if name == "apart" { (1, 0) } else { (0, 2) };
        let Some(Fetched::Copied(values)) = &mut rows[array] else { panic!("several types are copied") };
        values[5 * (first + 1) + 2] = f32::NAN;
        assert!(is_named(&reader.check(&rows, &ids), 30), "{name}");
    }
}
