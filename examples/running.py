"""What the examples share: flags, an `Offload` made from them, training steps, and a check of gradients."""

import argparse
import contextlib
import sys
import tempfile
import time

import torch

import headwater

# Models on a CPU are small: so is what their activations leave in, and for.
ON_CPU = {"allow_buffered": True, "host": "2MiB", "slot": "64KiB", "smallest": "4KiB"}


def flags(about, **sizes):
    """The flags of an example: `sizes` as numbers with their defaults, then those of `Offload`."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in sizes.items():
        made.add_argument(f"--{name}", type=int, default=value, help=f"default: {value}")
    made.add_argument("--steps", type=int, default=3, help="training steps; default: 3")
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cuda where there is a GPU, else cpu")
    made.add_argument("--host", help='host memory for activations, such as "16GB"')
    made.add_argument("--disk", help="a folder on a disk for activations; default: none, and a temporary one on a CPU")
    made.add_argument("--gpu", help='GPU memory that should be allocated at most, such as "40GB"')
    made.add_argument("--smallest", help="tensors below stay; default: 1MiB, and 4KiB on a CPU")
    made.add_argument("--all", action="store_true", help="everything leaves, however long steps take")
    made.add_argument("--check", action="store_true", help="compare gradients with those of a step without offload")
    return made


def settings(given, folder):
    """Arguments of `headwater.Offload`. `folder` is for a CPU, whose activations have no other place to go."""
    named = {name: getattr(given, name) for name in ("host", "disk", "gpu", "smallest") if getattr(given, name)}
    if given.device == "cpu":
        return {"disk": folder, **ON_CPU, **named, "device": "cpu"}
    return {**named, "device": given.device, "policy": "all" if given.all else None}


def placed(given, model):
    """A model where it trains, in training mode."""
    return model.to(given.device, torch.float32 if given.device == "cpu" else torch.bfloat16).train()


def gradients(model, loss, context):
    """What one step leaves in `.grad`, with the same dropout each time."""
    model.zero_grad()
    torch.manual_seed(1)
    with context:
        made = loss()
    made.backward()
    return [own.grad.clone() for own in model.parameters() if own.grad is not None]


def train(given, model, loss):
    """Steps with activations that leave, then the report; with `--check` one more step of either kind."""
    with tempfile.TemporaryDirectory() as folder:
        off = headwater.Offload(**settings(given, folder))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        begun = time.perf_counter()
        for step in range(given.steps):
            optimizer.zero_grad()
            with off:
                made = loss()
            made.backward()
            optimizer.step()
            print(f"step {step}: loss {made.item():.4f}, {time.perf_counter() - begun:.2f} s")
        if given.check:
            with deterministic():
                moved, kept = gradients(model, loss, off), gradients(model, loss, contextlib.nullcontext())
            compare(moved, kept)
        print(off.report())


def compare(moved, kept, what="gradients"):
    """Ends the program where tensors differ."""
    differ = sum(not torch.equal(one, other) for one, other in zip(moved, kept, strict=True))
    if differ or not kept:
        sys.exit(f"{differ} of {len(kept)} {what} differ from those without offload")
    print(f"check: {len(kept)} {what} are those without offload, to the bit")


@contextlib.contextmanager
def deterministic():
    """Kernels that repeat to the bit, where torch has them."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
