"""Unified tensors: what torch computes of them is what it computes of ordinary ones, wherever the table puts it."""

import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from headwater import UnifiedTensor, _unified, unified  # noqa: E402
from headwater._headwater import PinnedMemory, placement  # noqa: E402

# Most of them ask for a GPU on the way.
pytestmark = pytest.mark.gpu


@pytest.fixture(params=["without a GPU", "with a GPU"])
def side(request):
    """Every test runs both ways."""
    if request.param == "with a GPU":
        request.getfixturevalue("gpu")
    return request.param


def there(tensor):
    """An ordinary tensor where a GPU reads it."""
    return tensor.cuda() if torch.cuda.is_available() else tensor


def table(shape=(40, 6), **wished):
    return unified(torch.arange(int(np.prod(shape))).view(shape).float(), **wished)


OPERATORS = {
    "sum": lambda t, o: t + o,
    "product": lambda t, o: o * t - 2,
    "matmul": lambda t, o: t @ o.t(),
    "relu": lambda t, o: torch.relu(t - 100),
    "softmax": lambda t, o: torch.softmax(t / 100, dim=1),
    "cat": lambda t, o: torch.cat([t, o]),
    "where": lambda t, o: torch.where(t > 50, t, o),
    "max": lambda t, o: t.max(dim=0).values,
    "mask": lambda t, o: t[t > 100],
    "linear": lambda t, o: torch.nn.functional.linear(t, o),
    "pieces": lambda t, o: sum(t.split(20)) + t[3:23, 1:2],
    "index_select": lambda t, o: torch.index_select(t, 1, torch.tensor([2, 0], device=o.device)),
}


@pytest.mark.parametrize("affinity", ["gpu", "host"])
@pytest.mark.parametrize("name", OPERATORS)
def test_any_operator_works(side, name, affinity):
    plain, other = torch.arange(240).view(40, 6).float(), torch.randn(40, 6)
    want = OPERATORS[name](plain, other)
    own = table(affinity=affinity)
    assert torch.allclose(OPERATORS[name](own, other).cpu(), want, atol=1e-4)
    if name != "index_select" or torch.cuda.is_available():
        assert torch.allclose(OPERATORS[name](own, there(other)).cpu(), want, atol=1e-4)


@pytest.mark.parametrize("width", [7, 7000, 200_000])
def test_rows_are_gathered(side, width):
    rows = torch.randn(50, width)
    own = unified(rows)
    for ids in (torch.tensor([3, 3, 49, 0]), torch.arange(50).int(), torch.tensor([[1, 2], [3, 4]])):
        assert torch.equal(own[there(ids)].cpu(), rows[ids])
    assert torch.equal(own[2:5].host, rows[2:5]) and own[2:5].is_unified
    assert torch.equal(own[4].host, rows[4]) and own[4, 2].item() == rows[4, 2].item()
    assert torch.equal(own[torch.tensor([True] + [False] * 49)].cpu(), rows[:1])


def test_gradients_pass_through(side):
    plain = torch.randn(20, 4, requires_grad=True)
    own = unified(plain)
    assert own.requires_grad and own.is_leaf
    ids, weight = torch.tensor([1, 5, 5, 9]), torch.randn(4, 3, requires_grad=True)
    other = weight.detach().clone().requires_grad_()
    ((plain[ids] @ weight).relu().sum() + (plain * 2).sum()).backward()
    ((own[there(ids)] @ there(other)).relu().sum().cpu() + (own * 2).sum().cpu()).backward()
    assert torch.allclose(own.grad.cpu(), plain.grad, atol=1e-5)
    assert torch.allclose(other.grad, weight.grad, atol=1e-5)


def test_memory_is_one(side):
    own = table()
    own += 1
    own[0, 0] = 77.0
    for width in (10_000, 250_000):
        large = table((40, width))
        for value in (-1.0, -2.0):
            large[3] = value
            assert large[there(torch.tensor([3]))].sum().item() == value * width
    assert own.is_unified and own[0, 0].item() == 77 and own.host[1, 1].item() == 8
    assert (own + 0)[0, 0].item() == 77
    view = own.view(-1)
    view[1] = 5
    assert view.is_unified and own.host[0, 1].item() == 5 and (own * 1).cpu()[0, 1].item() == 5
    if torch.cuda.is_available():
        own.copy_(torch.ones(40, 6, device="cuda"))
        assert own.host.sum().item() == 240
        own.on("cuda").fill_(2)
        torch.cuda.synchronize()
        assert own.host.sum().item() == 480


