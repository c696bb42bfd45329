//! What a GPU, its memory, host memory or a stage may refuse: a run goes on with less and learns the same to the bit, or it ends
//! with a reason and its last checkpoint.

use std::cell::RefCell;
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use headwater_cuda::{Allocation, Gpu};
use headwater_feature::{HostTable, Source};
use headwater_graph::generate::{Recipe, Rmat};
use headwater_memory::Foreign;

use super::*;
use crate::gpu::plan::Mode;
use crate::labels::Labels;
use crate::run_config::SamplerName;
use crate::trainer::draw::Drawing;

/// Says that this process has the environment that its test is for.
const INSIDE: &str = "HEADWATER_TEST_INSIDE";
/// Rows of features of half a KiB each, and training nodes.
const HUB_ROWS: u64 = 1 << 11;
const EVEN_ROWS: u64 = 1 << 13;
const TRAIN: usize = 64;
/// No node.
const NOBODY: u64 = 777_777;

/// The emulator; what is refused here cannot be asked of a GPU that others use.
fn emulated() -> Option<Gpu> {
    let gpu = Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()?;
    gpu.facts().name.contains("emulated").then_some(gpu)
}

/// The emulator in a process with a changed environment, which runs the test once more. Nothing in the process that starts it.
fn inside(test: &str, changes: &[(&str, &str)]) -> Option<Gpu> {
    let gpu = emulated()?;
    if std::env::var_os(INSIDE).is_some() {
        return Some(gpu);
    }
    let test = format!("trainer::tests::device_failures::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    let output = command.envs(changes.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}");
    None
}

/// A graph with hubs: batches differ in size.
fn hubs(folder: &Path) -> Task {
    let recipe = Rmat { nodes_log2: 11, edges_per_node: 8, classes: 4, features: 128, ..Rmat::default() };
    opened(&folder.join("hubs"), &recipe.recipe().unwrap())
}

/// A graph whose nodes have about as many neighbours each: batches are of one size.
fn even(folder: &Path) -> Task {
    let recipe = Planted { nodes: EVEN_ROWS, edges_per_node: 4, classes: 4, features: 128, ..Planted::default() };
    opened(&folder.join("even"), &recipe.recipe().unwrap())
}

fn opened(dataset: &Path, recipe: &Recipe) -> Task {
    if !dataset.exists() {
        recipe.write(dataset, &Silent).unwrap();
    }
    let mut task = Task::open(&Dataset::open(dataset).unwrap(), Inverse::Off).unwrap();
    task.train.truncate(TRAIN);
    assert_eq!(task.train.len(), TRAIN);
    task
}

fn short(features: Features) -> RunConfig {
    let config = config(Architecture::Sage, false);
    RunConfig { features, epochs: 1, hidden: 8, batch: 8, fanout: vec![12, 12], evaluate_every: 0, ..config }
}

/// Runs to the end, in a folder below.
fn trained(gpu: &Gpu, config: &RunConfig, task: Task, folder: &Path, listener: &dyn Listener) -> Trainer {
    let mut trainer = Trainer::open_on(gpu, config.clone(), task, folder).unwrap();
    trainer.run(listener).unwrap();
    trainer
}

fn learnt_the_same(below: &Path, name: &str, wanted: &str) {
    assert_eq!(losses(&below.join(name)), losses(&below.join(wanted)), "{name}");
    assert!(weights(&below.join(name)) == weights(&below.join(wanted)), "{name}");
}

thread_local! {
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what is logged in the thread that asks for it.
struct Kept;

impl log::Log for Kept {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        SAID.with_borrow_mut(|said| said.push(format!("{}: {}", record.level(), record.args())));
    }

    fn flush(&self) {}
}

/// What was said since this was last asked for.
fn said() -> Vec<String> {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| {
        log::set_logger(&Kept).unwrap();
        log::set_max_level(log::LevelFilter::Info);
    });
    SAID.take()
}

/// That exactly one line begins like this.
fn said_once(said: &[String], begin: &str) {
    assert_eq!(said.iter().filter(|line| line.starts_with(begin)).count(), 1, "{begin}: {said:#?}");
}

