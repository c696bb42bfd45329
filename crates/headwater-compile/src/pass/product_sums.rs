//! Products of pairs that are only added up by node are added up where they are made: no row of products is written, and none is read.
//!
//! A product with the rows of one node each that is added to such a sum, as that of a layer's root, is one more term of it.

use crate::inter::{Binary, Domain, Path, Reduce};
use crate::intra::{
    Body, BufferId, Gemm, GemmSum, Kernel, Program, Register, Role, RowProduct, Step, StepOp, Traverse,
};

/// The program with such sums wherever they pay: where the second program is better than the first.
pub(crate) fn product_sums(mut program: Program, pays: impl Fn(&Program, &Program) -> bool) -> Program {
    let mut at = 0;
    while at < program.kernels.len() {
        let found = Found::at(&program, at).map(|found| found.applied(&program, at));
        match found.filter(|other| pays(&program, other)) {
            // Products before it are gone.
            Some(other) => {
                at -= program.kernels.len() - other.kernels.len();
                program = other;
            }
            None => at += 1,
        }
    }
    program.without_unused()
}

/// A nest that does nothing but add up products, and what happens with the sums.
struct Found {
    sum: GemmSum,
    /// Kernels that make the products.
    makers: Vec<usize>,
}

impl Found {
    /// What the kernel at a place is, if it is one.
    fn at(program: &Program, at: usize) -> Option<Self> {
        let Kernel::Traverse(Traverse { nest, path: Path::Only, body }) = &program.kernels[at] else { return None };
        let [to @ Domain::Node(side), pairs @ Domain::Pair(own)] = nest[..] else { return None };
        let of_pairs: Vec<usize> = (0..body.steps.len()).filter(|step| body.steps[*step].level == 1).collect();
        let ([product], true) = (&of_pairs[..], side == own) else { return None };
        let reduced = only_reader(body, Register::new(*product))?;
        let is_sum = matches!(body.steps[reduced.at()].op, StepOp::Reduce(Reduce::Sum, _));
        let pairs =
            maker(program, at, &body.steps[*product], |gemm| gemm.scatter.is_none() && gemm.product.rows == pairs)?;
        let is_typed = program[pairs.1.w].domain == Domain::EdgeType;
        let fits = |product: &RowProduct| product.is_in_fours(&program.buffers);
        if !(is_sum && is_typed && fits(&pairs.1)) {
            return None;
        }
        let mut found = Sum { register: reduced, steps: vec![*product, reduced.at()], terms: vec![pairs] };
        while let Some((add, term, load)) =
            added(program, at, body, (to, found.register)).filter(|(_, term, _)| fits(&term.1))
        {
            found.steps.extend([load, add.at()]);
            found.terms.push(term);
            found.register = add;
        }
        let body = found.rest(body);
        let is_plain = |step: &Step| {
            let keeps =
                matches!(step.op, StepOp::Constant(_) | StepOp::Unary(..) | StepOp::Binary(..) | StepOp::Expand(_));
            keeps || matches!(step.op, StepOp::Product | StepOp::Load(_) | StepOp::Store(..) | StepOp::Dropout { .. })
        };
        let (makers, terms) = found.terms.into_iter().unzip();
        body.steps.iter().all(is_plain).then_some(Self { sum: GemmSum { to, terms, body }, makers })
    }

    /// The program with the sum at its place and without the products.
    fn applied(self, program: &Program, at: usize) -> Program {
        let mut program = program.clone();
        program.schedules.clear();
        program.kernels[at] = Kernel::GemmSum(self.sum);
        let mut place = 0;
        program.kernels.retain(|_| {
            place += 1;
            !self.makers.contains(&(place - 1))
        });
        program
    }
}

/// A sum while its terms are looked for.
struct Sum {
    /// The register that it is in.
    register: Register,
    /// Steps that it stands for.
    steps: Vec<usize>,
    /// Kernels that make products, and these.
    terms: Vec<(usize, RowProduct)>,
}

impl Sum {
    /// What is left of a body behind the sum, which is its first register.
    fn rest(&self, body: &Body) -> Body {
        let mut found = Body::default();
        found.push(0, body.steps[self.register.at()].shape, StepOp::Product);
        let mut registers = vec![Register::new(0); body.steps.len()];
        for (at, step) in body.steps.iter().enumerate().filter(|(at, _)| !self.steps.contains(at)) {
            let op = step.op.clone().with_registers(|register| registers[register.at()]);
            registers[at] = found.push(step.level, step.shape, op);
        }
        found
    }
}

