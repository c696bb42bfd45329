//! Runs whose batches another process makes, on a GPU or on the emulator: they learn the same to the bit, and whoever dies takes
//! nobody with it and leaves nothing.

use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use headwater_cuda::{Allocation, Gpu};

use super::*;
use crate::gpu::beside::{Beside, serve_stdin};
use crate::gpu::plan::Mode;
use crate::run_config::{ProducerName, SamplerName};

/// Says what a process is for, and the folder of its test.
const ROLE: &str = "HEADWATER_TEST_BESIDE";
const FOLDER: &str = "HEADWATER_TEST_FOLDER";

/// The folder of a test that another process began.
struct Scene(PathBuf);

impl Scene {
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn note(&self, name: &str) {
        std::fs::write(self.file(name), "").unwrap();
    }

    fn waits_for(&self, name: &str, most: Duration) -> bool {
        let begun = Instant::now();
        while !self.file(name).exists() && begun.elapsed() < most {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.file(name).exists()
    }

    /// This program, to run one test in a role.
    fn command(&self, test: &str, role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = format!("trainer::tests::device_beside::{test}");
        command.args(["--exact", &test, "--nocapture", "--test-threads=1"]).env(ROLE, role).env(FOLDER, &self.0);
        command
    }

    fn open(&self, test: &str, config: &RunConfig, run: &str) -> Trainer {
        let command = || self.command(test, "producer");
        let beside = Beside { command: &command, service: Ok(self.0.clone()) };
        let gpu = Gpu::open(0).unwrap();
        Trainer::open_beside(&gpu, &beside, config.clone(), planted(&self.0), &self.file(run)).unwrap()
    }
}

/// Runs a test in the process that was started for it: the producer serves, and the test itself goes on elsewhere.
fn begin() -> Option<(Option<tempfile::TempDir>, Scene)> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let scene = Scene(folder.into());
        if std::env::var(ROLE).unwrap() == "producer" {
            produce(&scene);
            return None;
        }
        return Some((None, scene));
    }
    Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()?;
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene(folder.path().to_owned());
    Some((Some(folder), scene))
}

/// Serves, takes memory or dies when that is asked for, and notes when it ends by itself.
fn produce(scene: &Scene) {
    let own = Scene(scene.0.clone());
    std::thread::spawn(move || {
        let mut taken = None;
        while !own.file("die").exists() {
            if taken.is_none() && own.file("take").exists() {
                let gpu = Gpu::open(0).unwrap();
                // A gather takes more than is left, and less than that and the rows in GPU memory.
                let most = gpu.memory().unwrap().free_bytes - (56 << 10);
                taken = Some(Allocation::shareable(&gpu, most).unwrap());
                own.note("taken");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        std::process::exit(7);
    });
    assert!(parent_id() > 1);
    serve_stdin(&|config| {
        if scene.file("refuse").exists() {
            return Err(Error::Model { why: "the producer has no data".to_owned() });
        }
        let task = planted(&scene.0);
        if scene.file("err").exists() {
            // Rows that are not there: drawing fails in the first epoch.
            return Ok(Task { train: vec![u64::MAX; task.train.len()], ..task });
        }
        assert_eq!(config.producer, ProducerName::Process);
        Ok(task)
    })
    .unwrap();
    scene.note("ended");
}

fn short(model: Architecture) -> RunConfig {
    let producer = ProducerName::Process;
    // Small, since an emulator runs them.
    RunConfig { epochs: 1, hidden: 4, batch: 96, fanout: vec![2, 2], producer, ..config(model, false) }
}

#[test]
fn weights_are_the_same_to_the_bit() {
    let Some((_folder, scene)) = begin() else { return };
    for (at, (model, features, sampler)) in [
        (Architecture::Gcn, Features::Tiered, SamplerName::Gpu),
        (Architecture::Sage, Features::ZeroCopy, SamplerName::Cpu),
        (Architecture::Sage, Features::Dma, SamplerName::Gpu),
    ]
    .into_iter()
    .enumerate()
    {
        let config = RunConfig { features, sampler, hot_share: 0.3, ..short(model) };
        let (here, there) = (format!("here{at}"), format!("there{at}"));
        let alone = RunConfig { producer: ProducerName::Thread, ..config.clone() };
        let mut trainer =
            Trainer::open_on(&Gpu::open(0).unwrap(), alone, planted(&scene.0), &scene.file(&here)).unwrap();
        trainer.run(&Quiet).unwrap();
        let rows = trainer.feature_rows().unwrap();
        drop(trainer);
        let mut trainer = scene.open("weights_are_the_same_to_the_bit", &config, &there);
        assert!(trainer.has_producer());
        assert_eq!(trainer.feature_mode().unwrap().name(), features.name());
        trainer.run(&Quiet).unwrap();
        assert_eq!(trainer.feature_rows().unwrap(), rows);
        drop(trainer);
        assert!(weights(&scene.file(&here)) == weights(&scene.file(&there)), "{model:?}");
        assert_eq!(losses(&scene.file(&here)), losses(&scene.file(&there)));
        assert!(scene.file("ended").exists(), "the producer ended by itself");
        std::fs::remove_file(scene.file("ended")).unwrap();
    }
}

#[test]
fn a_stopped_run_goes_on() {
    let Some((_folder, scene)) = begin() else { return };
    let open = |run: &str| scene.open("a_stopped_run_goes_on", &short(Architecture::Sage), run);
    open("whole").run(&Quiet).unwrap();
    let mut trainer = open("parts");
    let (_, ending) = trainer.run(&StopAfter(Cell::new(2))).unwrap();
    assert_eq!(ending, Ending::Stopped);
    // The same process goes on with the epoch that was left, its slots and all.
    assert!(trainer.feature_rows().unwrap().host_rows + trainer.feature_rows().unwrap().gpu_rows > 0);
    trainer.run(&StopAfter(Cell::new(1))).unwrap();
    drop(trainer);
    open("parts").run(&Quiet).unwrap();
    assert!(weights(&scene.file("whole")) == weights(&scene.file("parts")));
}

#[test]
fn where_there_is_no_producer_the_trainer_makes_batches() {
    let Some((_folder, scene)) = begin() else { return };
    let test = "where_there_is_no_producer_the_trainer_makes_batches";
    let (gpu, config) = (Gpu::open(0).unwrap(), short(Architecture::Sage));
    let command = || scene.command(test, "producer");
    let missing = || Command::new(scene.file("no program"));
    scene.note("refuse");
    let ways: [(&dyn Fn() -> Command, _); 3] =
        [(&command, Err("no daemon".to_owned())), (&command, Ok(scene.0.clone())), (&missing, Ok(scene.0.clone()))];
    for (at, (command, service)) in ways.into_iter().enumerate() {
        let beside = Beside { command, service };
        let folder = scene.file(&format!("run{at}"));
        let mut trainer = Trainer::open_beside(&gpu, &beside, config.clone(), planted(&scene.0), &folder).unwrap();
        assert!(!trainer.has_producer());
        trainer.run(&Quiet).unwrap();
    }
}

/// Processes have memory of their own on the emulator alone, so that one of them can take all of its own.
#[test]
fn memory_that_a_producer_lacks_is_taken_from_features() {
    let Some((_folder, scene)) = begin() else { return };
    if !Gpu::open(0).unwrap().facts().name.contains("emulated") {
        return;
    }
    let test = "memory_that_a_producer_lacks_is_taken_from_features";
    let (features, sampler, hot_share) = (Features::Tiered, SamplerName::Cpu, 0.99);
    let config = RunConfig { features, sampler, hot_share, ..short(Architecture::Sage) };
    scene.open(test, &config, "rich").run(&Quiet).unwrap();
    let mut trainer = scene.open(test, &config, "poor");
    assert_eq!(trainer.feature_mode(), Some(Mode::Tiered { hot_rows: 594 }));
    scene.note("take");
    assert!(scene.waits_for("taken", Duration::from_secs(10)));
    trainer.run(&Quiet).unwrap();
    assert!(trainer.has_producer() && trainer.feature_mode() == Some(Mode::Tiered { hot_rows: 0 }));
    assert_eq!(losses(&scene.file("poor")), losses(&scene.file("rich")));
    assert!(weights(&scene.file("poor")) == weights(&scene.file("rich")));
}

/// Asks the producer to do something after a few batches, and notes when.
struct After<'a>(&'a Scene, Cell<u64>, Cell<Option<Instant>>);

impl Listener for After<'_> {
    fn epoch(&self, _report: &EpochReport) {}

    fn batch(&self, _done: u64, _all: u64, _loss: f64) {
        self.1.set(self.1.get() + 1);
        if self.1.get() == 3 {
            self.0.note("die");
            self.2.set(Some(Instant::now()));
        }
    }

    fn should_stop(&self) -> bool {
        false
    }
}

