//! Schedules for the GPU at hand: by a model whose constants are measured there, or by the times of the kernels themselves.
//!
//! Kernels are timed over memory that is filled with one number, on the caller's graph: all of a program at once with the first schedule of
//! each, then with the second, and so on, so that a short list costs as many runs as it is long and not one for every choice. What was found is
//! kept on disk, under a name that the kernels, the rows of the graph and the GPU tell from all others.

use std::fmt;
use std::str::FromStr;

use headwater_cuda::{Allocation, Bandwidths, Gpu, Span, Stream, cache};

use super::Precision;
use super::cuda::{DeviceRows, Executor};
use super::graph::DeviceGraph;
use super::text::{HEADERS, emit};
use crate::adjacency::Adjacency;
use crate::error::{Error, Result};
use crate::inter::Domain;
use crate::intra::{Buffer, Kernel, KernelSchedule, Program, Role, SUM_NODES};
use crate::pass::{GpuConstants, Statistics, choose};

/// How schedules are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Tuning {
    /// By a model with the constants of an H200: the same on every machine.
    #[default]
    Fixed,
    /// By the model with constants that are measured on the GPU.
    Model,
    /// By the times of the kernels on the graph.
    Measure,
    /// By hand, where a kernel may have such a schedule; else as [`Self::Fixed`].
    Given(Chosen),
}

/// Parts of schedules that somebody chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Chosen {
    lanes: Option<usize>,
    ahead: Option<usize>,
    chunks: Option<usize>,
    nodes: Option<usize>,
}

/// Names of what is chosen without a hand.
const NAMED: [(&str, Tuning); 3] = [("fixed", Tuning::Fixed), ("model", Tuning::Model), ("measure", Tuning::Measure)];
/// The most chunks that rows of outer products may be cut into.
const MOST_CHUNKS: usize = 1 << 16;

impl FromStr for Tuning {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: String| Error::Argument { name: "tune".to_owned(), why };
        if let Some((_, found)) = NAMED.into_iter().find(|(name, _)| *name == text) {
            return Ok(found);
        }
        let mut chosen = Chosen::default();
        let mut names = Vec::new();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                let names = NAMED.map(|(name, _)| name).join(", ");
                wrong(format!(
                    "it is {text:?}; expected {names}, or parts of schedules such as lanes=8,ahead=4,chunks=528"
                ))
            })?;
            let number =
                value.parse::<usize>().map_err(|_| wrong(format!("{name} is {value:?}; expected a number")))?;
            let power = |least: usize, most: usize| match (least..=most).contains(&number) && number.is_power_of_two() {
                true => Ok(Some(number)),
                false => Err(wrong(format!("{name} is {number}; expected a power of two from {least} to {most}"))),
            };
            if names.contains(&name) {
                return Err(wrong(format!("{name} is given twice in {text:?}; expected each part once")));
            }
            names.push(name);
            match name {
                "lanes" => chosen.lanes = power(KernelSchedule::LEAST_LANES, KernelSchedule::MOST_LANES)?,
                "ahead" => chosen.ahead = power(1, 2 * KernelSchedule::AHEAD)?,
                "chunks" if (1..=MOST_CHUNKS).contains(&number) => chosen.chunks = Some(number),
                "chunks" => return Err(wrong(format!("chunks is {number}; expected 1 to {MOST_CHUNKS}"))),
                "nodes" if SUM_NODES.contains(&number) => chosen.nodes = Some(number),
                "nodes" => return Err(wrong(format!("nodes is {number}; expected one of {SUM_NODES:?}"))),
                _ => return Err(wrong(format!("no schedule has {name:?}; there are lanes, ahead, chunks and nodes"))),
            }
        }
        Ok(Self::Given(chosen))
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Given(Chosen { lanes, ahead, chunks, nodes }) = self {
            let parts = [("lanes", lanes), ("ahead", ahead), ("chunks", chunks), ("nodes", nodes)];
            let parts = parts.into_iter().filter_map(|(name, part)| part.map(|part| format!("{name}={part}")));
            return f.write_str(&parts.collect::<Vec<_>>().join(","));
        }
        f.write_str(NAMED.into_iter().find(|(_, own)| own == self).map_or("", |(name, _)| name))
    }
}

impl Chosen {
    /// A kernel's schedule with these parts, as far as it may have them.
    fn of(self, kernel: &Kernel, own: KernelSchedule) -> KernelSchedule {
        match own {
            KernelSchedule::Walk { lanes, ahead } => {
                let may = |lanes: &usize| {
                    let is_it = |other: &KernelSchedule| matches!(other, KernelSchedule::Walk { lanes: own, .. } if own == lanes);
                    KernelSchedule::all(kernel).iter().any(is_it)
                };
                let lanes = self.lanes.filter(may).unwrap_or(lanes);
                KernelSchedule::Walk { lanes, ahead: self.ahead.unwrap_or(ahead) }
            }
            KernelSchedule::Outer { chunks } => KernelSchedule::Outer { chunks: self.chunks.unwrap_or(chunks) },
            KernelSchedule::Sums { nodes } => KernelSchedule::Sums { nodes: self.nodes.unwrap_or(nodes) },
            KernelSchedule::Only => KernelSchedule::Only,
        }
    }
}

