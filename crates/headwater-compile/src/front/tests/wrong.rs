//! Wrong texts: each is refused at the exact place, with what was expected.
//!
//! What is between `‹` and `›` is what the error points at.

use super::{arguments, layer, text};
use crate::error::Error;
use crate::front::{OptionValue, read, signature};

/// A text without its marks, and the line, the column and the length of what was between them.
fn marked(text: &str) -> (String, usize, usize, usize) {
    let start = text.find('‹').unwrap_or_else(|| panic!("no mark in {text}"));
    let before = &text[..start];
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let inside = text[start..].chars().skip(1).take_while(|c| *c != '›' && *c != '\n').count();
    (text.replace(['‹', '›'], ""), before.matches('\n').count() + 1, column, inside.max(1))
}

fn refused(text: &str, options: &[(&str, OptionValue)], part: &str) {
    let (text, line, column, length) = marked(text);
    match read("f.py", &text, &arguments(options)) {
        Err(Error::Text { line: l, column: c, why, excerpt, .. }) => {
            assert_eq!((l, c), (line, column), "{text}\n{l}:{c}: {why}\n{excerpt}");
            assert!(why.contains(part), "{text}\n`{part}` is not in: {why}");
            assert_eq!(excerpt.matches('^').count(), length, "{excerpt}\n{text}");
        }
        other => panic!("{text}\nexpected `{part}`, found {other:?}"),
    }
}

#[test]
fn an_error_shows_the_line_and_what_is_meant() {
    let text = layer("for e in g.edges():\n    e[\"z\"] = e.y\nfor n in g.dst_nodes():\n    n[\"out\"] = n[\"z\"] * 2");
    let error = read("f.py", &text, &arguments(&[])).unwrap_err().to_string();
    let wanted = "f.py:5:20: `n[\"z\"]` is computed on edges (line 3), but read from a node; \
                  expected a value of dst_nodes\n    n[\"out\"] = n[\"z\"] * 2\n               ^^^^^^";
    assert_eq!(error, wanted);
}

/// Half of what a thread of a pool has.
const STACK_BYTES: usize = 1 << 20;

