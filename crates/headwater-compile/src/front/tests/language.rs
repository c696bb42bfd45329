//! One test a rule of the language: a text, and the program it means.

use super::{arguments, layer, program, text};
use crate::front::{Arguments, OptionValue, read};
use crate::inter::text::print;
use crate::inter::{Domain, Op, Shape};

/// Bodies and lines that their programs have, in this order.
fn check(cases: &[(&str, &[&str])]) {
    for (body, lines) in cases {
        let program = program(body);
        let mut rest = program.as_str();
        for line in *lines {
            let Some(at) = rest.find(line) else { panic!("{body}\nhas no `{line}` where expected:\n{program}") };
            rest = &rest[at + line.len()..];
        }
    }
}

#[test]
fn loops_say_the_rows() {
    check(&[
        (
            "for n in g.nodes():\n    n[\"out\"] = relu(n.x)",
            &["node.src [1, 6] = relu %0 ; out", "node.dst [1, 6] = lift"],
        ),
        ("for n in g.src_nodes():\n    n[\"out\"] = relu(n.x)", &["node.src [1, 6] = relu"]),
        (
            "for n in g.dst_nodes():\n    n[\"out\"] = relu(n.x)",
            &["node.dst [1, 6] = lift %0", "node.dst [1, 6] = relu"],
        ),
        ("for n in g.dst_nodes():\n    n[\"out\"] = n.D", &["output out = %10"]),
        (
            r#"
for e in g.edges():
    e["m"] = relu(e.y)
for n in g.dst_nodes():
    n["out"] = max(e["m"] for e in n.incoming_edges())"#,
            &["edge [1, 6] = relu %1 ; m", "node.dst [1, 6] = reduce max"],
        ),
    ]);
}

#[test]
fn ends_of_an_edge_are_nodes() {
    let of = |value: &str| {
        program(&format!("for n in g.dst_nodes():\n    n[\"out\"] = sum({value} for e in n.incoming_edges())"))
    };
    assert_eq!(
        of("e.src.x"),
        "%11 : edge [1, 6] = lift %0\n%12 : node.dst [1, 6] = reduce sum %11 ; out\noutput out = %12"
    );
    assert!(of("e.dst.x").starts_with("%11 : node.dst [1, 6] = lift %0\n%12 : edge [1, 6] = lift %11\n"));
    assert!(of("e.src.N").starts_with("%11 : edge [1, 6] = lift %9\n"));
    assert!(of("e.dst.D").starts_with("%11 : edge [1, 1] = lift %10\n"));
    assert!(of("n.D").starts_with("%11 : edge [1, 1] = lift %10\n"), "the node of the loop around is the edge's end");
}

#[test]
fn weights_are_found_by_type() {
    let of = |value: &str| {
        program(&format!("for n in g.dst_nodes():\n    n[\"out\"] = sum({value} for e in n.incoming_edges())"))
    };
    let cases = [
        ("linear(e.src.x, W)", "linear %11 %2\n"),
        ("e.src.x @ W", "linear %11 %2\n"),
        ("linear(e.src.x, R[e.etype])", "linear %11 %3\n"),
        ("linear(e.src.x, T[e.src.ntype])", "linear %11 %4 via src"),
        ("linear(e.src.x, T[e.dst.ntype])", "linear %11 %4 via dst"),
        ("linear(e.src.x, T[n.ntype])", "linear %11 %4 via dst"),
        ("linear(linear(e.src.x, W), transpose(W))", "linear %12 %2 transposed"),
        ("linear(linear(e.src.x, R[e.etype]), transpose(R[e.etype]))", "linear %12 %3 transposed"),
        ("a[e.etype]", "edge [1, 6] = lift %6\n"),
        ("t[e.src.ntype]", "edge [1, 6] = lift %7 via src"),
        ("t[e.dst.ntype]", "edge [1, 6] = lift %7 via dst"),
        ("E[e.src, e.etype]", "edge [1, 6] = lift %8\n"),
        ("b", "edge [1, 6] = lift %5\n"),
        ("linear(1 * b, R[e.etype])", "linear %13 %3\n"),
    ];
    for (value, line) in cases {
        let program = of(value);
        assert!(program.contains(line), "{value} has no `{line}`:\n{program}");
    }
    check(&[
        ("for n in g.nodes():\n    n[\"out\"] = linear(n.x, T[n.ntype]) ", &["node.src [1, 4] = linear %0 %4 ; out"]),
        ("for n in g.nodes():\n    n[\"out\"] = t[n.ntype]", &["node.src [1, 6] = lift %7 ; out"]),
        (
            r#"
for n in g.dst_nodes():
    w = T[n.ntype]
    for e in n.incoming_edges():
        n["out"] += linear(e.src.x, w)"#,
            &["linear %11 %4 via dst"],
        ),
    ]);
}

