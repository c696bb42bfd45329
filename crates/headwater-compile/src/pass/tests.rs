//! Passes change how, never what: every program gives the same numbers before and after, gradients included.

use super::autodiff::gradients;
use super::decorate::{Around, Norm, decorate};
use super::domains::coarsen;
use super::select::Fusion;
use super::simplify::simplify;
use super::sink::sink;
use super::split::{Recompute, Split, split};
use crate::inter::text::print;
use crate::inter::{Binary, Builder, Domain, Path, Program, Reduce, Shape, Side, Unary, ValueId, verify};
use crate::testing::{Recipe, check_gradients, given, interpret, numbers};

/// Relational attention as a text has it: everything on edges.
fn on_edges() -> Program {
    let mut b = Builder::new("on_edges");
    let x = b.input_with_gradient("x", Domain::SRC, Shape::vector(4));
    let w = b.parameter("W", Domain::EdgeType, Shape::matrix(4, 3));
    let v = b.parameter("V", Domain::NodeType, Shape::matrix(3, 3));
    let a = b.parameter("a", Domain::EdgeType, Shape::vector(6));
    let bias = b.parameter("b", Domain::Const, Shape::vector(3));
    let xs = b.lift(x, Domain::Edge).unwrap();
    let xd = b.lift(x, Domain::DST).unwrap();
    let xd = b.lift(xd, Domain::Edge).unwrap();
    let (zs, zd) = (b.linear(xs, w).unwrap(), b.linear(xd, w).unwrap());
    let zs = b.linear_by(zs, v, false, Path::By(Side::Src)).unwrap();
    let both = b.concat(zs, zd).unwrap();
    let l = b.dot(both, a).unwrap();
    let l = b.unary(Unary::LeakyRelu(0.2), l);
    let p = b.softmax(l, Domain::DST).unwrap();
    let m = b.binary(Binary::Mul, p, zs).unwrap();
    let o = b.reduce(m, Domain::DST, Reduce::Sum).unwrap();
    let o = b.binary(Binary::Add, o, bias).unwrap();
    b.output("out", o);
    b.finish()
}

fn same_results(before: &Program, after: &Program) {
    verify(after).unwrap_or_else(|error| panic!("{error}\n{}", print(after)));
    for recipe in [Recipe::plain(6), Recipe::block()] {
        let graph = recipe.graph(1);
        let arrays = given(before, &graph, 2);
        for fusion in [Fusion::Off, Fusion::On] {
            let (wanted, found) =
                (interpret(before, Fusion::Off, &graph, &arrays), interpret(after, fusion, &graph, &arrays));
            assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
            for (name, wanted) in &wanted {
                let far = wanted.iter().zip(&found[name]).find(|(a, b)| (*a - *b).abs() > 1e-9 * (1.0 + a.abs()));
                assert!(far.is_none(), "{name}: {far:?}\n{}", print(after));
            }
        }
    }
}

fn domain_of(program: &Program, op: impl Fn(ValueId) -> bool) -> Vec<Domain> {
    program.iter().filter(|(id, _)| op(*id)).map(|(_, value)| value.domain).collect()
}

#[test]
fn simplifying_and_coarsening_keep_results_and_gradients() {
    let program = on_edges();
    let simple = simplify(&program).unwrap();
    same_results(&program, &simple);
    let coarse = simplify(&coarsen(&simple, |_| true).unwrap()).unwrap();
    same_results(&program, &coarse);
    check_gradients(&coarse, &Recipe::block().graph(4), 3);
    let backward = gradients(&coarse, "out").unwrap();
    let better = simplify(&coarsen(&simplify(&backward).unwrap(), |_| true).unwrap()).unwrap();
    same_results(&backward, &better);
}

#[test]
fn both_directions_apart_give_what_they_give_together() {
    let coarse = simplify(&coarsen(&on_edges(), |_| true).unwrap()).unwrap();
    let joint = simplify(&gradients(&coarse, "out").unwrap()).unwrap();
    for recipe in [Recipe::plain(6), Recipe::block()] {
        let graph = recipe.graph(1);
        let mut arrays = given(&joint, &graph, 2);
        let wanted = interpret(&joint, Fusion::Off, &graph, &arrays);
        for recompute in [Recompute::Off, Recompute::On] {
            let Split { forward, backward } = split(&joint, recompute);
            verify(&forward).unwrap();
            verify(&backward).unwrap();
            let first = interpret(&forward, Fusion::On, &graph, &arrays);
            arrays.extend(first.clone());
            let second = interpret(&backward, Fusion::On, &graph, &arrays);
            for (name, wanted) in &wanted {
                let found = first.get(name).or(second.get(name)).unwrap();
                let is_close = wanted.iter().zip(found).all(|(a, b)| (a - b).abs() < 1e-9 * (1.0 + a.abs()));
                assert!(is_close, "{name}");
            }
        }
    }
    let saved = |recompute| split(&joint, recompute).forward.outputs.len();
    assert!(saved(Recompute::On) < saved(Recompute::Off), "what is cheap is not saved");
}

