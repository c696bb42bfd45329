"""What torch does to an ordinary tensor it does to a unified one: the same values, the same memory, the same refusals."""

import copy
from multiprocessing.reduction import ForkingPickler

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from headwater import unified  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["without a GPU", "with a GPU"])
def side(request):
    if request.param == "with a GPU":
        request.getfixturevalue("gpu")
    return request.param


def seen_before(own):
    """As after an operator of a GPU's, which may keep how it saw the memory."""
    own + 0
    return own


def outcome(call, own):
    """What comes of a call: values, or that it is refused, and what is then in the tensor."""
    try:
        found = call(own)
    except RuntimeError as why:
        return "refused", "inplace" in str(why).replace("-", ""), own.detach().tolist()
    parts = found if isinstance(found, (tuple, list)) else [found]
    values = [part.detach().cpu().tolist() if isinstance(part, torch.Tensor) else part for part in parts]
    return values, own.detach().tolist(), own.requires_grad


def written(view):
    """A view that is written to, which the tensor shows."""

    def call(own):
        part = view(own)
        (part[0] if isinstance(part, (tuple, list)) else part).fill_(-5)
        return own * 1

    return call


def other(shape=(4, 6)):
    return torch.linspace(-1, 1, 24).view(4, 6)[: shape[0], : shape[1]].clone()


def into(make):
    """What is written into an ordinary tensor."""

    def call(own):
        plain = other()
        make(plain, own)
        return plain

    return call


def twice_in_place(own):
    own.requires_grad_()
    made = own * 2
    made.add_(1)
    made[0] = 0
    made.relu_()
    made.sum().backward()
    return made, own.grad


def of_leaf(own):
    own.requires_grad_()
    own.add_(1)


def takes_a_gradient(own):
    weight = other().requires_grad_()
    own.mul_(2)
    own.add_(weight)
    own.mul_(weight)
    own.sum().backward()
    return weight.grad


def stale(write):
    """Autograd is told that what it kept has changed."""

    def call(own):
        weight = other().requires_grad_()
        made = (weight * own).sum()
        write(own)
        made.backward()
        return weight.grad

    return call


def kept_result(own):
    weight = other().requires_grad_()
    made = (own * weight).exp()
    made.mul_(2)
    made.sum().backward()


def batch_norm(own):
    mean, var = torch.zeros(6), torch.ones(6)
    return functional.batch_norm(own, mean, var, training=True), mean, var


def sent(own):
    view = seen_before(own[1:])
    ForkingPickler.dumps(own.detach())
    return view + 1, view.is_shared()


def grown(own):
    out = torch.empty(0)
    torch.add(own, 1, out=out)
    return out


