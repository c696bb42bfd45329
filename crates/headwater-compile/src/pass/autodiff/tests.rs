//! Every operator against central differences, on a plain graph and on a block of several relations.

use super::{gradient_name, gradients_by};
use crate::inter::{Binary, Builder, Domain, Path, Reduce, Shape, Side, Unary, ValueId};
use crate::pass::select::Fusion;
use crate::testing::{Recipe, UNARY, check_gradients, given, interpret, numbers, read};

/// Builds one program around rows of two heads, and checks its gradients on both graphs.
fn check(build: impl Fn(&mut Builder, ValueId, ValueId) -> ValueId) {
    for recipe in [Recipe::plain(6), Recipe::block()] {
        let mut b = Builder::new("p");
        let x = b.input_with_gradient("x", Domain::SRC, Shape::Row { heads: 2, width: 3 });
        let y = b.parameter("y", Domain::SRC, Shape::Row { heads: 2, width: 3 });
        let out = build(&mut b, x, y);
        b.output("out", out);
        check_gradients(&b.finish(), &recipe.graph(3), 11);
    }
}

#[test]
fn functions_of_one_element() {
    for f in UNARY {
        check(|b, x, y| {
            // Positive arguments for those that need them.
            let square = b.binary(Binary::Mul, x, y).unwrap();
            let square = b.binary(Binary::Mul, square, square).unwrap();
            let half = b.constant(0.5);
            let positive = b.binary(Binary::Add, square, half).unwrap();
            let needs_positive = matches!(f, Unary::Log | Unary::Sqrt | Unary::Rsqrt | Unary::Recip);
            b.unary(f, if needs_positive { positive } else { x })
        });
    }
}

#[test]
fn functions_of_two_elements_and_of_repeated_ones() {
    for f in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min] {
        check(|b, x, y| b.binary(f, x, y).unwrap());
        check(|b, x, y| {
            let narrow = b.sum_width(y).unwrap();
            b.binary(f, x, narrow).unwrap()
        });
        check(|b, x, y| {
            let one_head = b.sum_heads(y).unwrap();
            b.binary(f, one_head, x).unwrap()
        });
    }
}

#[test]
fn vectors_taken_apart_and_put_together() {
    check(|b, x, y| b.dot(x, y).unwrap());
    check(|b, x, y| {
        let both = b.concat(x, y).unwrap();
        let part = b.slice(both, 2, 3).unwrap();
        let padded = b.pad(part, 1, 6).unwrap();
        let flat = b.reshape(padded, Shape::vector(12)).unwrap();
        b.unary(Unary::Tanh, flat)
    });
    check(|b, x, y| {
        let sum = b.sum_heads(x).unwrap();
        let wide = b.expand(sum, Shape::Row { heads: 2, width: 3 }).unwrap();
        b.binary(Binary::Mul, wide, y).unwrap()
    });
}

#[test]
fn rows_lifted_and_reduced() {
    for how in [Reduce::Sum, Reduce::Mean, Reduce::Max] {
        for to in [
            Domain::DST,
            Domain::SRC,
            Domain::Pair(Side::Dst),
            Domain::Pair(Side::Src),
            Domain::EdgeType,
            Domain::Const,
        ] {
            check(|b, x, y| {
                let (at_src, y) = (b.lift(x, Domain::Edge).unwrap(), b.lift(y, Domain::DST).unwrap());
                let m = b.binary(Binary::Mul, at_src, y).unwrap();
                let sum = b.reduce(m, to, how).unwrap();
                let back = b.lift(sum, Domain::Edge).unwrap();
                b.binary(Binary::Mul, back, m).unwrap()
            });
        }
    }
    check(|b, x, y| {
        let types = b.reduce(x, Domain::NodeType, Reduce::Sum).unwrap();
        let by_type = b.lift_by(types, Domain::EdgeType, Path::By(Side::Src)).unwrap();
        b.binary(Binary::Mul, by_type, y).unwrap()
    });
}

#[test]
fn softmax_over_nodes_and_over_pairs() {
    for by in [Domain::DST, Domain::Pair(Side::Dst), Domain::SRC] {
        check(|b, x, y| {
            let (s, d) = (b.lift(x, Domain::Edge).unwrap(), b.lift(y, Domain::DST).unwrap());
            let l = b.dot(s, d).unwrap();
            let a = b.softmax(l, by).unwrap();
            let m = b.binary(Binary::Mul, a, s).unwrap();
            b.reduce(m, Domain::DST, Reduce::Sum).unwrap()
        });
    }
}

