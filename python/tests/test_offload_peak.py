"""The peak of activations that a report says was measured, beside the one that was expected."""

import json

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402
from headwater.offload.peak import StepPeaks  # noqa: E402
from offload_cases import ROWS, WIDTH, data  # noqa: E402

NO_PLAN = {"expected": None, "planned_steps": 0}


def planned(steps, peak=100):
    return {"expected": {"peak_bytes": peak}, "planned_steps": steps}


def step(peaks, base, mark, looks, found):
    """A step of an allocator that has had `mark` bytes at most before; what it has had at most after it."""
    peaks.begin(base, mark)
    for allocated in looks:
        if peaks.wants_more:
            peaks.look(allocated, max(mark, allocated), by_hook=True)
        mark = max(mark, allocated)
    peaks.end(base, mark, json.dumps(found))
    return mark


def test_a_step_that_raises_the_count_is_known_to_the_byte():
    peaks = StepPeaks()
    peaks.begin(1000, 5000)
    peaks.look(1700, 5000)
    # 8000 came and went between two looks.
    peaks.end(1000, 8000, json.dumps(NO_PLAN))
    assert (peaks.most, peaks.planned_most) == (7000, None)
    # Nobody asked, and no count was raised: nothing is known of this one.
    peaks.begin(1000, 8000)
    peaks.end(1000, 8000, json.dumps(NO_PLAN))
    assert peaks.most == 7000
    # Somebody had it forgotten: what was counted since is this step's.
    other = StepPeaks()
    other.begin(1000, 9000)
    other.end(1200, 3000, json.dumps(NO_PLAN))
    assert other.most == 2000


def test_steps_by_plan_are_asked_now_and_then_and_told_from_others():
    peaks, asked = StepPeaks(), []
    mark = step(peaks, 10, 10, [60, 500, 60], NO_PLAN)
    assert peaks.most == 490
    for number in range(40):
        if number == 0:
            # The plan is there from the first save of this step on.
            peaks._steps_left = 0
        asked.append(peaks.wants_more)
        mark = step(peaks, 10, mark, [60, 90 + number % 2, 60], planned(number + 1))
    assert mark == 500 and 2 <= sum(asked) <= 4 and asked[0]
    assert (peaks.most, peaks.planned_most) == (490, 80) and peaks.is_of(planned(1)["expected"])
    # A step that did not keep to it is none of its own.
    step(peaks, 10, 500, [480], planned(40))
    peaks._steps_left = 0
    step(peaks, 10, 500, [470], planned(40))
    assert peaks.planned_most == 80
    # Of another plan nothing is known before a step has kept to it.
    step(peaks, 10, 500, [30], planned(0, peak=50))
    assert peaks.planned_most is None and not peaks.is_of(planned(1)["expected"]) and peaks.wants_more


class Counting:
    """A GPU that is asked for memory: what autograd holds there, above `weights` bytes, as a test says."""

    weights, live, highest = 1 << 20, 0, 3 << 20

    def stream(self):
        return 0

    def use(self, tensor):
        pass

    def empty(self, shape, dtype):
        return torch.empty(shape, dtype=dtype)

    def is_capturing(self):
        return False

    def memory_use(self):
        allocated = self.weights + self.live
        self.highest = max(self.highest, allocated)
        return allocated, self.highest


def test_a_report_has_the_peak_of_activations_beside_that_of_torch(tmp_path):
    off = headwater.Offload(host=1 << 20, slot=4096, smallest=0, disk=tmp_path, device="cpu", allow_buffered=True)
    assert off.report().activation_peak is None and "activations took" not in str(off.report()), "nobody counts what a CPU allocates"
    (site,) = off._sites.values()
    site.place = place = Counting()
    weight = data("cpu", ROWS, WIDTH, requires_grad=True)
    with off:
        x = weight * 2
        for _ in range(4):
            x = x.exp().tanh()
            place.live += x.nbytes
        loss = x.sum()
    place.live = 0
    loss.backward()
    report = off.report()
    # The last is alive when the one before is saved, and not counted yet; torch had more once.
    assert 3 * x.nbytes <= report.activation_peak <= 4 * x.nbytes < report.peak == 3 << 20
    assert report.as_dict()["activation_peak"] == report.activation_peak
    assert f"activations took {report.activation_peak / 1000:.3g} KB at most, above what was allocated when a step began" in str(report)


@pytest.mark.streams
@pytest.mark.skipif(not IS_HELD, reason="needs the emulator with HWEMU_ORDER, whose allocator is counted")
def test_the_peak_by_plan_is_measured(gpu, monkeypatch):
    """What the allocator had above the weights, where as much leaves as can."""
    import held

    highest, begin = [0], held.Memory.__init__

    def begun(memory, nbytes):
        begin(memory, nbytes)
        highest[0] = max(highest[0], nbytes + sum(own.nbytes for own in held._memories.values()))

    monkeypatch.setattr(held.Memory, "__init__", begun)
    with held.Homes():
        off = headwater.Offload(slot=4096, smallest=0, host=4 << 20, gpu=1)
        weight = (data("cpu", ROWS, WIDTH) * 1).requires_grad_()
        for _ in range(6):
            held.driver("cuCtxSynchronize")
            highest[0] = before = sum(memory.nbytes for memory in held._memories.values())
            with off:
                x = weight * 2
                for _ in range(6):
                    x = x.tanh().exp()
                loss = x.sum()
            del x
            loss.backward()
            del loss
            weight.grad = None
        report = off.report()
    plan, peak = report.plan, highest[0] - before
    assert before >= weight.nbytes and plan.steps > 0
    assert peak - 2 * weight.nbytes <= plan.peak_measured <= peak, "between two moments a tensor or two come and go"
    assert plan.peak_measured <= report.activation_peak
    assert f"({plan.peak_measured / 1000:.3g} KB measured)" in str(plan)