CASES = {
    # Operators in place are those of torch's list.
    "invert": lambda own: ~(own > 3),
    "invert numbers": lambda own: ~own.long(),
    "index": lambda own: [list(range(9))[own[0, 3].long()], int(own[0, 1]), own[1, 1] in own],
    "+=": lambda own: own.__iadd__(2),
    "**=": lambda own: own.__ipow__(2),
    "//=": lambda own: own.__ifloordiv__(2),
    "in place by a function": lambda own: [torch.relu_(own.sub_(4)), functional.relu(own, inplace=True)],
    "in place by lists": lambda own: torch._foreach_add_([own], 1.0) or own,
    # Memory and shape that change under it.
    "data =": lambda own: [setattr(seen_before(own), "data", other()), own + 1][1],
    "data = of another shape": lambda own: [setattr(seen_before(own), "data", torch.ones(2, 3)), own + 1, own.shape[0]][1:],
    "set_": lambda own: seen_before(own).set_(other()) + 1,
    "set_ to nothing": lambda own: seen_before(own).set_().numel(),
    "resize_": lambda own: seen_before(own).resize_(2, 6) + 1,
    "unsqueeze_": lambda own: seen_before(own).unsqueeze_(0) + 1,
    "t_": lambda own: seen_before(own).t_() + 1,
    "transpose_": lambda own: seen_before(own).transpose_(0, 1)[1:] + 1,
    "as_strided_": lambda own: seen_before(own).as_strided_((2, 2), (6, 1), 3) + 1,
    "share_memory_": lambda own: [seen_before(own).share_memory_() + 1, own[1:].add_(1)],
    "sent while a view is seen": sent,
    "written after data =": lambda own: [setattr(seen_before(own), "data", other()), own.mul_(3), own[:2].zero_(), own * 1][1:],
    # What is written to ordinary tensors.
    "copied into": into(lambda plain, own: plain.copy_(own)),
    "added to": into(lambda plain, own: plain.add_(own)),
    "+= into": into(lambda plain, own: plain.__iadd__(own)),
    "set into": into(lambda plain, own: plain.__setitem__(slice(None), own)),
    "set into by ids": into(lambda plain, own: plain.__setitem__(torch.tensor([2, 0]), own[:2])),
    "index_add_ into": into(lambda plain, own: plain.index_add_(0, torch.tensor([3, 1]), own[:2])),
    "out=": into(lambda plain, own: torch.mul(own, 3, out=plain)),
    "out= grows": grown,
    "statistics": batch_norm,
    # As torch.
    "empty": lambda own: [own[:0] + 1, own[:0].sum(), own[:0].add_(1), own[:0] @ torch.ones(6, 2)],
    "ravel": written(lambda own: own.ravel()),
    "contiguous": written(lambda own: own.contiguous()),
    "unfold": written(lambda own: own.unfold(0, 2, 2)),
    "hsplit": written(lambda own: own.hsplit(2)),
    "vsplit": written(lambda own: own.vsplit(2)),
    "reshape": written(lambda own: own.reshape(6, 4)),
    "reshape of parts": written(lambda own: own[:, 1:].reshape(-1)),
    "movedim": written(lambda own: own.movedim(0, 1)),
    "broadcast_to": lambda own: own[:1].broadcast_to(3, 6) + 1,
    "rows one by one": lambda own: [row.add_(1) for row in own],
    "atleast_3d": lambda own: torch.atleast_3d(own) + 1,
    "detached": lambda own: [own.requires_grad_().detach().requires_grad, own.data.requires_grad],
    "in place on results": twice_in_place,
    "in place on leaves": of_leaf,
    "in place with gradients": takes_a_gradient,
    "kept results": kept_result,
    **{
        f"version, {name}": stale(write)
        for name, write in {
            "zero_": lambda own: own.zero_(),
            "a view": lambda own: own.view(-1)[:3].fill_(1),
            "copy_": lambda own: own.copy_(other()),
            "ordinary": lambda own: getattr(own, "host", own).zero_(),
            "none": lambda own: None,
        }.items()
    },
    "constant_": lambda own: torch.nn.init.constant_(own.requires_grad_(), 3.0),
    "zeros_": lambda own: torch.nn.init.zeros_(own),
    "by a generator": lambda own: own.uniform_(generator=torch.Generator().manual_seed(3)),
    "format": lambda own: [f"{own[1, 1]:.2f}", format(own[0, 0], ">8.1f")],
    "another dtype": lambda own: [own.to(torch.float64), own.double(), own.to(torch.float32) is own],
}


@pytest.mark.parametrize("affinity", ["gpu", "host"])
@pytest.mark.parametrize("name", CASES)
def test_is_as_torch_does(side, name, affinity):
    plain = torch.arange(24.0).view(4, 6)
    own = unified(plain.clone(), affinity=affinity)
    want, found = outcome(CASES[name], plain), outcome(CASES[name], own)
    assert found == want


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("affinity", ["gpu", "host"])
def test_copies_are_apart(side, affinity, copies):
    own = unified(torch.arange(24.0).view(4, 6), affinity=affinity)
    twin = copy.deepcopy(own) if copies else own.clone()
    twin.zero_()
    assert own.sum().item() == 276


@pytest.mark.parametrize("affinity", ["gpu", "host"])
def test_gradients_are_those_of_the_tensor_itself(side, affinity):
    own = unified(torch.tensor([1.0, 2.0]), affinity=affinity).requires_grad_()
    (slope,) = torch.autograd.grad((own * own).sum(), own)
    assert slope.tolist() == [2, 4]
    there = torch.autograd.functional.jacobian(lambda value: value * value, own.detach())
    assert there.tolist() == [[2, 0], [0, 4]]
    (own * own).sum().backward()
    again = copy.deepcopy(own)
    assert again.grad.tolist() == [2, 4] and again.grad is not own.grad
    with pytest.raises(ValueError, match="detach"):
        unified(torch.ones(2, requires_grad=True) * 2)


