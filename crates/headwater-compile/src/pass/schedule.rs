//! Which schedule every kernel gets: the one that a model of the GPU says is fastest, of those that are written for it.
//!
//! A walk is bound by memory's speed where enough rows are under way, else by its latency: a row's bounds, its members, what these gather
//! and the rows themselves are loads that wait for each other. How many rows are under way follows from the lanes that a row takes and from
//! the registers of an SM. Or it is bound by instructions, which every lane of a row has. Outer products are bound by memory's speed; every
//! share adds matrices that are written and read again.

use super::{Statistics, cost};
use crate::inter::Domain;
use crate::intra::{
    Kernel, KernelSchedule, Program, Step, StepOp, Traverse, beside, blocks_at_once, most_alone, rows_ahead, running,
};

/// A GPU, as far as schedules depend on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuConstants {
    /// How many streaming multiprocessors (SMs) it has.
    pub sms: f64,
    /// What copies reach, in bytes a second.
    pub bytes_per_second: f64,
    /// From a load that misses caches until its number is there, in seconds.
    pub latency_seconds: f64,
}

impl GpuConstants {
    /// What was measured of one H200; taken for a GPU where none is asked.
    pub const H200: Self = Self { sms: 132.0, bytes_per_second: 3.3e12, latency_seconds: 0.7e-6 };
}

/// Threads of a block that walks rows; as `cuda/nest.rs` has it.
const WALK_THREADS: f64 = 256.0;
/// Loads that wait for each other before gathered rows of a walk can be asked for, besides the row's bounds, each time that lanes look up as
/// many members as there are lanes.
const LOADS_BEFORE: f64 = 1.0;
/// Numbers of a row that one lane has all of; as `cuda/loops.rs` has it.
const MOST_IN_A_LANE: usize = 8;
/// Of the bytes that a walk moves, those that memory has to; the others are in caches.
const MISSED: f64 = 0.7;
/// Time that the instructions of a lane take for a gathered row and for an inner product, all SMs of an H200 at work: together with
/// `LOADS_BEFORE` and `MISSED` what comes nearest to the fastest schedules of 67 walks of RGCN, RGAT and HGT on five shapes, all of them priced as
/// those of more than `FEW_MEMBERS`.
const LANE_SECONDS: f64 = 6e-12;
const DOT_SECONDS: f64 = 3e-12;
const LANE_SMS: f64 = 132.0;
/// Members of a row in the mean, up to which what bounds a walk adds up as squares do: so the schedule that took least of five on an H200 is the
/// cheapest of am's and fb15k's pairs, with 1.7 and 1.4 edges.
const FEW_MEMBERS: f64 = 2.0;
/// How much of the longest row that a group may have alone comes on top of what rows take.
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
            let walk = Walk::new(traverse, lanes, ahead);
            let (most_rows, longest) = walk.waits(statistics, machine);
            let all = [MISSED * moved, most_rows, walk.computes(statistics, machine)];
            let (long, (outer, inner)) = (LIKELY_LONG * longest, walk.rows(statistics));
            let together = |power: i32, all: &[f64]| {
                all.iter().map(|seconds| seconds.powi(power)).sum::<f64>().powf(1.0 / f64::from(power))
            };
            // They overlap, but not quite: of rows with a member or two little is under way while they wait. The longest row begins first, but
            // not all groups have one.
            if inner <= FEW_MEMBERS * outer {
                together(2, &[together(2, &all), long])
            } else {
                together(8, &all) + long
            }
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

/// A walk with a schedule.
struct Walk<'a> {
    traverse: &'a Traverse,
    lanes: usize,
    /// Gathered rows under way at once.
    ahead: usize,
    /// Vectors across lanes that are gathered for each innermost row, and inner products of such.
    gathers: usize,
    dots: usize,
    /// Thread blocks of an SM.
    at_once: usize,
}

impl<'a> Walk<'a> {
    fn new(traverse: &'a Traverse, lanes: usize, ahead: usize) -> Self {
        let (steps, innermost) = (&traverse.body.steps, traverse.nest.len() - 1);
        let widest = steps.iter().map(|step| step.shape.len()).max().unwrap_or(1);
        let slots = |step: &Step| step.shape.len().div_ceil(lanes * beside(widest)) * beside(widest);
        let is_inner = |step: &&Step| step.level == innermost;
        let is_wide = |step: &&Step| step.shape.len() > MOST_IN_A_LANE;
        let loads = || steps.iter().filter(is_wide).filter(|step| matches!(step.op, StepOp::Load(_)));
        let under_way: usize = loads().filter(is_inner).map(slots).sum();
        let sums = steps.iter().filter(is_wide).filter(|step| matches!(step.op, StepOp::Reduce(..)));
        let kept: usize = loads().chain(sums).filter(|step| !is_inner(step)).map(slots).sum();
        let is_dot = |step: &&Step| match step.op {
            StepOp::Dot(x, _) | StepOp::SumWidth(x) => steps[x.at()].shape.len() > MOST_IN_A_LANE,
            _ => false,
        };
        let ahead = rows_ahead(under_way, ahead);
        Self {
            traverse,
            lanes,
            ahead,
            gathers: loads().filter(is_inner).count(),
            dots: steps.iter().filter(is_inner).filter(is_dot).count(),
            at_once: blocks_at_once(walks(traverse), under_way * ahead + kept),
        }
    }