/// What is wrong in the value of a node or of an edge.
#[test]
fn wrong_values() {
    let of_nodes = [
        ("‹q›", "there is no `q`"),
        ("‹x›", "expected `n.x`"),
        ("‹y›", "expected `e.y`"),
        ("‹n.z›", "there is no input `z`; there are: D, N, x, y"),
        ("‹n.y›", "given on edges; expected `e.y`"),
        ("‹n.D›", "given on dst_nodes"),
        ("‹n[\"z\"]›", "there is no `n[\"z\"]` so far"),
        ("‹n[\"x\"]›", "`x` is an input; expected `.x`"),
        ("‹n[0]›", "expected a name in quotes"),
        ("‹n›", "expected a value of the node"),
        ("‹g›", "expected a value, found the graph"),
        ("‹g.x›", "expected a loop"),
        ("‹n.etype›", "expected `n.ntype`"),
        ("‹n.ntype›", "expected a value, found a type"),
        ("n.x + ‹W›", "expected a value, found a matrix"),
        ("n.x @ ‹n.x›", "expected a matrix"),
        ("sum(‹n.x›)", "expected `v for e in"),
        ("sum(edge_softmax(e.y, by=‹\"src\"›) for e in n.outgoing_edges())", "expected by=\"dst\" or by=\"etype\""),
        ("linear(n.x, ‹R›)", "expected `[e.etype]`"),
        ("linear(n.x, ‹T›)", "expected `[n.ntype]`"),
        ("linear(n.x, ‹R[n.ntype]›)", "expected `[e.etype]`"),
        ("linear(n.x, ‹T[0]›)", "expected `[n.ntype]`"),
        ("linear(n.x, ‹W[n.ntype]›)", "expected it without an index"),
        ("linear(n.x, ‹b›)", "expected a matrix, found a value"),
        ("linear(n.x, ‹a›)", "expected a matrix, found a vector for every type"),
        ("‹linear(linear(n.x, W), W)›", "rows of [1, 4] meet a matrix that takes [1, 6]"),
        ("‹b[n.ntype]›", "one value for all types"),
        ("‹E[n]›", "expected `[e.src, e.etype]`"),
        ("‹n.x + linear(n.x, W)›", "[1, 6] and [1, 4] do not fit"),
        ("‹dot(n.x, linear(n.x, W))›", "two vectors of one shape"),
        ("‹concat(reshape(n.x, 2, 3), n.x)›", "cannot be joined"),
        ("‹reshape(n.x, 2, 2)›", "has not as many elements"),
        ("reshape(n.x, ‹-2›, 2)", "expected a size, found -2"),
        ("reshape(n.x, ‹1.5›, 2)", "expected a whole number, found 1.5"),
        ("‹n.x[4:9]›", "no elements 4 to 9"),
        ("‹n.x[3:3]›", "no elements 3 to 3"),
        ("n.x[‹n.x›:3]", "expected a whole number, found a value of [1, 6] on nodes"),
        ("n.x[‹::2›]", "expected a slice without a step"),
        ("‹wavelet›(n.x)", "there is no function `wavelet`; there are linear"),
        ("‹relu()›", "expected `x` too"),
        ("relu(n.x, ‹2›)", "expected at most 1: x"),
        ("leaky_relu(n.x, ‹slop›=1)", "expected one of x, slope, found `slop`"),
        ("leaky_relu(n.x, 1, ‹slope›=1)", "`slope` is given twice"),
        ("leaky_relu(n.x, ‹n.x›)", "expected a number or an option"),
        ("‹concat()›", "expected values to join"),
        ("dropout(n.x, ‹1.0›)", "from 0 to below 1"),
        ("dropout(n.x, ‹\"half\"›)", "expected a number or an option"),
        ("n.x * ‹\"half\"›", "expected a value or a number, found \"half\""),
        ("n.x * ‹sqrt(-1)›", "is no finite number"),
        ("n.x * (‹1 / 0›)", "division by 0"),
        ("n.x * (‹1 // 0›)", "division by 0"),
        ("n.x * (‹1e308 * 10›)", "too large"),
        ("n.x * (‹9223372036854775807 + 1›)", "too large"),
        ("n.x * ‹9223372036854775808›", "below 2^63"),
        ("n.x * ‹1e999›", "finite"),
        ("n.x * ‹2j›", "real"),
        ("‹n.x // 2›", "expected `/`"),
        ("‹n.x ** 2›", "expected one of + - * / // @"),
        ("‹n.x < 2›", "only options and sizes are compared"),
        ("‹not n.x›", "only options are negated"),
        ("‹~n.x›", "expected `-` or `not`"),
        ("1 if ‹n.x› else 2", "expected a condition on options or sizes, found a value"),
        ("1 if ‹heads› else 2", "expected a condition on options or sizes, found 2"),
        ("1 if ‹1 < 2 < 3› else 2", "expected one comparison"),
        ("1 if ‹heads in 3› else 2", "expected one of == !="),
        ("1 if ‹heads == \"two\"› else 2", "expected two numbers, found int and str"),
        ("1 if ‹heads and True› else 2", "expected two of bool, found int and bool"),
        ("‹edge_softmax(n.x)›", "expected a loop over edges"),
        ("‹[n.x]›", "expected a number, a name, a call"),
        ("‹lambda: n.x›", "expected a number, a name, a call"),
        ("‹None›", "expected a number, a name, a call"),
        ("‹f\"{n}\"›", "expected a number, a name, a call"),
        ("‹n.x.relu›()", "expected the name of a function"),
        ("relu(‹*n.x›)", "expected a number, a name, a call"),
        ("relu(‹**n›)", "expected arguments one by one"),
        ("‹f(g)›", "`f` calls itself"),
        ("sum(e.y for e in ‹n.incoming_edges()›)", "expected g.dst_nodes() around"),
        ("sum(e.y for e in ‹n.x›)", "expected g.edges()"),
        ("sum(e.y for ‹n› in n.outgoing_edges())", "expected another name"),
        ("sum(‹e.y for e in n.outgoing_edges() if True›)", "one `for` without `if`"),
        ("relu(‹e.y for e in n.outgoing_edges()›)", "expected sum(..)"),
        ("sum(‹e.x› for e in n.outgoing_edges())", "expected `e.src.x` or `e.dst.x`"),
        ("sum(‹e.ntype› for e in n.outgoing_edges())", "expected `e.src.ntype`"),
        ("sum(‹e› for e in n.outgoing_edges())", "expected a value of the edge"),
        ("sum(linear(e.y, ‹T[e.etype]›) for e in n.outgoing_edges())", "expected `[n.ntype]`"),
        ("sum(‹E[e.dst, e.etype]› for e in n.outgoing_edges())", "expected `[e.src, e.etype]`"),
    ];
    for (value, part) in of_nodes {
        refused(&layer(&format!("for n in g.nodes():\n    n[\"out\"] = {value}")), &[], part);
    }
}

