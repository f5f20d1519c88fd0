#!/usr/bin/env python3
"""Our logits beside those of transformers, for a checkpoint directory that both can load.

    compare_logits.py MODEL [--program build/tools/logits] [--length N]

Both compute in float32, from the same ids, drawn at random from a fixed seed. The largest
difference may be 5e-5 of the largest logit; exit 1 where it is more.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

BOUND = 5e-5


def ours(program, model, ids):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.npy"
        subprocess.run([program, "--model", model, "--ids", ",".join(map(str, ids)),
                        "--dtype", "f32", "--all", "--out", out],
                       check=True, stdout=subprocess.DEVNULL)
        return np.load(out)


@torch.no_grad()
def theirs(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--program", type=Path, default=Path("build/tools/logits"))
    parser.add_argument("--length", type=int, default=300)
    options = parser.parse_args()

    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(model.config.vocab_size, (options.length,), generator=draw).tolist()
    bad = False
    for length in (1, 2, 65, options.length):
        reference = theirs(model, ids[:length])
        difference = np.abs(ours(options.program, options.model, ids[:length]) - reference).max()
        share = difference / np.abs(reference).max()
        bad |= not share <= BOUND
        print(f"{length:4} ids: largest difference {difference:.2e}, "
              f"{share:.1e} of the largest logit", flush=True)
    raise SystemExit(bad)


if __name__ == "__main__":
    main()
