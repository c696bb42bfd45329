"""How a layer is measured: compared with the reference, timed call by call and out of a CUDA graph, and its memory watched.

Times are milliseconds of a step between two CUDA events (a clock on the CPU), medians over rounds. Bytes are what a system took
above what lay there before it was made, its own index arrays included: `torch_bytes` by torch's allocator, `driver_bytes` by what
the driver had free at least, which sees allocations outside of torch and the allocator's slack.
"""

import gc
import math
import statistics
import threading
import time

import torch
import torch.nn.functional as F

STEPS = ("inference", "training", "layer")
TOLERANCE, TOLERANCE_TF32 = 1e-3, 3e-2


class Stack:
    """A layer applied `count` times with the same weights, with ReLU between."""

    def __init__(self, layer, count):
        self.layer, self.count = layer, count
        self.leaves = layer.leaves

    def __call__(self):
        out = self.layer(self.leaves["x"])
        for _ in range(self.count - 1):
            out = self.layer(F.relu(out))
        return out

    def step(self, what):
        """What is timed: "inference", "training" with a loss, or the "layer" forward and backward with a given gradient."""
        problem = self.layer.problem

        def inference():
            with torch.no_grad():
                return self()

        def training():
            self.forget()
            out = self()
            # A mean by itself: with nll_loss that reduces, which is one thread block, the loss took 4.5 ms on two million nodes.
            F.cross_entropy(out, problem.labels, reduction="none").mean().backward()
            return out.detach()

        def layer():
            self.forget()
            out = self()
            out.backward(problem.gradient)
            return out.detach()

        return {"inference": inference, "training": training, "layer": layer}[what]

    def forget(self):
        for leaf in self.leaves.values():
            leaf.grad = None


def cleared(device):
    """Gives back memory that nobody holds."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def reference_of(stack):
    """Output and gradients of the layer alone, to compare with."""
    out = stack.step("layer")()
    return out, {name: gradient.detach().clone() for name, gradient in stack.layer.gradients().items()}


def difference(found, wanted):
    """The greatest difference as a share of the greatest number; infinite where something is not a number."""
    if found.shape != wanted.shape:
        return math.inf
    most = wanted.abs().max().item()
    far = (found - wanted).abs().max().item()
    far = far / most if most > 0 else far
    return far if math.isfinite(far) else math.inf


def differences(stack, out, reference):
    """Of the output and of every gradient that the layer has, by name."""
    wanted_out, wanted = reference
    far = {"out": difference(out, wanted_out)}
    for name, gradient in stack.layer.gradients().items():
        far[f"d.{name}"] = difference(gradient.detach(), stack.layer.of_reference(name, wanted[name]))
    return far


class Memory:
    """Peaks since it was made."""

    def __init__(self, device):
        self.device, self.is_gpu = device, device.type == "cuda"
        if self.is_gpu:
            cleared(device)
            torch.cuda.reset_peak_memory_stats()
            self._base, self._free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
            self._least = self._free

    def restart(self):
        """Forgets the peaks so far, and not what lay there before."""
        if self.is_gpu:
            cleared(self.device)
            torch.cuda.reset_peak_memory_stats()
            self._least = torch.cuda.mem_get_info()[0]

    def look(self):
        if self.is_gpu:
            self._least = min(self._least, torch.cuda.mem_get_info()[0])

    def watched(self, step):
        """Runs a step while a thread looks at what the driver has free: allocations that a step gives back are seen too."""
        ended = threading.Event()

        def watch():
            while not ended.wait(0.0005):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        if self.is_gpu:
            thread.start()
        try:
            made = step()
            if self.is_gpu:
                torch.cuda.synchronize()
        finally:
            ended.set()
            if self.is_gpu:
                thread.join()
        self.look()
        return made

    def figures(self):
        if not self.is_gpu:
            return {}
        self.look()
        return {"torch_bytes": torch.cuda.max_memory_allocated() - self._base, "driver_bytes": self._free - self._least}


def _one(step, is_gpu):
    """Milliseconds of one step, with the host waiting for it."""
    if is_gpu:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    step()
    if is_gpu:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun)


def timed(step, rounds, seconds, is_gpu):
    """Median, least and most, in milliseconds. Rounds end when `seconds` are over, and then the figures say that they were cut."""
    first = [_one(step, is_gpu)]
    while len(first) < 3 and sum(first) < 250 * seconds:
        first.append(_one(step, is_gpu))
    left = max(1e3 * seconds - sum(first), 0)
    can = min(rounds, int(left / first[-1]))
    if can < 1:
        # One step took all the time there is; it is the figure.
        times = first[-1:]
    elif is_gpu:
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(can)]
        for begin, end in events:
            begin.record()
            step()
            end.record()
        torch.cuda.synchronize()
        times = [begin.elapsed_time(end) for begin, end in events]
    else:
        times = [_one(step, False) for _ in range(can)]
    median = statistics.median(times)
    made = {"ms": median, "least_ms": min(times), "most_ms": max(times), "spread": (max(times) - min(times)) / median}
    made["rounds"] = len(times)
    if can < rounds:
        made["cut"] = f"cut off after {seconds:g} s"
    return made


def kernels_of(step):
    """What a step runs on the GPU, in order: names, when each began and how long it took in microseconds, by torch's profiler. A kernel that is
    launched before the one before it is over (programmatic dependent launch) waits in its own time."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for _ in range(2):  # what the profiler sets up is no part of the second
        with torch.profiler.profile(activities=activities) as profile:
            step()
            torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    begun = events[0].time_range.start if events else 0
    return [
        {"name": event.name, "start_us": event.time_range.start - begun, "us": event.time_range.elapsed_us()}
        for event in events
    ]


def recorded(step):
    """The step in a CUDA graph: the graph, and the tensor that every replay writes the output to."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    graph.replay()
    torch.cuda.synchronize()
    return graph, out
