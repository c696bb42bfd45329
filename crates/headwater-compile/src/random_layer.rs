//! Random layer texts for tests: every kind of loop, value, weight and function of the language, out of a seed.
//!
//! Expressions keep to moderate numbers (divisors and roots stay away from 0), so that single precision can be compared with
//! double. Values are read at both ends of edges and used more than once, since that is where keys and registers are shared.

use std::fmt::Write as _;

use headwater_graph::random::Key;

use crate::testing::Recipe;

/// Random numbers out of a seed, one after the other.
pub(crate) struct Dice {
    key: Key,
    drawn: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self { key: Key::new(seed), drawn: 0 }
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.drawn += 1;
        usize::try_from(self.key.below(self.drawn, limit as u64)).unwrap()
    }

    pub fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len());
        &from[at]
    }

    /// A graph's recipe: blocks and whole graphs, up to three node types, relations without edges, hubs, and edges from nodes
    /// to themselves.
    pub fn recipe(&mut self) -> Recipe {
        let types = 1 + self.below(3);
        let nodes = (0..types).map(|_| {
            let read = 1 + self.below(9);
            (read, if self.chance(3) { read } else { 1 + self.below(read) })
        });
        let nodes = nodes.collect();
        let relations = (0..1 + self.below(5)).map(|_| (self.below(types), self.below(types))).collect();
        let most_edges = [1, 3, 8, 40][self.below(4)];
        Recipe { nodes, relations, most_edges, empty_every: [2, 3, usize::MAX][self.below(3)] }
    }
}

/// Which loop an expression stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// `for n in g.nodes()`
    Nodes,
    /// Over edges: of the graph, or those into or out of a node.
    Edges,
    /// `for n in g.dst_nodes()`
    Written,
}

/// A text and what a row of it holds.
#[derive(Debug, Clone)]
struct Term {
    text: String,
    heads: usize,
    width: usize,
}

/// A layer's text while it is made.
struct Author<'a> {
    dice: &'a mut Dice,
    /// Whether functions with kinks are left out, so that differences tell gradients.
    is_smooth: bool,
    declared: Vec<String>,
    /// Values by the name of a field and where it was computed.
    fields: Vec<(Place, Term)>,
    body: String,
}

const WIDTHS: [usize; 8] = [1, 2, 3, 4, 5, 8, 17, 33];

/// A random layer called `f`.
pub(crate) fn random_layer(dice: &mut Dice, is_smooth: bool) -> String {
    let mut author = Author { dice, is_smooth, declared: Vec::new(), fields: Vec::new(), body: String::new() };
    author.inputs();
    author.nodes();
    author.edges();
    author.written();
    format!("def f(g, {}):\n{}", author.declared.join(", "), author.body)
}

