"""What is left of activations that left: nothing grows over hundreds of steps, and nothing stays behind a process that is killed."""

import ctypes
import gc
import json
import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from offload_cases import data, seeded  # noqa: E402
from torch import nn  # noqa: E402

STEPS, WARM = 200, 20
KILLS = 400 if os.environ.get("HEADWATER_SOAK") else 20
# A block that is left in every third step is seen.
ROWS, WIDTH = 256, 64
# What may be more: of marks of streams, a few more or less are those of the last step; and a read that finds no memory free has some of its own,
# once.
BLOCK = ROWS * WIDTH * 4
MOST_GROWTH = {"resident bytes": (STEPS - WARM) * BLOCK // 3, "events": STEPS // 4, "host": 2 * BLOCK, "registered_bytes": 2 * BLOCK}

WAYS = {
    "host": {"host": 2 << 20, "policy": "all"},
    "disk": {"host": 128 << 10, "disk": True, "policy": "all"},
    "plan": {"host": 2 << 20, "gpu": 1},
}


def emulated(kind):
    """Objects or bytes that the emulator counts; nothing on a GPU."""
    path = os.environ.get("HEADWATER_LIBCUDA")
    if path is None or torch.cuda.is_available():
        return 0
    live = ctypes.CDLL(path).hwemu_live
    live.restype, live.argtypes = ctypes.c_ulonglong, [ctypes.c_char_p]
    return live(kind.encode())


def numbers(off):
    """What there is between two steps; bytes may vary a little, everything else may not."""
    gc.collect()
    # What has been freed goes to the system, so that it is not counted.
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    found = {
        "resident bytes": resident,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "host": off.report().host,
        "blocks": sum(site.raw.held()[0] + len(site._leaving) + len(site._blocks) for site in off._sites.values()),
        **{kind: emulated(kind) for kind in ("host_bytes", "registered_bytes", "device_bytes", "streams", "events", "host_allocations")},
    }
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        found.update(allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved())
    return found


def grown(off, device):
    """What grew between two steps."""
    net = seeded(lambda: nn.Sequential(*(own for _ in range(4) for own in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))).to(device)
    x, steps = data(device, ROWS, WIDTH), torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(STEPS + 1):
        steps.zero_grad()
        with off:
            loss = net(x).square().mean()
        loss.backward()
        steps.step()
        del loss
        if step == WARM:
            early = numbers(off)
    late = numbers(off)
    # A plan may find that little has to leave.
    assert off.report().left > (STEPS * BLOCK if off._settings["slack"] is None else 0)
    return {name: (early[name], late[name]) for name in early if late[name] - early[name] > MOST_GROWTH.get(name, 0)}


def offload(folder, settings):
    if settings.get("disk"):
        settings = {**settings, "disk": folder, "allow_buffered": True}
    return headwater.Offload(slot=16 << 10, smallest=4096, **settings)


@pytest.mark.parametrize("way", ["disk"])
def test_nothing_grows_on_a_cpu(way, tmp_path):
    assert grown(offload(tmp_path, {**WAYS[way], "device": "cpu"}), "cpu") == {}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_grows_on_a_gpu(way, gpu, tmp_path):
    assert grown(offload(tmp_path, WAYS[way]), gpu if torch.cuda.is_available() else "cpu") == {}


def test_a_process_that_is_killed_leaves_nothing(tmp_path):
    folder = tmp_path / "activations"
    folder.mkdir(mode=0o700)
    program = os.path.join(os.path.dirname(__file__), "offload_kills.py")
    done = subprocess.run([sys.executable, program, str(folder), str(KILLS), "1"], capture_output=True, text=True, timeout=60 + KILLS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["left"] == [] and os.listdir(folder) == []
    assert found["held"] < found["reserved"] // 2, found
    assert found["killed"]["stepping"] > 0 and found["killed"]["making an offloader"] > 0, found
