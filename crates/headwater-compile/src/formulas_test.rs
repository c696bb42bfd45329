//! Every model against its formula, written down again as plain loops: the variants are those of PyG and of Hector, by name.

use crate::adjacency::Adjacency;
use crate::front::OptionValue;
use crate::inter::{Domain, Path, Program};
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::{Arrays, Recipe, given, layer, text};

/// A graph and numbers on it, and how wide rows are.
struct World {
    /// Source, destination and relation of every edge.
    edges: Vec<(usize, usize, usize)>,
    node_types: Vec<usize>,
    /// The number of each written node among all that are read.
    written: Vec<usize>,
    arrays: Arrays,
    d_in: usize,
    d_out: usize,
    heads: usize,
}

impl World {
    fn new(graph: &Adjacency, arrays: Arrays, (d_in, d_out, heads): (usize, usize, usize)) -> Self {
        let to = |fine, coarse| graph.map(fine, coarse, Path::Only).unwrap();
        let ends = [Domain::SRC, Domain::DST, Domain::EdgeType].map(|domain| to(Domain::Edge, domain));
        let nodes = |domain: Domain| 0..graph.rows(domain);
        Self {
            edges: nodes(Domain::Edge).map(|e| (ends[0].get(e), ends[1].get(e), ends[2].get(e))).collect(),
            node_types: nodes(Domain::SRC).map(|node| to(Domain::SRC, Domain::NodeType).get(node)).collect(),
            written: nodes(Domain::DST).map(|node| to(Domain::DST, Domain::SRC).get(node)).collect(),
            arrays,
            d_in,
            d_out,
            heads,
        }
    }

    fn row(&self, name: &str, row: usize, len: usize) -> &[f64] {
        &self.arrays[name][row * len..][..len]
    }

    fn x(&self, node: usize) -> &[f64] {
        self.row("x", node, self.d_in)
    }

    /// `x` times the matrix of a type, of which there may be several a head.
    fn times(&self, x: &[f64], name: &str, kind: usize, cols: usize) -> Vec<f64> {
        let w = self.row(name, kind, x.len() * cols);
        (0..cols).map(|j| x.iter().enumerate().map(|(i, x)| x * w[i * cols + j]).sum()).collect()
    }

    /// The same with a matrix a head.
    fn times_heads(&self, x: &[f64], name: &str, kind: usize) -> Vec<f64> {
        let d = x.len() / self.heads;
        let each = |h: usize| self.times(&x[h * d..(h + 1) * d], name, kind * self.heads + h, d);
        (0..self.heads).flat_map(each).collect()
    }

    /// Every head's inner product.
    fn dots(&self, a: &[f64], b: &[f64]) -> Vec<f64> {
        let d = a.len() / self.heads;
        (0..self.heads).map(|h| (h * d..(h + 1) * d).map(|i| a[i] * b[i]).sum()).collect()
    }

    fn edges_into(&self, t: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.edges.iter().filter(move |edge| edge.1 == t).map(|edge| (edge.0, edge.2))
    }

    /// For every written node the sum over its edges of a softmax of `logits` times `messages`.
    fn attention(
        &self,
        t: usize,
        logits: impl Fn(usize, usize) -> Vec<f64>,
        messages: impl Fn(usize, usize) -> Vec<f64>,
        same: impl Fn(usize, usize) -> bool,
    ) -> Vec<f64> {
        let mut out = vec![0.0; self.heads * self.d_out];
        for (s, r) in self.edges_into(t) {
            let (l, m) = (logits(s, r), messages(s, r));
            let width = m.len() / self.heads;
            out.resize(m.len(), 0.0);
            for (h, l) in l.iter().enumerate() {
                let others = self.edges_into(t).filter(|(_, other)| same(r, *other));
                let sum: f64 = others.map(|(s, r)| logits(s, r)[h].exp()).sum();
                (h * width..(h + 1) * width).for_each(|i| out[i] += l.exp() / sum * m[i]);
            }
        }
        out
    }
}

fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn scale(a: f64, b: &[f64]) -> Vec<f64> {
    b.iter().map(|b| a * b).collect()
}

fn leaky(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.2 * x }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()))
}

/// GCNConv: `sum of x_s W / sqrt(d_s d_t) + b`, every node with an edge to itself.
fn gcn(w: &World, t: usize) -> Vec<f64> {
    let degree = |node: usize| 1.0 + w.edges_into(node).count() as f64;
    let term = |s: usize| scale(1.0 / (degree(s) * degree(t)).sqrt(), &w.times(w.x(s), "W", 0, w.d_out));
    w.edges_into(t)
        .map(|(s, _)| s)
        .chain([w.written[t]])
        .fold(w.row("b", 0, w.d_out).to_vec(), |sum, s| add(&sum, &term(s)))
}

