"""What a report says of disks, and of tensors that hooks do not see."""

import functools
import time
import types
import warnings

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from headwater.offload import unseen  # noqa: E402
from offload_cases import ROWS, WIDTH, data, gradients, mlp  # noqa: E402
from torch import nn  # noqa: E402


def offload(folder, **settings):
    return headwater.Offload(host=32 << 10, slot=4096, smallest=0, disk=folder, device="cpu", allow_buffered=True, **settings)


@pytest.mark.parametrize(
    "way, names",
    [
        ("keyword", "hidden"),
        ("partial", "argument 0, mask"),
        ("closure", "x"),
        ("closure of a closure", "x"),
        ("keyword, backward inside", "hidden"),
        ("positional", None),
        ("headwater.checkpoint", None),
        ("small beside others", None),
    ],
)
def test_what_torchs_checkpoints_keep_unseen_is_said_once(way, names, tmp_path):
    net, x = nn.Linear(WIDTH, WIDTH), data("cpu", ROWS, WIDTH, requires_grad=True) * 2

    def layer(hidden, mask=None):
        return net(hidden).tanh()

    def checkpoint(function, *args, **kwargs):
        return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

    calls = {
        "keyword": lambda: checkpoint(layer, hidden=x),
        "partial": lambda: checkpoint(functools.partial(layer, x, mask=[x * 3])),
        "closure": lambda: checkpoint(lambda: layer(x)),
        "closure of a closure": lambda: checkpoint(lambda inner=None: (lambda: layer(x))()),
        "positional": lambda: checkpoint(layer, x),
        "headwater.checkpoint": lambda: headwater.checkpoint(functools.partial(layer, x), mask=[x * 3]),
        "small beside others": lambda: checkpoint(layer, hidden=x) * torch.stack([x] * 12).exp().sum(),
    }
    off = offload(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            with off:
                loss = calls[way.partition(",")[0]]().sum()
                if "inside" in way:
                    loss.backward(retain_graph=True)
            loss.backward(retain_graph=True)
    said = [str(one.message) for one in caught if "hooks do not see" in str(one.message)]
    assert said == [words for words in off.report().warnings if words.startswith("torch.utils")]
    assert [words.partition(": ")[2].partition(". ")[0] for words in said] == ([] if names is None else [names])


def test_checkpoints_of_older_versions_of_torch_are_read_too():
    """Before 2.13 arguments by keyword are not in the function that computes again."""

    def fn():
        pass

    def recompute_fn():
        fn()

    args = [None, {"hidden": torch.ones(2)}, None]

    def get_args(saved):
        return [*saved, *args]

    frame = types.SimpleNamespace(recompute_fn=recompute_fn, input_saver=types.SimpleNamespace(grad_fn=types.SimpleNamespace(get_args=get_args)))
    assert [name for name, _ in unseen.kept_by(frame)] == ["hidden"]


def test_objects_are_found_by_class():
    class Unhashable(type):
        __hash__ = None

    class Kind(metaclass=Unhashable):
        pass

    class Below(Kind):
        pass

    class Other(metaclass=Unhashable):
        pass

    made = [Kind(), Below(), Other(), type("Lowest", (Below, Other), {})()]
    assert {id(found) for found in unseen.living(Kind)} == {id(made[at]) for at in (0, 1, 3)}
    assert {id(found) for found in unseen.living(Below, Other)} == {id(found) for found in made[1:]}


def test_the_life_of_disks_is_projected(tmp_path):
    off = offload(tmp_path, endurance="1TB")
    assert off.report().disk_years is None and "disk life" not in str(off.report())
    gradients(mlp, "cpu", off)
    until = time.monotonic() + 20
    while (report := off.report()).written == 0:
        assert time.monotonic() < until
        gradients(mlp, "cpu", off)
    assert report.training_s > 0 and report.written_per_s == pytest.approx(report.written / report.training_s)
    # As `headwater offload plan --endurance` has it: a year of 365 days.
    assert report.disk_years == pytest.approx(1e12 / report.written_per_s / (365 * 24 * 3600))
    assert "disk life: " in str(report) and "1 TB last" in str(report) and report.as_dict()["endurance"] == 10**12
    # Time in which nobody trains is none.
    time.sleep(0.05)
    assert off.report().training_s == report.training_s
    other = offload(tmp_path)
    other._tally._report.written = 1
    gradients(mlp, "cpu", other)
    assert other.report().disk_years is None and "with `endurance`" in str(other.report())