#[test]
fn edges_are_added_up() {
    let outer = |inner: &str, of: &str| format!("for n in {of}:\n    for e in {inner}:\n        n[\"out\"] += e.y");
    check(&[
        (&outer("n.incoming_edges()", "g.dst_nodes()"), &["node.dst [1, 6] = reduce sum %1 ; out"]),
        (&outer("n.outgoing_edges()", "g.src_nodes()"), &["node.src [1, 6] = reduce sum %1 ; out"]),
        ("for e in g.edges():\n    e.dst[\"out\"] += e.y", &["node.dst [1, 6] = reduce sum %1 ; out"]),
        (
            r#"
for n in g.dst_nodes():
    n["out"] = n.x
    for e in n.incoming_edges():
        n["out"] += e.y
        n["out"] += 2"#,
            &["reduce sum %1", "reduce sum", "node.dst [1, 6] = add", "node.dst [1, 6] = add"],
        ),
        (
            "for n in g.dst_nodes():\n    n[\"out\"] = relation_mean(e.y for e in n.incoming_edges())",
            &["pair.dst [1, 6] = reduce mean %1", "node.dst [1, 6] = reduce sum %11 ; out"],
        ),
        (
            "for n in g.nodes():\n    n[\"out\"] = relation_mean(e.y for e in n.outgoing_edges())",
            &["pair.src [1, 6] = reduce mean %1", "node.src [1, 6] = reduce sum %11 ; out"],
        ),
        ("for n in g.dst_nodes():\n    n[\"out\"] = mean(e.y for e in n.incoming_edges())", &["reduce mean %1 ; out"]),
    ]);
}

#[test]
fn every_function_is_there() {
    let cases = [
        ("exp(x)", "= exp %0"),
        ("log(x)", "= log %0"),
        ("relu(x)", "= relu %0"),
        ("leaky_relu(x)", "= leaky_relu(0.01) %0"),
        ("leaky_relu(x, slope=0.5)", "= leaky_relu(0.5) %0"),
        ("elu(x)", "= elu(1.0) %0"),
        ("elu(x, 2)", "= elu(2.0) %0"),
        ("sigmoid(x)", "= sigmoid %0"),
        ("tanh(x)", "= tanh %0"),
        ("gelu(x)", "= gelu %0"),
        ("sqrt(x)", "= sqrt %0"),
        ("rsqrt(x)", "= rsqrt %0"),
        ("abs(x)", "= abs %0"),
        ("-x", "= neg %0"),
        ("maximum(x, 0)", "= max %0"),
        ("minimum(x, x)", "= min %0 %0"),
        ("x + x - x", "= sub %11 %0"),
        ("x * 2 / x", "= div %13 %0"),
        ("dot(x, x)", "[1, 1] = dot %0 %0"),
        ("concat(x, x, x)", "[1, 18] = concat %11 %0"),
        ("dropout(x, 0.5)", "= dropout %0 0.5 key 0"),
        ("dropout(dropout(x, 0.5), 0.25)", "= dropout %11 0.25 key 1"),
        ("reshape(x, heads, 3)", "[2, 3] = reshape %0"),
        ("flatten(reshape(x, 3, 2))", "[1, 6] = reshape %11"),
        ("sum_heads(reshape(x, 3, 2))", "[1, 2] = sum_heads %11"),
        ("mean_heads(reshape(x, 3, 2))", "[1, 2] = div %12"),
        ("sum_width(x)", "[1, 1] = sum_width %0"),
        ("mean_width(x)", "constant 6.0"),
        ("x[1:3]", "[1, 2] = slice %0 from 1"),
        ("x[:heads]", "[1, 2] = slice %0 from 0"),
        ("x[2:]", "[1, 4] = slice %0 from 2"),
        ("x * sqrt(16) ", "constant 4.0"),
        ("x * (1 if heads == 2 and not heads > 2 else 3)", "constant 1.0"),
        ("x * (7 // 2 - -7 // 2)", "constant 7.0"),
        ("x * (heads - 1) / 2 ", "constant 2.0"),
    ];
    for (value, line) in cases {
        let program = program(&format!("for n in g.nodes():\n    x = n.x\n    n[\"out\"] = {value}"));
        assert!(program.contains(line), "{value} has no `{line}`:\n{program}");
    }
    let unchanged = program("for n in g.nodes():\n    n[\"out\"] = mean_heads(dropout(n.x, 0.0))");
    assert_eq!(unchanged, "%11 : node.dst [1, 6] = lift %0\noutput out = %11", "nothing to do is no operator");
}

