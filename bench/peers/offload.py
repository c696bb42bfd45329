"""A transformer's step with activations kept, computed again, and moved: by Headwater, by torch's `save_on_cpu`, and by what
`offload_others.py` knows of others, as far as it is installed.

    python3 bench/peers/offload.py --hidden 12288 --layers 3 --batch 16 --json offload.jsonl
    python3 bench/peers/offload.py --hidden 2048 --layers 64 --sequence 65536 --batch 1 --ways checkpoint,headwater-checkpoint --disk /nvme --host 1GB
    python3 bench/peers/offload.py --device cpu --hidden 64 --layers 2 --sequence 32 --batch 2 --smallest 0 --host 16MB --disk DIR --steps 2 --rounds 1
    python3 bench/peers/offload.py --ways headwater --steps 200 --rounds 1 --flat

Every way has a process of its own for each round, and ways take turns. Headwater records a step and compares some with and without its hooks
first, fourteen or more in which all stays that has room: with fewer of --warmup these are what is measured. The peak is that of
`max_memory_allocated` in a step, less what was allocated when it began; gradients are there before. Weights and inputs come of one seed, and
digests of all gradients are compared with those of `keep`: with --deterministic they should be the same to the bit. With --flat a table says
what a process holds after 20 steps and in the end: bytes that torch has allocated and reserved, pinned memory of Headwater, resident memory,
and open descriptors.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time

OTHERS = ["trl", "trl-checkpoint", "torchtune", "torchtune-checkpoint", "accelerate-checkpoint", "transformers-checkpoint"]
WAYS = ["keep", "headwater", "headwater-all", "checkpoint", "headwater-checkpoint", "headwater-checkpoint-all", "save_on_cpu", "save_on_cpu-checkpoint"]
WAYS += OTHERS
FLAT_AFTER = 20


def arguments():
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"hidden": 8192, "layers": 4, "sequence": 1024, "batch": 16, "vocabulary": 0, "steps": 10, "rounds": 3, "warmup": 20}.items():
        made.add_argument(f"--{name}", type=int, default=value)
    made.add_argument("--bidirectional", action="store_true", help="tokens see those behind them as well, as in BERT")
    made.add_argument("--ways", default="keep,headwater,checkpoint,save_on_cpu", help=f"of {', '.join(WAYS)}")
    made.add_argument("--device", default="cuda")
    made.add_argument("--host", help="host memory for Headwater, as its `host`")
    made.add_argument("--disk", help="a folder for Headwater, as its `disk`")
    made.add_argument("--gpu", help="GPU memory for Headwater, as its `gpu`")
    made.add_argument("--smallest", default="1MiB", help="as Headwater's `smallest`")
    made.add_argument("--deterministic", action="store_true", help="torch.use_deterministic_algorithms, so that gradients repeat to the bit")
    made.add_argument("--flat", action="store_true", help=f"what is held after {FLAT_AFTER} steps, and in the end")
    made.add_argument("--json", help="a file that lines are added to")
    made.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    return made.parse_args()


def model(given, torch):
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            hidden = given.hidden
            self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
            self.attend, self.mix = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
            self.heads = max(1, hidden // 128)

        def forward(self, x):
            batch, tokens, hidden = x.shape
            query, key, value = self.attend(self.norms[0](x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=not given.bidirectional)
            x = x + self.mix(seen.transpose(1, 2).reshape(batch, tokens, hidden))
            return x + self.narrow(nn.functional.gelu(self.widen(self.norms[1](x))))

    torch.manual_seed(7)
    dtype = torch.bfloat16 if given.device == "cuda" else torch.float32
    with torch.device(given.device):
        torch.set_default_dtype(dtype)
        layers = nn.ModuleList(Layer() for _ in range(given.layers))
        head = nn.Linear(given.hidden, given.vocabulary) if given.vocabulary else nn.Identity()
        x = torch.randn(given.batch, given.sequence, given.hidden)
    return layers, head, x


def sum_of_bits(tensor, torch):
    """A number that follows from all bits of a tensor, made where it lies."""
    sums = 0
    for number, part in enumerate(tensor.detach().reshape(-1).view(torch.int16).split(1 << 26)):
        weights = torch.arange(len(part), device=part.device) * 2654435761 + 2 * number + 1
        sums = sums * 31 + int((part.long() * weights).sum())
    return (sums + 2**63) % 2**64 - 2**63


def chosen(given, torch, layers, head):
    """Layers that are called, the context around them, whether `backward` is in it, Headwater's offloader, and whose version it is."""
    checkpoint = torch.utils.checkpoint.checkpoint
    if given.one in OTHERS:
        from offload_others import LeftOut, prepared

        try:
            other = prepared(given.one, layers, head)
        except LeftOut as why:
            sys.exit(f"left out: {why}")
        layers, hooks, holds_backward, version, off = other.layers, other.context, other.holds_backward, other.version, None
    else:
        off = headwaters(given) if given.one.startswith("headwater") else None
        saves = given.one.startswith("save_on_cpu")
        hooks = torch.autograd.graph.save_on_cpu(pin_memory=given.device == "cuda") if saves else off or contextlib.nullcontext()
        holds_backward, version = False, None
    if "checkpoint" in given.one and not given.one.startswith(("accelerate", "transformers")):
        # Those two have put it around layers themselves.
        layers = [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]
    return layers, hooks, holds_backward, off, version


