//! What was measured of a case, and what follows from it.

use headwater::compile::adjacency::Adjacency;
use headwater::compile::inter::Domain;
use headwater::compile::intra::{Kernel, KernelSchedule, headline};
use headwater::compile::pass::cost::Cost;
use serde::{Deserialize, Deserializer, Serialize};

use super::super::gather_gpu::median_and_spread;
use super::case::Case;
use super::class::Class;
use super::stack::{Floors, Stack};

/// What a run found.
pub struct Measured {
    /// Of each round, all layers together.
    pub ms: Vec<f64>,
    /// On a CPU, kernels.
    pub launches: usize,
    pub peak_bytes: usize,
    pub graph_bytes: Option<usize>,
    pub out_mean: f64,
    /// None on a CPU.
    pub kernels: Vec<KernelFigures>,
}

/// The device that ran a case, and its measured bandwidth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The kind of device: `cpu` or `cuda`.
    pub device: String,
    /// The GPU's name, where one ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_name: Option<String>,
    /// CPU threads, where they ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Of a copy in the memory that it ran in, read and written.
    pub copy_gb_per_s: f64,
}

/// What was found of a case that ran to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub node_types: usize,
    pub edge_types: usize,
    pub nodes: usize,
    /// As the layer sees them, with or without those of nodes to themselves.
    pub edges: usize,
    /// Median of all layers together.
    pub total_ms: f64,
    /// The range over the median.
    pub spread: f64,
    /// Launches of a GPU, or kernels of a CPU.
    pub launches: usize,
    /// Arrays and what is needed in between; of a GPU also the graph's lists.
    pub peak_bytes: usize,
    /// The graph's lists in GPU memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_bytes: Option<usize>,
    /// Inputs, outputs, weights and, in training, their gradients: what is held at the least.
    pub least_bytes: usize,
    /// By the compiler's estimate, as are operations.
    pub moved_bytes: f64,
    pub flops: f64,
    pub moved_gb_per_s: f64,
    pub tflop_per_s: f64,
    /// What every program has to move.
    pub compulsory_bytes: usize,
    pub compulsory_ms: f64,
    /// The part of that speed that was reached.
    pub of_compulsory: f64,
    /// A row and an index for every edge.
    pub gather_bytes: usize,
    pub gather_ms: f64,
    pub of_gather: f64,
    /// Mean distance of the results from zero. JSON has null for what is no number.
    #[serde(deserialize_with = "null_is_nan")]
    pub out_mean: f64,
    /// What was left out of the case that was measured in its place, because its kernels are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_kernels_as: Option<Vec<String>>,
    pub kernels: Vec<KernelFigures>,
}

impl Figures {
    pub fn new(case: &Case, machine: &Machine, stack: &Stack, graph: &Adjacency, mut found: Measured) -> Self {
        let (total_ms, spread) = median_and_spread(&mut found.ms);
        let Floors { compulsory_bytes, gather_bytes } = stack.floors(case, graph);
        let floor_ms = |bytes: usize| bytes as f64 / machine.copy_gb_per_s / 1e6;
        let (compulsory_ms, gather_ms) = (floor_ms(compulsory_bytes), floor_ms(gather_bytes));
        let cost = stack.cost();
        let moved_bytes = match &found.kernels[..] {
            [] => cost.bytes(),
            kernels => kernels.iter().map(|kernel| kernel.bytes).sum(),
        };
        Self {
            node_types: graph.rows(Domain::NodeType),
            edge_types: graph.rows(Domain::EdgeType),
            nodes: graph.rows(Domain::SRC),
            edges: graph.rows(Domain::Edge),
            total_ms,
            spread,
            launches: found.launches,
            peak_bytes: found.peak_bytes,
            graph_bytes: found.graph_bytes,
            least_bytes: stack.least_bytes(graph),
            moved_bytes,
            flops: cost.flops,
            moved_gb_per_s: moved_bytes / total_ms / 1e6,
            tflop_per_s: cost.flops / total_ms / 1e9,
            compulsory_bytes,
            compulsory_ms,
            of_compulsory: compulsory_ms / total_ms,
            gather_bytes,
            gather_ms,
            of_gather: gather_ms / total_ms,
            out_mean: found.out_mean,
            same_kernels_as: None,
            kernels: found.kernels,
        }
    }
}