#[test]
fn a_softmax_is_over_edges_into_a_node() {
    let of = |call: &str| format!("for e in g.edges():\n    e[\"a\"] = {call}\n    e.dst[\"out\"] += e[\"a\"]");
    check(&[
        (&of("edge_softmax(e.y)"), &["edge [1, 6] = softmax %1 by node.dst ; a"]),
        (&of("edge_softmax(e.y, by=\"dst\")"), &["softmax %1 by node.dst"]),
        (&of("edge_softmax(e.y, by=\"etype\")"), &["softmax %1 by pair.dst"]),
        (&of("edge_softmax(1)"), &["edge [1, 1] = lift", "edge [1, 1] = softmax"]),
    ]);
}

#[test]
fn locals_are_values_of_their_loop() {
    check(&[
        (
            r#"
for n in g.dst_nodes():
    h = relu(n.x)
    for e in n.incoming_edges():
        k = h * e.y
        n["out"] += k"#,
            &["node.dst [1, 6] = relu %11 ; h", "edge [1, 6] = lift %12", "edge [1, 6] = mul %13 %1 ; k"],
        ),
        ("s = sigmoid(b)\nfor n in g.nodes():\n    n[\"out\"] = s * n.x", &["const [1, 6] = sigmoid %5 ; s"]),
        ("for n in g.nodes():\n    v = n.x\n    v = v + 1\n    n[\"out\"] = v", &["= add %0"]),
    ]);
}

#[test]
fn a_name_may_stand_on_several_domains() {
    check(&[(
        r#"
for n in g.nodes():
    n["h"] = exp(n.x)
for n in g.dst_nodes():
    n["h"] = tanh(n["h"])
    n["out"] = n["h"]
for e in g.edges():
    e["h"] = e.src["h"] * e.dst["h"]"#,
        &[
            "%11 : node.src [1, 6] = exp %0",
            "node.dst [1, 6] = lift %11",
            "tanh %12",
            "edge [1, 6] = lift %11",
            "edge [1, 6] = lift %13",
        ],
    )]);
}