/// What is wrong in a statement of a layer.
#[test]
fn wrong_statements() {
    let nodes = "for n in g.nodes():\n    n[\"z\"] = n.x\n";
    let cases = [
        ("‹import os›", "expected an assignment, `for`, `if`, `return` or a call"),
        ("‹while True:›\n    pass", "expected an assignment"),
        ("‹return g›", "expected no `return`"),
        ("‹return›", "expected a value behind `return`"),
        ("‹relu(b)›", "the result is not used"),
        ("‹b›", "the result is not used"),
        ("‹a, b› = 1", "expected a number, a name"),
        ("‹q = r = 1›", "expected one name to assign to"),
        ("‹b -= 1›", "expected `=` or `+=`"),
        ("‹b› += 1", "expected a value to write"),
        ("‹b[0]› = 1", "expected a value to write"),
        ("‹g.x› = 1", "expected a value to write"),
        ("for n in ‹g›:\n    pass", "expected g.edges()"),
        ("for n in ‹g.cats()›:\n    pass", "expected g.edges()"),
        ("for n in ‹g.nodes(1)›:\n    pass", "expected g.edges()"),
        ("for ‹n, m› in g.nodes():\n    pass", "expected one name for the elements"),
        ("‹for n in g.nodes():›\n    pass\nelse:\n    pass", "without `async` or `else`"),
        ("for ‹b› in g.nodes():\n    pass", "expected another name"),
        ("for n in g.nodes():\n    for m in ‹g.nodes()›:\n        pass", "a loop over nodes in one over nodes"),
        (
            "for e in g.edges():\n    for f in ‹e.dst.incoming_edges()›:\n        pass",
            "a loop over edges in one over edges",
        ),
        ("for n in g.dst_nodes():\n    for e in ‹n.outgoing_edges()›:\n        pass", "expected g.nodes() around"),
        ("if ‹b›:\n    pass", "expected a condition on options or sizes"),
        ("for n in g.nodes():\n    if ‹n.x›:\n        pass", "expected a condition on options or sizes"),
        ("for n in g.nodes():\n    ‹b› = n.x", "belongs to what is around"),
        ("for n in g.nodes():\n    v = 1\nfor n in g.nodes():\n    n[\"out\"] = ‹v›", "there is no `v` here"),
        ("for n in g.nodes():\n    n[\"z\"] = n.x\n    ‹n[\"z\"]› = n.x", "defined already (line 3)"),
        ("for n in g.nodes():\n    ‹n[\"z\"]› += n.x", "there is no `z` of nodes to add to"),
        ("for n in g.dst_nodes():\n    for e in n.incoming_edges():\n        ‹n[\"z\"]› = e.y", "expected `+=`"),
        ("for e in g.edges():\n    e.dst[\"h\"] += e.y\n    e[\"k\"] = ‹e.dst[\"h\"]›", "being added up in this loop"),
    ];
    for (body, part) in cases {
        refused(&layer(body), &[], part);
    }
    let after = [
        ("for e in g.edges():\n    e[\"m\"] = e.src[\"z\"]\n    ‹e.src[\"z\"]› += e.y", "was read in this loop"),
        ("for e in g.edges():\n    ‹e.dst[\"z\"]› += e.y", "computed on nodes (line 3); expected another name"),
        ("for e in g.edges():\n    e[\"m\"] = ‹e[\"z\"]›", "read from an edge; expected a value of edges"),
        (
            "for n in g.dst_nodes():\n    n[\"w\"] = n.x\nfor e in g.edges():\n    e[\"m\"] = ‹e.src[\"w\"]›",
            "on dst_nodes (line 5)",
        ),
        ("for n in g.nodes():\n    n[\"w\"] = ‹n.z›", "computed, not an input; expected `n[\"z\"]`"),
    ];
    for (body, part) in after {
        refused(&layer(&format!("{nodes}{body}")), &[], part);
    }
}

