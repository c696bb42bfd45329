"""Models of others, unmodified: gradients are those of a run in which nothing leaves, to the bit, wherever activations go."""

import contextlib
import functools

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import headwater  # noqa: E402

TOKENS, WORDS = 32, 97
SMALL = {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def bert():
    config = transformers.BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return transformers.BertForMaskedLM(config)


def gpt2():
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return transformers.GPT2LMHeadModel(config)


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2))


def t5():
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


MODELS = [bert, gpt2, llama, t5]
TIERS = {"host": {"host": "64MiB"}, "disk": {"host": "64KiB", "disk": True}, "mixed": {"host": "1MiB", "disk": True}}
WAYS = ["plain", "checkpointed", "accumulated", "aside"]


def offloader(folder, device, tier):
    settings = {"slot": 4096, "smallest": 4096, "device": device, "policy": "all", **TIERS[tier]}
    if device == "cpu" or settings.get("disk"):
        settings.update(disk=folder, allow_buffered=True)
    return headwater.Offload(**settings)


@functools.cache
def made(make):
    torch.manual_seed(3)
    return make().train()


def gradients(make, device, way, off=None):
    model = made(make).to(device)
    model.zero_grad(set_to_none=True)
    model.config.use_cache = False
    if way == "checkpointed":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    else:
        model.gradient_checkpointing_disable()
    aside = torch.cuda.stream(torch.cuda.Stream()) if way == "aside" and device != "cpu" else contextlib.nullcontext()
    with aside:
        for seed in range(2 if way == "accumulated" else 1):
            ids = torch.randint(0, WORDS, (4, TOKENS), generator=torch.Generator().manual_seed(seed)).to(device)
            with off or contextlib.nullcontext():
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
        found = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        if device != "cpu":
            torch.cuda.synchronize()
    return found


def check(make, device, tier, way, folder):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        expected = gradients(make, device, way)
        off = offloader(folder, device, tier)
        found = gradients(make, device, way, off)
    finally:
        torch.use_deterministic_algorithms(before)
    assert len(expected) == len(found) > 10
    assert all(torch.equal(one, other) for one, other in zip(expected, found))
    report = off.report()
    assert report.left > 0
    return report


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("way", WAYS[:3])
def test_gradients_of_models_on_a_cpu(make, way, tmp_path):
    check(make, "cpu", "disk", way, tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU")
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_models_on_a_gpu(make, tier, way, tmp_path):
    check(make, "cuda", tier, way, tmp_path)


def test_boundaries_of_checkpointed_layers_leave_and_their_function_comes_back(tmp_path):
    model = made(llama)
    report = check(llama, "cpu", "disk", "checkpointed", tmp_path)
    # The hidden states that go into two layers, once each; what a layer saves is computed again.
    hidden = 4 * TOKENS * 64 * 4
    assert 2 * hidden <= report.left
    layer = model.model.layers[0]
    assert layer._gradient_checkpointing_func.func is torch.utils.checkpoint.checkpoint


def test_hidden_states_that_are_passed_by_keyword_are_seen(tmp_path):
    from transformers.modeling_layers import GradientCheckpointingLayer

    class Layer(GradientCheckpointingLayer):
        def __init__(self):
            super().__init__()
            self.linear, self.gradient_checkpointing = torch.nn.Linear(64, 64), True
            self._gradient_checkpointing_func = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)

        def forward(self, *, hidden_states):
            return self.linear(hidden_states).tanh()

    layer, off = Layer().train(), offloader(tmp_path, "cpu", "disk")
    hidden = torch.randn(64, 64, requires_grad=True) * 2
    with off:
        out = layer(hidden_states=hidden)
    out.sum().backward()
    assert off.report().left == hidden.nbytes