def test_numpy_and_shared_memory_are_not_copied():
    array = np.zeros((3000, 3000), dtype=np.float32)
    own = unified(array)
    array[5, 5] = 3
    assert own.data_ptr() == array.ctypes.data and own[5, 5].item() == 3
    shared = torch.zeros(600, 600).share_memory_()
    assert unified(shared).data_ptr() == shared.data_ptr()
    ordinary = torch.zeros(600, 600)
    assert unified(ordinary).data_ptr() != ordinary.data_ptr()


def test_memory_is_shared_where_that_is_asked_for(side):
    for own in (torch.zeros(3000, 3000), torch.zeros(30, 30).share_memory_(), np.zeros((3000, 3000), np.float32)):
        made = unified(own, copy=False)
        assert made.data_ptr() == (own.ctypes.data if isinstance(own, np.ndarray) else own.data_ptr())
        made[1] += 1
        assert made.sum().item() == own[1].sum().item() == made.shape[1]
        assert unified(own, copy=True).data_ptr() != made.data_ptr()
    parts = torch.zeros(3000, 3001)[:, 1:]
    assert torch.equal((unified(parts, copy=False) + 1).cpu(), parts + 1)
    ours = unified(torch.zeros(4, 4))
    assert unified(ours, copy=False, affinity="host").data_ptr() == ours.data_ptr()


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "tensor, wished, words",
    [
        (read_only(np.zeros((3000, 3000), np.float32)), {}, "the array is read-only"),
        (np.zeros((3000, 3000), np.float32)[::-1], {}, "negative stride"),
        (torch.ones(3, dtype=torch.cfloat).conj(), {}, "as they are read"),
        (torch.ones(3).to_sparse(), {}, "as they are read"),
        (torch.ones(3), {"managed": True}, "managed memory is the driver's own"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_the_reason(tensor, wished, words):
    with pytest.raises(ValueError, match=words):
        unified(tensor, copy=False, **wished)
    if not isinstance(tensor, torch.Tensor) or (tensor.layout is torch.strided and not wished):
        made = unified(tensor)
        made[:1] = 0
        assert made[0].sum().item() == 0


def test_small_memory_of_the_heap_is_not_shared_with_a_gpu(gpu):
    with pytest.raises(ValueError, match="its 12 bytes lie in the heap"):
        unified(torch.ones(3), copy=False)


def test_results_are_made_in_memory_of_those_that_are_gone(gpu):
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    own, other = table((600, 1000), affinity="host"), torch.ones(600, 1000)
    for _ in range(2):
        own + other
    before = PinnedMemory.usage()
    for step in range(20):
        made = own + other
        assert made.is_unified and made[1, 1].item() == 1002
        del made
    after = PinnedMemory.usage()
    assert (after[0] - before[0], after[1] - before[1]) == (20, 0)


def test_memory_that_somebody_still_has_is_not_used_again(gpu):
    own = table((600, 1000), affinity="host")
    kept = [own + step for step in range(3)]
    parts = [made[5] for made in kept]
    del kept
    others = [own * 0 for _ in range(3)]
    assert [part[0].item() for part in parts] == [5000, 5001, 5002] and len(others) == 3


def test_operators_in_place_go_by_the_table(gpu, monkeypatch):
    sides = []
    monkeypatch.setattr(_unified, "_by_cpu", lambda *_: sides.append("cpu"))
    monkeypatch.setattr(_unified, "_by_gpu", lambda *_: sides.append("gpu"))
    for affinity, want in (("gpu", "gpu"), ("host", "cpu")):
        own = table(affinity=affinity)
        for write in (
            lambda: own.add_(1),
            lambda: own.__iadd__(1),
            lambda: own.__setitem__(0, 1.0),
            lambda: own.mul_(torch.ones(40, 6)),
            lambda: torch.nn.init.ones_(own),
            lambda: torch.add(own, 1, out=own),
        ):
            write()
            assert sides.pop() == want
    # What is copied out of host memory into host memory has no way to a GPU and back.
    table().copy_(torch.ones(40, 6))
    torch.ones(40, 6).add_(table())
    assert sides == ["cpu", "cpu"]


def test_saved_ones_are_ordinary(side):
    file = io.BytesIO()
    own = table(affinity="host")
    torch.save({"x": own}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["x"]
    assert type(loaded) is torch.Tensor and torch.equal(loaded, own.host)
    # A shallow copy has the same memory, and asks for its own gradient.
    same = copy.copy(own)
    assert isinstance(same, UnifiedTensor) and same.data_ptr() == own.data_ptr()
    assert copy.copy(unified(torch.ones(2)).requires_grad_()).requires_grad
    twin = copy.deepcopy(own)
    assert twin.is_unified and twin.affinity == "host" and twin.data_ptr() != own.data_ptr()


def _child(tensor, answers):
    tensor[0, 0] = 5.0
    answers.put((type(tensor).__name__, tensor.affinity, tensor.host.sum().item()))


def test_spawned_processes_share_the_memory():
    own = table(affinity="host")
    spawn = torch.multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    child = spawn.Process(target=_child, args=(own, answers))
    child.start()
    assert answers.get(timeout=120) == ("UnifiedTensor", "host", torch.arange(240).sum().item() + 5)
    child.join(60)
    assert own[0, 0].item() == 5 and own.host.is_shared()


def test_the_placement_table():
    for operands, wanted in [
        (["unified:gpu", "cpu"], ("cuda:0", "unified:host")),
        (["unified:host", "cpu"], ("cpu", "unified:host")),
        (["unified:gpu", "cuda:1"], ("cuda:1", "cuda:1")),
        (["unified:host", "cuda:1"], ("cuda:1", "unified:gpu")),
        (["unified:gpu", "scalar"], ("cuda:0", "cuda:0")),
        (["unified:host"], ("cpu", "unified:host")),
        (["unified:gpu", "unified:host"], ("cuda:0", "unified:host")),
    ]:
        assert placement(operands, 0) == wanted
    with pytest.raises(RuntimeError, match="cuda:0 and operand 1 on cuda:1"):
        placement(["cuda:0", "cuda:1"], 0)
    with pytest.raises(ValueError, match="no kind of operand"):
        placement(["tpu"], 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_results_lie_where_the_table_says():
    for affinity, other, kind in [
        ("gpu", torch.ones(40, 6), "host"),
        ("host", torch.ones(40, 6), "host"),
        ("gpu", torch.ones(40, 6).cuda(), None),
        ("host", torch.ones(40, 6).cuda(), "gpu"),
        ("gpu", torch.tensor(2.0), None),
        ("host", 2.0, "host"),
    ]:
        found = table(affinity=affinity) + other
        if kind is None:
            assert found.is_cuda and not isinstance(found, UnifiedTensor)
        else:
            assert isinstance(found, UnifiedTensor) and found.affinity == kind


def test_affinities_switch_and_bad_ones_are_refused():
    own = table()
    own.set_affinity("host")
    assert own.affinity == "host"
    own.set_propagatedToCUDA(True)
    assert own.affinity == "gpu"
    for call in (lambda: own.set_affinity("tpu"), lambda: unified(torch.ones(2), affinity="tpu")):
        with pytest.raises(ValueError, match="it should be 'gpu' or 'host'"):
            call()
    with pytest.raises(ValueError, match="advise is 'Please'"):
        own.mem_advise("Please")
    with pytest.raises(RuntimeError, match="only managed memory takes advice"):
        own.mem_advise("SetReadMostly")
    with pytest.raises(TypeError, match="it should be a tensor"):
        unified([1, 2])


def test_managed_memory_takes_advice(gpu):
    own = unified(torch.arange(12).view(3, 4), managed=True)
    own.mem_advise("SetPreferredLocation", "cpu")
    own.memAdvise("SetAccessedBy", "cuda")
    assert torch.equal(own[there(torch.tensor([2]))].cpu(), torch.arange(8, 12).view(1, 4))
    assert torch.equal((own + 1).cpu(), torch.arange(1, 13).view(3, 4))
    assert torch.equal((own[1:, 2:] * 2).cpu(), torch.tensor([[12, 14], [20, 22]]))


def test_bad_ids_are_index_errors(gpu):
    own = table((40, 250_000))
    with pytest.raises(IndexError, match="id 40 "):
        own[there(torch.tensor([1, 40]))]
        headwater.synchronize(0, headwater.gpu.current().stream())


@pytest.fixture
def spelling():
    headwater.enable_unified_device()
    yield
    headwater.disable_unified_device()


def test_the_papers_spelling(side, spelling):
    made = torch.ones(128, device="unified")
    assert made.is_unified and not torch.ones(3).is_unified
    assert torch.zeros(2, 2, device="unified", dtype=torch.int64).dtype == torch.int64
    assert torch.arange(4.0).to("unified").is_unified and torch.ones(2).to(torch.float64).dtype == torch.float64
    assert torch.ones(3).to("unified", propagatedToCUDA=False).affinity == "host"
    with pytest.raises(RuntimeError, match="set_affinity is for unified tensors"):
        torch.ones(3).set_affinity("gpu")
    assert (made + torch.ones(128)).sum().item() == 256


@pytest.mark.parametrize("wished", [False, True])
def test_a_device_carries_its_hint(side, spelling, wished):
    there = headwater.device("unified", propagated_to_cuda=wished)
    want = "gpu" if wished else "host"
    given = [3.0, 4.0]
    for made in (
        torch.ones(2, 2, device=there),
        torch.full((2,), 3.0, device=there, dtype=torch.float64),
        torch.as_tensor(given, dtype=torch.float32, device=there),
        torch.randperm(4, device=there),
        torch.zeros_like(torch.ones(3), device=there),
        torch.ones(3).new_zeros(2, device=there),
        torch.ones(3).to(there),
        torch.ones(3).to(device=there, dtype=torch.float64),
        torch.ones(3).to(there, torch.float16, copy=True),
        torch.ones(2, device="unified", propagatedToCUDA=wished),
        torch.ones(2, device="unified", propagated_to_cuda=wished),
        torch.ones(3).to("unified", propagatedToCUDA=wished),
    ):
        assert made.is_unified and made.affinity == want
    assert torch.zeros(2, device=there, requires_grad=True).is_leaf
    assert torch.ones(3).to(device=there, dtype=torch.float64).dtype == torch.float64
    own = torch.ones(3).to(there)
    assert own.to(there) is own and own.to(there, copy=True).data_ptr() != own.data_ptr()
    leaf = torch.ones(3, requires_grad=True)
    (leaf.to(there) * 3).sum().backward()
    assert leaf.grad.tolist() == [3, 3, 3]


def test_devices_that_are_none_are_refused(spelling):
    with pytest.raises(ValueError, match="type is 'cuda'"):
        headwater.device("cuda")
    with pytest.raises(TypeError, match="stands beside a headwater.device"):
        torch.ones(2, device=headwater.device(), propagated_to_cuda=False)
    with pytest.raises(TypeError):
        torch.ones(2, propagated_to_cuda=False)
    with pytest.raises(ValueError, match="pin_memory is True"):
        torch.ones(2, device="unified", pin_memory=True)


def test_factories_take_advice(gpu, spelling):
    own = torch.ones(3, device="unified", advise="SetReadMostly", adviseDevice="cuda")
    own.mem_advise("UnsetReadMostly")
    assert own[1:].sum().item() == 2


def test_the_papers_listing_trains_as_plain_torch_does(side, spelling):
    """Two lines of a loop change: features go to "unified" once, and batches are not sent any more."""

    def losses(features, send):
        torch.manual_seed(1)
        model = there(torch.nn.Linear(8, 4))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for step in range(5):
            neighbour_id = torch.arange(step, 100, 5)
            batch = send(features, neighbour_id)
            loss = torch.nn.functional.cross_entropy(model(batch), there(neighbour_id % 4))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            found.append(loss.item())
        return found

    features = torch.randn(100, 8)
    plain = losses(features, lambda table, ids: there(table[ids]))
    ours = losses(features.to("unified"), lambda table, ids: table[there(ids)])
    assert plain == pytest.approx(ours, rel=1e-5) and len(set(plain)) == 5


def test_leaving_the_spelling_leaves_nothing():
    before = dict(vars(torch)), dict(vars(torch.Tensor))
    headwater.enable_unified_device()
    headwater.enable_unified_device()
    headwater.disable_unified_device()
    assert (dict(vars(torch)), dict(vars(torch.Tensor))) == before
    with pytest.raises(RuntimeError):
        torch.ones(3, device="unified")