/// What is wrong in the head of a layer, or around it.
#[test]
fn wrong_heads() {
    let body = "\n    for n in g.nodes():\n        n[\"out\"] = n.x\n";
    let cases = [
        ("‹›", "expected a layer"),
        ("‹x = 1›", "expected `def`"),
        ("‹class A: pass›", "expected `def`"),
        ("def f‹:›", "expected"),
        ("def ‹f›(): BODY", "expected a first parameter such as `g`"),
        ("def f(‹g›: node[1]): BODY", "expected the graph"),
        ("async def ‹f›(g): BODY", "expected a plain `def`"),
        ("def f(g) -> ‹int›: BODY", "expected `:`"),
        ("def f(g, ‹*x›): BODY", "expected a parameter with a name"),
        ("def f(g, ‹x›): BODY", "expected an annotation: `x: node[..]"),
        ("def f(g, x: ‹tensor›[3]): BODY", "expected node[..]"),
        ("def f(g, x: ‹tensor› = 1): BODY", "expected node[..]"),
        ("def f(g, x: ‹3›): BODY", "expected node[..]"),
        ("def f(g, x: ‹node›[1, 2, 3]): BODY", "found 3 sizes"),
        ("def f(g, x: ‹matrix›[1]): BODY", "expected matrix[rows, cols]"),
        ("def f(g, x: ‹vector›[etype]): BODY", "found 0 sizes"),
        ("def f(g, x: matrix[‹node›, 2, 2]): BODY", "a matrix belongs to types"),
        ("def f(g, x: node[‹\"w\".a›]): BODY", "expected a size"),
        ("def f(g, x: node[‹zero›]): BODY", "`zero` is 0; expected 1 to"),
        ("def f(g, x: node[‹huge + 1›]): BODY", "expected 1 to 1048576"),
        ("def f(g, x: node[‹1.5›]): BODY", "expected a whole number, found 1.5"),
        ("def f(g, x: node[‹1 - 2›]): BODY", "expected a size, found -1"),
        ("def f(g, x: node[‹width›]): BODY", "size `width` is not given"),
        ("def f(g, x: node[6], y: node[‹x›]): BODY", "`x` is a value of the layer; expected a size"),
        ("def f(g, x: ‹matrix[huge, huge]›): BODY", "is no size of a row"),
        ("def f(g, x: node[6] = ‹3›): BODY", "expected `constant` or `when(condition)`"),
        ("def f(g, x: vector[6] = ‹constant›): BODY", "expected `when(condition)`"),
        ("def f(g, x: vector[6] = ‹when(True, constant)›): BODY", "expected `when(condition)`"),
        ("def f(g, x: node[6] = when(‹3›)): BODY", "expected a condition"),
        ("def f(g, ‹s›: float): BODY", "an option has a default"),
        ("def f(g, s: float = ‹\"a\"›): BODY", "expected float, found \"a\""),
        ("def f(g, s: int = ‹1.5›): BODY", "expected int, found 1.5"),
        ("def f(g, s: str = ‹other›): BODY", "expected a number, True, False or a string"),
        ("def f(g, s: Literal[\"a\", \"b\"] = ‹\"c\"›): BODY", "expected one of \"a\", \"b\", found \"c\""),
        ("def f(g, s: Literal[‹1›] = \"c\"): BODY", "expected a string"),
        ("def f(g, x: node[6], ‹x›: node[6]): BODY", "a parameter `x` already"),
        ("def f(g, ‹g›: node[6]): BODY", "a parameter `g` already"),
        ("@‹cached›\ndef f(g, x: node[6]): BODY", "expected `@layer`"),
        ("@‹layer(3)›\ndef f(g, x: node[6]): BODY", "expected `@layer`"),
        ("@layer(self_loops=‹3›)\ndef f(g, x: node[6]): BODY", "expected a condition"),
        ("@‹layer(loops=True)›\ndef f(g, x: node[6]): BODY", "`@layer(drop_self_loops=True)`"),
        ("@‹layer(self_loops=True, drop_self_loops=True)›\ndef f(g, x: node[6]): BODY", "expected `@layer`"),
        ("@layer\n‹@layer›\ndef f(g, x: node[6]): BODY", "expected one decorator"),
        ("@‹layer›\ndef h(v): return v\ndef f(g, x: node[6]): BODY", "the last function is the layer"),
        ("def f(v): return v\ndef ‹f›(g, x: node[6]): BODY", "a function `f` already"),
        ("def ‹f›(g, x: node[6]):\n    pass", "expected one in a loop over g.dst_nodes()"),
        (
            "def ‹f›(g, x: node[6]):\n    for e in g.edges():\n        e[\"out\"] = e.src.x",
            "a layer's result is n[\"out\"]",
        ),
        (
            "def f(g, x: node[6], b: vector[6] = when(False)):\n    for n in g.nodes():\n        n[\"out\"] = ‹b›",
            "`when(..)` does not hold",
        ),
        (
            "def f(g, x: node[6] = when(False)):\n    for n in g.nodes():\n        n[\"out\"] = ‹n.x›",
            "`when(..)` does not hold",
        ),
    ];
    for (text, part) in cases {
        refused(&text.replace(" BODY", body), &[], part);
    }
}