/// Runs that a kernel's time is the least of.
const ROUNDS: usize = 3;
/// How much faster a kernel must be for the model's schedule to be left.
const WORTH: f64 = 0.97;
/// A byte of the number that memory is filled with: 0.0115, four times this.
const FILLING: u8 = 0x3c;
/// The format of what is kept.
const VERSION: &str = "schedules 2";

impl GpuConstants {
    /// A GPU, measured.
    pub fn of(gpu: &Gpu) -> Result<Self> {
        let (facts, rates) = (gpu.facts(), Bandwidths::of(gpu)?);
        Ok(Self {
            sms: f64::from(facts.sms),
            bytes_per_second: 1e9 * rates.device_gb_per_s,
            latency_seconds: 1e-9 * rates.device_latency_ns,
        })
    }
}

/// A program with schedules for which no GPU is asked: its own, or those that were given.
#[must_use]
pub fn chosen(program: Program, tuning: Tuning) -> Program {
    let Tuning::Given(chosen) = tuning else { return program };
    let one = |(at, kernel): (usize, &Kernel)| chosen.of(kernel, program.schedule(at));
    let schedules = program.kernels.iter().enumerate().map(one).collect();
    Program { schedules, ..program }
}

/// A program with the schedules that the model chooses with a GPU's own constants, for graphs of such rows.
pub fn modelled(program: Program, gpu: &Gpu, statistics: &Statistics) -> Result<Program> {
    let schedules = choose(&program, statistics, &GpuConstants::of(gpu)?);
    Ok(Program { schedules, ..program })
}

/// A program with schedules for a GPU and a graph.
pub fn tuned(program: Program, tuning: Tuning, gpu: &Gpu, graph: &Adjacency, precision: Precision) -> Result<Program> {
    if matches!(tuning, Tuning::Fixed | Tuning::Given(_)) {
        return Ok(chosen(program, tuning));
    }
    let program = modelled(program, gpu, &Statistics::of(graph))?;
    if tuning == Tuning::Model {
        return Ok(program);
    }
    let key = key(&program, gpu, graph, precision);
    if let Some(schedules) = cache::read(&key).and_then(|found| read(&program, &found)) {
        return Ok(Program { schedules, ..program });
    }
    match measure(&program, gpu, graph, precision) {
        Ok(schedules) => {
            cache::write(&key, write(&schedules).as_bytes());
            Ok(Program { schedules, ..program })
        }
        Err(Error::Cuda(why)) if why.is_out_of_memory() => {
            log::warn!("{}: no memory to time kernels in; schedules are the model's", program.name);
            Ok(program)
        }
        Err(why) => Err(why),
    }
}

/// The schedules that make kernels fastest, each timed beside the program's own.
fn measure(program: &Program, gpu: &Gpu, graph: &Adjacency, precision: Precision) -> Result<Vec<KernelSchedule>> {
    let own = |at: usize| program.schedule(at);
    let lists: Vec<Vec<KernelSchedule>> = (0..program.kernels.len())
        .map(|at| {
            let others = KernelSchedule::all(&program.kernels[at]).into_iter().filter(|other| *other != own(at));
            std::iter::once(own(at)).chain(others).collect()
        })
        .collect();
    let most = lists.iter().map(Vec::len).max().unwrap_or(0);
    let mut best: Vec<(KernelSchedule, f64)> = lists.iter().map(|list| (list[0], f64::INFINITY)).collect();
    for turn in 0..most {
        let schedules = lists.iter().map(|list| *list.get(turn).unwrap_or(&list[0])).collect();
        let program = Program { schedules, ..program.clone() };
        let seconds = times(&program, gpu, graph, precision)?;
        for (at, list) in lists.iter().enumerate() {
            let worth = if turn == 0 { 1.0 } else { WORTH };
            if let Some(schedule) = list.get(turn).filter(|_| seconds[at] < worth * best[at].1) {
                best[at] = (*schedule, seconds[at]);
            }
        }
    }
    Ok(best.into_iter().map(|(schedule, _)| schedule).collect())
}

/// The least time of every kernel of a program, in milliseconds.
fn times(program: &Program, gpu: &Gpu, graph: &Adjacency, precision: Precision) -> Result<Vec<f64>> {
    let stream = Stream::new(gpu)?;
    let executor = Executor::with_precision(program, precision);
    let graph = DeviceGraph::of(&stream, graph, &[&executor.emitted().table])?;
    let room = |bytes: usize| -> Result<Span> { Ok(Span::whole(Allocation::on_stream(&stream, bytes.max(16))?)) };
    let give = |buffer: &Buffer| {
        let span = room(4 * graph.room(buffer.domain) * buffer.shape.len())?;
        if buffer.role != Role::Output {
            stream.fill(&span, FILLING)?;
        }
        Ok(Some(DeviceRows::from(span)))
    };
    let bound = executor.bind(&stream, &graph, &room(executor.temporary_bytes(&graph))?, &give)?;
    let step = room(8)?;
    stream.fill(&step, 0)?;
    executor.queue(&stream, &bound, &step)?;
    stream.synchronize()?;
    stream.trace_launches();
    let mut least = vec![f64::INFINITY; program.kernels.len()];
    for _ in 0..ROUNDS {
        executor.queue(&stream, &bound, &step)?;
        stream.synchronize()?;
        let mut own = vec![0.0; program.kernels.len()];
        for (launch, traced) in bound.launched().zip(stream.take_traced()?) {
            own[executor.emitted().launches[launch].kernel] += f64::from(traced.end.ms_since(&traced.begin)?);
        }
        least.iter_mut().zip(own).for_each(|(least, own)| *least = least.min(own));
    }
    Ok(least)
}

