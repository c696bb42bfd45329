//! Round trips, damage of every byte, other models, full disks, and a writer that dies at every single step.

mod breaking;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use self::breaking::{Breaking, End};
use super::*;
use crate::gradient::Gradient;
use crate::optimiser::{Adam, Group, Rule};
use crate::parameter::Parameter;
use crate::run_config::Watch;

/// A run whose numbers depend on `salt`.
struct Run {
    state: State,
    fingerprint: Fingerprint,
    parameters: Parameters,
    optimiser: Optimiser,
    buffers: Vec<Array>,
}

impl Run {
    fn new(step: u64, salt: f32, shapes: &[&[usize]]) -> Self {
        let mut parameters = Parameters::new();
        for (at, shape) in shapes.iter().enumerate() {
            let count = shape.iter().product::<usize>();
            let values = (0..count).map(|i| salt + i as f32).collect();
            parameters
                .push(Parameter { name: format!("layer{at}.weight"), shape: shape.to_vec(), values, group: 0 })
                .unwrap();
        }
        let mut optimiser = Optimiser::new(Rule::Adam(Adam::default()), &[Group::default()], &parameters).unwrap();
        let gradients: Vec<Gradient> = parameters.iter().map(|p| Gradient::Dense(p.values.clone())).collect();
        optimiser.step(&mut parameters, &gradients, 0.1).unwrap();
        let best = Some(Best { value: Some(0.1 + f64::from(salt)), epoch: 1, step, loss: None });
        let early_stop = EarlyStop::default();
        let state = State {
            epoch: 2,
            batch: 3,
            step,
            seed: u64::MAX,
            best,
            early_stop,
            loss_stop: early_stop,
            journal_bytes: 99,
            journal_sum: None,
            losses: 0.1,
        };
        let sizes = BTreeMap::from([("hidden".to_owned(), 16), ("layers".to_owned(), 2)]);
        let fingerprint = Fingerprint::new("layer text", sizes, &parameters);
        let buffers = vec![Array { name: "running/mean".to_owned(), shape: vec![1], values: vec![salt] }];
        Self { state, fingerprint, parameters, optimiser, buffers }
    }

    fn snapshot(&self) -> Snapshot<'_> {
        let Self { state, fingerprint, parameters, optimiser, buffers } = self;
        Snapshot { state, fingerprint, parameters, optimiser, buffers }
    }

    /// What reading it back should give.
    fn checkpoint(&self) -> Checkpoint {
        let array = |p: &Parameter| Array { name: p.name.clone(), shape: p.shape.clone(), values: p.values.clone() };
        Checkpoint {
            state: self.state.clone(),
            fingerprint: self.fingerprint.clone(),
            optimiser_steps: self.optimiser.steps(),
            parameters: self.parameters.iter().map(array).collect(),
            optimiser: self.optimiser.arrays().cloned().collect(),
            buffers: self.buffers.clone(),
        }
    }
}

fn saved(run: &Run) -> (tempfile::TempDir, Checkpoints, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let all = Checkpoints::new(&folder.path().join("checkpoints"), 2);
    let path = all.save_on(&Breaking::never(), run.snapshot()).unwrap();
    (folder, all, path)
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_is_read_is_what_was_written(
        shapes in prop::collection::vec(prop::collection::vec(0usize..9, 0..4), 0..5),
        salt in any::<f32>(),
        step in any::<u64>(),
    ) {
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let mut run = Run::new(step, 0.5, &shapes);
        run.parameters.values_mut().flatten().for_each(|value| *value = salt);
        let (_folder, all, path) = saved(&run);
        prop_assert_eq!(&Checkpoint::read(&path).unwrap(), &run.checkpoint());
        prop_assert_eq!(&all.newest().unwrap().unwrap(), &run.checkpoint());
    }
}

