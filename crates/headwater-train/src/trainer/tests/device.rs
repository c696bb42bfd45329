//! Runs on a GPU, or on the emulator: they learn what runs on the CPU learn, up to rounding.

use headwater_cuda::Gpu;

use super::*;
use crate::gpu::company::Company;
use crate::gpu::plan::Mode;
use crate::gpu::timeline::{KernelStretch, Stage, Stretch};
use crate::run_config::{ProducerName, SamplerName};

fn gpu() -> Option<Gpu> {
    Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()
}

fn short(model: Architecture, is_full: bool) -> RunConfig {
    RunConfig { epochs: 2, hidden: 8, batch: 128, ..config(model, is_full) }
}

/// Runs a description on both machines, and compares losses and what was learnt.
fn compare(gpu: &Gpu, config: &RunConfig, task: &dyn Fn() -> Task) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Trainer::open(config.clone(), task(), here.path()).unwrap().run(&Quiet).unwrap();
    let mut trainer = Trainer::open_on(gpu, config.clone(), task(), there.path()).unwrap();
    trainer.run(&Quiet).unwrap();
    let model = &config.model;
    for (a, b) in losses(here.path()).into_iter().zip(losses(there.path())) {
        assert!((a - b).abs() < 2e-3 * a.abs().max(1.0), "{model}: a loss of {a} is {b}");
    }
    for (a, b) in weights(here.path()).iter().zip(weights(there.path())) {
        let far = a.values.iter().zip(&b.values).find(|(a, b)| (**a - **b).abs() > 2e-2);
        assert!(far.is_none() && a.name == b.name, "{model}, {}: {far:?}", a.name);
    }
}

#[test]
fn whole_graphs() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    for model in [Architecture::Gcn, Architecture::Gat, Architecture::Sage, Architecture::Gin] {
        compare(&gpu, &short(model, true), &|| planted(data.path()));
    }
}

#[test]
fn batches_of_one_relation() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    for model in [Architecture::Gcn, Architecture::Gat, Architecture::Sage] {
        compare(&gpu, &short(model, false), &|| planted(data.path()));
    }
}

#[test]
fn norms_and_rules() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    use crate::run_config::{Norm, OptimiserName};
    // Batch norm takes biases away again: their gradients are rounding, which Adam would make steps of.
    for (norm, optimiser, clip) in [(Norm::Batch, OptimiserName::Sgd, 0.5), (Norm::Layer, OptimiserName::AdamW, 0.0)] {
        let config = RunConfig { norm, optimiser, clip, decay: 1e-3, ..short(Architecture::Sage, false) };
        compare(&gpu, &config, &|| planted(data.path()));
    }
}

/// Wherever rows lie and whoever draws, batches are the same to the bit.
#[test]
fn features_of_every_mode() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    let mut first = None;
    for (features, hot_share, sampler) in [
        (Features::AllGpu, 0.2, SamplerName::Gpu),
        (Features::Tiered, 0.3, SamplerName::Gpu),
        (Features::ZeroCopy, 0.2, SamplerName::Gpu),
        (Features::Naive, 0.2, SamplerName::Cpu),
        (Features::Dma, 0.2, SamplerName::Cpu),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = RunConfig { features, hot_share, sampler, epochs: 1, ..short(Architecture::Sage, false) };
        let mut trainer = Trainer::open_on(&gpu, config, planted(data.path()), folder.path()).unwrap();
        let mode = trainer.feature_mode().unwrap();
        assert_eq!(mode.name(), features.name());
        if let Mode::Tiered { hot_rows } = mode {
            assert_eq!(hot_rows, 180);
        }
        trainer.run(&Quiet).unwrap();
        let learnt = weights(folder.path());
        let wanted = first.get_or_insert_with(|| learnt.clone());
        assert!(learnt == *wanted, "{}", features.name());
    }
}