#[test]
fn memory_that_others_took_is_not_planned_with() {
    let Some(gpu) = emulated() else { return };
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path();
    let before = gpu.memory().unwrap().free_bytes;
    let rich = trained(&gpu, &short(Features::Auto), even(below), &below.join("rich"), &Quiet);
    assert_eq!(rich.feature_mode(), Some(Mode::AllGpu));
    let needed = before - gpu.memory().unwrap().free_bytes;
    drop(rich);
    said();
    // All that the run took, less half of its rows.
    let left = needed - usize::try_from(EVEN_ROWS).unwrap() * 256;
    let _taken = Allocation::shareable(&gpu, gpu.memory().unwrap().free_bytes - left).unwrap();
    let poor = trained(&gpu, &short(Features::Auto), even(below), &below.join("poor"), &Quiet);
    let Some(Mode::Tiered { hot_rows }) = poor.feature_mode() else { panic!("{:?}", poor.feature_mode()) };
    let said = said();
    assert!((1..EVEN_ROWS).contains(&hot_rows), "{hot_rows}: {said:#?}");
    let taken = said.iter().filter(|line| line.contains("of GPU memory are taken, so features are tiered with"));
    assert_eq!(taken.count(), 1, "{said:#?}");
    learnt_the_same(below, "poor", "rich");
}

/// Takes all but a little of the GPU's memory after the second batch.
struct Takes<'a> {
    gpu: &'a Gpu,
    taken: RefCell<Option<Arc<Allocation>>>,
    batches: Cell<u64>,
}

impl Listener for Takes<'_> {
    fn batch(&self, done: u64, _of: u64, _loss: f64) {
        self.batches.set(self.batches.get() + 1);
        assert_eq!(done, self.batches.get(), "every batch is told once");
        if done == 2 {
            let free = self.gpu.memory().unwrap().free_bytes;
            *self.taken.borrow_mut() = Some(Allocation::shareable(self.gpu, free - 256).unwrap());
        }
    }

    fn epoch(&self, _report: &EpochReport) {}

    fn should_stop(&self) -> bool {
        false
    }
}

/// CPU threads send batches in memory that is made for each, while others are trained on. The GPU's sampler has its own: there
/// it is slots that a larger batch asks for.
#[test]
fn memory_that_runs_out_on_the_way_is_taken_from_features() {
    let Some(gpu) = emulated() else { return };
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path();
    let tasks: [fn(&Path) -> Task; 2] = [even, hubs];
    let cases = [(SamplerName::Cpu, EVEN_ROWS, false), (SamplerName::Gpu, HUB_ROWS, true)];
    for ((sampler, rows, grows), task) in cases.into_iter().zip(tasks) {
        let (rich, poor) = (format!("rich-{grows}"), format!("poor-{grows}"));
        let config = RunConfig { sampler, ..short(Features::AllGpu) };
        drop(trained(&gpu, &config, task(below), &below.join(&rich), &Quiet));
        said();
        let takes = Takes { gpu: &gpu, taken: RefCell::new(None), batches: Cell::new(0) };
        let trainer = trained(&gpu, &config, task(below), &below.join(&poor), &takes);
        let mode = trainer.feature_mode().unwrap();
        assert!(mode.hot_rows(rows) < rows, "{mode}");
        let said = said();
        said_once(&said, "WARN: GPU memory is short, so features go from all-gpu to tiered with");
        let has_grown = said.iter().any(|line| line.contains("a batch was larger than those before"));
        assert_eq!(has_grown, grows, "{said:#?}");
        learnt_the_same(below, &poor, &rich);
    }
}

#[test]
fn batches_that_never_fit_end_the_run_with_advice() {
    let Some(gpu) = emulated() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig { sampler: SamplerName::Cpu, ..short(Features::ZeroCopy) };
    let mut trainer = Trainer::open_on(&gpu, config, hubs(folder.path()), &folder.path().join("run")).unwrap();
    let why = trainer.run(&Takes { gpu: &gpu, taken: RefCell::new(None), batches: Cell::new(0) }).unwrap_err();
    let text = why.to_string();
    assert!(why.is_out_of_memory() && text.contains("zero-copy; a smaller batch or fan-out does: out of"), "{text}");
}

#[test]
fn what_cannot_be_pinned_comes_by_copy() {
    let Some(gpu) = inside("what_cannot_be_pinned_comes_by_copy", &[("HWEMU_REGISTER_BYTES", "0")]) else { return };
    comes_by_copy(&gpu, 0);
}

#[test]
fn where_nothing_can_be_pinned_rows_come_through_ordinary_memory() {
    let test = "where_nothing_can_be_pinned_rows_come_through_ordinary_memory";
    let refused = [("HWEMU_REGISTER_BYTES", "0"), ("HWEMU_PINNED_BYTES", "1048576")];
    let Some(gpu) = inside(test, &refused) else { return };
    comes_by_copy(&gpu, 1);
}

