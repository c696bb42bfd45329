//! A stack of layers, compiled: its programs, what they should move, and what they have to move at least.

use headwater::compile::adjacency::Adjacency;
use headwater::compile::inter::Domain;
use headwater::compile::intra::{Buffer, Program, Role};
use headwater::compile::pass::cost::{self, Cost};
use headwater::compile::pass::{Optimisations, Statistics, compile, inference};

use super::case::{Case, Direction};

/// Bytes of a number, and of the index of a row.
const NUMBER_BYTES: usize = 4;

/// One direction of a layer.
pub struct Pass {
    /// `inference`, `forward` or `backward`.
    pub name: &'static str,
    pub program: Program,
    /// Of every kernel of one layer, by the estimate.
    pub costs: Vec<Cost>,
}

/// Layers of one kind, one after the other.
pub struct Stack {
    /// From rows to outputs.
    pub forward: Pass,
    /// From gradients of outputs to those of rows and weights.
    pub backward: Option<Pass>,
    pub layers: usize,
}

/// Bytes below which no program gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floors {
    /// What every layer reads, writes and is asked for, and its edges, once each.
    pub compulsory_bytes: usize,
    /// A row and an index for every edge.
    pub gather_bytes: usize,
}

impl Stack {
    /// Compiles a case for a graph.
    pub fn of(
        case: &Case,
        program: &headwater::compile::inter::Program,
        graph: &Adjacency,
        on: Optimisations,
    ) -> anyhow::Result<Self> {
        let statistics = Statistics::of(graph);
        let pass = |name, program: Program| Pass { name, costs: cost::kernels(&program, &statistics), program };
        let (forward, backward) = match case.direction {
            Direction::Inference => (pass("inference", inference(program, &statistics, on)?), None),
            Direction::Training => {
                let compiled = compile(program, &statistics, on)?;
                (pass("forward", compiled.forward), Some(pass("backward", compiled.backward)))
            }
        };
        Ok(Self { forward, backward, layers: case.layers })
    }

    /// Its directions.
    pub fn passes(&self) -> impl Iterator<Item = &Pass> {
        [Some(&self.forward), self.backward.as_ref()].into_iter().flatten()
    }

    /// The same, to be changed.
    pub fn passes_mut(&mut self) -> impl Iterator<Item = &mut Pass> {
        [Some(&mut self.forward), self.backward.as_mut()].into_iter().flatten()
    }

    /// What all layers cost, by the estimate.
    pub fn cost(&self) -> Cost {
        let layers = std::iter::repeat_n(self, self.layers);
        layers.flat_map(Self::passes).flat_map(|pass| pass.costs.iter().copied()).sum()
    }

    /// What all layers have to move.
    pub fn floors(&self, case: &Case, graph: &Adjacency) -> Floors {
        let edges = graph.rows(Domain::Edge);
        let (mut compulsory_bytes, mut gather_bytes) = (0, 0);
        for pass in self.passes() {
            let is_backward = pass.name == "backward";
            let is_counted = |buffer: &&Buffer| match buffer.role {
                // What the forward pass read or left is there already.
                Role::Input | Role::Parameter => !is_backward || buffer.name == "d.out",
                Role::Output => is_backward || buffer.name == "out",
                Role::Temporary => false,
            };
            compulsory_bytes += bytes(pass.program.buffers.iter().filter(is_counted), graph) + NUMBER_BYTES * edges;
            gather_bytes += edges * NUMBER_BYTES * (case.width + 1);
        }
        Floors { compulsory_bytes: self.layers * compulsory_bytes, gather_bytes: self.layers * gather_bytes }
    }

    /// Bytes of what the caller gives and gets, each once: inputs, outputs, weights and, in training, their gradients. Rows
    /// between two layers are the output of one and the input of the other.
    pub fn least_bytes(&self, graph: &Adjacency) -> usize {
        let of = |pass: &Pass, is_counted: &dyn Fn(&Buffer) -> bool| {
            bytes(pass.program.buffers.iter().filter(|buffer| is_counted(buffer)), graph)
        };
        let inputs = of(&self.forward, &|buffer| buffer.role == Role::Input);
        let is_own =
            |buffer: &Buffer| buffer.role == Role::Parameter || buffer.role == Role::Output && buffer.name == "out";
        let own = of(&self.forward, &is_own);
        let given = self.backward.as_ref().map_or(0, |pass| of(pass, &|buffer| buffer.name == "d.out"));
        let gradients = self.backward.as_ref().map_or(0, |pass| of(pass, &|buffer| buffer.role == Role::Output));
        inputs + given + self.layers * (own + gradients)
    }

