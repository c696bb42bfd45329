"""`transformers.Trainer` with activations that leave: weights, losses and gradients are those of training in which none do, to the bit."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")  # the Trainer's own requirement

import headwater  # noqa: E402
from headwater.offload.passes import ForwardPasses  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS, TOKENS, ROWS = 97, 16, 12
WAYS = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 3},
    "checkpointed": {"gradient_checkpointing": True},
    "evaluated": {"eval_strategy": "steps", "eval_steps": 1},
    "bf16": {"bf16": True},
}


class Gradients(transformers.TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.seen += [parameter.grad.clone() for parameter in model.parameters()]


def callback(folder):
    settings = {"host": "1MiB", "slot": 4096, "smallest": 4096, "allow_buffered": True}
    return headwater.offload_callback(disk=folder, device="cpu", **settings)


def trainer(folder, callbacks, model=None, **settings):
    torch.manual_seed(3)
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, n_positions=TOKENS)
    ids = torch.randint(0, WORDS, (ROWS, TOKENS), generator=torch.Generator().manual_seed(1))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    settings = {"max_steps": 2, "logging_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True, **settings}
    args = transformers.TrainingArguments(str(folder), use_cpu=True, per_device_train_batch_size=2, **settings)
    model = model or transformers.GPT2LMHeadModel(config)
    return transformers.Trainer(model, args, train_dataset=rows, eval_dataset=rows[:2], callbacks=callbacks)


def hooks(model):
    return len(model._forward_hooks) + len(model._forward_pre_hooks)


@pytest.mark.parametrize("way", WAYS)
def test_training_is_the_same_to_the_bit(way, tmp_path):
    found = []
    for offloads in (None, callback(tmp_path)):
        gradients = Gradients()
        made = trainer(tmp_path, [gradients, *([offloads] if offloads else [])], **WAYS[way])
        before = hooks(made.model)
        made.train()
        losses = [line["loss"] for line in made.state.log_history if "loss" in line]
        found.append((losses, gradients.seen + list(made.model.state_dict().values())))
        assert hooks(made.model) == before
    assert len(found[0][0]) == 2 and found[0][0] == found[1][0]
    assert all(torch.equal(one, other) for one, other in zip(found[0][1], found[1][1], strict=True))

    report, last = offloads.report(), made.state.log_history[-1]
    assert report.left > 0 and report.blocks > 0 and not report.warnings
    assert (last["offload_left"], last["step"]) == (report.left, 2)
    if way == "checkpointed":
        # The hidden states that go into two layers, in each of two steps.
        assert report.left >= 2 * 2 * (2 * TOKENS * 64 * 4)


def test_passes_that_do_not_train_are_left_alone(tmp_path):
    offloads = callback(tmp_path)
    made = trainer(tmp_path, [offloads])
    made.train()
    before = offloads.report().as_dict()
    made.evaluate()
    made.predict(made.eval_dataset)
    made.model.train()
    made.model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.sum().backward()
    assert offloads.report().as_dict() == before


def test_training_that_raises_leaves_no_context_and_may_begin_again(tmp_path):
    offloads = callback(tmp_path)
    made = trainer(tmp_path, [offloads])
    without, layer, why = hooks(made.model), made.model.transformer.h[1], []

    def fail(*_):
        raise why[0]

    for error in (ValueError, KeyboardInterrupt):
        why[:] = [error]
        failing = layer.register_forward_pre_hook(fail)
        with pytest.raises(error):
            made.train()
        failing.remove()
        if error is ValueError:
            assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
        made.train()
        assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None and hooks(made.model) == without

    # Hooks of a trainer that is gone go with it, or by hand.
    why[:], failing = [ValueError], layer.register_forward_pre_hook(fail)
    for ends in (offloads.remove, lambda: None):
        with pytest.raises(ValueError):
            made.train()
        assert hooks(made.model) == without + 2
        ends()
    failing.remove()
    model, gone = made.model, weakref.ref(offloads)
    del made, offloads, ends
    gc.collect()
    assert gone() is None and hooks(model) == without


def test_another_offloader_beside_it_is_refused(tmp_path):
    made = trainer(tmp_path, [callback(tmp_path)], gradient_checkpointing=True, gradient_checkpointing_kwargs={"offload": True})
    with pytest.raises(ValueError, match="offload=True"):
        made.train()
    made = trainer(tmp_path, [callback(tmp_path)])
    made.args.activation_offloading = True
    with pytest.raises(ValueError, match="activation_offloading is True"):
        made.train()
    with pytest.raises(ValueError, match="host is 'much'"):
        headwater.offload_callback(host="much", disk=tmp_path, device="cpu")


def test_a_module_in_itself_and_in_passes_without_gradients():
    entered = []

    class Context:
        def __enter__(self):
            entered.append(1)

        def __exit__(self, *why):
            entered.append(-1)

    class Nested(torch.nn.Module):
        def forward(self, depth):
            if depth == 0:
                raise KeyError
            with torch.set_grad_enabled(depth > 2):
                return self(depth - 1)

    net = Nested()
    passes = ForwardPasses(net, Context())
    with pytest.raises(KeyError):
        net(3)
    assert entered == [1, 1, -1, -1]
    passes.remove()
    with pytest.raises(KeyError):
        net(1)
    assert len(entered) == 4 and hooks(net) == 0