#[test]
fn a_run_is_put_back_and_others_can_read_the_file() {
    let run = Run::new(7, 0.25, &[&[5, 4000], &[3]]);
    let (_folder, _, path) = saved(&run);
    let mut fresh = Run::new(0, 9.0, &[&[5, 4000], &[3]]);
    let checkpoint = Checkpoint::read(&path).unwrap();
    checkpoint.check(&fresh.fingerprint).unwrap();
    let (state, buffers) = checkpoint.restore(&mut fresh.parameters, &mut fresh.optimiser).unwrap();
    assert_eq!((state, buffers), (run.state.clone(), run.buffers.clone()));
    assert_eq!((&fresh.parameters, &fresh.optimiser), (&run.parameters, &run.optimiser));
    let bytes = fs::read(&path).unwrap();
    let others = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(others.tensor("parameter/layer0.weight").unwrap().shape(), [5, 4000]);
    assert_eq!(others.len(), 2 + 4 + 1);
    let text: serde_json::Value = serde_json::from_slice(&fs::read(path.with_extension("json")).unwrap()).unwrap();
    assert_eq!((&text["state"]["step"], &text["version"]), (&7.into(), &1.into()));
}

/// A file of the first format. It stays readable whatever comes after it.
#[test]
fn the_first_version_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step-000000000007.safetensors");
    fs::write(&path, include_bytes!("tests/version-1.safetensors")).unwrap();
    let mut run = Run::new(7, 0.25, &[&[2, 2], &[0, 3]]);
    // What came later is as it was then.
    run.state.losses = 0.0;
    assert_eq!(Checkpoint::read(&path).unwrap(), run.checkpoint());
}