#[test]
fn a_producer_that_dies_or_errs_ends_the_run() {
    let Some((_folder, scene)) = begin() else { return };
    let test = "a_producer_that_dies_or_errs_ends_the_run";
    let config = RunConfig { epochs: 10_000, evaluate_every: 0, checkpoint_every: 0, ..short(Architecture::Sage) };
    let mut trainer = scene.open(test, &config, "dies");
    assert!(trainer.has_producer());
    let listener = After(&scene, Cell::new(0), Cell::new(None));
    let why = trainer.run(&listener).unwrap_err();
    let after = listener.2.get().unwrap().elapsed();
    // A second where nothing else runs. Drivers take turns to end the processes of many tests.
    assert!(after < Duration::from_secs(5), "{after:?}");
    assert!(why.to_string().contains("the producer failed: it ended without a word: exit status: 7"), "{why}");
    drop(trainer);
    std::fs::remove_file(scene.file("die")).unwrap();
    scene.note("err");
    let why = scene.open(test, &config, "errs").run(&Quiet).unwrap_err();
    assert!(matches!(&why, Error::Stage { stage: "producer", why } if why.contains("18446744073709551615")), "{why}");
}

#[test]
fn a_producer_ends_with_its_trainer() {
    let Some((folder, scene)) = begin() else { return };
    let test = "a_producer_ends_with_its_trainer";
    if folder.is_none() {
        let config = RunConfig { epochs: 10_000, evaluate_every: 0, checkpoint_every: 0, ..short(Architecture::Sage) };
        let mut trainer = scene.open(test, &config, "run");
        scene.note("began");
        trainer.run(&Quiet).unwrap();
        return;
    }
    let mut trainer = scene.command(test, "trainer").stdout(Stdio::null()).spawn().unwrap();
    assert!(scene.waits_for("began", Duration::from_secs(60)));
    std::thread::sleep(Duration::from_millis(100));
    trainer.kill().unwrap();
    trainer.wait().unwrap();
    // Long for a machine with other things to do, and short for a producer that never ends.
    assert!(scene.waits_for("ended", Duration::from_secs(20)), "the producer goes on without a trainer");
}