def headwaters(given):
    import headwater

    return headwater.Offload(
        host=given.host,
        disk=given.disk,
        gpu=given.gpu,
        device=given.device,
        smallest=given.smallest,
        allow_buffered=given.device == "cpu",
        policy="all" if given.one.endswith("-all") else None,
    )


def measure(given):
    """One way, in this process: a line of figures."""
    import torch
    import torch.utils.checkpoint

    layers, head, x = model(given, torch)
    parameters = [*layers.parameters(), *head.parameters()]
    layers, hooks, holds_backward, off, version = chosen(given, torch, layers, head)
    if given.deterministic:
        torch.use_deterministic_algorithms(True)

    def step():
        with hooks:
            hidden = x
            for layer in layers:
                hidden = layer(hidden)
            loss = head(hidden).float().square().mean()
            if holds_backward:
                loss.backward()
        if not holds_backward:
            loss.backward()

    def waited():
        if given.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    for _ in range(given.warmup):
        step()
        for parameter in parameters:
            parameter.grad.zero_()
    if given.device == "cuda":
        # What steps without a plan took is not what steps with one take.
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    times, before = [], torch.cuda.memory_allocated() if given.device == "cuda" else 0
    flat, early = [], min(FLAT_AFTER, max(1, given.steps // 2))
    for number in range(1, given.steps + 1):
        for parameter in parameters:
            parameter.grad.zero_()
        begun = waited()
        step()
        times.append(1e3 * (waited() - begun))
        if given.flat and number in (early, given.steps):
            flat.append({"step": number, **held(given, torch, off)})
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(sum_of_bits(parameter.grad, torch).to_bytes(8, "little", signed=True))
    line = {name: getattr(given, name) for name in ("hidden", "layers", "sequence", "batch", "vocabulary", "bidirectional", "host", "disk")}
    line |= {"way": given.one, "ms": statistics.median(times), "ms_range": [min(times), max(times)], "gradients": digest.hexdigest()}
    if flat:
        line["flat"] = flat
    if version is not None:
        line["version"] = version
    if given.device == "cuda":
        line |= {"peak_bytes": torch.cuda.max_memory_allocated() - before, "reserved_bytes": torch.cuda.max_memory_reserved()}
        line |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    if off is not None:
        line["report"] = off.report().as_dict()
        line["said"] = str(off.report())
    print(json.dumps(line))


def held(given, torch, off):
    """What this process holds."""
    found = {"rss_bytes": int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")}
    found["descriptors"] = len(os.listdir("/proc/self/fd"))
    if given.device == "cuda":
        found |= {"allocated_bytes": torch.cuda.memory_allocated(), "reserved_bytes": torch.cuda.memory_reserved()}
    if off is not None:
        found["pinned_bytes"] = off.report().host
    return found


def main():
    given = arguments()
    if given.one:
        return measure(given)
    ways = given.ways.split(",")
    unknown = [way for way in ways if way not in WAYS]
    if unknown:
        sys.exit(f"there is no way {unknown[0]!r}; there are {', '.join(WAYS)}")
    lines = []
    left_out = set()
    for number in range(given.rounds):
        # There and back, so that what changes over time is shared.
        for way in ways if number % 2 == 0 else reversed(ways):
            if way in left_out:
                continue
            done = subprocess.run([sys.executable, *sys.argv, "--one", way], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode)
                print(f"{way}: {last}", file=sys.stderr)
                if last.startswith("left out: "):
                    left_out.add(way)
                continue
            line = json.loads(done.stdout.splitlines()[-1]) | {"round": number}
            lines.append(line)
            if given.json:
                with open(given.json, "a") as file:
                    file.write(json.dumps(line) + "\n")
    show(ways, lines)
    if given.flat:
        show_flat(ways, lines)


def show(ways, lines):
    kept = next((line["gradients"] for line in lines if line["way"] == "keep"), None)
    print("| way | ms | rounds | peak MB | expected | stall ms | expected | gradients |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    for way in ways:
        own = [line for line in lines if line["way"] == way]
        if own:
            times = [line["ms"] for line in own]
            peak = max(line.get("peak_bytes", 0) for line in own) / 1e6
            same = "same" if all(line["gradients"] == kept for line in own) else "other"
            spread = f"{min(times):.1f} to {max(times):.1f}"
            plan = (own[-1].get("report") or {}).get("plan") or {}
            stalls = [f"{plan.get('peak', 0) / 1e6:.0f}", f"{plan.get('stall_measured_ms', 0):.1f}", f"{plan.get('stall_ms', 0):.1f}"] if plan else [""] * 3
            print(f"| {way} | {statistics.median(times):.1f} | {spread} | {peak:.0f} | {' | '.join(stalls)} | {same if kept else ''} |")


def show_flat(ways, lines):
    names = ["allocated_bytes", "reserved_bytes", "pinned_bytes", "rss_bytes", "descriptors"]
    print("\n| way | step | allocated MB | reserved MB | pinned MB | resident MB | descriptors |\n| --- | --- | --- | --- | --- | --- | --- |")
    for line in (line for way in ways for line in lines if line["way"] == way):
        for found in line["flat"]:
            shown = ["" if name not in found else f"{found[name] / 1e6:.1f}" if name.endswith("bytes") else str(found[name]) for name in names]
            print(f"| {line['way']} | {found['step']} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
