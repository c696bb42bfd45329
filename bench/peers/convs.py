"""GCN, GraphSAGE and GAT by Headwater, PyG and an expert's PyTorch on one graph of ogbn-arxiv's shape, with hubs and without.

    python3 bench/peers/convs.py --json convs.jsonl
    python3 bench/peers/relational.py --table convs.jsonl
    python3 bench/peers/convs.py --scale 0.005 --device cpu --rounds 2 --no-compile

Edges are random: with a skew of 1 all nodes are alike, with 3 (the power of a uniform number) a few are hubs at both ends. Steps,
comparison with the reference (the expert's first variant), figures and lines are those of `relational.py`; shapes are named after
their skew.
"""

import argparse
import os
import sys
import tempfile
import types

import torch

import relational_table
from relational_expert import edge_attention
from relational_graph import Layer, Problem
from relational_ops import Adjacency, EdgeSums, compiled, weighted_sums
from relational_run import Lines, run

SHAPES = {"arxiv": (169_343, 1_166_243)}  # nodes, edges


class Graph:
    """`edge_index` is sorted by targets."""

    def __init__(self, nodes, edges, skew, device, seed):
        self.nodes, self.edges, self.device = nodes, edges, torch.device(device)
        random = torch.Generator(device=device).manual_seed(seed)
        ends = torch.rand(2, edges, device=device, generator=random).pow(skew) * nodes
        names = torch.randperm(nodes, device=device, generator=random)
        ends = names[ends.long().clamp(max=nodes - 1)]
        self.edge_index = ends[:, (ends[1] * nodes + ends[0]).argsort()].contiguous()
        # Of each node without edges to itself, plus one: GCN's degrees.
        own = self.edge_index[:, self.edge_index[0] != self.edge_index[1]]
        self.degrees = 1.0 + torch.bincount(own[1], minlength=nodes)
        # Those edges, and one of each node to itself.
        loops = torch.arange(nodes, device=device).expand(2, -1)
        whole = torch.cat([own, loops], 1)
        self.with_loops = whole[:, (whole[1] * nodes + whole[0]).argsort()].contiguous()