const SWITCHED: &str = "
@layer(self_loops=loops)
def f(g, x: node[d_in], b: vector[w * 2] = when(bias and kind != \"none\"),
      c: node[d_in] = when(kind == \"c\", constant), kind: Literal[\"none\", \"b\", \"c\"] = \"b\",
      bias: bool = True, w: int = 3, scale: float = 2, loops: bool = False):
    '''Strings say nothing.'''
    for n in g.nodes():
        pass
        n[\"h\"] = scale * n.x
        if kind == \"none\":
            n[\"out\"] = n[\"h\"]
        elif kind == \"c\":
            n[\"out\"] = n.c
        elif bias:
            n[\"out\"] = n[\"h\"] + b
        else:
            n[\"out\"] = -n[\"h\"]
";

#[test]
fn options_decide() {
    let no = OptionValue::Bool(false);
    let cases: [(&[(&str, OptionValue)], &str); 5] = [
        (&[], "add"),
        (&[("kind", text("none"))], "mul"),
        (&[("kind", text("c")), ("loops", OptionValue::Bool(true))], "input c\n"),
        (&[("bias", no)], "neg"),
        (&[("scale", OptionValue::Float(0.5))], "constant 0.5"),
    ];
    for (options, line) in cases {
        let read = read("f", SWITCHED, &arguments(options)).unwrap();
        assert!(print(&read.program).contains(line), "{options:?} has no {line}:\n{}", print(&read.program));
        let has_b = read.program.values.iter().any(|value| matches!(&value.op, Op::Parameter { name } if name == "b"));
        assert_eq!(has_b, options.is_empty() || options[0].0 == "scale" || line == "input c\n", "{options:?}");
        assert_eq!(read.self_loops.adds(), line == "input c\n");
    }
    let wider = read("f", SWITCHED, &arguments(&[("w", OptionValue::Int(4))])).unwrap_err().to_string();
    assert!(wider.contains("[1, 6] and [1, 8] do not fit"), "{wider}");
}

#[test]
fn functions_of_the_text_are_expanded() {
    let source = "
def scaled(v, by=2.0):
    if by > 100:
        return v
    w = v * by
    return w

def exponent(g, name):
    for e in g.edges():
        e[\"e\"] = exp(scaled(e.y, by=name))
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n[\"s\"] += e[\"e\"]

def weigh(e, W):
    return linear(e.src.x, W[e.etype])

def f(g, x: node[d_in], y: edge[1], W: matrix[etype, d_in, d_out]):
    exponent(g, 3.0)
    for n in g.dst_nodes():
        n[\"out\"] = sum(scaled(e[\"e\"], 200) / n[\"s\"] * weigh(e, W) for e in n.incoming_edges())
";
    let program = print(&read("f", source, &arguments(&[])).unwrap().program);
    for line in ["constant 3.0", "edge [1, 1] = exp %5 ; e", "reduce sum %6 ; s", "edge [1, 4] = linear", "; out"] {
        assert!(program.contains(line), "no {line}:\n{program}");
    }
    assert!(!program.contains("200"), "{program}");
}

#[test]
fn a_function_of_the_text_comes_before_one_of_the_language() {
    let source = layer("for n in g.nodes():\n    n[\"out\"] = relu(n.x)");
    let source = format!("def relu(v):\n    return exp(v)\n\n{source}");
    assert!(print(&read("f", &source, &arguments(&[])).unwrap().program).contains("exp %0"));
}

#[test]
fn sizes_are_computed() {
    let declared = "a: vector[d_in * 2 - 1], b: vector[heads, d_in // heads], c: matrix[2, d_in + 1, (d_in)], \
                    d: edge[heads, 3]";
    let source = format!("def f(g, x: node[d_in], {declared}):\n    for n in g.nodes():\n        n[\"out\"] = n.x");
    let sizes = [("d_in", 7), ("heads", 3)].map(|(name, size)| (name.to_owned(), size));
    let read = read("f", &source, &Arguments { sizes: sizes.into(), ..Arguments::default() }).unwrap();
    let shapes: Vec<Shape> = read.program.values.iter().map(|value| value.shape).collect();
    let wanted = [
        Shape::vector(7),
        Shape::vector(13),
        Shape::Row { heads: 3, width: 2 },
        Shape::Matrix { heads: 2, rows: 8, cols: 7 },
        Shape::Row { heads: 3, width: 3 },
    ];
    assert_eq!(shapes[..5], wanted);
}

#[test]
fn gradients_are_wanted_of_inputs_that_are_not_constant() {
    let source = layer("for n in g.nodes():\n    n[\"out\"] = n.x");
    let read = read("f", &source, &arguments(&[])).unwrap();
    let wanted = |name: &str| {
        let is_it = |op: &Op| matches!(op, Op::Input { name: found, wants_gradient: true } if found == name);
        read.program.values.iter().any(|value| is_it(&value.op))
    };
    assert!(wanted("x") && wanted("y") && !wanted("D"));
    assert_eq!(read.program[read.program.output("out").unwrap()].domain, Domain::DST);
}

#[test]
fn a_condition_may_wait_behind_a_lambda() {
    let text = |condition: &str| {
        format!(
            "def f(g, x: node[d_in], b: vector[d_in] = when({condition}), bias: bool = True):\n    \
             for n in g.nodes():\n        n[\"out\"] = n.x + b if bias else n.x"
        )
    };
    for bias in [true, false] {
        let given = arguments(&[("bias", OptionValue::Bool(bias))]);
        let [plain, later] = ["bias", "lambda: bias"].map(|condition| read("f", &text(condition), &given).unwrap());
        assert_eq!(plain, later);
        assert_eq!(
            plain.program.values.iter().filter(|v| matches!(v.op, Op::Parameter { .. })).count(),
            usize::from(bias)
        );
    }
    for wrong in ["lambda y: bias", "lambda: (lambda: bias)"] {
        assert!(read("f", &text(wrong), &arguments(&[])).is_err(), "{wrong}");
    }
    assert!(read("f", &text("True").replace("n.x + b", "(lambda: n.x)"), &arguments(&[])).is_err());
}