/// A product with a row for each node that is added to a sum and used for nothing else: the register of both, the kernel that makes it, what it
/// is, and the step that loads it.
fn added(
    program: &Program,
    at: usize,
    body: &Body,
    (to, sum): (Domain, Register),
) -> Option<(Register, (usize, RowProduct), usize)> {
    let add = only_reader(body, sum)?;
    let StepOp::Binary(Binary::Add, x, y) = body.steps[add.at()].op else { return None };
    let other = if x == sum { y } else { x };
    let is_alike = body.steps[other.at()].shape == body.steps[sum.at()].shape && only_reader(body, other) == Some(add);
    let is_row = |gemm: &Gemm| match gemm.scatter {
        Some(scatter) => scatter == to && gemm.product.rows.is_injective(to),
        None => gemm.product.rows == to,
    };
    let term = maker(program, at, &body.steps[other.at()], is_row)?;
    is_alike.then_some((add, term, other.at()))
}

/// The kernel before another that makes what a step loads and nothing else, and its product, if it is made for that step alone.
fn maker(program: &Program, at: usize, load: &Step, is_it: impl Fn(&Gemm) -> bool) -> Option<(usize, RowProduct)> {
    let StepOp::Load(read) = &load.op else { return None };
    let readers = program.kernels.iter().flat_map(Kernel::reads).filter(|id| *id == read.from).count();
    if !read.hops.is_empty() || program[read.from].role != Role::Temporary || readers != 1 {
        return None;
    }
    let is_maker =
        |kernel: &Kernel| is_product(kernel, read.from) && matches!(kernel, Kernel::Gemm(gemm) if is_it(gemm));
    let place = program.kernels[..at].iter().position(is_maker)?;
    let Kernel::Gemm(gemm) = &program.kernels[place] else { return None };
    Some((place, gemm.product.clone()))
}

/// Whether a kernel makes products, stores them, and does nothing else.
fn is_product(kernel: &Kernel, to: BufferId) -> bool {
    let Kernel::Gemm(gemm) = kernel else { return false };
    let ops: Vec<&StepOp> = gemm.body.steps.iter().map(|step| &step.op).collect();
    matches!(ops[..], [StepOp::Product, StepOp::Store(_, id)] if *id == to)
}

