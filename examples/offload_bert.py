"""BERT of transformers, with random weights, whose activations leave between forward and backward.

    python examples/offload_bert.py --check
    python examples/offload_bert.py --hidden 8192 --layers 4 --heads 64 --tokens 512 --batch 32 --host 64GB       # 80 GB of GPU memory
    python examples/offload_bert.py --hidden 1024 --layers 24 --heads 16 --tokens 512 --batch 64 --gpu 20GB --host 64GB
"""

import torch
import transformers
from running import flags, placed, train

WORDS = 1024


def main(words=None):
    given = flags(__doc__, hidden=128, layers=2, heads=4, tokens=64, batch=4).parse_args(words)
    torch.manual_seed(0)
    sizes = {"hidden_size": given.hidden, "num_hidden_layers": given.layers, "num_attention_heads": given.heads}
    sizes |= {"intermediate_size": 4 * given.hidden, "max_position_embeddings": given.tokens}
    model = placed(given, transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=WORDS, **sizes)))
    ids = torch.randint(0, WORDS, (given.batch, given.tokens), device=given.device)
    # A word in seven is to be found.
    labels = ids.masked_fill(torch.rand(ids.shape, device=given.device) > 1 / 7, -100)
    masked = ids.masked_fill(labels != -100, 1)
    train(given, model, lambda: model(input_ids=masked, labels=labels).loss)


if __name__ == "__main__":
    main()