/// What tells measurements from all others: kernels, rows, and the GPU.
fn key(program: &Program, gpu: &Gpu, graph: &Adjacency, precision: Precision) -> cache::Key {
    let rows: Vec<String> = Domain::ALL.iter().map(|domain| graph.rows(*domain).to_string()).collect();
    let facts = gpu.facts();
    let machine = format!("{} {}", facts.name, facts.sms);
    // The texts of the kernels as they are written now, with their usual schedules: times of others say nothing of them.
    let written = emit(&Program { schedules: Vec::new(), ..program.clone() }, precision).text();
    let texts = HEADERS.iter().map(|(_, text)| *text);
    cache::Key::of([VERSION, &written, &rows.join(" "), &machine].into_iter().chain(texts))
}

fn write(schedules: &[KernelSchedule]) -> String {
    schedules.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// What was kept, if each is one that its kernel may have.
fn read(program: &Program, found: &[u8]) -> Option<Vec<KernelSchedule>> {
    let text = std::str::from_utf8(found).ok()?;
    let lines: Vec<&str> = text.split('\n').collect();
    let one = |(kernel, line): (&Kernel, &&str)| {
        KernelSchedule::all(kernel).into_iter().find(|schedule| schedule.to_string() == **line)
    };
    let all: Option<Vec<KernelSchedule>> = program.kernels.iter().zip(&lines).map(one).collect();
    all.filter(|all| all.len() == lines.len() && all.len() == program.kernels.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{Optimisations, compile};
    use crate::testing::{Recipe, layer};

    fn program() -> Program {
        let graph = Recipe::plain(30).graph(2);
        let program = layer("gat", &[("d_in", 64), ("d_out", 64), ("heads", 1)], &[]);
        compile(&program, &Statistics::of(&graph), Optimisations::GPU).unwrap().backward
    }

    #[test]
    fn ways_to_tune_are_read_as_they_are_written() {
        for text in ["fixed", "model", "measure", "lanes=8", "ahead=2,chunks=7", "lanes=32,ahead=1,chunks=65536"] {
            assert_eq!(text.parse::<Tuning>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "fast",
            "lanes",
            "lanes=",
            "lanes=5",
            "lanes=64",
            "lanes=2",
            "ahead=16",
            "chunks=0",
            "rows=4",
            "lanes=8,lanes=4",
        ] {
            assert!(wrong.parse::<Tuning>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_chosen_is_there_where_kernels_may_have_it() {
        let program = program();
        let found = chosen(program.clone(), "lanes=8,chunks=7".parse().unwrap());
        let all: Vec<KernelSchedule> = (0..found.kernels.len()).map(|at| found.schedule(at)).collect();
        assert!(all.iter().any(|own| matches!(own, KernelSchedule::Walk { lanes: 8, .. })), "{all:?}");
        assert!(all.iter().all(|own| !matches!(own, KernelSchedule::Outer { chunks } if *chunks != 7)), "{all:?}");
        assert_eq!(chosen(program.clone(), Tuning::Fixed), program);
        // 64 numbers across 32 lanes would leave half of them idle.
        let wide = chosen(program.clone(), "lanes=32".parse().unwrap());
        let is_wide = |at: usize| matches!(wide.schedule(at), KernelSchedule::Walk { lanes: 32, .. });
        let widest = |at: usize| match &program.kernels[at] {
            Kernel::Traverse(own) => own.body.steps.iter().map(|step| step.shape.len()).max(),
            _ => None,
        };
        assert!((0..program.kernels.len()).all(|at| !is_wide(at) || widest(at) <= Some(8)));
    }

    /// What is kept is taken only as a whole, and where every kernel may have it.
    #[test]
    fn damaged_schedules_are_not_taken() {
        let program = program();
        let all: Vec<KernelSchedule> =
            program.kernels.iter().map(|kernel| *KernelSchedule::all(kernel).last().unwrap()).collect();
        let text = write(&all);
        assert_eq!(read(&program, text.as_bytes()), Some(all));
        let other = text.replace("lanes=", "lanes=3");
        for damaged in ["", "\n", &text[1..], &other, &format!("{text}\n-"), text.rsplit_once('\n').unwrap().0] {
            assert_eq!(read(&program, damaged.as_bytes()), None, "{damaged}");
        }
        assert_eq!(read(&program, &[0xff, 0xfe]), None);
    }
}
