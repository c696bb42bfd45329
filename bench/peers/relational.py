"""RGCN, RGAT and HGT by Headwater, by PyTorch in an expert's hands, by PyG and by Triton, on the same arrays of one process.

    python3 bench/peers/relational.py fb15k mag --json out.jsonl
    python3 bench/peers/relational.py --table out.jsonl
    python3 bench/peers/relational.py aifb --scale 0.01 --device cpu --rounds 2

Graphs are synthetic, of Hector's dataset shapes, whole. Every shape has a process of its own. Each variant of each system is
compared with the reference (the expert's first variant, in float32) before it is timed: outputs and all gradients. Where they
differ by more than 1e-3 (3e-2 with TF32) of the greatest number, its figures are no part of a ratio. What does not fit in memory or
is not installed is a line that says so. `relational_measure.py` says what figures mean.
"""

import argparse
import importlib
import os
import subprocess
import sys
import tempfile

import relational_table

SYSTEMS = {"headwater": "relational_ours", "expert": "relational_expert", "pyg": "relational_pyg", "triton": "relational_triton"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", help="of aifb, mutag, bgs, fb15k, biokg, am, mag, wikikg2; all when none is named")
    parser.add_argument("--models", default="rgcn,rgat,hgt")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="the reference is computed in any case")
    parser.add_argument("--variants", help="only variants whose names contain one of these, separated by semicolons")
    parser.add_argument("--steps", default="inference,training,layer")
    parser.add_argument("--width", type=int, nargs="+", default=[64], help="of inputs and of outputs, all heads together")
    parser.add_argument("--heads", type=int, nargs="+", default=[1], help="of RGAT and HGT")
    parser.add_argument("--layers", type=int, default=1, help="how often the layer is applied, with the same weights")
    parser.add_argument("--tf32", action="store_true", help="products of all systems in TF32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0, help="that a case may take; then it is cut off")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="share of a shape's nodes and edges")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="without torch.compile")
    parser.add_argument("--no-graph", dest="graph", action="store_false", help="without CUDA graphs")
    parser.add_argument("--kernels", action="store_true", help="lines with every kernel of each step, of calls and of graphs, too, by torch's profiler")
    parser.add_argument("--json", help="file that lines are added to")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print tables of these files, and do nothing else")
    parser.add_argument("--no-table", action="store_true")
    args = parser.parse_args()
    if args.table:
        return args
    from relational_graph import MODELS, SHAPES

    for name, known in (("models", MODELS), ("systems", SYSTEMS), ("steps", relational_table.STEP_NAMES)):
        chosen = getattr(args, name).split(",")
        for one in chosen:
            if one not in known:
                parser.error(f"--{name}: {one} is none of {', '.join(known)}")
        setattr(args, name, chosen)
    if args.kernels and not args.device.startswith("cuda"):
        parser.error(f"--kernels: torch's profiler lists kernels of a GPU, and --device is {args.device}")
    args.shapes = args.shapes or list(SHAPES)
    for shape in args.shapes:
        if shape not in SHAPES:
            parser.error(f"{shape} is none of {', '.join(SHAPES)}")
    return args


def each_shape(args):
    """Runs every shape in a process of its own. False where one ended badly: the others run all the same."""
    others = [argument for argument in sys.argv[1:] if argument not in args.shapes and argument != "--no-table"]
    failed = []
    for shape in args.shapes:
        command = [sys.executable, __file__, shape, *_without_json(others), "--json", args.json, "--no-table"]
        if subprocess.run(command, check=False).returncode:
            failed.append(shape)
            print(f"{shape}: its process failed", file=sys.stderr)
    return not failed


def _without_json(given):
    kept, skip = [], False
    for argument in given:
        if skip or argument.startswith("--json="):
            skip = False
        elif argument == "--json":
            skip = True
        else:
            kept.append(argument)
    return kept


def one_shape(args, shape):
    import torch

    from relational_expert import reference
    from relational_graph import Graph, problem, scaled
    from relational_run import Lines, run

    # Products of torch, of Headwater and of the Triton layers are as exact as this says.
    torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
    if args.compile:
        torch._dynamo.config.recompile_limit = 256
    lines = Lines(args.json, {"shape": shape})
    modules = loaded(args, lines)
    graph = Graph(scaled(shape, args.scale), args.device, args.seed)
    gpu = torch.cuda.get_device_name() if graph.device.type == "cuda" else None
    lines.write(
        nodes=graph.nodes, edges=graph.edges, relations=graph.relations, types=graph.types, src_pairs=len(graph.src_pairs),
        dst_pairs=len(graph.dst_pairs), gpu=gpu, torch=torch.__version__, scale=args.scale, seed=args.seed,
        versions=[module.version() for module in modules.values() if hasattr(module, "version")],
    )  # fmt: skip
    for model in args.models:
        for width in args.width:
            for heads in args.heads if model != "rgcn" else [1]:
                given = {"model": model, "width": width, "heads": heads, "layers": args.layers, "tf32": args.tf32}
                own = Lines(args.json, {"shape": shape, **given})
                if width % heads:
                    own.write(error=f"{heads} heads do not divide {width}")
                    continue
                run(args, own, modules, problem(graph, model, width, heads), reference)


def loaded(args, lines):
    """Modules of the systems that are installed here."""
    modules = {}
    for system in args.systems:
        try:
            modules[system] = importlib.import_module(SYSTEMS[system])
        except ImportError as error:
            lines.write(skipped=system, reason=f"not installed: {error}")
    return modules


def main():
    args = arguments()
    if args.table:
        print(relational_table.tables(relational_table.read(args.table)))
        return
    with tempfile.TemporaryDirectory() as folder:
        args.json = args.json or os.path.join(folder, "lines.jsonl")
        done = True
        if len(args.shapes) == 1:
            one_shape(args, args.shapes[0])
        else:
            done = each_shape(args)
        if not args.no_table:
            print("\n" + relational_table.tables(relational_table.read([args.json])))
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
