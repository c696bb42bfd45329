"""Training whose activations go to disk, killed by SIGKILL at random moments: offload_kills.py FOLDER KILLS SEED.

Prints as JSON how many were killed while they did what, which files they left, and how much of the disk they still hold in the end. One
process imports torch and is forked for each, which takes a hundredth of a second and not five."""

import json
import mmap
import os
import random
import signal
import sys
import time

import headwater
import torch
from offload_cases import attention, gradients, graph_layers, mlp

DOING = ["starting", "making an offloader", "stepping", "dropping an offloader"]
# The longest that one of them lives.
SECONDS = 0.3


def train(folder, reserved, doing):
    """Until it is killed."""
    cases = [mlp, attention, graph_layers]
    while True:
        doing[0] = 1
        # The disk holds all of this from the start.
        off = headwater.Offload(host=32 << 10, slot=4096, smallest=0, disk=folder, disk_bytes=reserved, device="cpu", allow_buffered=True)
        doing[0] = 2
        for case in cases:
            gradients(case, "cpu", off)
        doing[0] = 3
        del off


def killed(folder, reserved, seconds):
    """What one was doing when it was killed after so many seconds."""
    doing = mmap.mmap(-1, 1)
    child = os.fork()
    if child == 0:
        try:
            train(folder, reserved, doing)
        finally:
            # An error is told by the status, and nothing of the parent's is cleaned up here.
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status), f"it ended by itself, while {DOING[doing[0]]}"
    return DOING[doing[0]]


def free_bytes(folder):
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def main():
    folder, kills, drawn = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
    torch.set_num_threads(1)
    before = free_bytes(folder)
    # So much that it is seen beside what others write meanwhile.
    reserved = min(2 << 30, before // 8)
    told, left = dict.fromkeys(DOING, 0), set()
    for _ in range(kills):
        told[killed(folder, reserved, SECONDS * drawn.random() ** 2)] += 1
        left.update(os.listdir(folder))
    # The kernel may still be closing files of the last one.
    until = time.monotonic() + 20
    while (held := before - free_bytes(folder)) > reserved // 2 and time.monotonic() < until:
        time.sleep(0.05)
    print(json.dumps({"killed": told, "left": sorted(left), "held": held, "reserved": reserved}))


if __name__ == "__main__":
    main()
