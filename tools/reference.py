#!/usr/bin/env python3
"""Makes what the tests compare with, by running the reference implementation (transformers).

  tools/reference.py                     tests/data: checkpoints, logits, traces, operators
  tools/reference.py --smollm2 F.gguf    tests/data/smollm2_greedy.json: 64 greedy tokens, 10 prompts
  tools/reference.py --large OUT_DIR     a checkpoint of the 0.8B's shapes, into OUT_DIR, and
                                         tests/data/large.safetensors: its logits

Everything is computed on one thread of a CPU. The same versions (requirements-reference.txt) on the
same kind of machine give the same bytes.
"""

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

import reference_checkpoints as checkpoints
from reference_float64 import in_float64, load_both

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
LENGTHS = (1, 2, 3, 63, 64, 65, 130, 203)


@torch.no_grad()
def logits(model, ids):
    """[T, vocab_size] of one run without a cache."""
    return model(ids.long()[None], use_cache=False).logits[0]


def model_goldens(folder, seed):
    """ids, and the logits after each of LENGTHS: logits.L in float32, exact.L in float64."""
    single, double = load_both(folder)
    generator = torch.Generator().manual_seed(1000 + seed)
    ids = torch.randint(single.config.get_text_config().vocab_size, (max(LENGTHS),), generator=generator)
    goldens = {"ids": ids}
    error = 0.0
    for length in LENGTHS:
        ours = logits(single, ids[:length])
        with in_float64():
            exact = logits(double, ids[:length])
        error = max(error, float((ours - exact).abs().max() / exact.abs().max()))
        goldens[f"logits.{length}"], goldens[f"exact.{length}"] = ours[-1], exact[-1]
        if length == 3:
            goldens["all_logits.3"] = ours
    return goldens, error


def save(path, tensors):
    """All as float32, token ids too: one kind of tensor is all a test has to read."""
    save_file({name: tensor.detach().float().contiguous().clone() for name, tensor in tensors.items()}, path)


def make_data():
    for variant in checkpoints.VARIANTS:
        folder = DATA / "checkpoints" / variant.name
        shutil.rmtree(folder, ignore_errors=True)
        checkpoints.build(variant, folder)
        goldens, error = model_goldens(folder, variant.seed)
        save(DATA / f"{variant.name}.safetensors", goldens)
        print(f"{variant.name}: float32 differs from float64 by {error:.1e} of the largest logit")


def main():
    torch.set_num_threads(1)
    argparse.ArgumentParser(description=__doc__).parse_args()
    make_data()


if __name__ == "__main__":
    main()
