//! What products take in, and that kernels which take it in compute the same.

use super::{Fusion, Shared, select};
use crate::error::Result;
use crate::inter::{Binary, Builder, Domain, Path, Program, Reduce, Shape, Side, ValueId};
use crate::intra::{self, Gemm, Kernel, StepOp, print};
use crate::models_test::check_fast;
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::{Recipe, given, interpret, layer, text};

const D_IN: usize = 6;
const D_OUT: usize = 4;
const PAIR: Domain = Domain::Pair(Side::Src);

/// A layer whose rows `x`, factor `s` of each and weights `W` become `out`.
fn program(wide: usize, build: impl Fn(&mut Builder, ValueId, ValueId, ValueId) -> Result<ValueId>) -> Program {
    let mut b = Builder::new("p");
    let x = b.input("x", Domain::SRC, Shape::vector(D_IN));
    let s = b.input("s", Domain::SRC, Shape::SCALAR);
    let w = b.parameter("W", Domain::EdgeType, Shape::matrix(D_IN, wide));
    let out = build(&mut b, x, s, w).unwrap();
    b.output("out", out);
    b.finish()
}

/// The products of a program, which gives the same numbers with and without shared kernels and on the fast path.
fn gemms(program: &Program) -> Vec<Gemm> {
    let kernels = select(program, Fusion::On).unwrap();
    for recipe in [Recipe::plain(9), Recipe::block(), Recipe { empty_every: 1, ..Recipe::block() }] {
        let graph = recipe.graph(3);
        let mut arrays = given(program, &graph, 1);
        let (wanted, found) =
            (interpret(program, Fusion::Off, &graph, &arrays), interpret(program, Fusion::On, &graph, &arrays));
        let far = wanted["out"].iter().zip(&found["out"]).find(|(a, b)| (*a - *b).abs() > 1e-12);
        assert!(far.is_none(), "{far:?}");
        check_fast(&kernels, &graph, &mut arrays);
    }
    let products = kernels.kernels.into_iter().filter_map(|kernel| match kernel {
        Kernel::Gemm(gemm) => Some(gemm),
        _ => None,
    });
    products.collect()
}

#[test]
fn rows_are_scaled_while_a_product_reads_them() {
    let before = program(D_OUT, |b, x, s, w| {
        let (x, s) = (b.lift(x, PAIR)?, b.lift(s, PAIR)?);
        let scaled = b.binary(Binary::Mul, s, x)?;
        b.linear(scaled, w)
    });
    let [gemm] = &gemms(&before)[..] else { panic!("one product") };
    assert!(gemm.product.scale.is_some() && gemm.body.steps.len() == 2, "{gemm:?}");
    // Rows that somebody else reads are there anyway.
    let twice = program(D_OUT, |b, x, s, w| {
        let (x, s) = (b.lift(x, PAIR)?, b.lift(s, PAIR)?);
        let scaled = b.binary(Binary::Mul, s, x)?;
        let (a, c) = (b.linear(scaled, w)?, b.binary(Binary::Add, scaled, x)?);
        b.concat(a, c)
    });
    assert!(gemms(&twice)[0].product.scale.is_none());
    // A kernel that makes a row can scale it for nothing.
    let made = program(D_OUT, |b, x, s, w| {
        let sum = b.lift(x, Domain::Edge).and_then(|x| b.reduce(x, PAIR, Reduce::Sum))?;
        let s = b.lift(s, PAIR)?;
        let scaled = b.binary(Binary::Mul, s, sum)?;
        b.linear(scaled, w)
    });
    assert!(gemms(&made)[0].product.scale.is_none());
}

#[test]
fn products_are_scaled_where_rows_are_narrow() {
    let behind = |wide: usize| {
        program(wide, |b, x, s, w| {
            let (x, s) = (b.lift(x, PAIR)?, b.lift(s, PAIR)?);
            let product = b.linear(x, w)?;
            b.binary(Binary::Mul, s, product)
        })
    };
    assert!(gemms(&behind(D_IN + 1))[0].product.scale.is_some(), "gathered rows are narrower");
    let narrow = &gemms(&behind(D_IN))[0];
    assert!(
        narrow.product.scale.is_none() && narrow.body.steps.iter().any(|step| matches!(step.op, StepOp::Binary(..)))
    );
}

/// What is known of written nodes goes to those that are read, alone and added to what is there.
#[test]
fn products_of_written_nodes_go_to_the_nodes_that_are_read() {
    for types in [Domain::Const, Domain::NodeType] {
        for is_added in [false, true] {
            let mut b = Builder::new("p");
            let y = b.input("y", Domain::DST, Shape::vector(D_IN));
            let other = b.input("other", Domain::SRC, Shape::vector(D_OUT));
            let w = b.parameter("W", types, Shape::matrix(D_IN, D_OUT));
            let product = b.linear(y, w).unwrap();
            let mut out = b.reduce_by(product, Domain::SRC, Reduce::Sum, Path::Only).unwrap();
            if is_added {
                out = b.binary(Binary::Add, other, out).unwrap();
            }
            b.output("out", out);
            let program = b.finish();
            assert_eq!(gemms(&program)[0].scatter, Some(Domain::SRC));
            assert_eq!(select(&program, Fusion::On).unwrap().kernels.len(), 1);
        }
    }
}