fn null_is_nan<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// A kernel in all layers together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelFigures {
    /// `inference`, `forward` or `backward`.
    pub pass: String,
    /// As programs print it.
    pub kernel: String,
    /// What kind of work it is.
    pub class: Class,
    /// How it is run, where that could be different.
    #[serde(default)]
    pub schedule: String,
    /// Of all of its launches.
    pub ms: f64,
    /// By the compiler's estimate, as are operations.
    pub bytes: f64,
    pub flops: f64,
    pub gb_per_s: f64,
    pub tflop_per_s: f64,
    pub launches: Vec<LaunchFigures>,
}

/// A launch in all layers together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchFigures {
    pub what: String,
    pub ms: f64,
    pub by_cublas: bool,
    /// By the compiler's estimate, as are operations. It knows those of a kernel, and so none of one of several launches.
    pub bytes: Option<f64>,
    pub flops: Option<f64>,
    pub gb_per_s: Option<f64>,
    pub tflop_per_s: Option<f64>,
}

impl LaunchFigures {
    /// A launch that took so long.
    pub fn new(what: &str, ms: f64, by_cublas: bool) -> Self {
        let what = what.to_owned();
        Self { what, ms, by_cublas, bytes: None, flops: None, gb_per_s: None, tflop_per_s: None }
    }
}

impl KernelFigures {
    /// Of so many layers that cost this each.
    pub fn new(
        pass: &str,
        (kernel, schedule): (&Kernel, KernelSchedule),
        layers: usize,
        cost: &Cost,
        mut launches: Vec<LaunchFigures>,
    ) -> Self {
        // A sum of no floats is -0.
        let ms = launches.iter().fold(0.0, |ms, launch| ms + launch.ms);
        // Copies that both sides share a buffer for are no launches, and move nothing.
        let layers = if launches.is_empty() { 0.0 } else { layers as f64 };
        let (bytes, flops) = (layers * cost.bytes(), layers * cost.flops);
        let rate = |amount: f64| if ms > 0.0 { amount / ms } else { 0.0 };
        let (gb_per_s, tflop_per_s) = (rate(bytes) / 1e6, rate(flops) / 1e9);
        if let [launch] = &mut launches[..] {
            (launch.bytes, launch.flops) = (Some(bytes), Some(flops));
            (launch.gb_per_s, launch.tflop_per_s) = (Some(gb_per_s), Some(tflop_per_s));
        }
        let (pass, class, kernel) = (pass.to_owned(), Class::of(kernel), headline(kernel));
        Self { pass, kernel, class, schedule: schedule.to_string(), ms, bytes, flops, gb_per_s, tflop_per_s, launches }
    }
}

#[cfg(test)]
mod tests {
    use headwater::compile::inter::Path;
    use headwater::compile::intra::{Body, Traverse};

    use super::*;

    /// What is not launched takes no time and moves nothing; in JSON every figure is a number, so that lines are read again.
    #[test]
    fn a_kernel_that_is_not_launched_has_no_rate() {
        let kernel = Kernel::Traverse(Traverse { nest: vec![Domain::SRC], path: Path::Only, body: Body::default() });
        let cost = Cost { read_bytes: 8.0, flops: 2.0, ..Cost::default() };
        let none = KernelFigures::new("backward", (&kernel, KernelSchedule::Only), 2, &cost, Vec::new());
        assert!(
            (none.ms, none.bytes, none.gb_per_s, none.tflop_per_s) == (0.0, 0.0, 0.0, 0.0)
                && none.ms.is_sign_positive()
        );
        let launch = LaunchFigures::new("a launch", 0.5, false);
        let one = KernelFigures::new("backward", (&kernel, KernelSchedule::Only), 2, &cost, vec![launch]);
        assert!((one.bytes, one.gb_per_s) == (16.0, 16.0 / 0.5 / 1e6));
        for figures in [none, one] {
            let line = serde_json::to_string(&figures).unwrap();
            assert_eq!(serde_json::from_str::<KernelFigures>(&line).unwrap(), figures);
        }
    }
}
