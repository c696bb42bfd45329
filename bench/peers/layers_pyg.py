"""PyG's own layers on small graphs, as numbers to compare with.

Writes one JSON object: graphs, and for every case inputs, weights under the names of Headwater's layer texts, the
output, the gradient of the output (`loss = sum(out * d_out)`) and all gradients, in double precision. The tests of
headwater-compile read it.

    python bench/peers/layers_pyg.py crates/headwater-compile/src/testdata/layers_pyg.json
"""

import json
import sys

import torch
import torch_geometric
from torch_geometric.nn import GATConv, GCNConv, GINConv, HGTConv, RGATConv, RGCNConv, SAGEConv

D_IN, D_HIDDEN, D_OUT = 4, 5, 3


class Graph:
    """Nodes of each type (read, written) and edges of each relation, counted within their types."""

    def __init__(self, nodes, relations):
        self.nodes, self.relations = nodes, relations
        self.starts = [sum(read for read, _ in nodes[:at]) for at in range(len(nodes))]

    def read(self):
        return sum(read for read, _ in self.nodes)

    def edges(self):
        """All edges with nodes counted over all types, and the relation of each."""
        sources, destinations, kinds = [], [], []
        for at, (src, dst, edges) in enumerate(self.relations):
            sources += [self.starts[src] + s for s, _ in edges]
            destinations += [self.starts[dst] + d for _, d in edges]
            kinds += [at] * len(edges)
        return torch.tensor([sources, destinations]).reshape(2, -1), torch.tensor(kinds, dtype=torch.long)

    def json(self):
        edges = lambda list, end: [edge[end] for edge in sorted(list, key=lambda edge: edge[1])]
        relations = [
            {"src": src, "dst": dst, "sources": edges(list, 0), "destinations": edges(list, 1)}
            for src, dst, list in self.relations
        ]
        return {"nodes": self.nodes, "relations": relations}


# Node 2 is a hub, nodes 5 and 8 have no edges in, node 8 has none at all. No edge leads from a node to itself.
HUB = [(s, 2) for s in (0, 1, 3, 4, 5, 6, 7)]
PLAIN = Graph([(9, 9)], [(0, 0, HUB + [(2, 0), (6, 0), (2, 1), (0, 3), (5, 3), (2, 3), (7, 4), (0, 6), (2, 7)])])
# The first four of nine nodes are written. One edge is there twice.
BLOCK = Graph([(9, 4)], [(0, 0, [(s, 2) for s in (0, 1, 3, 5, 8)] + [(4, 0), (7, 0), (7, 0), (6, 3)])])
# Two types, four relations of which the third is empty, a hub, and nodes without edges.
TYPED = Graph(
    [(5, 5), (4, 4)],
    [
        (0, 1, [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (0, 0), (3, 2)]),
        (1, 0, [(0, 0), (1, 0), (3, 2), (2, 2), (0, 4)]),
        (0, 0, []),
        (1, 1, [(0, 1), (2, 1), (3, 0), (1, 2)]),
    ],
)
GRAPHS = {"plain": PLAIN, "block": BLOCK, "typed": TYPED}


def rows(count, width):
    return torch.randn(count, width, requires_grad=True)


def shuffled(module):
    """Weights that are no zeros and no ones."""
    for parameter in module.parameters():
        torch.nn.init.uniform_(parameter, -0.8, 0.8)
    return module


def flat(tensor):
    return [float(x) for x in tensor.detach().contiguous().flatten()]


def case(name, model, graph, sizes, options, out, weights, x, fixed=None):
    """`weights` has, for every name, tensors that lie one after the other, each with how to get our layout from it."""
    d_out = torch.randn_like(out)
    (out * d_out).sum().backward()
    ours = lambda value: sum((flat(turn(value(tensor))) for tensor, turn in parts), [])
    arrays, gradients = {"x": flat(x), **(fixed or {})}, {"x": flat(x.grad)}
    for weight, parts in weights.items():
        arrays[weight] = ours(lambda tensor: tensor)
        gradients[weight] = ours(lambda tensor: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)
    sizes = {"d_in": x.shape[1], **sizes}
    return {
        "name": name, "model": model, "graph": graph, "sizes": sizes, "options": options, "arrays": arrays,
        "out": flat(out), "d_out": flat(d_out), "gradients": gradients,
    }


