//! Runs on a GPU, or on the emulator: they learn what runs on the CPU learn, up to rounding.

use std::sync::Arc;

use headwater_cuda::Gpu;
use headwater_feature::rows::encode;
use headwater_feature::{HostTable, RowFormat, Source, Stored};
use headwater_memory::Foreign;

use super::*;
use crate::gpu::company::Company;
use crate::gpu::plan::Mode;
use crate::gpu::timeline::{KernelStretch, Stage, Stretch};
use crate::run_config::{ProducerName, SamplerName, Tune};

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

/// More nodes than a block of a layer's kernels has threads (256), so that schedules have several blocks, of which the last is not
/// full, whatever lanes a row has. Rows are as long as those of `planted`.
fn small(folder: &Path) -> Task {
    planted_of(300, folder)
}

#[test]
fn whole_graphs() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    for model in [Architecture::Gcn, Architecture::Gat, Architecture::Sage, Architecture::Gin] {
        compare(&gpu, &short(model, true), &|| small(data.path()));
    }
}

/// Schedules change the order of sums and nothing else, whoever chooses them.
#[test]
fn tuned_schedules() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    for tune in ["measure", "lanes=8,ahead=2"] {
        let tune = Some(Tune(tune.parse().unwrap()));
        compare(&gpu, &RunConfig { tune, epochs: 1, ..short(Architecture::Gcn, true) }, &|| small(data.path()));
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
        let (summary, _) = trainer.run(&Quiet).unwrap();
        // What the GPU gathered, not what evaluations on the CPU read.
        let rows = summary.gpu_features.unwrap();
        let share = rows.gpu_rows as f64 / (rows.gpu_rows + rows.host_rows) as f64;
        let (least, most) = match features {
            Features::AllGpu => (1.0, 1.0),
            Features::Tiered => (0.3, 0.7),
            _ => (0.0, 0.0),
        };
        assert!(summary.feature_hit_rate == share && (least..=most).contains(&share), "{summary:?}");
        let learnt = weights(folder.path());
        let wanted = first.get_or_insert_with(|| learnt.clone());
        assert!(learnt == *wanted, "{}", features.name());
    }
}

/// A GPU reads rows as they are stored; CPU threads send what comes out.
#[test]
fn rows_cross_the_link_as_they_are_stored() {
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    for (features, hot_share, element_bytes) in
        [(Features::ZeroCopy, 0.0, 2), (Features::Tiered, 0.3, 2), (Features::Dma, 0.0, 4), (Features::AllGpu, 0.0, 2)]
    {
        let (folder, mut task) = (tempfile::tempdir().unwrap(), planted(data.path()));
        let table = task.features[0].as_ref().unwrap();
        let width = table.shape()[1];
        let format = RowFormat::packed(usize::try_from(width).unwrap(), Stored::F16);
        let halves = encode(table.in_place().unwrap(), &format);
        let source = Source::memory(Foreign::new(Arc::new(halves.bytes)), Vec::new(), format).unwrap();
        task.features[0] = Some(HostTable::of(source));
        let config = RunConfig { features, hot_share, epochs: 1, ..short(Architecture::Sage, false) };
        let mut trainer = Trainer::open_on(&gpu, config, task, folder.path()).unwrap();
        trainer.run(&Quiet).unwrap();
        let brought = trainer.feature_rows().unwrap();
        assert_eq!(brought.link_bytes, brought.host_rows * width * element_bytes, "{features:?}: {brought:?}");
        assert_eq!(
            (brought.host_rows > 0, brought.gpu_rows > 0),
            (features != Features::AllGpu, hot_share > 0.0 || features == Features::AllGpu),
            "{features:?}: {brought:?}"
        );
    }
}

/// CPU threads that collect rows of a batch must not hold up the drawing of the next one.
#[test]
fn the_next_batch_is_drawn_while_rows_are_collected() {
    let Some(gpu) = gpu() else { return };
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (features, sampler) = (Features::Dma, SamplerName::Gpu);
    let config = RunConfig { features, sampler, batch: 16, epochs: 1, ..short(Architecture::Sage, false) };
    let mut trainer = Trainer::open_on(&gpu, config, planted(data.path()), folder.path()).unwrap();
    trainer.keep_timeline();
    trainer.run(&Quiet).unwrap();
    let stretches = trainer.timeline();
    let of = |stage: Stage| stretches.iter().filter(move |own| own.stage == stage);
    assert!(of(Stage::Sample).count() > 3);
    for (gather, next) in of(Stage::Gather).zip(of(Stage::Sample).skip(1)) {
        assert!(next.batch == gather.batch + 1 && next.begin_ms < gather.end_ms, "{gather:?}, {next:?}");
    }
}

/// What is learnt and what the optimiser remembers belong together: after an error both are brought again.
#[test]
fn weights_that_could_not_be_brought_are_brought_the_next_time() {
    let Some(gpu) = gpu() else { return };
    let (data, folder, whole) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = RunConfig { epochs: 1, ..short(Architecture::Sage, false) };
    let open = |folder: &Path| Trainer::open_on(&gpu, config.clone(), planted(data.path()), folder).unwrap();
    let values = |trainer: &Trainer| trainer.network.parameters.clone();
    let mut sound = open(whole.path());
    sound.train_epoch(&Quiet).unwrap();
    sound.bring_back().unwrap();
    let mut trainer = open(folder.path());
    trainer.train_epoch(&Quiet).unwrap();
    let before = values(&trainer);
    // A kernel that met an id that is none is told of by the next wait for its stream, which is the first copy.
    trainer.engine.as_ref().unwrap().fail_next_wait().unwrap();
    assert!(trainer.bring_back().is_err());
    trainer.bring_back().unwrap();
    assert!(values(&trainer) != before, "nothing was brought");
    assert_eq!(values(&trainer), values(&sound));
}

/// The score that is asked for says which rows are in GPU memory; what is learnt does not depend on it.
#[test]
fn scores_of_every_kind() {
    use headwater_graph::score::Score;
    let Some(gpu) = gpu() else { return };
    let data = tempfile::tempdir().unwrap();
    let (mut first, mut shares) = (None, Vec::new());
    for scores in [Score::OutDegree, Score::WeightedPagerank, Score::Expected, Score::Presampled] {
        let folder = tempfile::tempdir().unwrap();
        let tiered = RunConfig { features: Features::Tiered, hot_share: 0.1, ..short(Architecture::Sage, false) };
        let config = RunConfig { scores, epochs: 1, fanout: vec![2, 2], ..tiered };
        let mut trainer = Trainer::open_on(&gpu, config, planted(data.path()), folder.path()).unwrap();
        shares.push(trainer.run(&Quiet).unwrap().0.gpu_features.unwrap().gpu_rows);
        let learnt = weights(folder.path());
        assert!(learnt == *first.get_or_insert_with(|| learnt.clone()), "{}", scores.name());
    }
    let all = RunConfig { scores: Score::OutDegree, features: Features::AllGpu, ..short(Architecture::Sage, false) };
    let all = Trainer::open_on(&gpu, all, planted(data.path()), &data.path().join("all")).unwrap();
    assert!(all.remarks().iter().any(|said| said.ends_with("by its score (out-degree)")), "{:?}", all.remarks());
    // A degree knows nothing of the run.
    assert!(shares[2] > shares[0] && shares.iter().any(|share| *share != shares[0]), "{shares:?}");
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
        (RunConfig { gather_sms: 4, normalise_features: Some(true), ..own(false) }, "gather_sms is 4; expected 0"),
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