impl Author<'_> {
    fn shape(&mut self) -> (usize, usize) {
        ([1, 1, 2, 3][self.dice.below(4)], WIDTHS[self.dice.below(WIDTHS.len())])
    }

    fn declare(&mut self, kind: &str, sizes: &[usize]) -> String {
        let name = format!("p{}", self.declared.len());
        let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
        let open = if kind.contains('[') { ", " } else { "[" };
        self.declared.push(format!("{name}: {kind}{open}{}]", sizes.join(", ")));
        name
    }

    /// Inputs and learnt rows. All share one or two shapes, so that they can meet.
    fn inputs(&mut self) {
        let (heads, width) = self.shape();
        for _ in 0..1 + self.dice.below(2) {
            let name = self.declare("node", &[heads, width]);
            self.given(Place::Nodes, name, heads, width);
        }
        if self.dice.chance(2) {
            let name = self.declare("dst_node", &[heads, width]);
            self.given(Place::Written, name, heads, width);
        }
        if self.dice.chance(2) {
            let (heads, width) = if self.dice.chance(2) { (heads, width) } else { (1, 1) };
            let name = self.declare("edge", &[heads, width]);
            self.given(Place::Edges, name, heads, width);
        }
        if self.dice.chance(3) {
            let name = self.declare("vector[node", &[heads, width]);
            self.given(Place::Nodes, name, heads, width);
        }
    }

    fn given(&mut self, place: Place, name: String, heads: usize, width: usize) {
        self.fields.push((place, Term { text: format!(".{name}"), heads, width }));
    }

    fn define(&mut self, place: Place, indent: &str, element: &str) {
        let depth = 1 + self.dice.below(3);
        let term = self.expression(place, depth);
        let name = format!("f{}", self.fields.len());
        writeln!(self.body, "{indent}{element}[\"{name}\"] = {}", term.text).unwrap();
        self.fields.push((place, Term { text: format!("[\"{name}\"]"), ..term }));
    }

    fn nodes(&mut self) {
        let count = self.dice.below(3);
        if count > 0 {
            self.body.push_str("    for n in g.nodes():\n");
        }
        (0..count).for_each(|_| self.define(Place::Nodes, "        ", "n"));
    }

    fn edges(&mut self) {
        let count = self.dice.below(4);
        if count > 0 {
            self.body.push_str("    for e in g.edges():\n");
        }
        (0..count).for_each(|_| self.define(Place::Edges, "        ", "e"));
    }

    fn written(&mut self) {
        self.body.push_str("    for n in g.dst_nodes():\n");
        for _ in 0..1 + self.dice.below(2) {
            let term = self.aggregate();
            let name = format!("f{}", self.fields.len());
            writeln!(self.body, "        n[\"{name}\"] = {}", term.text).unwrap();
            self.fields.push((Place::Written, Term { text: format!("[\"{name}\"]"), ..term }));
        }
        let (last, depth) = (self.fields[self.fields.len() - 1].1.clone(), self.dice.below(3));
        let more = self.expression(Place::Written, depth);
        let own = self.fitted(Term { text: format!("n{}", last.text), ..last }, &more);
        writeln!(self.body, "        n[\"out\"] = {own} + {}", more.text).unwrap();
    }

    /// What a node makes of its edges.
    fn aggregate(&mut self) -> Term {
        let names: &[&str] = if self.is_smooth { &["sum", "mean", "relation_mean"] } else { &AGGREGATES };
        let how = *self.dice.pick(names);
        let depth = 1 + self.dice.below(3);
        let each = self.expression(Place::Edges, depth);
        Term { text: format!("{how}({} for e in n.incoming_edges())", each.text), ..each }
    }

    fn expression(&mut self, place: Place, depth: usize) -> Term {
        if depth == 0 {
            return self.leaf(place);
        }
        match self.dice.below(12) {
            0 | 1 => self.function(place, depth),
            2..=4 => self.two(place, depth),
            5 => self.dot(place, depth),
            6 | 7 => self.linear(place, depth),
            8 => self.reshaped(place, depth),
            9 if place == Place::Edges => self.softmax(depth),
            10 => {
                let (x, y) = (self.expression(place, depth - 1), self.expression(place, depth - 1));
                if x.heads != y.heads || x.width + y.width > 40 {
                    return x;
                }
                Term { text: format!("concat({}, {})", x.text, y.text), heads: x.heads, width: x.width + y.width }
            }
            11 if self.dice.chance(2) => {
                let x = self.expression(place, depth - 1);
                Term { text: format!("dropout({}, 0.3)", x.text), ..x }
            }
            _ => self.leaf(place),
        }
    }

    /// A value that is there, or something learnt.
    fn leaf(&mut self, place: Place) -> Term {
        let mut known = Vec::new();
        for (of, term) in &self.fields {
            let readers: &[&str] = match (place, of) {
                (Place::Nodes, Place::Nodes) | (Place::Written, Place::Nodes | Place::Written) => &["n"],
                (Place::Edges, Place::Edges) => &["e"],
                (Place::Edges, Place::Nodes) => &["e.src", "e.dst"],
                (Place::Edges, Place::Written) => &["e.dst"],
                _ => &[],
            };
            known.extend(readers.iter().map(|reader| Term { text: format!("{reader}{}", term.text), ..term.clone() }));
        }
        if known.is_empty() || self.dice.chance(5) {
            return self.learnt(place, None);
        }
        self.dice.pick(&known).clone()
    }

    /// A learnt vector: for all, or for a type; of a given shape or any.
    fn learnt(&mut self, place: Place, shape: Option<(usize, usize)>) -> Term {
        let (heads, width) = shape.unwrap_or_else(|| self.shape());
        let (kind, chosen) = self.typed("vector", place);
        let name = self.declare(&kind, &[heads, width]);
        Term { text: format!("{name}{chosen}"), heads, width }
    }

    /// A kind of weight, and how its type is chosen.
    fn typed(&mut self, kind: &str, place: Place) -> (String, &'static str) {
        match (place, self.dice.below(3)) {
            (_, 0) => (kind.to_owned(), ""),
            (Place::Edges, 1) => (format!("{kind}[etype"), "[e.etype]"),
            (Place::Edges, _) => {
                (format!("{kind}[ntype"), if self.dice.chance(2) { "[e.src.ntype]" } else { "[e.dst.ntype]" })
            }
            _ => (format!("{kind}[ntype"), "[n.ntype]"),
        }
    }

    fn function(&mut self, place: Place, depth: usize) -> Term {
        let x = self.expression(place, depth - 1);
        let names: &[&str] = if self.is_smooth { &SMOOTH } else { &FUNCTIONS };
        Term { text: self.dice.pick(names).replace('$', &x.text), ..x }
    }

    /// Two operands: often the same value, or one field at both ends of an edge.
    fn operands(&mut self, place: Place, depth: usize) -> (Term, Term) {
        let at_nodes: Vec<Term> =
            self.fields.iter().filter(|(of, _)| *of == Place::Nodes).map(|(_, term)| term.clone()).collect();
        if place == Place::Edges && self.dice.chance(3) && !at_nodes.is_empty() {
            let field = self.dice.pick(&at_nodes).clone();
            let mut ends = ["e.src", "e.dst"].map(|end| Term { text: format!("{end}{}", field.text), ..field.clone() });
            if self.dice.chance(2) {
                ends.reverse();
            }
            let [x, y] = ends;
            return (x, y);
        }
        let x = self.expression(place, depth - 1);
        let y = if self.dice.chance(5) { x.clone() } else { self.expression(place, depth - 1) };
        (x, y)
    }

    fn two(&mut self, place: Place, depth: usize) -> Term {
        let (x, y) = self.operands(place, depth);
        let y = if fits(&x, &y) { y } else { self.learnt(place, Some((x.heads, x.width))) };
        let names: &[&str] = if self.is_smooth { &SMOOTH_PAIRS } else { &PAIRS };
        let parts: Vec<&str> = self.dice.pick(names).split('$').collect();
        let text = [parts[0], &x.text, parts[1], &y.text, parts[2]].concat();
        Term { text, heads: x.heads.max(y.heads), width: x.width.max(y.width) }
    }

    fn dot(&mut self, place: Place, depth: usize) -> Term {
        let (x, y) = self.operands(place, depth);
        let is_same = (x.heads, x.width) == (y.heads, y.width);
        let y = if is_same { y } else { self.learnt(place, Some((x.heads, x.width))) };
        Term { text: format!("dot({}, {})", x.text, y.text), heads: x.heads, width: 1 }
    }

    fn linear(&mut self, place: Place, depth: usize) -> Term {
        let x = self.expression(place, depth - 1);
        let (kind, chosen) = self.typed("matrix", place);
        let to = WIDTHS[self.dice.below(WIDTHS.len())];
        if x.heads > 1 && self.dice.chance(2) {
            let name = self.declare(&kind, &[x.heads, x.width, to]);
            return Term { text: format!("linear({}, {name}{chosen})", x.text), heads: x.heads, width: to };
        }
        let (from, is_turned) = (x.heads * x.width, self.dice.chance(4));
        let name = self.declare(&kind, &if is_turned { [to, from] } else { [from, to] });
        let weight = if is_turned { format!("transpose({name}{chosen})") } else { format!("{name}{chosen}") };
        Term { text: format!("linear({}, {weight})", x.text), heads: 1, width: to }
    }

    fn reshaped(&mut self, place: Place, depth: usize) -> Term {
        let x = self.expression(place, depth - 1);
        let all = x.heads * x.width;
        if self.dice.chance(3) {
            let from = self.dice.below(x.width);
            let to = from + 1 + self.dice.below(x.width - from);
            return Term { text: format!("({})[{from}:{to}]", x.text), heads: x.heads, width: to - from };
        }
        let (name, heads, width) = match self.dice.below(5) {
            0 => ("flatten", 1, all),
            1 => ("sum_heads", 1, x.width),
            2 => ("mean_width", x.heads, 1),
            3 => ("mean_heads", 1, x.width),
            _ => {
                let heads = *[2, 3, 1].iter().find(|heads| all.is_multiple_of(**heads)).unwrap();
                let text = format!("reshape({}, {heads}, {})", x.text, all / heads);
                return Term { text, heads, width: all / heads };
            }
        };
        Term { text: format!("{name}({})", x.text), heads, width }
    }

    fn softmax(&mut self, depth: usize) -> Term {
        let x = self.expression(Place::Edges, depth - 1);
        let by = if self.dice.chance(3) { ", by=\"etype\"" } else { "" };
        Term { text: format!("edge_softmax({}{by})", x.text), ..x }
    }

    /// A term that can be added to another.
    fn fitted(&mut self, x: Term, to: &Term) -> String {
        if fits(&x, to) {
            return x.text;
        }
        let flat = |term: &Term| term.heads * term.width;
        let name = self.declare("matrix", &[flat(&x), flat(to)]);
        format!("reshape(linear({}, {name}), {}, {})", x.text, to.heads, to.width)
    }
}