/// SAGEConv: `mean of x_s W_neigh + x_t W_root + b`.
fn sage(w: &World, t: usize) -> Vec<f64> {
    let count = w.edges_into(t).count().max(1) as f64;
    let sum = w.edges_into(t).fold(vec![0.0; w.d_in], |sum, (s, _)| add(&sum, w.x(s)));
    let neighbours = w.times(&scale(1.0 / count, &sum), "W_neigh", 0, w.d_out);
    let own = w.times(w.x(w.written[t]), "W_root", 0, w.d_out);
    add(&add(&neighbours, &own), w.row("b", 0, w.d_out))
}

/// GINConv over Linear, ReLU, Linear, with eps = 0.
fn gin(w: &World, t: usize) -> Vec<f64> {
    let h = w.edges_into(t).fold(w.x(w.written[t]).to_vec(), |sum, (s, _)| add(&sum, w.x(s)));
    let hidden = add(&w.times(&h, "W1", 0, 5), w.row("b1", 0, 5));
    let hidden: Vec<f64> = hidden.into_iter().map(|x| x.max(0.0)).collect();
    add(&w.times(&hidden, "W2", 0, w.d_out), w.row("b2", 0, w.d_out))
}

/// GATConv, heads concatenated.
fn gat(w: &World, t: usize) -> Vec<f64> {
    let len = w.heads * w.d_out;
    let z = |node: usize| w.times(w.x(node), "W", 0, len);
    let right = w.dots(&z(w.written[t]), w.row("ar", 0, len));
    let logits =
        |s: usize, _| add(&w.dots(&z(s), w.row("al", 0, len)), &right).into_iter().map(leaky).collect::<Vec<_>>();
    add(&w.attention(t, logits, |s, _| z(s), |_, _| true), w.row("b", 0, len))
}

/// RGCNConv: `sum over r of (mean over N_r(t) of x_s) W_r + x_t root + b`.
fn rgcn_mean(w: &World, t: usize) -> Vec<f64> {
    let mut out = add(&w.times(w.x(w.written[t]), "root_W", 0, w.d_out), w.row("b", 0, w.d_out));
    for (s, r) in w.edges_into(t) {
        let count = w.edges_into(t).filter(|(_, other)| *other == r).count() as f64;
        out = add(&out, &scale(1.0 / count, &w.times(w.x(s), "W", r, w.d_out)));
    }
    out
}

/// RGCN as Hector has it: `sum of c_e x_s W_r + b` with c_e = 1.
fn rgcn_sum(w: &World, t: usize) -> Vec<f64> {
    let bias = w.row("b", 0, w.d_out).to_vec();
    w.edges_into(t).fold(bias, |sum, (s, r)| add(&sum, &w.times(w.x(s), "W", r, w.d_out)))
}

fn rgat(w: &World, t: usize, vectors: [&str; 2], is_shared: bool, same: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let len = w.heads * w.d_out;
    let z = |node: usize, r: usize| w.times(w.x(node), "W", r, len);
    let vector = |at: usize, r: usize| w.row(vectors[at], if is_shared { 0 } else { r }, len);
    let logits = |s: usize, r: usize| {
        let both = add(&w.dots(&z(s, r), vector(0, r)), &w.dots(&z(w.written[t], r), vector(1, r)));
        both.into_iter().map(leaky).collect::<Vec<_>>()
    };
    add(&w.attention(t, logits, z, same), w.row("b", 0, len))
}

/// Hector's RGAT: vectors a relation, softmax over all edges into a node.
fn rgat_hector(w: &World, t: usize) -> Vec<f64> {
    rgat(w, t, ["al", "ar"], false, |_, _| true)
}

/// RGATConv's shared vectors, softmax within a relation.
fn rgat_within(w: &World, t: usize) -> Vec<f64> {
    rgat(w, t, ["shared_al", "shared_ar"], true, |a, b| a == b)
}

/// `sum of a_e v_s W_msg_r` with `l_e = mu_r / sqrt(d) (k_s W_att_r) . q_t`.
fn hgt(w: &World, t: usize, has_bias: bool) -> Vec<f64> {
    let project = |name: &str, node: usize| {
        let (kind, plain) = (w.node_types[node], w.times(w.x(node), name, w.node_types[node], w.d_out));
        if has_bias { add(&plain, w.row(&format!("{name}_b"), kind, w.d_out)) } else { plain }
    };
    let q = project("Q", w.written[t]);
    let root = ((w.d_out / w.heads) as f64).sqrt();
    let logits = |s: usize, r: usize| {
        let dots = w.dots(&w.times_heads(&project("K", s), "W_att", r), &q);
        let mu = w.row("mu", r, w.heads);
        dots.iter().zip(mu).map(|(l, mu)| l * mu / root).collect::<Vec<_>>()
    };
    let mut h = w.attention(t, logits, |s, r| w.times_heads(&project("V", s), "W_msg", r), |_, _| true);
    h.resize(w.d_out, 0.0);
    h
}

