//! Which schedule every kernel gets: the one that a model of the GPU says is fastest, of those that are written for it.
//!
//! A walk is bound by memory's speed where enough rows are under way, else by its latency: a row's bounds, its members, what these gather
//! and the rows themselves are loads that wait for each other. How many rows are under way follows from the lanes that a row takes and from
//! the registers of an SM. Outer products are bound by memory's speed; every share adds matrices that are written and read again.

use super::{Statistics, cost};
use crate::inter::Domain;
use crate::intra::{Kernel, KernelSchedule, Program, Step, StepOp, Traverse, most_alone};

/// A GPU, as far as schedules depend on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuConstants {
    /// How many streaming multiprocessors (SMs) it has.
    pub sms: f64,
    /// What copies reach, in bytes a second.
    pub bytes_per_second: f64,
    /// From a load that misses caches until its number is there, in seconds.
    pub latency_seconds: f64,
    /// Registers of an SM.
    pub registers: f64,
    /// Threads that an SM has at most.
    pub threads: f64,
}

impl GpuConstants {
    /// What was measured of one H200; taken for a GPU where none is asked.
    pub const H200: Self =
        Self { sms: 132.0, bytes_per_second: 3.3e12, latency_seconds: 0.7e-6, registers: 65536.0, threads: 2048.0 };
}

/// Registers of a thread of a walk besides vectors.
const OTHER_REGISTERS: f64 = 40.0;
/// Loads that wait for each other before gathered rows of a walk can be asked for, besides the row's bounds: members, and what they read.
const LOADS_BEFORE: f64 = 2.0;
/// Numbers of gathered rows that a lane has under way at most; as `cuda/nest.rs` has it.
const MOST_HELD: f64 = 32.0;
/// Numbers of a row that one lane has all of; as `cuda/loops.rs` has it.
const MOST_IN_A_LANE: f64 = 8.0;
/// How much of the longest row that a group has alone comes on top of what rows take: it begins first, but not all groups have one.
const LIKELY_LONG: f64 = 0.5;
/// How much faster another schedule must be for the usual one to be left.
const WORTH: f64 = 0.95;

/// The schedule of every kernel of a program over such rows.
#[must_use]
pub fn choose(program: &Program, statistics: &Statistics, machine: &GpuConstants) -> Vec<KernelSchedule> {
    let costs = cost::kernels(program, statistics);
    let one = |(kernel, cost): (&Kernel, &cost::Cost)| {
        let time = |schedule: KernelSchedule| seconds(program, kernel, cost, schedule, statistics, machine);
        let mut all = KernelSchedule::all(kernel).into_iter();
        let usual = all.next().unwrap_or(KernelSchedule::Only);
        all.fold((usual, WORTH * time(usual)), |best, other| {
            let own = time(other);
            if own < best.1 { (other, own) } else { best }
        })
        .0
    };
    program.kernels.iter().zip(&costs).map(one).collect()
}

/// How long a kernel takes by the model.
fn seconds(
    program: &Program,
    kernel: &Kernel,
    cost: &cost::Cost,
    schedule: KernelSchedule,
    statistics: &Statistics,
    machine: &GpuConstants,
) -> f64 {
    let moved = cost.bytes() / machine.bytes_per_second;
    match (kernel, schedule) {
        (Kernel::Traverse(traverse), KernelSchedule::Walk { lanes, ahead }) => {
            moved.max(waiting(traverse, lanes as f64, ahead as f64, statistics, machine))
        }
        (Kernel::Outer(outer), KernelSchedule::Outer { chunks }) => {
            let (chunks, matrix) = (chunks as f64, 4.0 * program[outer.to].shape.len() as f64);
            // Shares take as long as each other, so many of them at a time, and each has a type more.
            let at_once = 2.0 * machine.sms;
            let busy = chunks / at_once / (chunks / at_once).ceil();
            let sums = chunks + statistics.rows(program[outer.to].domain);
            moved / busy + 2.0 * sums * matrix / machine.bytes_per_second
        }
        (Kernel::GemmSum(sum), KernelSchedule::Sums { nodes }) => {
            cost::sum_bytes(program, sum, statistics, (nodes, 2.0 * machine.sms)) / machine.bytes_per_second
        }
        _ => moved,
    }
}

