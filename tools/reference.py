#!/usr/bin/env python3
"""Makes what the tests compare with, by running the reference implementation (transformers).

  tools/reference.py                     tests/data: checkpoints, logits, traces, operators, and
                                         what other tools make of them
  tools/reference.py --smollm2 F.gguf    tests/data/smollm2_greedy.json: 64 greedy tokens, 10 prompts
  tools/reference.py --large OUT_DIR     a checkpoint of the 0.8B's shapes, into OUT_DIR, and
                                         tests/data/large.safetensors: its logits

Everything is computed on one thread of a CPU. The same versions (requirements-reference.txt) on the
same kind of machine give the same bytes.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.utils import logging

import reference_checkpoints as checkpoints
import reference_manifest as manifest
import reference_mtp as mtp
import reference_real as real
from reference_float64 import in_float64, load_both
from reference_ops import operators
from reference_traces import LONG_RUN, trace

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
LENGTHS = (1, 2, 3, 63, 64, 65, 130, 203)
TRACED = ("tiny", "grouped", "qwen3", "llama")


@torch.no_grad()
def logits(model, ids):
    """[T, vocab_size] of one run without a cache."""
    return model(ids.long()[None], use_cache=False).logits[0]


def random_ids(vocab_size, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(vocab_size, (max(LENGTHS),), generator=generator)


def model_goldens(single, double, ids):
    """The logits after each of LENGTHS, each a run of its own: logits.L in float32, exact.L in
    float64. And the largest difference of the two, as a share of the largest logit."""
    goldens, error = {"ids": ids}, 0.0
    for length in LENGTHS:
        ours = logits(single, ids[:length])
        with in_float64():
            exact = logits(double, ids[:length])
        error = max(error, float((ours[-1] - exact[-1]).abs().max() / exact[-1].abs().max()))
        goldens[f"logits.{length}"], goldens[f"exact.{length}"] = ours[-1], exact[-1]
        if length == 3:
            goldens["all_logits.3"] = ours
    return goldens, error


def traces(double, ids):
    """t13: everything of 13 tokens. t70: the mixers alone, of 70."""
    with in_float64():
        short, long = trace(double, ids[:13]), trace(double, ids[:70], LONG_RUN)
    return ({f"t13.{name}": tensor for name, tensor in short.items()} |
            {f"t70.{name}": tensor for name, tensor in long.items()})


def save(path, tensors):
    """Activations as float32, token ids as they are."""
    def stored(tensor):
        tensor = tensor.detach().contiguous().clone()
        return tensor.float() if tensor.is_floating_point() else tensor
    save_file({name: stored(tensor) for name, tensor in tensors.items()}, path)
    path.chmod(0o644)


def make_data():
    errors = {}
    for variant in checkpoints.VARIANTS:
        folder = DATA / "checkpoints" / variant.name
        shutil.rmtree(folder, ignore_errors=True)
        checkpoints.build(variant, folder)
        single, double = load_both(folder)
        ids = random_ids(single.config.vocab_size, variant.seed)
        goldens, errors[variant.name] = model_goldens(single, double, ids)
        if variant.name in TRACED:
            goldens |= traces(double, ids)
        save(DATA / f"{variant.name}.safetensors", goldens)
        print(f"{variant.name}: done")
    save(DATA / "ops.safetensors", operators())
    save(DATA / "mtp.safetensors", mtp.goldens(DATA / "checkpoints" / "wrapper"))
    manifest.write(DATA, checkpoints.VARIANTS, errors)
    # What is made of these checkpoints: tiny's tokenizer, the GGUF twins, texts that tiny writes.
    tiny = DATA / "checkpoints" / "tiny"
    vocab_size = str(json.loads((tiny / "config.json").read_text())["vocab_size"])
    for command in (["make_tokenizer.py", "tiny", str(tiny), vocab_size], ["make_gguf.py"],
                    ["reference_files.py"], ["reference_sampling.py"]):
        subprocess.run([sys.executable, Path(__file__).parent / command[0], *command[1:]], check=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smollm2", metavar="F.gguf", type=Path)
    parser.add_argument("--large", metavar="OUT_DIR", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if arguments.smollm2:
        real.greedy_texts(arguments.smollm2, DATA / "smollm2_greedy.json")
    elif arguments.large:
        save(DATA / "large.safetensors", real.large(arguments.large))
    else:
        make_data()


if __name__ == "__main__":
    main()