#[test]
fn wrong_functions() {
    let with = |function: &str, value: &str| {
        format!("{function}\ndef f(g, x: node[6]):\n    for n in g.nodes():\n        n[\"out\"] = {value}\n")
    };
    let cases = [
        (with("def h(v): return ‹h(v)›", "h(n.x)"), "`h` calls itself"),
        (with("def a(v): return ‹b(v)›\ndef b(v): return a(v)", "b(n.x)"), "`b` calls itself"),
        (with("def h(v): return v", "‹h›"), "`h` is a function; expected `h(..)`"),
        (with("def h(v): return v", "‹h()›"), "expected `v` too"),
        (with("def h(v): return v", "h(1, ‹2›)"), "expected at most 1: v"),
        (with("def h(v): pass", "‹h(1)›"), "`h` returns nothing"),
        (with("def h(v): return ‹n› * v", "h(1)"), "there is no `n` here (`h` is called in line 4)"),
        (with("def h(v, w=‹n›): return v", "h(1)"), "there is no `n` here (`h` is called in line 4)"),
        (with("def a(v): return ‹w›\ndef b(v): return a(v)", "b(1)"), "there is no `w` here (`a` is called in line 2)"),
        (with("def h(v, ‹v›): return v", "h(1, 2)"), "parameter"),
        (with("def h(v: ‹int›): return v", "h(1)"), "expected a plain name"),
        (
            with("def h(g):\n    for m in ‹g.nodes()›:\n        pass\n    return 1", "h(g)"),
            "a loop over nodes in one over nodes",
        ),
        (with("def h(v): return v", "1\n        ‹h(1)›"), "the result is not used"),
    ];
    for (text, part) in cases {
        refused(&text, &[], part);
    }
    let returned = "def h(g):\n    for n in ‹g.nodes()›:\n        return n.x\n\ndef f(g, x: node[6]):\n    h(g)\n";
    refused(returned, &[], "expected `return` outside");
}

