"""T5 of transformers, with random weights, whose activations leave between forward and backward: those of the encoder are needed last.

    python examples/offload_t5.py --check
    python examples/offload_t5.py --hidden 4096 --layers 6 --heads 64 --tokens 1024 --batch 16 --host 64GB        # 80 GB of GPU memory
"""

import torch
import transformers
from running import flags, placed, train

WORDS = 1024


def main(words=None):
    given = flags(__doc__, hidden=128, layers=2, heads=4, tokens=64, batch=4).parse_args(words)
    torch.manual_seed(0)
    sizes = {"d_model": given.hidden, "d_kv": given.hidden // given.heads, "d_ff": 4 * given.hidden}
    sizes |= {"num_layers": given.layers, "num_heads": given.heads, "use_cache": False}
    model = placed(given, transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=WORDS, decoder_start_token_id=0, **sizes)))
    ids, labels = torch.randint(0, WORDS, (2, given.batch, given.tokens), device=given.device)
    train(given, model, lambda: model(input_ids=ids, labels=labels).loss)


if __name__ == "__main__":
    main()