def problem(graph, model, width, heads, seed=2):
    random = torch.Generator().manual_seed(seed)

    def drawn(*shape, scale=1.0):
        return (torch.randn(*shape, generator=random) * scale).to(graph.device)

    matrices = {"gcn": ["W"], "sage": ["W_neigh", "W_root"], "gat": ["W"]}[model]
    weights = {name: drawn(width, width, scale=width**-0.5) for name in matrices}
    if model == "gat":
        weights |= {name: drawn(heads, width // heads, scale=(width // heads) ** -0.5) for name in ("al", "ar")}
    weights["b"] = drawn(width, scale=0.1)
    labels = torch.randint(width, (graph.nodes,), generator=random).to(graph.device)
    return Problem(graph, model, width, heads, drawn(graph.nodes, width), weights, labels, drawn(graph.nodes, width))


class Expert(Layer):
    """Sums by one of the ways of `relational_ops.py`; both directions of the adjacency are built once."""

    def __init__(self, problem, how, fused):
        super().__init__(problem)
        graph, self.how, self.fused = problem.graph, how, fused
        src, dst = self.edges = graph.edge_index if problem.model == "sage" else graph.with_loops
        if problem.model == "gat":
            self.sums = EdgeSums(dst, src, graph.nodes, graph.nodes, problem.heads, how)
            return
        degrees = graph.degrees if problem.model == "gcn" else torch.bincount(dst, minlength=graph.nodes).float()
        self.scales = (degrees[src] * degrees[dst]).rsqrt() if problem.model == "gcn" else 1 / degrees[dst]
        if how != "compiled":
            self.adjacency = Adjacency(dst, src, graph.nodes, graph.nodes).fix(self.scales)

    def summed(self, x):
        if self.how == "compiled":
            src, dst = self.edges
            return compiled(weighted_sums)(x.unsqueeze(1), src, self.scales.unsqueeze(0), dst, self.problem.graph.nodes).squeeze(1)
        return _Sums.apply(self.adjacency, x, self.how)

    def __call__(self, x):
        leaves, (src, dst) = self.leaves, self.edges
        if self.problem.model == "gcn":
            return self.summed(x @ leaves["W"]) + leaves["b"]
        if self.problem.model == "sage":
            return torch.addmm(torch.addmm(leaves["b"], x, leaves["W_root"]), self.summed(x), leaves["W_neigh"])
        z = x @ leaves["W"]
        split = z.view(len(z), self.problem.heads, -1)
        left, right = ((split * leaves[name]).sum(2) for name in ("al", "ar"))
        attention = compiled(edge_attention) if self.fused else edge_attention
        return self.sums.sums(attention(left, right, src, dst, dst, len(z)), z) + leaves["b"]


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, adjacency, x, how):
        ctx.adjacency, ctx.how = adjacency, how
        return adjacency.sums(x, how)

    @staticmethod
    def backward(ctx, gradient):
        return None, ctx.adjacency.sums_back(gradient.contiguous(), ctx.how), None


def expert(problem, options):
    ways = ["cusparse", "bags"] + (["compiled"] if options.compile else [])
    own = {"reference": lambda: reference(problem)}
    return own | {how: lambda how=how: Expert(problem, how, options.compile) for how in ways}


def reference(problem, form="own"):
    return Expert(problem, "cusparse", fused=False)


def ours(problem, options):
    import headwater

    class Ours(Layer):
        def __init__(self):
            super().__init__(problem)
            graph = problem.graph
            self.layer, self.named = headwater.compile(problem.model), {}
            self.graph = headwater.LayerGraph(graph.edge_index, graph.nodes)
            if problem.model == "gat":
                self.named["heads"] = problem.heads
            if problem.model == "gcn":
                root = graph.degrees.rsqrt()
                self.named = {"src_scale": root, "dst_scale": root, "self_scale": 1 / graph.degrees}

        def __call__(self, x):
            weights = {name: leaf for name, leaf in self.leaves.items() if name != "x"}
            return self.layer(self.graph, x=x, **weights, **self.named)

        def close(self):
            self.graph = None
            headwater.forget_graphs()

    return {"compiled": Ours}


def pyg(problem, options):
    from torch_geometric import EdgeIndex
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    class Pyg(Layer):
        """PyG's module, with the problem's weights. Its matrices are the other way round."""

        def __init__(self, conv, edges):
            super().__init__(problem, names=())
            self.conv, self.edges = conv.to(problem.graph.device), edges()
            if problem.model == "sage":
                self.own = {"W_neigh": conv.lin_l.weight, "W_root": conv.lin_r.weight, "b": conv.lin_l.bias}
            else:
                self.own = {"W": conv.lin.weight, "b": conv.bias}
            if problem.model == "gat":
                self.own |= {"al": conv.att_src, "ar": conv.att_dst}
            with torch.no_grad():
                for name, parameter in self.own.items():
                    parameter.copy_(self.turned(name, problem.weights[name]).view_as(parameter))
            self.leaves |= {f"pyg.{name}": parameter for name, parameter in self.own.items()}

        @staticmethod
        def turned(name, tensor):
            return tensor.t() if name.startswith("W") else tensor

        def __call__(self, x):
            return self.conv(x, self.edges)

        def gradients(self):
            own = {name: self.turned(name, parameter.grad) for name, parameter in self.own.items()}
            return {"x": self.leaves["x"].grad} | {name: own[name].reshape(problem.weights[name].shape) for name in own}

    graph, width, heads = problem.graph, problem.width, problem.heads

    def lists():
        return graph.edge_index

    def indexed():
        """With CSR and CSC kept, which sums by sparse products."""
        return EdgeIndex(graph.edge_index, sparse_size=(graph.nodes, graph.nodes), sort_order="col").fill_cache_()

    if problem.model == "gcn":
        return {
            "GCNConv": lambda: Pyg(GCNConv(width, width), lists),
            "GCNConv, cached": lambda: Pyg(GCNConv(width, width, cached=True), lists),
        }
    if problem.model == "sage":
        return {
            "SAGEConv": lambda: Pyg(SAGEConv(width, width), lists),
            "SAGEConv, EdgeIndex": lambda: Pyg(SAGEConv(width, width), indexed),
        }
    return {"GATConv": lambda: Pyg(GATConv(width, width // heads, heads=heads), lists)}


SYSTEMS = {"headwater": ("headwater", ours), "expert": ("torch", expert), "pyg": ("torch_geometric", pyg)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gcn,sage,gat")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--variants", help="only variants whose names contain one of these, separated by semicolons")
    parser.add_argument("--steps", default="inference,training,layer")
    parser.add_argument("--skew", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--width", type=int, default=128, help="of inputs and of outputs, all heads together")
    parser.add_argument("--heads", type=int, default=4, help="of GAT")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0, help="that a case may take; then it is cut off")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="share of nodes and edges")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="without torch.compile")
    parser.add_argument("--no-graph", dest="graph", action="store_false", help="without CUDA graphs")
    parser.add_argument("--json", help="file that lines are added to")
    args = parser.parse_args()
    args.steps, args.layers, args.kernels = args.steps.split(","), 1, False
    torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
    with tempfile.TemporaryDirectory() as folder:
        args.json = args.json or os.path.join(folder, "lines.jsonl")
        for skew in args.skew:
            one_graph(args, "arxiv", skew)
        print("\n" + relational_table.tables(relational_table.read([args.json])))


def one_graph(args, name, skew):
    nodes, edges = (max(int(count * args.scale), 10) for count in SHAPES[name])
    graph = Graph(nodes, edges, skew, args.device, args.seed)
    shape = f"{name}, skew {skew:g}"
    lines = Lines(args.json, {"shape": shape})
    gpu = torch.cuda.get_device_name() if graph.device.type == "cuda" else None
    most = int(graph.edge_index[1].bincount().max())
    lines.write(nodes=nodes, edges=edges, most_edges=most, gpu=gpu, torch=torch.__version__, scale=args.scale, seed=args.seed)
    modules = {}
    for system in args.systems.split(","):
        package, variants = SYSTEMS[system]
        try:
            __import__(package)
        except ImportError as error:
            lines.write(skipped=system, reason=f"not installed: {error}")
            continue
        modules[system] = types.SimpleNamespace(variants=variants)
    for model in args.models.split(","):
        heads = args.heads if model == "gat" else 1
        # One table has all three, whatever heads they have.
        given = {"model": model, "width": args.width, "heads": args.heads, "layers": 1, "tf32": args.tf32}
        run(args, Lines(args.json, {"shape": shape, **given}), modules, problem(graph, model, args.width, heads), reference)


if __name__ == "__main__":
    sys.exit(main())
