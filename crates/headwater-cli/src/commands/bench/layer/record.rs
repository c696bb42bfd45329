//! Cases with what was found of them, and the file that has them from one run to the next.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater::compile::cuda::Tuning;
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::figures::{Figures, Machine};

/// What every line of ours begins with.
const BEGINNING: &str = "{\"like\":";
/// Parts of a scale by which two may differ and be the same: text does not keep the last bit.
const SCALE_TOLERANCE: f64 = 1e-12;

/// How all cases of a run are measured, and by whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The part of published shapes that graphs have.
    pub scale: f64,
    /// Whether ends of edges are drawn evenly.
    pub even: bool,
    /// Of graphs, rows and weights.
    pub seed: u64,
    /// Times that each case is measured.
    pub rounds: usize,
    /// How schedules of a GPU's kernels are chosen; lines of before there was a choice do not say it.
    #[serde(default = "fixed")]
    pub tune: String,
    #[serde(flatten)]
    pub machine: Machine,
}

fn fixed() -> String {
    Tuning::Fixed.to_string()
}

impl Setting {
    /// Whether figures of both may stand in one table. How fast copies were is measured anew by every run.
    pub fn is_like(&self, other: &Self) -> bool {
        let scale = (self.scale - other.scale).abs() <= SCALE_TOLERANCE * self.scale;
        let copy_gb_per_s = self.machine.copy_gb_per_s;
        let machine = Machine { copy_gb_per_s, ..other.machine.clone() };
        scale && *self == Self { scale: self.scale, machine, ..other.clone() }
    }
}

/// A case and what became of it: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub case: Case,
    #[serde(flatten)]
    pub setting: Setting,
    #[serde(flatten)]
    pub found: Found,
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Found {
    /// It ran.
    Measured(Box<Figures>),
    /// It did not, for want of memory or another reason.
    Failed {
        /// Why it could not be measured, as an error says it.
        failed: String,
    },
}

impl Outcome {
    /// The figures of a case that ran.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.found {
            Found::Measured(figures) => Some(figures),
            Found::Failed { .. } => None,
        }
    }

    /// Why a case did not run.
    pub fn failure(&self) -> Option<&str> {
        match &self.found {
            Found::Measured(_) => None,
            Found::Failed { failed } => Some(failed),
        }
    }
}

/// The lines of a file.
pub fn read(path: &Path) -> anyhow::Result<Vec<Outcome>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> anyhow::Result<Vec<Outcome>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(at, line)| {
        let why = || format!("{}, line {} is no case of `bench layer`", path.display(), at + 1);
        serde_json::from_str(line).with_context(why)
    };
    lines.map(parse).collect()
}

/// A file that lines are added to as they come.
pub struct Log {
    path: PathBuf,
    file: File,
    outcomes: Vec<Outcome>,
}

