"""Calls of a compiled layer again and again on a GPU: at the same addresses, and recorded by torch."""

from __future__ import annotations

import ctypes

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from headwater import LayerGraph  # noqa: E402
from layers import D_IN, D_OUT, EDGES, NODES, TYPES, close, gat, leaf, rgcn, sage, weighted  # noqa: E402

dropped = """
def dropped(g, x: node[d], p: float = 0.5):
    for n in g.dst_nodes():
        n["out"] = sum(dropout(e.src.x, p) for e in n.incoming_edges())
"""


@pytest.fixture
def place(gpu):
    torch.manual_seed(7)
    return headwater.gpu.place_of(gpu)


@pytest.fixture
def edges():
    return torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def on_cuda(place):
    if place.device.type != "cuda":
        pytest.skip("torch records nothing on the emulator")
    return place


def of_sage(device):
    shapes = (NODES, D_IN), (D_IN, D_OUT), (D_IN, D_OUT), (D_OUT,)
    return [torch.randn(*shape, device=device, requires_grad=True) for shape in shapes]


def in_place(place, monkeypatch):
    """Lets tensors lie where they lay in the step before, as torch's allocator mostly does on a GPU. Returns what begins a step."""
    if place.device.type == "cuda":
        return lambda: None
    own, count = {}, [0]

    def empty(self, shape, dtype):
        count[0] += 1
        key = count[0], tuple(shape), dtype
        if key not in own:
            own[key] = torch.empty(tuple(shape), dtype=dtype)
        # Another object each time: autograd writes down who made it.
        return own[key].view(own[key].shape).detach()

    monkeypatch.setattr(type(place), "empty", empty)
    return lambda: count.__setitem__(0, 0)


def repeats(graph):
    (ready,) = graph.ready.values()
    return [ready.kernels.placed.repeats(backward) for backward in (False, True)]


@pytest.mark.parametrize("has_types", [False, True])
def test_calls_at_the_same_place_are_one_launch(place, edges, monkeypatch, has_types):
    begin = in_place(place, monkeypatch)
    types = torch.randint(TYPES, (EDGES,))
    graph = LayerGraph(edges, NODES, edge_type=types, num_edge_types=TYPES) if has_types else LayerGraph(edges, NODES)
    module = rgcn.module(d_in=D_IN, d_out=D_OUT, num_edge_types=TYPES if has_types else 1).to(place.device)
    x, weight = (torch.empty(NODES, width, device=place.device) for width in (D_IN, D_OUT))
    x.requires_grad_()
    for _ in range(8):
        with torch.no_grad():
            x.copy_(torch.randn(NODES, D_IN))
            weight.copy_(torch.randn(NODES, D_OUT))
        begin()
        out = module(graph, x)
        found = torch.autograd.grad(out, [x, *module.parameters()], weight)
        with monkeypatch.context() as patch:
            # The CPU's own.
            patch.setattr(headwater.gpu, "holding", lambda tensors: None)
            mine = [leaf(own.detach().cpu()) for own in (x, *module.parameters())]
            wanted = rgcn(LayerGraph(edges, NODES, edge_type=types, num_edge_types=TYPES) if has_types else edges, *mine)
            close(out.detach().cpu(), wanted.detach(), 1e-4)
            for own, other in zip(found, torch.autograd.grad(wanted, mine, weight.cpu())):
                close(own.cpu(), other, 1e-4)
        del out, found
    for kept, bound, repeated, as_one in repeats(graph):
        assert bound + repeated == 8 and kept <= bound and as_one == repeated
        assert place.device.type == "cuda" or (kept, repeated) == (1, 7)


def test_dropouts_of_calls_at_the_same_place_differ(place, edges, monkeypatch):
    begin = in_place(place, monkeypatch)
    layer, x = headwater.compile(dropped), torch.ones(NODES, D_IN, device=place.device, requires_grad=True)
    graph, seen, weight = LayerGraph(edges, NODES), [], torch.ones(NODES, D_IN, device=place.device)
    for _ in range(5):
        begin()
        out = layer(graph, x)
        (slope,) = torch.autograd.grad(out, x, weight)
        # The same edges are left out on the way back.
        close(slope.cpu().sum(), out.detach().cpu().sum(), 1e-3)
        seen.append(out.detach().cpu().clone())
        del out, slope
    assert all(not torch.equal(one, other) for at, one in enumerate(seen) for other in seen[:at])
    assert place.device.type == "cuda" or repeats(graph) == [(1, 1, 4, 4)] * 2