/// How long a walk waits for loads, all rows together.
fn waiting(traverse: &Traverse, lanes: f64, ahead: f64, statistics: &Statistics, machine: &GpuConstants) -> f64 {
    let rows = |of: Domain| statistics.rows(of).max(1.0);
    let innermost = traverse.nest[traverse.nest.len() - 1];
    let (outer, inner) = (rows(traverse.nest[0]), rows(innermost));
    let widest = traverse.body.steps.iter().map(|step| step.shape.len()).max().unwrap_or(1) as f64;
    let held = (widest / lanes).ceil();
    let ahead = ahead.min((MOST_HELD / held).floor()).max(1.0);
    let registers = OTHER_REGISTERS + held * (ahead + 2.0);
    let groups = machine.sms * machine.threads.min(machine.registers / registers) / lanes;
    // Lanes look up as many inner rows at a time as there are lanes.
    let seconds = |each: f64| {
        let gathers = if widest > MOST_IN_A_LANE { (each / ahead).ceil() } else { 0.0 };
        let loads = 1.0 + LOADS_BEFORE * (each / lanes).ceil() + gathers;
        walks(traverse) * loads * machine.latency_seconds
    };
    // Rows that find room all at once take as long as one of them. Some are longer, up to what a group has alone.
    (outer / groups).max(1.0) * seconds(inner / outer) + LIKELY_LONG * seconds(most_alone(innermost, outer, inner))
}

/// How often a nest goes over its innermost rows: once more for every sum over them that they wait for.
fn walks(traverse: &Traverse) -> f64 {
    let steps = &traverse.body.steps;
    let is_waited_for = |step: &Step| match step.op {
        StepOp::Softmax { .. } => true,
        StepOp::Spread(x) => matches!(steps[x.at()].op, StepOp::Reduce(..)),
        _ => false,
    };
    1.0 + steps.iter().filter(|step| is_waited_for(step)).count().min(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inter::Side;
    use crate::pass::{Optimisations, compile};
    use crate::testing::layer;

    /// Lanes of the walk of a layer's forward pass over so many pairs with so many edges.
    fn lanes(pairs: f64, edges: f64, machine: &GpuConstants) -> usize {
        let statistics = Statistics {
            node_types: 4.0,
            edge_types: 10.0,
            sources: 1e6,
            destinations: 1e6,
            source_pairs: pairs,
            destination_pairs: pairs,
            edges,
            source_runs: pairs,
            destination_runs: pairs,
            filled: 1.0,
        };
        let program = layer("rgcn", &[("d_in", 64), ("d_out", 64)], &[]);
        let kernels = compile(&program, &statistics, Optimisations::GPU).unwrap().forward;
        let pairs = [Domain::Pair(Side::Dst), Domain::Edge];
        let walk = kernels.kernels.iter().position(|kernel| kernel.nest() == pairs).unwrap();
        match choose(&kernels, &statistics, machine)[walk] {
            KernelSchedule::Walk { lanes, .. } => lanes,
            other => panic!("{other}"),
        }
    }

    /// Rows of an edge or two want more of them under way than long ones, where loads take their time.
    #[test]
    fn short_rows_take_fewer_lanes() {
        let at_once = GpuConstants { latency_seconds: 0.0, ..GpuConstants::H200 };
        assert!(lanes(8e6, 1e7, &GpuConstants::H200) < lanes(8e6, 1e7, &at_once));
        assert_eq!(lanes(1e5, 1e7, &GpuConstants::H200), lanes(1e5, 1e7, &at_once));
        // A GPU that has room for all rows at once gains nothing by more of them.
        assert_eq!(lanes(800.0, 1000.0, &GpuConstants::H200), lanes(800.0, 1000.0, &at_once));
    }
}
