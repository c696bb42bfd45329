"""Models of others, unmodified: gradients are those of a run in which nothing leaves, to the bit, wherever activations go."""

import contextlib
import functools
import itertools
import os

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402

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


class Graphs(torch.nn.Module):
    """Layers of PyG over a whole graph."""

    NODES, EDGES = 120, 900

    def __init__(self, layer):
        super().__init__()
        self.layers = torch.nn.ModuleList(layer(64, 64) for _ in range(3))
        self.is_checkpointed = False

    def forward(self, x, edge_index):
        for layer in self.layers:
            run = functools.partial(headwater.checkpoint, layer) if self.is_checkpointed else layer
            x = torch.nn.functional.relu(run(x, edge_index))
        return x

    def loss(self, seed, device):
        drawn = torch.Generator().manual_seed(seed)
        edges = torch.randint(self.NODES, (2, self.EDGES), generator=drawn).to(device)
        return self(torch.randn(self.NODES, 64, generator=drawn).to(device), edges).square().mean()


def gcn():
    return Graphs(pytest.importorskip("torch_geometric.nn").GCNConv)


def sage():
    return Graphs(pytest.importorskip("torch_geometric.nn").SAGEConv)


def gat():
    layer = pytest.importorskip("torch_geometric.nn").GATConv
    return Graphs(lambda width, out: layer(width, out // 4, heads=4))


LANGUAGE, GRAPHS = [bert, gpt2, llama, t5], [gcn, sage, gat]
MODELS = [*LANGUAGE, *GRAPHS]
TIERS = {"host": {"host": "16MiB"}, "disk": {"host": "64KiB", "disk": True}, "mixed": {"host": "1MiB", "disk": True}}
WAYS = ["plain", "checkpointed", "accumulated", "aside"]
# Steps of each; on GPUs, `HEADWATER_OFFLOAD_STEPS` of them.
STEPS = int(os.environ.get("HEADWATER_OFFLOAD_STEPS", "1"))
# Every model in every way to every tier on a GPU. The emulator has each way to each tier once, and each model once at least.
EVERY, IS_SOAK = list(itertools.product(MODELS, TIERS, WAYS)), bool(os.environ.get("HEADWATER_SOAK"))
if not torch.cuda.is_available() and not IS_SOAK:
    EVERY = [(MODELS[at % len(MODELS)], *pair) for at, pair in enumerate(itertools.product(TIERS, WAYS))]


def offloader(folder, device, tier):
    settings = {"slot": 4096, "smallest": 4096, "device": device, "policy": "all", **TIERS[tier]}
    if device == "cpu" or settings.get("disk"):
        settings.update(disk=folder, allow_buffered=True)
    return headwater.Offload(**settings)


@functools.cache
def made(make):
    torch.manual_seed(3)
    return make().train()


def loss_of(model, seed, device):
    if isinstance(model, Graphs):
        return model.loss(seed, device)
    ids = torch.randint(0, WORDS, (4, TOKENS), generator=torch.Generator().manual_seed(seed)).to(device)
    return model(input_ids=ids, labels=ids).loss


def gradients(make, device, way, off=None):
    model = made(make).to(device)
    model.zero_grad(set_to_none=True)
    if isinstance(model, Graphs):
        model.is_checkpointed = way == "checkpointed"
    else:
        model.config.use_cache = False
        if way == "checkpointed":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        else:
            model.gradient_checkpointing_disable()
    with aside(device) if way == "aside" else contextlib.nullcontext():
        for seed in range(2 if way == "accumulated" else 1):
            with off or contextlib.nullcontext():
                loss = loss_of(model, seed, device)
            loss.backward()
        found = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        if device != "cpu":
            torch.cuda.synchronize()
    return found


@contextlib.contextmanager
def aside(device):
    """Another current stream, on a GPU and on the emulator that holds work back. It goes on behind the one before, and that behind it."""
    if device != "cpu":
        before, stream = torch.cuda.current_stream(), torch.cuda.Stream()
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            yield
        before.wait_stream(stream)
    elif IS_HELD:
        import held

        before, stream = held.stream(), held.new_stream()
        held.follow(stream, before)
        with held.at(stream):
            yield
        held.follow(before, stream)
    else:
        yield


def check(make, device, off, way, steps=1):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        expected = gradients(make, device, way)
        for _ in range(steps):
            found = gradients(make, device, way, off)
            assert len(expected) == len(found) > 5
            assert all(torch.equal(one, other) for one, other in zip(expected, found))
    finally:
        torch.use_deterministic_algorithms(before)
    report = off.report()
    assert report.left > 0
    return report


@pytest.mark.parametrize("make", LANGUAGE)
@pytest.mark.parametrize("way", WAYS[:3])
def test_gradients_of_models_on_a_cpu(make, way, tmp_path):
    check(make, "cpu", offloader(tmp_path, "cpu", "disk"), way)


@pytest.mark.parametrize("make", GRAPHS)
def test_gradients_of_graph_networks_on_a_cpu(make, tmp_path):
    for way in WAYS[:3]:
        check(make, "cpu", offloader(tmp_path, "cpu", "disk"), way)


@pytest.mark.slowed
@pytest.mark.parametrize("make, tier, way", EVERY)
def test_gradients_of_models_on_a_gpu(make, tier, way, gpu, tmp_path):
    device = gpu if torch.cuda.is_available() else "cpu"
    check(make, device, offloader(tmp_path, "cuda", tier), way, STEPS)


@pytest.mark.streams
@pytest.mark.skipif(not IS_HELD, reason="needs the emulator with HWEMU_ORDER")
@pytest.mark.parametrize("make, tier, way", EVERY if IS_SOAK else [(llama, "mixed", "aside"), (gat, "host", "accumulated")])
def test_gradients_of_models_in_any_order(make, tier, way, gpu, tmp_path):
    import held

    with held.Homes(crosses=True):
        check(make, "cpu", offloader(tmp_path, "cuda", tier), way)
        held.driver("cuCtxSynchronize")


def test_boundaries_of_checkpointed_layers_leave_and_their_function_comes_back(tmp_path):
    model = made(llama)
    report = check(llama, "cpu", offloader(tmp_path, "cpu", "disk"), "checkpointed")
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
