//! Steps over the whole graph whose activations leave the GPU, or the emulator, learn the same to the bit as those that keep them.

use std::path::Path;

use headwater_cuda::Gpu;

use super::*;
use crate::array::Array;
use crate::gpu::StepOffload;
use crate::gpu::mover::testing::GOES_WELL;
use crate::run_config::{Norm, OffloadTo};

fn gpu() -> Option<Gpu> {
    Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()
}

/// A graph that the emulator is done with soon.
fn small(folder: &Path) -> Task {
    let recipe = Planted { nodes: 160, edges_per_node: 6, classes: 4, features: 8, ..Planted::default() };
    let dataset = folder.join("dataset");
    if !dataset.exists() {
        recipe.recipe().unwrap().write(&dataset, &Silent).unwrap();
    }
    Task::open(&Dataset::open(&dataset).unwrap(), Inverse::Off).unwrap()
}

/// So many layers that most of their activations leave.
fn deep(model: Architecture) -> RunConfig {
    RunConfig {
        layers: 4,
        fanout: vec![-1; 4],
        hidden: 8,
        dropout: 0.25,
        epochs: 2,
        evaluate_every: 0,
        ..config(model, true)
    }
}

/// What a run in a folder learnt, running moments of batches included.
fn all_learnt(folder: &Path) -> Vec<Array> {
    let newest = Checkpoints::new(&folder.join("checkpoints"), 2).newest().unwrap().unwrap();
    newest.parameters.into_iter().chain(newest.buffers).collect()
}

/// What a run learnt, its losses, and what became of its activations.
fn learnt(gpu: &Gpu, config: &RunConfig, data: &Path) -> (Vec<Array>, Vec<f64>, Option<StepOffload>) {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = Trainer::open_on(gpu, config.clone(), small(data), folder.path()).unwrap();
    let (summary, _) = trainer.run(&Quiet).unwrap();
    (all_learnt(folder.path()), losses(folder.path()), summary.offload)
}

/// The least GPU memory that a run can do with, in bytes.
fn least(gpu: &Gpu, config: &RunConfig, data: &Path) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig { offload_gpu_gb: Some(1e-6), ..config.clone() };
    match Trainer::open_on(gpu, config, small(data), folder.path()) {
        Err(Error::NoRoomForStep { needed_bytes, .. }) => needed_bytes,
        other => panic!("a step in a kilobyte: {:?}", other.map(|_| ())),
    }
}

/// Every way that a plan may choose, forced by what it is offered and by as little memory as it can do with.
#[test]
fn activations_that_leave_change_nothing() {
    let Some(gpu) = gpu() else { return };
    let (data, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (host, file, again) = (OffloadTo::Host, OffloadTo::Disk, OffloadTo::Recompute);
    let ways = [
        (Architecture::Sage, vec![vec![host], vec![file], vec![host, file], vec![again]]),
        (Architecture::Gcn, vec![vec![OffloadTo::Auto]]),
    ];
    for (model, ways) in ways {
        let kept = deep(model);
        let (weights, losses, none) = learnt(&gpu, &kept, data.path());
        assert_eq!(none, None);
        for to in ways {
            let goes_to_disk = to.contains(&file);
            let config = RunConfig {
                offload: Some(to.clone()),
                offload_folder: goes_to_disk.then(|| disk.path().to_owned()),
                offload_host_gb: goes_to_disk.then_some(8e-5),
                ..kept.clone()
            };
            let least = least(&gpu, &config, data.path());
            let config = RunConfig { offload_gpu_gb: Some((least + 1) as f64 / 1e9), ..config };
            let (own_weights, own_losses, report) = learnt(&gpu, &config, data.path());
            let report = report.unwrap();
            assert!(own_weights == weights && own_losses == losses, "{model:?} {to:?}: {report:?}");
            assert!(report.peak_bytes <= least && report.peak_bytes < report.kept_peak_bytes, "{report:?}");
            let in_host: u64 = report.layers.iter().map(|own| own.host_bytes).sum();
            let on_disk: u64 = report.layers.iter().map(|own| own.disk_bytes).sum();
            // Host memory for a part of what leaves, and the disk for the rest.
            assert!(to.len() < 2 || (in_host > 0 && on_disk > 0), "{report:?}");
            let moved = in_host + on_disk;
            let is_again = report.layers.iter().any(|own| own.is_recomputed);
            assert!(report.steps == 2 && (moved > 0 || is_again), "{report:?}");
            assert!(to.contains(&again) || to == [OffloadTo::Auto] || !is_again, "{report:?}");
            assert_eq!(report.left_bytes, moved, "what is planned is what leaves: {report:?}");
            assert!(!goes_to_disk || report.written_bytes > 0, "{report:?}");
        }
    }
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0, "files have no names");
}

/// Moments of batches are learnt in the forward pass: a layer that is computed twice learns them once.
#[test]
fn moments_are_learnt_once() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    let kept = RunConfig { norm: Norm::Batch, ..deep(Architecture::Sage) };
    let (weights, losses, _) = learnt(&gpu, &kept, data.path());
    let free = RunConfig { offload: Some(vec![OffloadTo::Recompute]), ..kept.clone() };
    let gpu_gb = (least(&gpu, &free, data.path()) + 1) as f64 / 1e9;
    let config = RunConfig { offload_gpu_gb: Some(gpu_gb), ..free };
    let (own_weights, own_losses, report) = learnt(&gpu, &config, data.path());
    assert!(report.as_ref().unwrap().layers.iter().any(|own| own.is_recomputed), "{report:?}");
    assert!(own_weights == weights && own_losses == losses);
}

/// A disk that fails in the middle of a step is done without: the step is made again, and nothing is learnt twice, moments of batches neither.
#[test]
fn a_disk_that_fails_is_done_without() {
    let Some(gpu) = gpu() else { return };
    let (data, disk, folder) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let with_disk = |kept: &RunConfig| RunConfig {
        offload: Some(vec![OffloadTo::Disk]),
        offload_folder: Some(disk.path().to_owned()),
        offload_slack: Some(10.0),
        ..kept.clone()
    };
    // In the forward pass, in the backward pass of the second step, and before the last operation of that.
    for (norm, places) in [(Norm::None, [2, 14].as_slice()), (Norm::Batch, &[2, 14, 17])] {
        let kept = RunConfig { norm, ..deep(Architecture::Sage) };
        let ((wanted, ..), config) = (learnt(&gpu, &kept, data.path()), with_disk(&kept));
        for goes_well in places {
            let mut trainer = Trainer::open_on(&gpu, config.clone(), small(data.path()), folder.path()).unwrap();
            GOES_WELL.set(Some(*goes_well));
            let (summary, _) = trainer.run(&Quiet).unwrap();
            assert_eq!(GOES_WELL.take(), None, "it failed");
            let report = summary.offload.unwrap();
            assert!(report.replanned.as_ref().unwrap().contains("took its disk away"), "{report:?}");
            assert!(report.layers.iter().all(|own| own.disk_bytes == 0) && report.written_bytes == 0, "{report:?}");
            assert!(all_learnt(folder.path()) == wanted, "{norm:?}, {goes_well}");
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    // A folder in memory is no disk.
    let config = RunConfig { offload_folder: Some("/dev/shm".into()), ..with_disk(&deep(Architecture::Sage)) };
    let refused = Trainer::open_on(&gpu, config, small(data.path()), folder.path()).unwrap_err().to_string();
    assert!(refused.contains("/dev/shm cannot hold activations"), "{refused}");
}