def test_forked_processes_compute_without_the_gpu(monkeypatch):
    import headwater.gpu

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert headwater.gpu.current() is None and (unified(torch.ones(3)) + 1).tolist() == [2, 2, 2]


# Behind what is queued ################################################################################################


def log():
    import headwater

    return headwater.gpu.current().log


WRITES = {
    "zero_": lambda own: (own.set_affinity("host"), own.zero_()),
    "setitem": lambda own: (own.set_affinity("host"), own.__setitem__(0, 1)),
    "copy_": lambda own: own.copy_(torch.zeros(own.shape)),
    "a view": lambda own: (own.set_affinity("host"), own[1:].zero_()),
    "host": lambda own: own.host.zero_(),
    "numpy": lambda own: own.numpy().fill(0),
    "out=": lambda own: (own.set_affinity("host"), torch.zeros(own.shape, out=own)),
}
READS = {
    "operator": lambda own: own + 1,
    "view": lambda own: own[2:] * 2,
    "rows": lambda own: own[torch.tensor([3, 1])],
    "into another": lambda own: torch.empty(own.shape).copy_(own.on("cuda")),
    "kept for gradients": lambda own: own * torch.ones(own.shape, requires_grad=True),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="what is waited for is written down on the emulator")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("read", READS)
def test_the_cpu_writes_behind_queued_reads(gpu, read, write, monkeypatch):
    import headwater

    rows = 9 << 10 if read == "rows" else 4
    own = unified(torch.ones(rows, 1024 if read == "rows" else 6))
    raw, held = own.host, []
    READS[read](own)
    marks = [entry for entry in log() if entry[0] == "mark"]
    is_lent = read in ("into another", "kept for gradients")
    place = headwater.gpu.Place
    monkeypatch.setattr(place, "wait", lambda self, mark: held.append((mark, raw.min().item())))
    monkeypatch.setattr(place, "drain", lambda self: held.append(("all", raw.min().item())))
    WRITES[write](own)
    # Nothing was written before it was waited for, once.
    assert held[:1] == [("all", 1.0)] if is_lent else held == [(marks[-1], 1.0)]
    held.clear()
    if not is_lent:
        WRITES[write](own)
        assert held == []


def test_a_gpu_that_writes_is_waited_for(gpu):
    own = unified(torch.ones(4, 6))
    own.add_(1)
    if not torch.cuda.is_available():
        assert ("settle",) in log()
    assert own.host.sum().item() == 48


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@needs_gpu
@pytest.mark.parametrize("write", WRITES)
def test_queued_reads_see_what_was_there(write):
    own = unified(torch.ones(9 << 10, 1024))
    ids = torch.arange(1000, device="cuda")
    own[ids]
    torch.cuda.synchronize()
    torch.cuda._sleep(10**8)
    rows, sums = own[ids], own[:100] + 1
    WRITES[write](own)
    assert rows.min().item() == 1 and sums.cpu().min().item() == 2


@needs_gpu
def test_pinned_operands_are_read_before_they_change():
    own, pinned = unified(torch.ones(1 << 20)), torch.ones(1 << 20).pin_memory()
    own + pinned
    torch.cuda._sleep(10**8)
    found = own + pinned
    pinned.zero_()
    assert found.cpu().min().item() == 2


@needs_gpu
def test_pinned_memory_is_read_where_it_lies():
    pinned = torch.arange(9.0 * 2**20).view(9 << 10, 1024).pin_memory()
    own, ids = unified(pinned, copy=False), torch.tensor([5, 0], device="cuda")
    assert own.data_ptr() == pinned.data_ptr() and torch.equal(own[ids].cpu(), pinned[[5, 0]])
    assert torch.equal((own[:3] + 1).cpu(), pinned[:3] + 1)


@needs_gpu
def test_written_back_from_a_gpu():
    own, there = unified(torch.ones(4, 6)), torch.full((4, 6), 3.0, device="cuda")
    plain = torch.zeros(4, 6)
    torch.addcmul(plain, own, there, out=plain)
    assert plain.min().item() == 3
    weight = torch.ones(4, 6, device="cuda", requires_grad=True)
    own.add_(weight)
    own.sum().backward()
    assert own.host.detach().min().item() == 2 and weight.grad.min().item() == 1