/// That every mode that reads host memory becomes `dma`, and how often ordinary memory is spoken of.
fn comes_by_copy(gpu: &Gpu, ordinary: usize) {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path();
    drop(trained(gpu, &short(Features::AllGpu), hubs(below), &below.join("rich"), &Quiet));
    for features in [Features::ZeroCopy, Features::Tiered, Features::Naive] {
        said();
        let name = features.name();
        let trainer = trained(gpu, &short(features), hubs(below), &below.join(name), &Quiet);
        assert_eq!(trainer.feature_mode(), Some(Mode::Dma), "{name}");
        let said = said();
        said_once(&said, &format!("WARN: host memory cannot be pinned, so features go from {name}"));
        assert!(said.iter().any(|line| line.contains(" to dma: cannot pin ")), "{said:#?}");
        let begin = "WARN: no host memory can be pinned, so features come through ordinary memory: out of pinned host";
        assert_eq!(said.iter().filter(|line| line.starts_with(begin)).count(), ordinary, "{said:#?}");
        learnt_the_same(below, name, "rich");
    }
}

/// Notes when the last batch was told.
struct Watch(Cell<Instant>);

impl Listener for Watch {
    fn batch(&self, _done: u64, _of: u64, _loss: f64) {
        self.0.set(Instant::now());
    }

    fn epoch(&self, _report: &EpochReport) {}

    fn should_stop(&self) -> bool {
        false
    }
}

/// The same task with other features.
fn with_rows(task: Task, change: impl Fn(&mut Vec<f32>)) -> Task {
    let table = task.features[0].as_ref().unwrap();
    let mut values = table.in_place().unwrap().to_vec();
    change(&mut values);
    let bytes: Vec<u8> = bytemuck::cast_slice(&values).to_vec();
    let source = Source::memory(Foreign::new(Arc::new(bytes)), Vec::new(), *table.source().format()).unwrap();
    Task { features: vec![Some(HostTable::of(source))], ..task }
}

/// The same task with a training node that is none.
fn with_bad_seed(task: Task, node: u64) -> Task {
    let Labels::Classes(mut labels) = task.labels else { panic!("nodes have classes") };
    labels.resize(usize::try_from(NOBODY + 1).unwrap(), 0);
    let train = task.train.iter().map(|own| if *own == node { NOBODY } else { *own }).collect();
    Task { labels: Labels::Classes(labels), train, ..task }
}

/// A run that fails in its second epoch, in one stage or another, ends at once; then it goes on from its checkpoint.
#[test]
fn a_stage_that_errs_ends_the_run_and_leaves_the_checkpoint() {
    let Some(gpu) = emulated() else { return };
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path();
    let config = RunConfig { sampler: SamplerName::Cpu, ..short(Features::ZeroCopy) };
    let longer = RunConfig { epochs: 2, ..config.clone() };
    let drawing = Drawing::of(&longer, &Arc::new(even(below)), 1).unwrap();
    let late = *drawing.seeds(drawing.count() - 1).0.last().unwrap();
    let nan_at = usize::try_from(late).unwrap() * 128 + 3;
    let of_gpu = |config: &RunConfig| RunConfig { sampler: SamplerName::Gpu, ..config.clone() };
    for (name, config, bad, words) in [
        ("thread", longer.clone(), with_bad_seed(even(below), late), "777777"),
        ("sampler", of_gpu(&longer), with_bad_seed(even(below), late), "777777"),
        ("row", longer.clone(), with_rows(even(below), |rows| rows[nan_at] = f32::NAN), "has NaN as feature 3"),
    ] {
        let run = below.join(name);
        drop(trained(&gpu, &RunConfig { epochs: 1, ..config.clone() }, even(below), &run, &Quiet));
        let kept = weights(&run);
        let mut trainer = Trainer::open_on(&gpu, config.clone(), bad, &run).unwrap();
        let watch = Watch(Cell::new(Instant::now()));
        let why = trainer.run(&watch).unwrap_err().to_string();
        let after = watch.0.get().elapsed();
        assert!(after < Duration::from_secs(1) && why.contains(words), "{name}: {why} after {after:?}");
        drop(trainer);
        assert!(weights(&run) == kept, "{name}");
        trained(&gpu, &config, even(below), &run, &Quiet);
        assert!(weights(&run) != kept, "{name}");
    }
}

#[test]
fn a_driver_without_green_contexts() {
    let Some(gpu) = inside("a_driver_without_green_contexts", &[("HWEMU_NO_GREEN", "1")]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path();
    let plain = short(Features::ZeroCopy);
    trained(&gpu, &plain, even(below), &below.join("plain"), &Quiet);
    said();
    let green = RunConfig { gather_green: true, gather_sms: 4, ..plain };
    trained(&gpu, &green, even(below), &below.join("green"), &Quiet);
    said_once(&said(), "WARN: gathers are held back by the number of their blocks alone: ");
    learnt_the_same(below, "green", "plain");
}
