"""Runs systems on a problem: each variant is compared with the reference, timed, and written as lines of JSON."""

import json
import traceback

import torch

from relational_measure import (
    STEPS,
    TOLERANCE,
    TOLERANCE_TF32,
    Memory,
    Stack,
    cleared,
    difference,
    differences,
    kernels_of,
    recorded,
    reference_of,
    timed,
)


class Lines:
    """Lines of JSON, to standard output and to a file."""

    def __init__(self, path, common):
        self.path, self.common = path, common

    def write(self, **record):
        line = json.dumps({**self.common, **record})
        print(line, flush=True)
        if self.path:
            with open(self.path, "a") as file:
                file.write(line + "\n")


def is_memory(error):
    """Whether memory ran out. Kernels outside of torch say it in their own words."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower()


def told(error):
    return "out of memory" if is_memory(error) else f"{type(error).__name__}: {error}"[:300]


def run(args, lines, modules, problem, make_reference):
    """All variants of all systems (`modules` by name) on a problem.

    `make_reference(problem, form)` makes the layer to compare with."""
    references = References(args, make_reference)
    try:
        references.of(make_reference(problem, "own"))
    except torch.OutOfMemoryError:
        lines.write(error="out of memory: the reference")
        cleared(problem.graph.device)
        return
    for system, module in modules.items():
        try:
            variants = module.variants(problem, args)
        except RuntimeError as error:
            lines.write(system=system, error=str(error))
            continue
        for variant, make in variants.items():
            if args.variants and not any(part in variant for part in args.variants.split(";")):
                continue
            own = Lines(args.json, {**lines.common, "system": system, "variant": variant})
            case = Case(args, own, problem)
            try:
                case.run(make, references)
            except Exception as error:  # noqa: BLE001  # a peer that fails is a result
                own.write(error=told(error))
                if not is_memory(error):
                    traceback.print_exc(limit=-6)
            case.close()
            cleared(problem.graph.device)


class References:
    """The reference of a problem in each form, computed when it is first asked for. It stays on the CPU, so that it takes no memory
    of what is measured."""

    def __init__(self, args, make):
        self.layers, self.make, self.known = args.layers, make, {}

    def of(self, layer):
        problem = layer.reference_problem()
        key = layer.form, problem is layer.problem
        if key not in self.known:
            exactness = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("highest")
            out, gradients = reference_of(Stack(self.make(problem, layer.form), self.layers))
            torch.set_float32_matmul_precision(exactness)
            self.known[key] = out.cpu(), {name: gradient.cpu() for name, gradient in gradients.items()}
            del out, gradients
            cleared(problem.graph.device)
        return self.known[key]


class Case:
    """A variant of a system on a problem."""

    def __init__(self, args, lines, problem):
        self.args, self.lines, self.problem = args, lines, problem
        self.device = problem.graph.device
        self.is_gpu = self.device.type == "cuda"
        self.layer = self.stack = None

    def run(self, make, references):
        args = self.args
        self.memory = Memory(self.device)
        self.layer = make()
        reference = references.of(self.layer)
        self.stack = Stack(self.layer, args.layers)
        self.tolerance = TOLERANCE_TF32 if args.tf32 else TOLERANCE
        self.ok = self.checked(reference)
        for what in args.steps:
            self.by_calls(what)
        if self.is_gpu and args.graph:
            for what in args.steps:
                self.in_graph(what, reference)
        if self.is_gpu and args.kernels:
            for what in args.steps:
                self.lines.write(mode="kernels", what=what, kernels=kernels_of(self.stack.step(what)))
                self.stack.forget()

    def checked(self, reference):
        """Whether results of calls are right, for each step. Where the way back does not fit in memory, the output alone is
        compared, and inference alone can be right."""
        try:
            ok = self.compared(self.stack.step("layer")(), reference, "calls")
            return dict.fromkeys(STEPS, ok)
        except Exception as error:
            if not is_memory(error):
                raise
        self.stack.forget()
        cleared(self.device)
        far = difference(self.stack.step("inference")(), reference[0].to(self.device))
        self.lines.write(mode="calls", far={"out": float(f"{far:.2g}")}, worst=float(f"{far:.2g}"), ok=far <= self.tolerance)
        return {**dict.fromkeys(STEPS, False), "inference": far <= self.tolerance}

    def compared(self, out, reference, mode):
        """Whether results are those of the reference. Writes how far they are."""
        wanted = reference[0].to(self.device), {name: gradient.to(self.device) for name, gradient in reference[1].items()}
        far = differences(self.stack, out, wanted)
        worst = max(far.values())
        rounded = {name: float(f"{value:.2g}") for name, value in far.items()}
        self.lines.write(mode=mode, far=rounded, worst=float(f"{worst:.2g}"), ok=worst <= self.tolerance)
        return worst <= self.tolerance

    def by_calls(self, what):
        self.stack.forget()
        step = self.stack.step(what)
        try:
            step()  # compiles what this step alone needs
            self.stack.forget()
            self.memory.restart()
            self.memory.watched(step)
            figures = self.memory.figures()
            times = timed(step, self.args.rounds, self.args.seconds, self.is_gpu)
            self.lines.write(mode="calls", what=what, ok=self.ok[what], **times, **figures)
        except Exception as error:
            if not is_memory(error):
                raise
            self.lines.write(mode="calls", what=what, error="out of memory")
        self.stack.forget()
        cleared(self.device)

    def in_graph(self, what, reference):
        """The step out of a CUDA graph of torch's; results of a replay are compared where they are the reference's step."""
        self.stack.forget()
        self.memory.restart()
        graph = out = None
        try:
            graph, out = recorded(self.stack.step(what))
            figures = self.memory.figures()
            if what == "layer":
                ok = self.compared(out, reference, "graph")
            else:
                ok = self.ok[what] and difference(out, reference[0].to(self.device)) <= self.tolerance
            times = timed(graph.replay, self.args.rounds, self.args.seconds, True)
            self.lines.write(mode="graph", what=what, ok=ok, **times, **figures)
            if self.args.kernels:
                self.lines.write(mode="kernels of the graph", what=what, kernels=kernels_of(graph.replay))
        except Exception as error:  # noqa: BLE001  # many libraries cannot be recorded
            self.lines.write(mode="graph", what=what, error=told(error) if is_memory(error) else f"not recorded: {told(error)}")
        self.stack.forget()
        del graph, out
        cleared(self.device)

    def close(self):
        if self.layer is not None:
            self.layer.close()
        self.layer = self.stack = None
