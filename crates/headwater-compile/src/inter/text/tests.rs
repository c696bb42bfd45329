//! What is written reads back; what makes no sense is refused with its line.

use super::{print, read};
use crate::inter::{Binary, Builder, Domain, Path, Program, Reduce, Shape, Side, Unary, verify};

/// One of every operator.
fn everything() -> Program {
    let mut b = Builder::new("everything");
    let x = b.input_with_gradient("x", Domain::SRC, Shape::vector(6));
    let w = b.parameter("W", Domain::EdgeType, Shape::matrix(6, 6));
    let v = b.parameter("V", Domain::NodeType, Shape::Matrix { heads: 2, rows: 3, cols: 3 });
    let half = b.constant(0.5);
    let z = b.linear(x, w).unwrap();
    b.label(z, "z");
    let zr = b.reshape(z, Shape::Row { heads: 2, width: 3 }).unwrap();
    let at_edge = b.lift(zr, Domain::Edge).unwrap();
    let typed = b.linear_by(at_edge, v, true, Path::By(Side::Dst)).unwrap();
    let xd = b.lift(x, Domain::DST).unwrap();
    let xr = b.reshape(xd, Shape::Row { heads: 2, width: 3 }).unwrap();
    let l = b.dot(typed, xr).unwrap();
    let l = b.unary(Unary::LeakyRelu(0.2), l);
    let a = b.softmax(l, Domain::DST).unwrap();
    let a = b.dropout(a, 0.6, 3);
    let m = b.binary(Binary::Mul, a, typed).unwrap();
    let joined = b.concat(m, m).unwrap();
    let part = b.slice(joined, 2, 3).unwrap();
    let padded = b.pad(part, 1, 5).unwrap();
    let scaled = b.binary(Binary::Div, padded, half).unwrap();
    let o = b.reduce(scaled, Domain::DST, Reduce::Mean).unwrap();
    let heads = b.sum_heads(o).unwrap();
    let widths = b.sum_width(heads).unwrap();
    let g = b.outer(m, typed, Domain::EdgeType, Path::Only).unwrap();
    let v2 = b.parameter("V2", Domain::EdgeType, Shape::Matrix { heads: 2, rows: 3, cols: 4 });
    let p = b.product(g, v2, true, false).unwrap();
    let wide = b.expand(widths, Shape::Row { heads: 2, width: 7 }).unwrap();
    b.output("out", wide);
    b.output("p", p);
    b.finish()
}

#[test]
fn what_is_written_reads_back() {
    let program = everything();
    verify(&program).unwrap();
    let text = print(&program);
    assert_eq!(read(&text).unwrap(), program, "{text}");
}

#[test]
fn what_is_unused_goes_and_the_rest_keeps_its_meaning() {
    let mut program = everything();
    program.outputs.truncate(1);
    let fewer = program.without_unused();
    verify(&fewer).unwrap();
    assert!(fewer.values.len() < program.values.len());
    assert!(!print(&fewer).contains("product"), "{}", print(&fewer));
    assert!(print(&fewer).contains("parameter V2"), "parameters are the layer's signature");
}

#[test]
fn nonsense_is_refused_with_its_place() {
    let good = "program p\n%0 : node.src [1, 4] = input x\n%1 : const [1, 4, 2] = parameter W\n";
    let cases = [
        ("%2 : node.src [1, 3] = linear %0 %1", "its operands make [1, 2]"),
        ("%2 : node.src [1, 2] = linear %0 %7", "used before it is computed"),
        ("%3 : node.src [1, 4] = relu %0", "counted in order"),
        ("%2 : node.dst [1, 4] = relu %0", "expected node.dst"),
        ("%2 : edge [1, 4, 2] = lift %1", "matrices are a type's"),
        ("%2 : const [1, 4] = lift %0", "cannot be lifted to const"),
        ("%2 : edge [1, 4] = reduce sum %0", "cannot be reduced to edge"),
        ("%2 : node.src [1, 4] = wavelet %0", "no function `wavelet`"),
        ("%2 : node.src [1, 4] = dropout %0 1.5 key 0", "do not fit"),
        ("%2 : node.src [1, 0] = slice %0 from 0", "holds nothing"),
        ("%2 : planet [1, 4] = relu %0", "no domain `planet`"),
        ("output y = %9", "no such value"),
        ("nonsense", "line 4: expected"),
    ];
    for (line, why) in cases {
        let error = read(&format!("{good}{line}\n")).unwrap_err().to_string();
        assert!(error.contains(why), "{line}: {error}");
    }
}
