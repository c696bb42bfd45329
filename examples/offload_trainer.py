"""The Trainer of transformers with `headwater.offload_callback`, on GPT-2 with random weights.

    python examples/offload_trainer.py --check
    python examples/offload_trainer.py --hidden 8192 --layers 4 --heads 64 --tokens 1024 --batch 16 --host 64GB   # 80 GB of GPU memory
"""

import contextlib
import tempfile

import torch
import transformers
from running import compare, deterministic, flags, settings

import headwater

WORDS = 1024


def trained(given, folder, callbacks):
    """The weights after `--steps` steps."""
    on_cpu = given.device == "cpu"
    chosen = {"max_steps": given.steps, "per_device_train_batch_size": given.batch, "gradient_accumulation_steps": given.accumulate}
    chosen |= {"use_cpu": on_cpu, "bf16": not on_cpu, "report_to": "none", "save_strategy": "no", "disable_tqdm": True, "seed": 1}
    arguments = transformers.TrainingArguments(folder, **chosen)
    torch.manual_seed(0)
    sizes = {"n_embd": given.hidden, "n_layer": given.layers, "n_head": given.heads, "n_positions": given.tokens}
    config = transformers.GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, use_cache=False, **sizes)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, WORDS, (8 * given.batch, given.tokens))]
    trainer = transformers.Trainer(transformers.GPT2LMHeadModel(config), arguments, train_dataset=rows, callbacks=callbacks)
    trainer.train()
    return list(trainer.model.parameters())


def main(words=None):
    made = flags(__doc__, hidden=128, layers=2, heads=4, tokens=64, batch=4, accumulate=1)
    given = made.parse_args(words)
    with tempfile.TemporaryDirectory() as folder, deterministic() if given.check else contextlib.nullcontext():
        callback = headwater.offload_callback(**settings(given, folder))
        moved = trained(given, folder, [callback])
        print(callback.report())
        if given.check:
            compare(moved, trained(given, folder, []), "weights")


if __name__ == "__main__":
    main()