/// On a GPU, a product that is added to a sum is made first and the walk adds it; weights are made in one kernel.
#[test]
fn products_that_are_added_come_first() {
    let rows: [f64; 3] = [1e6, 3e6, 6e6];
    let statistics = Statistics {
        node_types: 3.0,
        edge_types: 20.0,
        sources: rows[0],
        destinations: rows[0],
        source_pairs: rows[1],
        destination_pairs: rows[1],
        edges: rows[2],
        source_runs: rows[1] / 100.0,
        destination_runs: rows[1] / 100.0,
        filled: 1.0,
    };
    let on = Optimisations { product_sums: false, ..Optimisations::GPU };
    let compiled = compile(&layer("rgcn", &[("d_in", 64), ("d_out", 64)], &[]), &statistics, on).unwrap();
    let forward = &compiled.forward.kernels;
    assert!(
        matches!(&forward[0], Kernel::Gemm(gemm) if gemm.product.rows == Domain::DST),
        "{}",
        print(&compiled.forward)
    );
    let Some(Kernel::Traverse(last)) = forward.last() else { panic!("{}", print(&compiled.forward)) };
    assert_eq!(last.nest[0], Domain::DST);
    let hector = [("variant", text("hector"))];
    let compiled =
        compile(&layer("hgt", &[("d_in", 64), ("d_out", 64), ("heads", 1)], &hector), &statistics, Optimisations::GPU);
    let forward = compiled.unwrap().forward;
    let of_types = forward
        .kernels
        .iter()
        .filter(|kernel| matches!(kernel, Kernel::Traverse(walk) if walk.nest == [Domain::NodeType]));
    assert_eq!(of_types.count(), 1, "{}", print(&forward));
}

/// The nests of a program's walks, which give the same numbers with rows under those that they share and without.
fn nests(program: &Program, shared: Shared) -> Vec<Vec<Domain>> {
    let kernels = select(program, Fusion::Shallow(shared)).unwrap();
    for recipe in [Recipe::plain(9), Recipe::block(), Recipe { empty_every: 1, ..Recipe::block() }] {
        let graph = recipe.graph(3);
        let arrays = given(program, &graph, 1);
        let wanted = interpret(program, Fusion::Off, &graph, &arrays);
        let found = interpret(program, Fusion::Shallow(shared), &graph, &arrays);
        assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
        for (name, wanted) in &wanted {
            let far = wanted.iter().zip(&found[name]).find(|(a, b)| (*a - *b).abs() > 1e-12);
            assert!(far.is_none(), "{name}: {far:?}");
        }
    }
    let walks = kernels.kernels.iter().filter(|kernel| matches!(kernel, Kernel::Traverse(_)));
    walks.map(|kernel| kernel.nest().to_vec()).collect()
}

/// What rows of a domain make of a row that belongs to a coarser one, and of another: of an edge that of its source, of a pair that of its type.
fn scores(rows: Domain, outer: Domain) -> Program {
    let mut b = Builder::new("scores");
    let shared = b.input("shared", outer, Shape::vector(9));
    let own = match rows {
        Domain::Edge => b.input("x", Domain::SRC, Shape::vector(9)),
        _ => b.parameter("v", Domain::EdgeType, Shape::vector(9)),
    };
    let (shared, own) = (b.lift(shared, rows).unwrap(), b.lift(own, rows).unwrap());
    let score = b.dot(own, shared).unwrap();
    b.output("out", score);
    b.finish()
}

#[test]
fn rows_that_several_finer_ones_read_have_a_level_of_their_own() {
    let none = Shared { pairs_by_edges: false, nodes_by_edges: false, nodes_by_pairs: false, least_numbers: 8 };
    let (pair, edge) = (Domain::Pair(Side::Dst), Domain::Edge);
    let cases = [
        (edge, pair, Shared { pairs_by_edges: true, ..none }),
        (edge, Domain::DST, Shared { nodes_by_edges: true, ..none }),
        (pair, Domain::DST, Shared { nodes_by_pairs: true, ..none }),
    ];
    for (rows, outer, own) in cases {
        let program = scores(rows, outer);
        assert_eq!(nests(&program, none), [vec![rows]]);
        assert_eq!(nests(&program, own), [vec![outer, rows]]);
        assert_eq!(nests(&program, Shared { least_numbers: 10, ..own }), [vec![rows]], "the row is short");
        for (_, _, other) in cases.into_iter().filter(|(_, _, other)| *other != own) {
            assert_eq!(nests(&program, other), [vec![rows]]);
        }
    }
}

/// A product that edges leave in memory is scaled where it is added up, and not written once more.
#[test]
fn products_of_edges_are_scaled_where_they_are_added_up() {
    let before = program(D_OUT, |b, x, _, w| {
        let share = b.input("share", Domain::Pair(Side::Dst), Shape::SCALAR);
        let ones = b.lift(share, Domain::Edge)?;
        let share = b.reduce(ones, Domain::Pair(Side::Dst), Reduce::Sum)?;
        let (x, share) = (b.lift(x, Domain::Edge)?, b.lift(share, Domain::Edge)?);
        let product = b.linear(x, w)?;
        let scaled = b.binary(Binary::Mul, product, share)?;
        b.reduce(scaled, Domain::DST, Reduce::Sum)
    });
    gemms(&before);
    let kernels = select(&before, Fusion::On).unwrap();
    let long = |buffer: &&intra::Buffer| buffer.domain == Domain::Edge && buffer.shape.len() == D_OUT;
    assert_eq!(kernels.buffers.iter().filter(long).count(), 1, "{}", print(&kernels));
}