    /// Outermost and innermost rows.
    fn rows(&self, statistics: &Statistics) -> (f64, f64) {
        let rows = |of: Domain| statistics.rows(of).max(1.0);
        (rows(self.traverse.nest[0]), rows(self.innermost()))
    }

    fn innermost(&self) -> Domain {
        self.traverse.nest[self.traverse.nest.len() - 1]
    }

    /// How long it waits for loads: all rows together, and the longest that a group of lanes has alone.
    fn waits(&self, statistics: &Statistics, machine: &GpuConstants) -> (f64, f64) {
        let (outer, inner) = self.rows(statistics);
        let (lanes, ahead) = (self.lanes as f64, self.ahead as f64);
        let groups = machine.sms * self.at_once as f64 * WALK_THREADS / lanes;
        let seconds = |each: f64| {
            // One at a time, members are as many times as there are, whatever rows have.
            let times = if self.ahead == 1 { each } else { (each / ahead).ceil() };
            let gathers = if self.gathers > 0 { times } else { 0.0 };
            let loads = 1.0 + LOADS_BEFORE * (each / lanes).ceil() + gathers;
            walks(self.traverse) as f64 * loads * machine.latency_seconds
        };
        // Rows that find room all at once take as long as one of them.
        ((outer / groups).max(1.0) * seconds(inner / outer), seconds(most_alone(self.innermost(), outer, inner)))
    }

    /// How long its instructions take, which every lane of a group has for every row.
    fn computes(&self, statistics: &Statistics, machine: &GpuConstants) -> f64 {
        let each = LANE_SECONDS * self.gathers as f64 + DOT_SECONDS * self.dots as f64;
        let lanes = walks(self.traverse) as f64 * self.rows(statistics).1 * self.lanes as f64;
        lanes * each * LANE_SMS / machine.sms
    }
}

/// How often a nest goes over its innermost rows: once more for every sum over them that they wait for, but for a largest number that is found on
/// the way.
fn walks(traverse: &Traverse) -> usize {
    let steps = &traverse.body.steps;
    if running(&traverse.body).is_some() {
        return 1;
    }
    let is_waited_for = |step: &Step| match step.op {
        StepOp::Softmax { .. } => true,
        StepOp::Spread(x) => matches!(steps[x.at()].op, StepOp::Reduce(..)),
        _ => false,
    };
    1 + steps.iter().filter(|step| is_waited_for(step)).count().min(1)
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

    /// Pairs of sources in graphs of am's and fb15k's shape, which took 653 and 51 us on an H200 with four lanes and one row, 710 to 883 and 57
    /// to 80 otherwise.
    #[test]
    fn rows_of_an_edge_or_two_have_one_under_way() {
        for [nodes, edge_types, edges, pairs] in
            [[881_680.0, 108.0, 5_668_682.0, 3_283_980.0], [14_541.0, 474.0, 620_232.0, 442_742.0]]
        {
            let statistics = Statistics {
                node_types: 1.0,
                edge_types,
                sources: nodes,
                destinations: nodes,
                source_pairs: pairs,
                destination_pairs: 1.1 * pairs,
                edges,
                source_runs: pairs / 50.0,
                destination_runs: pairs / 50.0,
                filled: 1.0,
            };
            let program = layer("rgcn", &[("d_in", 64), ("d_out", 64)], &[]);
            let kernels = compile(&program, &statistics, Optimisations::GPU).unwrap().backward;
            let pairs = [Domain::Pair(Side::Src), Domain::Edge];
            let walk = kernels.kernels.iter().position(|kernel| kernel.nest() == pairs).unwrap();
            assert_eq!(kernels.schedules[walk], KernelSchedule::Walk { lanes: 4, ahead: 1 });
        }
    }

    /// Many rows of an edge or two want as many of them under way as there can be, few rows want each to be over soon. A GPU whose loads take no
    /// time wants few instructions in any case.
    #[test]
    fn many_rows_take_fewer_lanes_than_few() {
        let graphs = [(8e6, 1e7), (1e5, 1e7), (800.0, 1000.0)];
        assert_eq!(graphs.map(|(pairs, edges)| lanes(pairs, edges, &GpuConstants::H200)), [4, 8, 16]);
        let at_once = GpuConstants { latency_seconds: 0.0, ..GpuConstants::H200 };
        assert_eq!(graphs.map(|(pairs, edges)| lanes(pairs, edges, &at_once)), [4, 4, 4]);
    }
}