#[test]
fn matrices_of_every_kind() {
    for (types, path) in
        [(Domain::Const, Path::Only), (Domain::EdgeType, Path::Only), (Domain::NodeType, Path::By(Side::Src))]
    {
        for transposed in [false, true] {
            check(|b, x, _| {
                let shape = if transposed { (4, 3) } else { (3, 4) };
                let w = b.parameter("w", types, Shape::Matrix { heads: 2, rows: shape.0, cols: shape.1 });
                let s = b.lift(x, Domain::Edge).unwrap();
                let z = b.linear_by(s, w, transposed, path).unwrap();
                b.reduce(z, Domain::DST, Reduce::Sum).unwrap()
            });
        }
    }
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        check(|b, x, _| {
            let sides = |transposed: bool, rows, cols| if transposed { (cols, rows) } else { (rows, cols) };
            let (a, c) = (sides(transpose_a, 3, 5), sides(transpose_b, 5, 2));
            let u = b.parameter("u", Domain::EdgeType, Shape::Matrix { heads: 2, rows: a.0, cols: a.1 });
            let v = b.parameter("v", Domain::EdgeType, Shape::Matrix { heads: 2, rows: c.0, cols: c.1 });
            let w = b.product(u, v, transpose_a, transpose_b).unwrap();
            b.linear(x, w).unwrap()
        });
    }
}

#[test]
fn dropout_drops_the_same_both_ways() {
    check(|b, x, y| {
        let m = b.binary(Binary::Mul, x, y).unwrap();
        b.dropout(m, 0.5, 4)
    });
}

#[test]
fn what_the_output_does_not_read_has_a_gradient_of_zeros() {
    check(|b, x, _| {
        b.parameter("unused", Domain::EdgeType, Shape::matrix(2, 2));
        b.unary(Unary::Tanh, x)
    });
}

/// The sum that gradients of a softmax need is the same by a walk over its shares and by what they weigh; where shares are read twice, or
/// weigh something that is no sum over the same rows, there is the walk alone.
#[test]
fn gradients_of_a_softmax_take_one_walk_or_two() {
    let weighs = "sum(e[\"a\"] * e.src.x for e in n.incoming_edges())";
    let twice =
        "sum(e[\"a\"] * e.src.x for e in n.incoming_edges()) + sum(e[\"a\"] * e.dst.x for e in n.incoming_edges())";
    let squared = "sum(e[\"a\"] * e[\"a\"] * e.src.x for e in n.incoming_edges())";
    let mean = "mean(e[\"a\"] * e.src.x for e in n.incoming_edges())";
    for (out, is_one) in [(weighs, true), (twice, false), (squared, false), (mean, false)] {
        let source = format!(
            "def f(g, x: node[heads, d], a: vector[etype, heads, d]):\n    for e in g.edges():\n        \
             e[\"a\"] = edge_softmax(dot(e.src.x, a[e.etype]) * dot(e.dst.x, e.src.x))\n    \
             for n in g.dst_nodes():\n        n[\"out\"] = {out}\n"
        );
        for heads in [1, 3] {
            let program = read("f", &source, &[("d", 5), ("heads", heads)], &[]);
            let [two, one] = [false, true].map(|one_walk| gradients_by(&program, "out", one_walk).unwrap());
            assert_eq!(one != two, is_one, "{out}");
            let graph = Recipe::block().graph(3);
            let mut arrays = given(&program, &graph, 2);
            let last = program.output("out").unwrap();
            let count = graph.rows(program[last].domain) * program[last].shape.len();
            arrays.insert(gradient_name("out"), numbers(7, "d.out", count));
            let [two, one] = [two, one].map(|joint| interpret(&joint, Fusion::Off, &graph, &arrays));
            for (name, wanted) in &two {
                let far = wanted.iter().zip(&one[name]).find(|(a, b)| (*a - *b).abs() > 1e-10);
                assert!(far.is_none(), "{out}, {heads} heads, {name}: {far:?}");
            }
        }
    }
}