impl Log {
    /// Opens a file, which need not be there. A line of ours that was not written to its end, because the run was killed, goes.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let why = || format!("--out {}", path.display());
        let file = OpenOptions::new().create(true).append(true).open(path).with_context(why)?;
        let text = std::fs::read_to_string(path).with_context(why)?;
        let (whole, rest) = text.split_at(text.rfind('\n').map_or(0, |end| end + 1));
        let is_cut = !rest.is_empty() && (rest.starts_with(BEGINNING) || BEGINNING.starts_with(rest));
        let is_whole = serde_json::from_str::<Outcome>(rest).is_ok();
        let outcomes = parse(path, if is_cut && !is_whole { whole } else { &text })?;
        if is_cut && !is_whole {
            file.set_len(whole.len() as u64).with_context(why)?;
        } else if is_whole {
            (&file).write_all(b"\n").with_context(why)?;
        }
        Ok(Self { path: path.to_owned(), file, outcomes })
    }

    /// The line of a case that was measured so, the last one where there are several.
    pub fn find(&self, case: &Case, setting: &Setting) -> Option<&Outcome> {
        self.outcomes.iter().rev().find(|own| own.case == *case && own.setting.is_like(setting))
    }

    /// Adds a line. It is in the file when this returns, so that a run that is stopped loses the case under way alone.
    pub fn add(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        let line = serde_json::to_string(outcome)? + "\n";
        self.file.write_all(line.as_bytes()).with_context(|| format!("writing {}", self.path.display()))
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::case::Direction;
    use super::super::class::Class;
    use super::super::figures::KernelFigures;
    use super::*;

    /// A setting of a GPU that copies 1000 GB a second.
    pub fn setting() -> Setting {
        let gpu_name = Some("a GPU".to_owned());
        let machine = Machine { device: "cuda".to_owned(), gpu_name, threads: None, copy_gb_per_s: 1000.0 };
        Setting { scale: 0.1, even: false, seed: 1, rounds: 3, tune: "fixed".to_owned(), machine }
    }

    /// A case that took so long and so many bytes, of which 1000 were the least.
    pub fn measured(case: Case, total_ms: f64, peak_bytes: usize) -> Outcome {
        let kernel = |class: Class, part: f64| KernelFigures {
            pass: "forward".to_owned(),
            kernel: format!("a kernel | {}", class.name()),
            class,
            schedule: "-".to_owned(),
            ms: part * total_ms,
            bytes: 1.0,
            flops: 1.0,
            gb_per_s: 500.0,
            tflop_per_s: 2.0,
            launches: Vec::new(),
        };
        let figures = Figures {
            node_types: 1,
            edge_types: 2,
            nodes: 3,
            edges: 4,
            total_ms,
            spread: 0.0,
            launches: 2,
            peak_bytes,
            graph_bytes: Some(500),
            least_bytes: 1000,
            moved_bytes: 1.0,
            flops: 1.0,
            moved_gb_per_s: 1.0,
            tflop_per_s: 1.0,
            compulsory_bytes: 1,
            compulsory_ms: 1.0,
            of_compulsory: 1.0,
            gather_bytes: 1,
            gather_ms: 1.0,
            of_gather: 1.0,
            out_mean: 1.0,
            same_kernels_as: None,
            kernels: vec![kernel(Class::Walks, 0.75), kernel(Class::Products, 0.25)],
        };
        Outcome { case, setting: setting(), found: Found::Measured(Box::new(figures)) }
    }

    /// A case that did not run.
    pub fn failed(case: Case, why: &str) -> Outcome {
        Outcome { case, setting: setting(), found: Found::Failed { failed: why.to_owned() } }
    }

    #[test]
    fn lines_are_read_as_they_were_written_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cases.jsonl");
        let one = Case::new("aifb", "hgt", None);
        let other = Case { direction: Direction::Training, ..one.clone() };
        let outcomes = [measured(one.clone(), 1.5, 2000), failed(other.clone(), "no memory")];
        let mut log = Log::open(&path).unwrap();
        assert_eq!(log.find(&one, &setting()), None);
        outcomes.iter().for_each(|outcome| log.add(outcome).unwrap());
        assert_eq!(read(&path).unwrap(), outcomes);
        let log = Log::open(&path).unwrap();
        assert_eq!(log.find(&one, &setting()), Some(&outcomes[0]));
        assert_eq!(log.find(&other, &setting()).unwrap().failure(), Some("no memory"));
        assert_eq!(log.find(&one, &Setting { rounds: 4, ..setting() }), None);
        let faster = Machine { copy_gb_per_s: 2000.0, ..setting().machine };
        assert!(log.find(&one, &Setting { machine: faster, ..setting() }).is_some());
        assert_eq!(log.find(&one, &Setting { tune: "measure".to_owned(), ..setting() }), None);
    }

    #[test]
    fn lines_of_before_kernels_had_schedules_are_read() {
        let outcome = measured(Case::new("aifb", "rgcn", None), 1.5, 2000);
        let line = serde_json::to_string(&outcome).unwrap();
        let before = line.replace("\"tune\":\"fixed\",", "").replace("\"schedule\":\"-\",", "");
        assert!(!before.contains("tune") && !before.contains("schedule"), "{before}");
        let read = &parse(Path::new("before.jsonl"), &before).unwrap()[0];
        assert_eq!((&read.setting, read.figures().unwrap().kernels.len()), (&outcome.setting, 2));
    }

    #[test]
    fn a_line_that_was_cut_off_goes_and_what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cases.jsonl");
        let outcome = measured(Case::new("aifb", "rgcn", None), 1.5, 2000);
        let line = serde_json::to_string(&outcome).unwrap();
        assert!(line.starts_with(BEGINNING), "{line}");
        for end in [5, line.len() / 2, line.len() - 1] {
            std::fs::write(&path, format!("{line}\n{}", &line[..end])).unwrap();
            let mut log = Log::open(&path).unwrap();
            log.add(&outcome).unwrap();
            assert_eq!(read(&path).unwrap(), [outcome.clone(), outcome.clone()], "{end}");
        }
        std::fs::write(&path, &line).unwrap();
        Log::open(&path).unwrap().add(&outcome).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2, "a line without an end is one");
        std::fs::write(&path, "notes of somebody").unwrap();
        let why = format!("{:#}", Log::open(&path).err().unwrap());
        assert!(why.contains("line 1 is no case of `bench layer`"), "{why}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes of somebody");
    }
}
