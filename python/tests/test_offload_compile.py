"""torch.compile: models compiled by regions or as a whole, and contexts inside of what is compiled. Gradients are the same to the bit, and
what hooks do not see in time is said once."""

import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from headwater.offload.passes import ForwardPasses  # noqa: E402
from offload_cases import ROWS, WIDTH, data, same, seeded  # noqa: E402
from torch import nn  # noqa: E402

BACKENDS = ["eager", "aot_eager"]


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layers():
    return seeded(lambda: nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3))))


def offload(folder):
    return headwater.Offload(host=64 << 10, slot=4096, smallest=0, disk=folder, device="cpu", allow_buffered=True)


def gradients(model, net, context):
    net.zero_grad()
    with context:
        loss = model(data("cpu", ROWS, WIDTH)).square().mean()
    loss.backward()
    return [loss.detach(), *(own.grad.clone() for own in net.parameters())]


def both(model, net, off):
    """Whether two passes with an offloader are as one without, and what was said of them."""
    expected = gradients(model, net, contextlib.nullcontext())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_same = all(same(gradients(model, net, off), expected) for _ in range(3))
    said = [str(one.message) for one in caught if one.category is UserWarning and one.filename == __file__]
    assert said == off.report().warnings
    return is_same, said


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_compiled_by_regions(backend, tmp_path):
    net, off = layers(), offload(tmp_path)
    for layer in net:
        layer.compile(backend=backend)
    assert both(net, net, off) == (True, [])
    assert off.report().left >= 3 * 3 * ROWS * WIDTH * 4, "the output of each layer, in each step"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_compiled_as_a_whole(backend, tmp_path):
    """Graphs that autograd's ahead-of-time part makes save all at once; what dynamo alone has traced runs as ever."""
    net, off = layers(), offload(tmp_path)
    is_same, said = both(torch.compile(net, backend=backend), net, off)
    assert is_same and off.report().blocks > 0
    assert len(said) == (backend == "aot_eager")
    assert all("all at once when it ends" in words and "Compile by regions" in words for words in said)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_context_inside_of_a_compiled_function(backend, tmp_path):
    """The function breaks there: nothing of ours is traced, which would look at all objects of the process."""
    net, off = layers(), offload(tmp_path)

    def step(x):
        off.hint(next="forward", microbatch=0)
        with off:
            loss = net(x * 2).square().mean()
        off.hint(next="backward", microbatch=0)
        loss.backward()
        return loss.detach(), off.report().blocks

    def run():
        net.zero_grad()
        found, blocks = step(data("cpu", ROWS, WIDTH))
        return blocks, [found, *(own.grad.clone() for own in net.parameters())]

    expected = gradients(lambda x: net(x * 2), net, contextlib.nullcontext())
    step = torch.compile(step, backend=backend)
    blocks = []
    for _ in range(2):
        seen, found = run()
        blocks.append(seen)
        assert same(found, expected)
    assert 0 < blocks[0] < blocks[1]


def test_a_backward_pass_that_is_compiled_too_shows_hooks_nothing(tmp_path):
    net, off = layers(), offload(tmp_path)

    def step(x):
        return torch.autograd.grad(net(x).square().mean(), list(net.parameters()))

    compiled, x = torch.compile(step, backend="aot_eager"), data("cpu", ROWS, WIDTH)
    compiled(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What saves nothing is no reason.
        with off, torch.no_grad():
            net(x)
    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patched:
        if not hasattr(torch._dynamo.config, "trace_autograd_ops"):
            pytest.skip("this torch does not trace backward passes")
        patched.setattr(torch._dynamo.config, "trace_autograd_ops", True)
        with pytest.warns(UserWarning, match="no tensor was saved for backward where hooks see it") as caught:
            for _ in range(3):
                with off:
                    found = compiled(x)
    assert same(found, step(x)) and len(caught) == 1
    assert [str(caught[0].message)] == off.report().warnings


def test_what_functions_set_on_their_context_is_named(tmp_path):
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.made = x @ weight
            ctx.save_for_backward(weight)
            return ctx.made * 2

        @staticmethod
        def backward(ctx, gradient):
            (weight,) = ctx.saved_tensors
            return gradient @ weight.t() * 2 + ctx.made, None

    weight, x = data("cpu", WIDTH, WIDTH), data("cpu", ROWS, WIDTH, requires_grad=True)

    def model(x):
        for _ in range(3):
            x = Doubles.apply(x, weight)
        return x.sum()

    for call, name in ((model, "Doubles.made"), (torch.compile(model, backend="aot_eager"), "attributes inside of torch.compile")):
        off, expected = offload(tmp_path), torch.autograd.grad(call(x), x)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                with off:
                    loss = call(x)
                assert same(torch.autograd.grad(loss, x), expected)
        said = [str(one.message) for one in caught if "functions of autograd keep" in str(one.message)]
        assert len(said) == 1 and f": {name}. Tensors leave that forward gives to ctx.save_for_backward" in said[0]


def test_a_compiled_model_that_enters_the_context_by_hooks(tmp_path):
    """As with the Trainer's callback, whose hooks are of the module that is compiled: the function breaks at each of them."""
    net, off = layers(), offload(tmp_path)
    expected = gradients(net, net, contextlib.nullcontext())
    passes = ForwardPasses(net, off)
    compiled = torch.compile(net, backend="aot_eager")
    with pytest.warns(UserWarning, match="all at once when it ends"):
        assert all(same(gradients(compiled, net, contextlib.nullcontext()), expected) for _ in range(2))
    passes.remove()
    assert off.report().blocks > 0 and off._stack() == []


@pytest.mark.parametrize("by", [torch.utils.checkpoint.checkpoint, headwater.checkpoint])
def test_checkpoints_in_a_compiled_function(by, tmp_path):
    net, off = layers(), offload(tmp_path)
    options = {"use_reentrant": False} if by is torch.utils.checkpoint.checkpoint else {}

    def model(x):
        for layer in net:
            x = by(layer, x * 1, **options)
        return x

    is_same, _ = both(torch.compile(model, backend="aot_eager"), net, off)
    assert is_same and off.report().blocks > 0