    /// Whether the same kernels run as often.
    pub fn is_same(&self, other: &Self) -> bool {
        let (own, others) = (self.passes().map(|pass| &pass.program), other.passes().map(|pass| &pass.program));
        self.layers == other.layers && own.eq(others)
    }

    /// The most bytes that all arrays can take together.
    pub fn most_bytes(&self, graph: &Adjacency) -> usize {
        let all = self.passes().map(|pass| bytes(pass.program.buffers.iter(), graph));
        self.layers * all.sum::<usize>()
    }
}

fn bytes<'a>(buffers: impl Iterator<Item = &'a Buffer>, graph: &Adjacency) -> usize {
    buffers.map(|buffer| NUMBER_BYTES * graph.rows(buffer.domain) * buffer.shape.len()).sum()
}

#[cfg(test)]
mod tests {
    use headwater::compile::adjacency::RelationEdges;

    use super::*;

    /// Three nodes and five edges.
    fn small() -> Adjacency {
        let lists = RelationEdges { src_type: 0, dst_type: 0, offsets: &[0, 2, 4, 5], sources: &[1, 2, 0, 2, 1] };
        Adjacency::new(&[3], &[3], &[lists]).unwrap()
    }

    fn stack(direction: Direction, layers: usize, graph: &Adjacency) -> Stack {
        let case = Case { direction, width: 4, layers, ..Case::new("hub", "sage", None) };
        Stack::of(&case, &case.layer().unwrap().program, graph, Optimisations::CPU).unwrap()
    }

    #[test]
    fn what_is_held_at_the_least_is_what_goes_in_and_comes_out() {
        let graph = small();
        let (rows, weights) = (3 * 4 * 4, 4 * (4 * 4 + 4 * 4 + 4));
        let least = |direction: Direction, layers: usize| stack(direction, layers, &graph).least_bytes(&graph);
        assert_eq!(least(Direction::Inference, 1), 2 * rows + weights);
        assert_eq!(least(Direction::Training, 1), 2 * (2 * rows + weights));
        // Rows are between layers: four of them around three.
        assert_eq!(least(Direction::Training, 3), 2 * (4 * rows + 3 * weights));
    }

    #[test]
    fn stacks_are_the_same_where_their_kernels_are() {
        let graph = small();
        let one = stack(Direction::Training, 1, &graph);
        assert!(one.is_same(&stack(Direction::Training, 1, &graph)));
        assert!(!one.is_same(&stack(Direction::Training, 2, &graph)));
        assert!(!one.is_same(&stack(Direction::Inference, 1, &graph)));
    }

    #[test]
    fn floors_are_what_is_read_and_written_once() {
        let graph = small();
        let (rows, weights, edges) = (3 * 4 * 4, 4 * (4 * 4 + 4 * 4 + 4), 5 * 4);
        let floors = |direction: Direction, layers: usize| {
            let stack = stack(direction, layers, &graph);
            let case = Case { direction, width: 4, layers, ..Case::new("hub", "sage", None) };
            stack.floors(&case, &graph)
        };
        let forward = Floors { compulsory_bytes: 2 * rows + weights + edges, gather_bytes: 5 * (4 * 4 + 4) };
        assert_eq!(floors(Direction::Inference, 1), forward);
        // A gradient of each of them, of which that of outputs is read.
        let both = Floors { compulsory_bytes: 2 * forward.compulsory_bytes, gather_bytes: 2 * forward.gather_bytes };
        assert_eq!(floors(Direction::Training, 1), both);
        let three = Floors { compulsory_bytes: 3 * both.compulsory_bytes, gather_bytes: 3 * both.gather_bytes };
        assert_eq!(floors(Direction::Training, 3), three);
    }
}