/// The only step that reads a register.
fn only_reader(body: &Body, of: Register) -> Option<Register> {
    let mut readers = (0..body.steps.len()).filter(|at| body.steps[*at].op.operands().contains(&of));
    let first = readers.next()?;
    readers.next().is_none().then_some(Register::new(first))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headwater_graph::random::Key;

    use super::*;
    use crate::cpu::fast::Given;
    use crate::cpu::{fast, reference};
    use crate::inter::{self, Side};
    use crate::pass::autodiff::gradient_name;
    use crate::pass::{Compiled, Optimisations, Statistics, compile};
    use crate::testing::{Arrays, Recipe, given, layer, numbers, text};

    /// A graph whose pairs have few edges and lie in long runs, and one in runs of one.
    fn statistics(pairs_a_run: f64) -> Statistics {
        let (nodes, pairs) = (1e6, 1.3e6);
        let runs = pairs / pairs_a_run;
        Statistics {
            edge_types: 50.0,
            sources: nodes,
            destinations: nodes,
            source_pairs: pairs,
            destination_pairs: pairs,
            edges: 1e7,
            source_runs: runs,
            destination_runs: runs,
            ..Statistics::FB15K_237
        }
    }

    fn sized(model: &str, d_in: usize, d_out: usize) -> inter::Program {
        let options = [("variant", text("hector"))];
        let sizes = [("d_in", d_in), ("d_out", d_out), ("heads", 1)];
        layer(model, if model == "rgcn" { &sizes[..2] } else { &sizes }, if model == "hgt" { &options } else { &[] })
    }

    fn compiled(model: &str, statistics: &Statistics) -> Compiled {
        compile(&sized(model, 64, 64), statistics, Optimisations::GPU).unwrap()
    }

    fn terms(program: &Program) -> Vec<usize> {
        let terms = |kernel: &Kernel| if let Kernel::GemmSum(sum) = kernel { Some(sum.terms.len()) } else { None };
        program.kernels.iter().filter_map(terms).collect()
    }

    /// Terms of all sums of products in training.
    fn of_training(compiled: &Compiled) -> Vec<usize> {
        [&compiled.forward, &compiled.backward].into_iter().flat_map(terms).collect()
    }

    /// In every relational layer, with the product of a root as one more term.
    #[test]
    fn products_are_added_up_where_runs_are_long() {
        for (model, wanted) in [("rgcn", vec![2]), ("rgat", vec![1]), ("hgt", vec![1, 1])] {
            let (long, short) = (compiled(model, &statistics(350.0)), compiled(model, &statistics(1.0)));
            assert_eq!(of_training(&long), wanted, "{model}\n{}", crate::intra::print(&long.backward));
            assert!(of_training(&short).is_empty() && terms(&short.inference).is_empty(), "{model}");
            let without = Optimisations { product_sums: false, ..Optimisations::GPU };
            let plain = compile(&sized(model, 64, 64), &statistics(350.0), without).unwrap();
            assert!(of_training(&plain).is_empty(), "{model}");
        }
    }

    /// Vectors that tensor cores do not take in fours, values that others read, maxima and typed sums stay as they are.
    #[test]
    fn what_is_more_than_a_sum_of_products_stays() {
        let odd = compile(&sized("rgcn", 64, 62), &statistics(350.0), Optimisations::GPU).unwrap();
        assert!(of_training(&odd).is_empty());
        let mut program = compiled("rgcn", &statistics(1.0)).forward;
        let products = |program: &Program| product_sums(program.clone(), |_, _| true);
        assert_eq!(terms(&products(&program)), [2]);
        let is_sum = |kernel: &Kernel| kernel.nest() == [Domain::Node(Side::Dst), Domain::Pair(Side::Dst)];
        let at = program.kernels.iter().position(is_sum).unwrap();
        let Kernel::Traverse(nest) = &mut program.kernels[at] else { panic!() };
        for step in &mut nest.body.steps {
            if let StepOp::Reduce(how, _) = &mut step.op {
                *how = Reduce::Max;
            }
        }
        assert!(terms(&products(&program)).is_empty());
    }

    /// The same numbers by definition and on the CPU, which takes sums apart; on graphs of several types of which one has no edges, and where not
    /// all nodes are written.
    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "the fast path computes in single precision")]
    fn sums_of_products_give_the_same_numbers() {
        let typed = Recipe { nodes: vec![(9, 9), (7, 7)], ..Recipe::block() };
        for graph in [Recipe::block().graph(2), typed.graph(3)] {
            let mut sums = 0;
            for (model, width) in [("rgcn", 8), ("rgat", 4), ("hgt", 8)] {
                let program = sized(model, 12, width);
                let compiled = compile(&program, &Statistics::of(&graph), Optimisations::GPU).unwrap();
                let mut arrays = given(&program, &graph, 4);
                let out = program.output("out").unwrap();
                let count = graph.rows(program[out].domain) * program[out].shape.len();
                arrays.insert(gradient_name("out"), numbers(4, "d.out", count));
                for plain in [compiled.inference, compiled.forward, compiled.backward] {
                    let summed = product_sums(plain.clone(), |_, _| true);
                    crate::intra::verify(&summed).unwrap();
                    sums += terms(&summed).len();
                    let wanted = reference::run(&plain, &graph, Key::new(5), &arrays).unwrap();
                    let found = reference::run(&summed, &graph, Key::new(5), &arrays).unwrap();
                    assert!(far(&wanted, &found) < 1e-9, "{model}");
                    let single: BTreeMap<&str, Vec<f32>> = arrays
                        .iter()
                        .map(|(name, all)| (name.as_str(), all.iter().map(|x| *x as f32).collect()))
                        .collect();
                    let lend = |name: &str| single.get(name).map(|values| Given::Dense(values));
                    let run = fast::Run { graph: &graph, step: Key::new(5) };
                    let found = fast::Executor::new(summed).run(run, &lend, &mut fast::Workspace::default()).unwrap();
                    let double = |all: fast::Array| all.into_values().into_iter().map(f64::from).collect();
                    let found: Arrays = found.into_iter().map(|(name, all)| (name, double(all))).collect();
                    assert!(far(&wanted, &found) < 5e-5, "{model}");
                    arrays.extend(wanted);
                }
            }
            assert!(sums >= 4, "{sums}");
        }
    }

    fn far(wanted: &Arrays, found: &Arrays) -> f64 {
        let each = wanted.iter().flat_map(|(name, all)| {
            let largest = all.iter().fold(1.0_f64, |largest, x| largest.max(x.abs()));
            assert_eq!(all.len(), found[name].len());
            all.iter().zip(&found[name]).map(move |(a, b)| (a - b).abs() / largest)
        });
        each.fold(0.0, f64::max)
    }
}