/// What a run on a GPU could not follow is refused before it has a folder.
#[test]
fn what_a_run_cannot_follow_is_refused_at_the_start() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("run");
    drop(planted(data.path()));
    let dataset = Dataset::open(&data.path().join("dataset")).unwrap();
    let own = |is_full: bool| short(Architecture::Sage, is_full);
    for (config, words) in [
        (RunConfig { features: Features::Tiered, ..own(true) }, "features is tiered; expected auto"),
        (RunConfig { gather_sms: 4, normalise_features: true, ..own(false) }, "gather_sms is 4; expected 0"),
        (RunConfig { sampler: SamplerName::Gpu, inverse_relations: true, ..own(false) }, "sampler is gpu"),
        (RunConfig { producer: ProducerName::Process, ..own(false) }, "producer is process; expected thread"),
    ] {
        let task = task::open(&config, &dataset).unwrap();
        let said = Trainer::open_on(&gpu, config, task, &folder).unwrap_err().to_string();
        assert!(said.starts_with(words) && !folder.exists(), "{said}");
    }
}

#[test]
fn a_stopped_run_goes_on_to_the_bit() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = RunConfig { batch: 64, ..short(Architecture::Sage, false) };
    let open = |folder: &Path| Trainer::open_on(&gpu, config.clone(), planted(data.path()), folder).unwrap();
    open(whole.path()).run(&Quiet).unwrap();
    let (_, ending) = open(parts.path()).run(&StopAfter(Cell::new(3))).unwrap();
    assert_eq!(ending, Ending::Stopped);
    let mut again = open(parts.path());
    assert!(again.state().step > 0);
    again.run(&Quiet).unwrap();
    assert!(weights(whole.path()) == weights(parts.path()));
    assert_eq!(losses(whole.path()), losses(parts.path()));
}

/// Neither who looks nor how greedy a gather may be changes what is learnt.
#[test]
fn a_traced_run_learns_the_same_and_has_every_stage() {
    let Some(gpu) = gpu() else { return };
    let (data, plain, traced) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = RunConfig { features: Features::Tiered, hot_share: 0.3, epochs: 1, ..short(Architecture::Sage, false) };
    let open = |config: &RunConfig, folder: &Path| {
        Trainer::open_on(&gpu, config.clone(), planted(data.path()), folder).unwrap()
    };
    open(&own, plain.path()).run(&Quiet).unwrap();
    let config = RunConfig { gather_green: true, gather_sms: 8, gather_window: 3, ..own };
    let mut trainer = open(&config, traced.path());
    trainer.trace();
    trainer.run(&Quiet).unwrap();
    assert!(weights(plain.path()) == weights(traced.path()));
    assert_eq!(trainer.gather_window(), Some(3));
    let (stretches, kernels) = (trainer.timeline(), trainer.traced_kernels());
    for stage in [Stage::Sample, Stage::Blocks, Stage::Gather, Stage::Train] {
        let of_stage: Vec<_> = stretches.iter().filter(|own| own.stage == stage).collect();
        let inside = |kernel: &&KernelStretch| {
            let holds = |own: &&&Stretch| own.begin_ms <= kernel.begin_ms && kernel.end_ms <= own.end_ms;
            kernel.stage == stage && of_stage.iter().any(|own| holds(&own))
        };
        assert!(kernels.iter().filter(inside).count() >= of_stage.len(), "{stage:?}: {kernels:#?}");
        assert!(!of_stage.is_empty(), "{stage:?}");
    }
    assert!(kernels.iter().any(|own| own.stage == Stage::Train && own.name.starts_with("layer 1 backward, ")));
    // What measurements ask for: steps beside every other stage, and one kernel by kernel.
    for company in Company::ALL {
        assert!(trainer.repeat_step(2, company).unwrap().unwrap() > 0.0, "{company:?}");
    }
    assert!(trainer.kernels().unwrap().iter().any(|(name, _)| name.starts_with("layer 0 forward, ")));
    assert!(trainer.load(3).unwrap().unwrap() > 0.0);
}