def test_what_calls_share_is_made_once_a_kind(place, edges, monkeypatch):
    graph, given = LayerGraph(edges, NODES), of_sage(place.device)
    for _ in range(3):
        sage(graph, *given)
    assert len(graph.ready) == 1
    with torch.no_grad():
        sage(graph, *given)
    sage(graph, *given, training=False)
    sage(graph, given[0].detach(), *given[1:])
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high" if before == "highest" else "highest")
        sage(graph, *given)
    finally:
        torch.set_float32_matmul_precision(before)
    assert len(graph.ready) == 5
    monkeypatch.setattr(headwater.layer_graph, "_MOST_READY", 7)
    for width in range(1, 10):
        weighted(graph, torch.randn(NODES, width, device=place.device), torch.ones(EDGES, device=place.device))
        assert len(graph.ready) == min(5 + width, 7)
    # Every shape is looked at, whatever was called before.
    with pytest.raises(ValueError, match="^x: its shape"):
        sage(graph, given[0][1:], *given[1:])


def test_layers_without_optimisations_have_kernels_of_their_own(place, edges):
    graph, given, seen = LayerGraph(edges, NODES), of_sage(place.device), []
    for without in ((), ["fuse"], headwater.OPTIMISATIONS):
        layer = headwater.compile("sage", without=without)
        out = layer(graph, *given)
        seen.append([out.detach().cpu(), *(own.cpu() for own in torch.autograd.grad(out.square().sum(), given))])
    assert len(graph.ready) == 3
    for other in seen[1:]:
        for one, wanted in zip(other, seen[0]):
            close(one, wanted, 1e-3)


def test_copies_of_one_call_do_not_share_memory(place, edges):
    x, W, root, b = (own.detach() for own in of_sage(place.device))
    turned = [own.t().contiguous().t() for own in (x, W, root)]
    with torch.no_grad():
        close(sage(edges, *turned, b).cpu(), sage(edges, x, W, root, b).cpu())


class Recorder:
    """Records a stream of the emulator's, as torch does with one of a GPU: in the mode that forbids most, keeping all memory."""

    def __init__(self, monkeypatch, place):
        import held

        self._driver, self.memory, self._is_on = held.driver, [], False
        self._stream, own = held.new_stream(), type(place)
        monkeypatch.setattr(own, "stream", lambda _: self._stream)
        monkeypatch.setattr(own, "is_capturing", lambda _: self._is_on)
        monkeypatch.setattr(own, "empty", self._empty)

    def _empty(self, shape, dtype):
        self.memory.append(torch.empty(tuple(shape), dtype=dtype))
        return self.memory[-1].view(tuple(shape)).detach()

    def __enter__(self):
        self._driver("cuStreamBeginCapture_v2", ctypes.c_void_p(self._stream), 0)
        self._is_on = True
        return self

    def __exit__(self, *_):
        self._is_on = False
        graph = ctypes.c_void_p()
        self._driver("cuStreamEndCapture", ctypes.c_void_p(self._stream), ctypes.byref(graph))
        self._graph = graph
        self._executable = self._driver.made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))

    def replay(self):
        self._driver("cuGraphLaunch", ctypes.c_void_p(self._executable), ctypes.c_void_p(self._stream))

    def forget(self):
        self._driver("cuGraphExecDestroy", ctypes.c_void_p(self._executable))
        self._driver("cuGraphDestroy", self._graph)


@pytest.fixture
def recorder(place, monkeypatch):
    from conftest import IS_HELD

    if place.device.type == "cuda" or IS_HELD:
        pytest.skip("torch records by itself, or tensors lie elsewhere")
    return Recorder(monkeypatch, place)


def test_a_call_can_be_recorded_on_the_emulator(recorder, place, edges):
    given, weight = of_sage("cpu"), torch.randn(NODES, D_OUT)
    graph = LayerGraph(edges.clone(), NODES)
    with pytest.raises(RuntimeError, match="call the layer with it once before it is recorded"), recorder:
        sage(graph, *given)
    sage(graph, *given).backward(weight)
    with recorder:
        out = sage(graph, *given)
        found = torch.autograd.grad(out, given, weight)
    # Nothing but the recording holds the graph now.
    del graph
    headwater.forget_graphs()
    for _ in range(3):
        with torch.no_grad():
            given[0].copy_(torch.randn(NODES, D_IN))
        recorder.replay()
        wanted = sage(edges, *given)
        close(out.detach(), wanted.detach())
        for own, other in zip(found, torch.autograd.grad(wanted, given, weight)):
            close(own, other, 1e-4)
    recorder.forget()
    sage(edges, *given)


def test_dropouts_that_are_recorded_are_drawn_on_the_gpu(recorder, place, edges, monkeypatch):
    drawn = []
    real = torch.randint

    def randint(*given, **named):
        drawn.append(real(*given, **named))
        return drawn[-1]

    layer, x = headwater.compile(dropped), torch.ones(NODES, D_IN, requires_grad=True)
    graph, weight = LayerGraph(edges, NODES), torch.ones(NODES, D_IN)
    layer(graph, x).backward(weight)
    with recorder:
        monkeypatch.setattr(torch, "randint", randint)
        out = layer(graph, x)
        (slope,) = torch.autograd.grad(out, x, weight)
    (key,), seen = drawn, []
    assert key.shape == (1,) and key.dtype == torch.int64
    for number in (3, 4, 3):
        key.fill_(number)
        recorder.replay()
        close(slope.sum(), out.detach().sum(), 1e-3)
        seen.append(out.detach().clone())
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])


