"""GPT-2 of transformers, with random weights, whose activations leave between forward and backward.

    python examples/offload_gpt2.py --check
    python examples/offload_gpt2.py --hidden 8192 --layers 4 --heads 64 --tokens 1024 --batch 16 --host 64GB      # 80 GB of GPU memory
    python examples/offload_gpt2.py --hidden 2048 --layers 48 --heads 16 --tokens 32768 --batch 1 --checkpoint --host 2GB --disk /nvme
"""

import torch
import transformers
from running import flags, placed, train

WORDS = 1024


def main(words=None):
    made = flags(__doc__, hidden=128, layers=2, heads=4, tokens=64, batch=4)
    made.add_argument("--checkpoint", action="store_true", help="layers are computed again: their inputs alone leave")
    given = made.parse_args(words)
    torch.manual_seed(0)
    sizes = {"n_embd": given.hidden, "n_layer": given.layers, "n_head": given.heads, "n_positions": given.tokens}
    config = transformers.GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, use_cache=False, **sizes)
    model = placed(given, transformers.GPT2LMHeadModel(config))
    if given.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ids = torch.randint(0, WORDS, (given.batch, given.tokens), device=given.device)
    train(given, model, lambda: model(input_ids=ids, labels=ids).loss)


if __name__ == "__main__":
    main()