#[test]
fn products_move_to_pairs_only_where_that_is_allowed() {
    let program = simplify(&on_edges()).unwrap();
    let linears =
        |program: &Program| domain_of(program, |id| matches!(program[id].op, crate::inter::Op::Linear { .. }));
    let nodes = coarsen(&program, |domain| !matches!(domain, Domain::Pair(_))).unwrap();
    assert_eq!(linears(&nodes), [Domain::Edge; 3], "{}", print(&nodes));
    let pairs = coarsen(&program, |_| true).unwrap();
    let (src, dst) = (Domain::Pair(Side::Src), Domain::Pair(Side::Dst));
    assert_eq!(linears(&pairs), [src, dst, src], "{}", print(&pairs));
}

/// A row of written nodes times or by a number of their pairs, added up by the nodes that are read, and what else is done with it.
fn scaled_rows(f: Binary, is_read_by_pairs: bool) -> Program {
    let mut b = Builder::new("scaled_rows");
    let d = b.input("d", Domain::DST, Shape::vector(9));
    let share = b.input("share", Domain::Pair(Side::Dst), Shape::SCALAR);
    let row = b.lift(d, Domain::Pair(Side::Dst)).unwrap();
    let scaled = b.binary(f, row, share).unwrap();
    let edges = b.lift(scaled, Domain::Edge).unwrap();
    let sum = b.reduce(edges, Domain::SRC, Reduce::Sum).unwrap();
    b.output("out", sum);
    if is_read_by_pairs {
        let again = b.unary(Unary::Tanh, scaled);
        b.output("again", again);
    }
    b.finish()
}

#[test]
fn rows_times_numbers_of_pairs_that_are_only_added_up_are_made_there() {
    for f in [Binary::Mul, Binary::Div] {
        let long =
            |program: &Program| domain_of(program, |id| matches!(program[id].op, crate::inter::Op::Binary { .. }));
        let program = scaled_rows(f, false);
        let sunk = simplify(&sink(&program).unwrap()).unwrap();
        assert_eq!(
            (long(&program), long(&sunk)),
            (vec![Domain::Pair(Side::Dst)], vec![Domain::Edge]),
            "{}",
            print(&sunk)
        );
        same_results(&program, &sunk);
        let kept = scaled_rows(f, true);
        assert_eq!(sink(&kept).unwrap(), kept, "the row is made anyway");
    }
}

#[test]
fn numbers_are_computed_and_neutral_elements_go() {
    let mut b = Builder::new("neutral");
    let x = b.input("x", Domain::SRC, Shape::vector(3));
    let (zero, one, two) = (b.constant(0.0), b.constant(1.0), b.constant(2.0));
    let sum = b.binary(Binary::Add, x, zero).unwrap();
    let scaled = b.binary(Binary::Mul, one, sum).unwrap();
    let three = b.binary(Binary::Add, one, two).unwrap();
    let again = b.binary(Binary::Mul, scaled, three).unwrap();
    let twice = b.unary(Unary::Neg, again);
    let twice = b.unary(Unary::Neg, twice);
    b.output("out", twice);
    let program = b.finish();
    let simple = simplify(&program).unwrap();
    same_results(&program, &simple);
    assert_eq!(simple.values.len(), 4, "x, 3, its lift, the product: {}", print(&simple));
    assert!(numbers(1, "x", 2).iter().all(|number| number.abs() <= 1.0));
}

#[test]
fn what_stands_around_a_layer_is_differentiated_with_it() {
    let mut b = Builder::new("layer");
    let x = b.input_with_gradient("x", Domain::SRC, Shape::vector(4));
    let w = b.parameter("W", Domain::Const, Shape::matrix(4, 4));
    let z = b.linear(x, w).unwrap();
    let s = b.lift(z, Domain::Edge).unwrap();
    let out = b.reduce(s, Domain::DST, Reduce::Mean).unwrap();
    b.output("out", out);
    let layer = b.finish();
    for norm in [Norm::None, Norm::Layer, Norm::Batch, Norm::Running] {
        for residual in [false, true] {
            let activation = Some(Unary::Tanh);
            let around = Around { input_dropout: 0.3, norm, activation, residual, wants_input_gradient: true };
            let whole = decorate(&layer, around).unwrap();
            verify(&whole).unwrap();
            let graph = Recipe::plain(12).graph(5);
            // Variances are not negative.
            if norm == Norm::Running {
                continue;
            }
            check_gradients(&whole, &graph, 3);
        }
    }
    let blind = decorate(&layer, Around::default()).unwrap();
    assert!(!print(&blind).contains("gradient"), "{}", print(&blind));
}