#[test]
fn every_byte_counts() {
    let run = Run::new(7, 0.25, &[&[2, 2]]);
    let mut whole = Vec::new();
    write::Image::new(run.snapshot()).unwrap().write(&mut whole).unwrap();
    let read = |bytes: &[u8]| read::read_from(bytes, bytes.len() as u64, Path::new("7.safetensors"));
    assert_eq!(read(&whole).unwrap(), run.checkpoint());
    for at in 0..whole.len() {
        for flip in [1, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            match read(&bytes) {
                Err(Error::Damaged { .. } | Error::CheckpointVersion { .. }) => {}
                // White space that became other white space.
                Ok(same) => assert_eq!(same, run.checkpoint(), "byte {at}"),
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
        let said = read(&whole[..at]).unwrap_err().to_string();
        assert!(said.contains("damaged") && said.contains("7.safetensors"), "cut at {at}: {said}");
    }
    assert!(matches!(read(&[&whole[..], b"x"].concat()), Err(Error::Damaged { .. })));
    // A file that became shorter after its length was asked for.
    assert!(read::read_from(&whole[..whole.len() - 1], whole.len() as u64, Path::new("7")).is_err());
}

/// A file with this text in its metadata, and nothing else in it.
fn file_of(meta: &str) -> Vec<u8> {
    let sum = Sum::new(meta).finish();
    let header = serde_json::json!({"__metadata__": {META_KEY: meta, SUM_KEY: sum}}).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()
}

#[test]
fn what_is_no_checkpoint_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step-000000000001.safetensors");
    let huge = [&u64::MAX.to_le_bytes()[..], &[0; 64]].concat();
    let foreign = file_of("{}").iter().map(|&b| if b == b'h' { b'H' } else { b }).collect();
    let whole = file_of("{}");
    let speaks = format!("bytes; by its header there should be {}", whole.len());
    let meta = r#"{"version": 2, "state": "whatever the future brings"}"#;
    for (bytes, words) in [
        (vec![], "ends early"),
        (vec![0; 8], "header"),
        (huge, "longer than"),
        ([&whole[..], &[0; 8]].concat(), &speaks),
        (foreign, "no \"headwater\""),
        (file_of("{}"), "version"),
        (file_of("{"), "metadata"),
        (file_of(meta), "version 2 is not read here; this program reads up to 1"),
    ] {
        fs::write(&path, bytes).unwrap();
        let said = Checkpoint::read(&path).unwrap_err().to_string();
        assert!(said.contains(words) && said.contains("step-000000000001"), "{said}");
    }
    for (path, words) in [(folder.path(), "not a file"), (&folder.path().join("none"), "cannot read")] {
        let said = Checkpoint::read(path).unwrap_err().to_string();
        assert!(said.contains(words) && said.contains(path.to_str().unwrap()), "{said}");
    }
}

#[test]
fn another_model_is_told_by_its_first_difference() {
    let run = Run::new(1, 0.5, &[&[2, 3], &[4]]);
    let model = |change: &dyn Fn(&mut Fingerprint)| {
        let mut model = run.fingerprint.clone();
        change(&mut model);
        model
    };
    for (other, words) in [
        (model(&|m| *m.sizes.get_mut("hidden").unwrap() = 32), "hidden was 16, and now is 32"),
        (model(&|m| m.sizes.extend([("heads".to_owned(), 8)])), "heads was nothing, and now is 8"),
        (model(&|m| m.parameters[1].0 = "bias".to_owned()), "\"layer1.weight\" where the model has \"bias\""),
        (model(&|m| m.parameters[0].1 = vec![3, 2]), "\"layer0.weight\" had shape [2, 3], and now has [3, 2]"),
        (model(&|m| m.parameters.truncate(1)), "2 parameters, the model has 1"),
        (model(&|m| m.text.clear()), "text of its layers"),
    ] {
        let said = run.checkpoint().check(&other).unwrap_err().to_string();
        assert!(said.contains("another model") && said.contains(words), "{said}");
    }
    run.checkpoint().check(&run.fingerprint).unwrap();
}

#[test]
fn the_last_ones_and_the_best_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let all = Checkpoints::new(folder.path(), 2);
    assert!(Checkpoints::new(&folder.path().join("none"), 2).newest().unwrap().is_none());
    fs::write(folder.path().join(".step-000000000001.safetensors.partial"), b"left behind").unwrap();
    for step in [1, 2, 3, 4] {
        let mut run = Run::new(step, step as f32, &[&[2]]);
        run.state.best = Some(Best { value: Some(1.0), epoch: 0, step: step.min(2), loss: None });
        all.save(run.snapshot()).unwrap();
    }
    let names = |steps: &[u64]| -> Vec<String> {
        steps.iter().flat_map(|step| ["json", "safetensors"].map(|e| format!("step-{step:012}.{e}"))).collect()
    };
    assert_eq!(files(folder.path()), names(&[2, 3, 4]));
    assert_eq!(all.list().unwrap().iter().map(|entry| entry.step).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!((all.newest().unwrap().unwrap().state.step, all.best().unwrap().unwrap().state.step), (4, 2));
    // A run that went back to an earlier step and took another course.
    all.save(Run::new(3, 7.0, &[&[2]]).snapshot()).unwrap();
    assert_eq!(files(folder.path()), names(&[2, 3]));
    assert_eq!(all.best().unwrap().unwrap().state.step, 3);
}

/// What the last write left unreadable is gone past, down to the oldest; only where all are damaged is there none.
#[test]
fn a_damaged_one_gives_way_to_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let all = Checkpoints::new(folder.path(), 3);
    for step in [1, 2, 3] {
        let mut run = Run::new(step, step as f32, &[&[2]]);
        run.state.best = Some(Best { value: Some(1.0), epoch: 1, step: 2, loss: None });
        all.save_on(&Breaking::never(), run.snapshot()).unwrap();
    }
    let path = |step: u64| folder.path().join(format!("step-{step:012}.safetensors"));
    let found = |which: Result<Option<Checkpoint>>| which.unwrap().unwrap().state.step;
    let whole = fs::read(path(2)).unwrap();
    fs::write(path(2), b"").unwrap();
    assert_eq!((found(all.newest()), found(all.best())), (3, 3), "the best is damaged");
    fs::write(path(2), whole).unwrap();
    for (step, left) in [(3, Some(2)), (2, Some(1)), (1, None)] {
        let bytes = fs::read(path(step)).unwrap();
        fs::write(path(step), &bytes[..bytes.len() / 2]).unwrap();
        match left {
            Some(left) => assert_eq!((found(all.newest()), found(all.best())), (left, left), "{step} is damaged"),
            None => assert!(matches!(all.newest(), Err(Error::Damaged { path: named, .. }) if named == path(3))),
        }
    }
    // One that a later program wrote is not damaged: going past it would lose what it has.
    fs::write(path(3), file_of(r#"{"version": 2}"#)).unwrap();
    assert!(matches!(all.newest(), Err(Error::CheckpointVersion { .. })));
}

/// Two processes that save into one folder do not take each other's unfinished files. The children are this test again.
#[test]
fn two_writers_do_not_break_each_other() {
    const FOLDER: &str = "HEADWATER_TEST_TWO_WRITERS";
    if let Ok(folder) = std::env::var(FOLDER) {
        let all = Checkpoints::new(Path::new(&folder), 2);
        for step in 1..40 {
            all.save(Run::new(step, 0.5, &[&[64, 64]]).snapshot()).unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "checkpoint::tests::two_writers_do_not_break_each_other";
    let start =
        || Command::new(std::env::current_exe().unwrap()).args(["--exact", name]).env(FOLDER, folder.path()).spawn();
    let mut writers = [start().unwrap(), start().unwrap()];
    assert!(writers.iter_mut().all(|writer| writer.wait().unwrap().success()));
    let all = Checkpoints::new(folder.path(), 2);
    assert_eq!(all.newest().unwrap().unwrap(), Run::new(39, 0.5, &[&[64, 64]]).checkpoint());
    assert!(files(folder.path()).iter().all(|name| !name.ends_with("partial")));
}

/// After a crash at any step, with anything unsynced lost, the old one or the new one is there, whole.
#[test]
fn a_writer_killed_anywhere_leaves_the_old_or_the_new() {
    for (new_step, lose_names) in [(2, false), (2, true), (1, false), (1, true)] {
        let (old, new) = (Run::new(1, 0.5, &[&[64]]), Run::new(new_step, 1.5, &[&[64]]));
        let (mut left_old, mut left_new) = (0, 0);
        for step in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let all = Checkpoints::new(folder.path(), 1);
            all.save_on(&Breaking::never(), old.snapshot()).unwrap();
            let disk = Breaking::new(End::Killed { lose_names }, step);
            let done = all.save_on(&disk, new.snapshot()).is_ok();
            let broke = disk.broke();
            disk.crash();
            let found = all.newest().unwrap().unwrap();
            left_old += u32::from(found == old.checkpoint());
            left_new += u32::from(found == new.checkpoint());
            assert_eq!(left_old + left_new, step + 1, "killed at step {step}");
            assert!(!done || found == new.checkpoint(), "step {step}: what was reported as saved is gone");
            // The next writer is not in the way of what was left.
            all.save_on(&Breaking::never(), new.snapshot()).unwrap();
            assert_eq!(all.newest().unwrap().unwrap(), new.checkpoint());
            assert!(files(folder.path()).iter().all(|name| !name.ends_with("partial")));
            if !broke {
                break;
            }
        }
        assert!(left_old >= 3 && left_new >= 3, "{left_old} {left_new}");
    }
}

#[test]
fn a_disk_that_is_full_keeps_what_it_had() {
    let (old, new) = (Run::new(1, 0.5, &[&[64]]), Run::new(2, 1.5, &[&[64]]));
    let mut refused = 0;
    for step in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let all = Checkpoints::new(folder.path(), 1);
        all.save_on(&Breaking::never(), old.snapshot()).unwrap();
        let before = files(folder.path());
        let disk = Breaking::new(End::Full, step);
        let done = all.save_on(&disk, new.snapshot());
        if let Err(why) = &done {
            assert!(why.to_string().contains("step-000000000002.safetensors"), "{why}");
            assert_eq!(files(folder.path()), before);
            assert_eq!(all.newest().unwrap().unwrap(), old.checkpoint());
            refused += 1;
        }
        all.save_on(&Breaking::never(), new.snapshot()).unwrap();
        if !disk.broke() {
            break;
        }
    }
    assert!(refused >= 2, "{refused}");
}

/// The same on a real file system, where a limit on file sizes stands for a full disk. The child is this test again.
#[test]
fn a_real_full_disk_keeps_what_it_had() {
    const FOLDER: &str = "HEADWATER_TEST_FULL_DISK";
    let new = Run::new(2, 1.5, &[&[64, 64]]);
    if let Ok(folder) = std::env::var(FOLDER) {
        let said = Checkpoints::new(Path::new(&folder), 1).save(new.snapshot()).unwrap_err().to_string();
        assert!(said.contains("cannot write") && said.contains("step-000000000002"), "{said}");
        return;
    }
    let old = Run::new(1, 0.5, &[&[64, 64]]);
    let (_folder, all, path) = saved(&old);
    let name = "checkpoint::tests::a_real_full_disk_keeps_what_it_had";
    let program = std::env::current_exe().unwrap();
    let command = format!("trap '' XFSZ; ulimit -f 8; exec '{}' --exact {name}", program.display());
    let child = Command::new("sh").args(["-c", &command]).env(FOLDER, path.parent().unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(files(path.parent().unwrap()), ["step-000000000001.json", "step-000000000001.safetensors"]);
    assert_eq!(all.newest().unwrap().unwrap(), old.checkpoint());
}

#[test]
fn what_cannot_be_told_apart_is_not_written() {
    let mut run = Run::new(1, 0.5, &[&[2]]);
    run.buffers.push(run.buffers[0].clone());
    let folder = tempfile::tempdir().unwrap();
    let all = Checkpoints::new(folder.path(), 1);
    let said = all.save(run.snapshot()).unwrap_err().to_string();
    assert!(said.contains("\"buffer/running/mean\""), "{said}");
    run.buffers[1] = Array { name: "short".to_owned(), shape: vec![3], values: vec![1.0] };
    assert!(all.save(run.snapshot()).is_err());
    assert!(files(folder.path()).is_empty());
}

#[test]
fn places_that_cannot_be_written_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    for place in [file.join("checkpoints"), Path::new("/proc/checkpoints").to_owned()] {
        let said = Checkpoints::new(&place, 1).save(Run::new(1, 0.5, &[&[2]]).snapshot()).unwrap_err().to_string();
        assert!(said.contains(place.to_str().unwrap()) && said.contains("cannot create"), "{said}");
    }
}

#[test]
fn the_best_epoch_is_that_of_what_is_watched() {
    let of = |value: f64, loss: f64| Best { value: Some(value), epoch: 0, step: 0, loss: Some(loss) };
    for (watch, own, other, wanted) in [
        (Watch::Metric, of(0.8, 2.0), of(0.7, 1.0), true),
        (Watch::Metric, of(0.7, 1.0), of(0.8, 2.0), false),
        (Watch::Either, of(0.8, 1.0), of(0.8, 2.0), true),
        (Watch::Metric, of(0.8, 2.0), of(0.8, 2.0), false),
        (Watch::Loss, of(0.7, 1.0), of(0.8, 2.0), true),
        (Watch::Loss, of(0.9, 2.0), of(0.8, 1.0), false),
    ] {
        assert_eq!(own.is_better_than(&other, watch), wanted, "{watch:?}: {own:?} and {other:?}");
    }
}