/// HGTConv: biases, GELU, and a residual where widths are the same.
fn hgt_pyg(w: &World, t: usize) -> Vec<f64> {
    let kind = w.node_types[w.written[t]];
    let h: Vec<f64> = hgt(w, t, true).into_iter().map(gelu).collect();
    let o = add(&w.times(&h, "A", kind, w.d_out), w.row("A_b", kind, w.d_out));
    if w.d_in != w.d_out {
        return o;
    }
    let s = sigmoid(w.row("skip", kind, 1)[0]);
    add(&scale(s, &o), &scale(1.0 - s, w.x(w.written[t])))
}

/// Hector's HGT, with the attention weight on the side of k.
fn hgt_hector(w: &World, t: usize) -> Vec<f64> {
    let kind = w.node_types[w.written[t]];
    scale(sigmoid(w.row("skip", kind, 1)[0]), &w.times(&hgt(w, t, false), "A", kind, w.d_out))
}

/// A model, its options, a graph, widths and heads, and the formula.
type Case<'a> = (&'a str, &'a [(&'a str, OptionValue)], &'a Recipe, (usize, usize, usize), Formula);
type Formula = fn(&World, usize) -> Vec<f64>;

fn check(program: &Program, recipe: &Recipe, sizes: (usize, usize, usize), formula: Formula) {
    for seed in 0..3 {
        let graph = recipe.graph(seed);
        let mut world = World::new(&graph, given(program, &graph, seed), sizes);
        let degrees: Vec<f64> = (0..world.written.len()).map(|t| 1.0 + world.edges_into(t).count() as f64).collect();
        let roots: Vec<f64> = degrees.iter().map(|degree| 1.0 / degree.sqrt()).collect();
        for (name, values) in [("src_scale", &roots), ("dst_scale", &roots)] {
            world.arrays.entry(name.to_owned()).and_modify(|array| array.clone_from(values));
        }
        let own = degrees.iter().map(|degree| 1.0 / degree).collect::<Vec<_>>();
        world.arrays.entry("self_scale".to_owned()).and_modify(|array| array.clone_from(&own));
        let wanted: Vec<f64> = (0..world.written.len()).flat_map(|t| formula(&world, t)).collect();
        let compiled = compile(program, &Statistics::of(&graph), Optimisations::ALL).unwrap();
        let step = headwater_graph::random::Key::new(5);
        for kernels in [&compiled.forward, &compiled.inference] {
            let found = &crate::cpu::reference::run(kernels, &graph, step, &world.arrays).unwrap()["out"];
            assert_eq!(found.len(), wanted.len());
            let far = wanted.iter().zip(found).find(|(a, b)| (*a - *b).abs() > 1e-9 * (1.0 + a.abs()));
            assert!(far.is_none(), "{}: {far:?}", kernels.name);
        }
    }
}

#[test]
fn models_compute_their_formulas() {
    let (plain, block) = (Recipe::plain(7), Recipe::block());
    let shared = [("vectors", text("shared")), ("by", text("etype"))];
    let hector = [("variant", text("hector"))];
    let sum = [("norm", text("none")), ("root", OptionValue::Bool(false))];
    let cases: [Case<'_>; 12] = [
        ("gcn", &[], &plain, (4, 6, 1), gcn),
        ("sage", &[], &block, (4, 6, 1), sage),
        ("sage", &[], &plain, (9, 2, 1), sage),
        ("gin", &[], &block, (4, 6, 1), gin),
        ("gat", &[], &block, (4, 3, 2), gat),
        ("rgcn", &[], &block, (4, 6, 1), rgcn_mean),
        ("rgcn", &sum, &block, (4, 6, 1), rgcn_sum),
        ("rgat", &[], &block, (4, 3, 2), rgat_hector),
        ("rgat", &shared, &block, (4, 3, 1), rgat_within),
        ("hgt", &[], &block, (4, 6, 2), hgt_pyg),
        ("hgt", &[], &block, (6, 6, 2), hgt_pyg),
        ("hgt", &hector, &block, (4, 6, 1), hgt_hector),
    ];
    for (name, options, recipe, sizes, formula) in cases {
        let (d_in, d_out, heads) = sizes;
        let named = [("d_in", d_in), ("d_out", d_out), ("heads", heads), ("d_hidden", 5)];
        check(&layer(name, &named, options), recipe, sizes, formula);
    }
}
