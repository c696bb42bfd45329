"""Models under DDP and FSDP2 with activations that leave, on one rank of several: run as a program for each rank but the test's own."""

import contextlib
import datetime
import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import DistributedDataParallel

import headwater

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:  # before torch 2.6
    fully_shard = None

ROWS, WIDTH, MICROBATCHES, STEPS = 64, 32, 2, 2


class Detached(nn.Module):
    """Its weight is saved as a tensor that is no view of a parameter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH)

    def forward(self, x):
        return x @ self.weight.detach().t() + x @ self.weight


def net():
    torch.manual_seed(3)
    frozen = nn.Linear(WIDTH, WIDTH)
    frozen.requires_grad_(False)
    first = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
    return nn.Sequential(first, nn.Sequential(frozen, nn.Tanh()), Detached(), nn.Linear(WIDTH, 4))


def ddp(model, device):
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def sharded(reshards, **settings):
    def wrap(model, device):
        mesh = torch.distributed.init_device_mesh(device, (dist.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshards, **settings)
        return fully_shard(model, mesh=mesh, reshard_after_forward=reshards, **settings)

    return wrap


def ways():
    yield "ddp", ddp
    if fully_shard is not None:
        yield "gathered twice", sharded(True)
        yield "gathered once", sharded(False)
        yield "bfloat16", sharded(True, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def without_sync(model, is_last):
    if hasattr(model, "no_sync"):
        return contextlib.nullcontext() if is_last else model.no_sync()
    model.set_requires_gradient_sync(is_last)
    return contextlib.nullcontext()


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def trained(wrap, device, context):
    """Losses and gradients of a few steps of several micro-batches each."""
    model, found = wrap(net().to(device), device), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        for microbatch in range(MICROBATCHES):
            seed = 100 * step + 10 * microbatch + dist.get_rank()
            x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed)).to(device)
            with without_sync(model, microbatch == MICROBATCHES - 1):
                with context:
                    loss = model(x).square().mean()
                loss.backward()
            found.append(loss.detach())
        found += [local(own.grad).clone() for own in model.parameters() if own.grad is not None]
        optimiser.step()
        optimiser.zero_grad()
    return found


def check(wrap, device, off):
    """Whether all is the same to the bit, no parameter moves, and nothing is left."""
    # References, so that nobody else's storage gets an address that is known.
    moved, whole, save = [], [], off._save

    def watched(tensor):
        moved.append(StorageWeakRef(tensor.untyped_storage()))
        return save(tensor)

    expected = trained(wrap, device, contextlib.nullcontext())
    off._save = watched

    def gathered(module, *_):
        # Also those that shards were gathered into, which are whole while a module computes.
        whole.extend(StorageWeakRef(local(own).untyped_storage()) for own in module.parameters())

    handle = nn.modules.module.register_module_forward_hook(gathered)
    found = trained(wrap, device, off)
    handle.remove()
    assert len(found) == len(expected) and all(map(torch.equal, found, expected))
    report = off.report()
    assert report.blocks > 0 and not {own.cdata for own in whole} & {own.cdata for own in moved}, "a parameter was moved"
    assert report.kept["parameter"][0] >= 5 * STEPS * MICROBATCHES and report.kept["held by others"][0] >= STEPS * MICROBATCHES
    del off._save
    gc.collect()
    assert [site.raw.held() for site in off._sites.values()] == [(0, 0)]


@contextlib.contextmanager
def joined(rank, world, store, backend="gloo"):
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world, timeout=wait)
    try:
        yield
    finally:
        dist.destroy_process_group()


def offload(folder):
    return headwater.Offload(host="1MiB", slot=4096, smallest=0, disk=folder, device="cpu", allow_buffered=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]):
        for _, wrap in ways():
            check(wrap, "cpu", offload(sys.argv[4]))