same = lambda tensor: tensor
turned = lambda tensor: tensor.t()


def gcn():
    conv, x = shuffled(GCNConv(D_IN, D_OUT)), rows(9, D_IN)
    edges, _ = PLAIN.edges()
    degree = 1.0 + torch.zeros(9).scatter_add_(0, edges[1], torch.ones(edges.shape[1]))
    root = flat(degree.rsqrt())
    fixed = {"src_scale": root, "dst_scale": root, "self_scale": flat(1 / degree)}
    weights = {"W": [(conv.lin.weight, turned)], "b": [(conv.bias, same)]}
    yield case("GCNConv", "gcn", "plain", {"d_out": D_OUT}, {}, conv(x, edges), weights, x, fixed)


def sage():
    for graph in ("plain", "block"):
        for aggregate in ("mean", "sum", "max"):
            conv, x = shuffled(SAGEConv(D_IN, D_OUT, aggr=aggregate)), rows(9, D_IN)
            edges, _ = GRAPHS[graph].edges()
            out = conv((x, x[: GRAPHS[graph].nodes[0][1]]), edges)
            weights = {
                "W_neigh": [(conv.lin_l.weight, turned)], "W_root": [(conv.lin_r.weight, turned)],
                "b": [(conv.lin_l.bias, same)],
            }
            options = {"aggregate": aggregate}
            yield case(f"SAGEConv {aggregate}", "sage", graph, {"d_out": D_OUT}, options, out, weights, x)


def gat():
    for concat in (True, False):
        conv, x = shuffled(GATConv(D_IN, D_OUT, heads=2, concat=concat)), rows(9, D_IN)
        weights = {
            "W": [(conv.lin.weight, turned)], "al": [(conv.att_src, same)], "ar": [(conv.att_dst, same)],
            "b": [(conv.bias, same)],
        }
        sizes, options = {"d_out": D_OUT, "heads": 2}, {"concat_heads": concat}
        yield case("GATConv", "gat", "plain", sizes, options, conv(x, PLAIN.edges()[0]), weights, x)


def gin():
    for train_eps in (True, False):
        hidden = [torch.nn.Linear(D_IN, D_HIDDEN), torch.nn.ReLU(), torch.nn.Linear(D_HIDDEN, D_OUT)]
        conv, x = shuffled(GINConv(torch.nn.Sequential(*hidden), eps=0.3, train_eps=train_eps)), rows(9, D_IN)
        weights = {
            "W1": [(hidden[0].weight, turned)], "b1": [(hidden[0].bias, same)],
            "W2": [(hidden[2].weight, turned)], "b2": [(hidden[2].bias, same)],
        }
        if train_eps:
            weights["epsilon"] = [(conv.eps, same)]
        sizes, options = {"d_out": D_OUT, "d_hidden": D_HIDDEN}, {"train_eps": train_eps, "eps": 0.3}
        yield case("GINConv", "gin", "plain", sizes, options, conv(x, PLAIN.edges()[0]), weights, x)


def rgcn():
    # `mean` is a mean a relation, `add` a sum over all edges.
    for aggregate, norm in (("mean", "rel_mean"), ("add", "none")):
        conv, x = shuffled(RGCNConv(D_IN, D_OUT, 4, aggr=aggregate)), rows(TYPED.read(), D_IN)
        weights = {"W": [(conv.weight, same)], "root_W": [(conv.root, same)], "b": [(conv.bias, same)]}
        out = conv(x, *TYPED.edges())
        yield case(f"RGCNConv {aggregate}", "rgcn", "typed", {"d_out": D_OUT}, {"norm": norm}, out, weights, x)