def warmed(function):
    """Runs a few times on a stream of its own, as torch wants it before it records."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_torch_records_forward_and_backward(on_cuda, edges, where):
    given, weight = of_sage("cuda"), torch.randn(NODES, D_OUT, device="cuda")
    own = edges.to(where)

    def step():
        out = sage(own, *given)
        return out, *torch.autograd.grad(out, given, weight)

    warmed(step)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        found = step()
    for turn in range(4):
        with torch.no_grad():
            given[0].copy_(torch.randn(NODES, D_IN))
        # Others come and go meanwhile, and the graph is forgotten by all but the recording.
        headwater.forget_graphs()
        wanted = [tensor.detach().clone() for tensor in step()]
        for tensor in found:
            tensor.detach().zero_()
        recorded.replay()
        for one, other in zip(found, wanted):
            close(one.detach().cpu(), other.cpu(), 1e-4)
    recorded.reset()
    step()


def test_torch_makes_graphed_callables(on_cuda, edges):
    types = torch.randint(TYPES, (EDGES,))
    graph = LayerGraph(edges, NODES, edge_type=types, num_edge_types=TYPES)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = rgcn.module(d_in=D_IN, d_out=8, num_edge_types=TYPES, seed=1)
            self.second = rgcn.module(d_in=8, d_out=D_OUT, num_edge_types=TYPES, seed=2)

        def forward(self, x):
            return self.second(graph, self.first(graph, x).relu())

    plain, net = Net().cuda(), Net().cuda()
    recorded = torch.cuda.make_graphed_callables(net, (torch.randn(NODES, D_IN, device="cuda", requires_grad=True),))
    rates = [torch.optim.SGD(own.parameters(), lr=0.1) for own in (plain, net)]
    for _ in range(6):
        x, y = torch.randn(NODES, D_IN, device="cuda", requires_grad=True), torch.randint(D_OUT, (NODES,), device="cuda")
        losses = []
        for own, rate in zip((plain, recorded), rates):
            rate.zero_grad()
            losses.append(torch.nn.functional.cross_entropy(own(x), y))
            losses[-1].backward()
            rate.step()
        close(losses[0].detach().cpu(), losses[1].detach().cpu(), 1e-4)
    for one, other in zip(plain.parameters(), net.parameters()):
        close(one.detach().cpu(), other.detach().cpu(), 1e-4)


def test_replays_draw_dropouts_of_their_own(on_cuda, edges):
    layer, x = headwater.compile(dropped), torch.ones(NODES, D_IN, device="cuda", requires_grad=True)
    graph = LayerGraph(edges, NODES)

    def step():
        out = layer(graph, x)
        return out, *torch.autograd.grad(out.sum(), x)

    warmed(step)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        out, slope = step()
    seen = []
    for _ in range(4):
        recorded.replay()
        close(slope.cpu().sum(), out.detach().cpu().sum(), 1e-3)
        seen.append(out.detach().cpu().clone())
    assert all(not torch.equal(one, other) for at, one in enumerate(seen) for other in seen[:at])


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_graph_is_not_brought_while_torch_records(on_cuda, edges, where):
    given = [own.detach() for own in of_sage("cuda")]
    sage(edges, *given)
    graph, recorded = LayerGraph(edges.to(where).clone(), NODES), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="call the layer with it once before it is recorded"):
        with torch.cuda.graph(recorded):
            sage(graph, *given)
    close(sage(graph, *given).cpu(), sage(edges, *given).cpu())


def test_edge_data_is_ordered_while_torch_records(on_cuda, edges):
    x, w = torch.randn(NODES, D_IN, device="cuda"), torch.randn(EDGES, device="cuda")
    for graph in (LayerGraph(edges, NODES), LayerGraph(edges.cuda(), NODES)):
        wanted, recorded = weighted(graph, x, w), torch.cuda.CUDAGraph()
        warmed(lambda: weighted(graph, x, w))  # noqa: B023
        with torch.cuda.graph(recorded):
            out = weighted(graph, x, w)
        recorded.replay()
        close(out.cpu(), wanted.cpu())


def test_a_network_that_is_recorded_learns(on_cuda, edges):
    graph = LayerGraph(edges, NODES)
    model = gat.module(d_in=D_IN, d_out=4, heads=2, p=0.2, seed=3).cuda()
    x, y = torch.randn(NODES, D_IN).cuda(), torch.randint(8, (NODES,)).cuda()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05, capturable=True)

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(graph, x), y)
        loss.backward()
        optimiser.step()
        return loss

    warmed(step)
    recorded = torch.cuda.CUDAGraph()
    optimiser.zero_grad(set_to_none=True)
    with torch.cuda.graph(recorded):
        loss = step()
    losses = []
    for _ in range(40):
        recorded.replay()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