/// Whether two terms fit together element by element.
fn fits(x: &Term, y: &Term) -> bool {
    let fit = |a: usize, b: usize| a == b || a == 1 || b == 1;
    fit(x.heads, y.heads) && fit(x.width, y.width)
}

const AGGREGATES: [&str; 4] = ["sum", "mean", "max", "relation_mean"];
/// `$` stands for the operand.
const SMOOTH: [&str; 7] = [
    "tanh($)",
    "sigmoid($)",
    "gelu($)",
    "0.5 * ($)",
    "sqrt(2.5 + tanh($))",
    "rsqrt(2.5 + tanh($))",
    "log(2.5 + tanh($))",
];
const FUNCTIONS: [&str; 10] = [
    "tanh($)",
    "relu($)",
    "leaky_relu($, 0.2)",
    "elu($)",
    "abs($)",
    "-($)",
    "1 - ($)",
    "gelu($)",
    "tanh($) / 3",
    "sqrt(1.5 + abs(tanh($)))",
];
/// The first `$` is the left operand, the second the right one.
const SMOOTH_PAIRS: [&str; 4] = ["($) + ($)", "($) - ($)", "($) * ($)", "($) / (2.5 + tanh($))"];
const PAIRS: [&str; 6] =
    ["($) + ($)", "($) - ($)", "($) * ($)", "($) / (1.5 + abs($))", "maximum($, $)", "minimum($, $)"];