#[test]
fn wrong_options() {
    let head = |mark: &str| {
        format!("def {mark}(g, x: node[6], OPTIONS):\n    for n in g.nodes():\n        n[\"out\"] = n.x\n")
    };
    let options = "s: float = 1.0, k: Literal[\"a\", \"b\"] = \"a\", t: bool = True, i: int = 1";
    let unknown = head("‹f›").replace("OPTIONS", options);
    refused(&unknown, &[("q", OptionValue::Int(1))], "there is no option `q`; `f` has i, k, s, t");
    let cases = [
        ("s", text("a"), "option `s`: expected float, found \"a\""),
        ("s", OptionValue::Float(f64::NAN), "expected a finite number"),
        ("k", text("c"), "expected one of \"a\", \"b\", found \"c\""),
        ("t", OptionValue::Int(1), "expected bool, found 1"),
        ("i", OptionValue::Float(1.0), "expected int, found 1.0"),
    ];
    for (name, value, part) in cases {
        let marked = options.replace(&format!("{name}: "), &format!("‹{name}›: "));
        refused(&head("f").replace("OPTIONS", &marked), &[(name, value)], part);
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let value = |value: &str| layer(&format!("for n in g.nodes():\n    n[\"out\"] = {value}"));
    let doubled: String = (0..60).map(|at| format!("    v{} = concat(v{at}, v{at})\n", at + 1)).collect();
    let calls: String = (0..40).map(|at| format!("def h{}(v): return h{at}(v) + h{at}(v)\n", at + 1)).collect();
    let chain: String = (0..400).map(|at| format!("def h{}(v): return h{at}(v)\n", at + 1)).collect();
    let cases = [
        ("x".repeat(1 << 21), "expected at most 1048576"),
        (value(&format!("{}n.x", "-".repeat(100_000))), "words in a statement"),
        (value(&format!("n.x{}", " + n.x".repeat(100_000))), "words in a statement"),
        (value(&format!("n{}", ".x".repeat(100_000))), "words in a statement"),
        (value(&"(".repeat(100_000)), "words in a statement"),
        (value(&format!("{}n.x", "-".repeat(500))), "nested too deeply"),
        (value(&format!("n.x{}", " + 1".repeat(500))), "nested too deeply"),
        (value(&format!("1 if True{} else 2", " and True".repeat(500))), "nested too deeply"),
        ((0..900).map(|at| format!("{}if x:\n", " ".repeat(at))).collect(), "nested too deeply"),
        (format!("def f(g, {}: node[1]): pass", "x".repeat(1000)), "128 bytes"),
        (layer(&format!("for n in g.nodes():\n    v0 = n.x\n{doubled}    n[\"out\"] = v60")), "is no size of a row"),
        (format!("def h0(v): return v\n{calls}{}", value("h40(n.x)")), "expected at most 200000 steps"),
        (format!("def h0(v): return v\n{chain}{}", value("h400(n.x)")), "nested too deeply"),
        ("def f(g, x: node[huge, huge], y: matrix[huge, huge, huge]): pass".to_owned(), "is no size of a row"),
    ];
    let check = move || {
        for (text, part) in cases {
            let error = read("f", &text, &arguments(&[])).unwrap_err().to_string();
            assert!(error.contains(part), "{}: {error}", &text[..text.len().min(200)]);
            assert!(error.len() < 2000, "{error}");
            let _ = signature("f", &text);
        }
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(check).unwrap().join().unwrap();
}