def rgat():
    # PyG's vectors are a matrix that lets every head's logit see all heads. Ours see their own: the matrix has zeros
    # elsewhere, and the gradients of those are left out.
    for mechanism, by in (("across-relation", "dst"), ("within-relation", "etype")):
        for heads, concat in ((1, True), (2, True), (2, False)):
            settings = {"attention_mechanism": mechanism, "attention_mode": "additive-self-attention"}
            conv = shuffled(RGATConv(D_IN, D_OUT, 4, heads=heads, concat=concat, **settings))
            own = torch.eye(heads).repeat_interleave(D_OUT, 0)
            diagonal = lambda tensor, own=own: (tensor * own).sum(1)
            with torch.no_grad():
                conv.q.mul_(own)
                conv.k.mul_(own)
            x = rows(TYPED.read(), D_IN)
            weights = {
                "W": [(conv.weight, same)], "shared_al": [(conv.k, diagonal)], "shared_ar": [(conv.q, diagonal)],
                "b": [(conv.bias, same)],
            }
            sizes = {"d_out": D_OUT, "heads": heads}
            options = {"vectors": "shared", "by": by, "concat_heads": concat}
            yield case(f"RGATConv {mechanism}", "rgat", "typed", sizes, options, conv(x, *TYPED.edges()), weights, x)


def hgt():
    # Where rows stay as wide there is a residual.
    for d_in in (4, 6):
        d_out, heads = 6, 2
        nodes, kinds = ["a", "b"], [f"r{at}" for at in range(len(TYPED.relations))]
        types = [(nodes[src], kind, nodes[dst]) for kind, (src, dst, _) in zip(kinds, TYPED.relations)]
        conv, x = shuffled(HGTConv(d_in, d_out, (nodes, types), heads)), rows(TYPED.read(), d_in)
        parts = dict(zip(nodes, torch.split(x, [read for read, _ in TYPED.nodes])))
        edges = {
            type: torch.tensor(list, dtype=torch.long).reshape(-1, 2).t()
            for type, (_, _, list) in zip(types, TYPED.relations)
        }
        out = conv(parts, edges)
        third = lambda at: lambda tensor: turned(tensor[at * d_out : (at + 1) * d_out])
        # PyG has all relations of a head, then those of the next.
        heads_inside = lambda tensor: tensor.reshape(heads, len(types), -1).transpose(0, 1)
        weights = {}
        for at, name in enumerate("KQV"):
            weights[name] = [(conv.kqv_lin.lins[node].weight, third(at)) for node in nodes]
            bias = lambda tensor, at=at: tensor[at * d_out : (at + 1) * d_out]
            weights[f"{name}_b"] = [(conv.kqv_lin.lins[node].bias, bias) for node in nodes]
        weights["W_att"] = [(conv.k_rel.weight, heads_inside)]
        weights["W_msg"] = [(conv.v_rel.weight, heads_inside)]
        weights["mu"] = [(conv.p_rel["__".join(type)], same) for type in types]
        weights["A"] = [(conv.out_lin.lins[node].weight, turned) for node in nodes]
        weights["A_b"] = [(conv.out_lin.lins[node].bias, same) for node in nodes]
        if d_in == d_out:
            weights["skip"] = [(conv.skip[node], same) for node in nodes]
        out = torch.cat([out[node] for node in nodes])
        yield case("HGTConv", "hgt", "typed", {"d_out": d_out, "heads": heads}, {}, out, weights, x)


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(7)
    cases = [case for layer in (gcn, sage, gat, gin, rgcn, rgat, hgt) for case in layer()]
    made_with = f"torch {torch.__version__}, torch_geometric {torch_geometric.__version__}"
    graphs = {name: graph.json() for name, graph in GRAPHS.items()}
    with open(sys.argv[1], "w") as file:
        # One case a line.
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        graphs = json.dumps(graphs, separators=(",", ":"))
        file.write(f'{{"made_with":"{made_with}",\n"graphs":{graphs},\n"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
