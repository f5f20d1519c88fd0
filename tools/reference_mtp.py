#!/usr/bin/env python3
"""What the MTP layer of a checkpoint gives, by tiny_mtp.Mtp on top of transformers, which has none.

  tools/reference_mtp.py     tests/data/mtp.safetensors, of tests/data/checkpoints/wrapper

  ids [70], hidden [70, H]    a text, and the model's states after the final norm
  out [69, H]                 of the MTP layer, row p from hidden[p] and ids[p + 1]
  logits [69, V]              the head's: row p drafts the token at p + 2
  chain.ids [4]               four greedy drafts after the first 13 ids and the model's own next
  chain.next [1]              token: each draft, and the state it was made of, is the next input
  chain.logits [4, V]         what they were chosen by
"""

import copy
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from reference_float64 import in_float64, load_both
from tiny_mtp import Mtp

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
PREFIX = "mtp."
TEXT, PROMPT, DRAFTS = 70, 13, 4


def load_mtp(folder, model):
    mtp = Mtp(model.config)
    mtp.load_state_dict({name.removeprefix(PREFIX): tensor
                         for name, tensor in load_file(folder / "model.safetensors").items()
                         if name.startswith(PREFIX)})
    return mtp.eval()


def states(model, ids):
    return model.model(ids[None], use_cache=False).last_hidden_state


def teacher_forced(model, mtp, ids):
    """hidden, out and logits of a text that is known."""
    hidden = states(model, ids)
    out = mtp(model, hidden[:, :-1], ids[None, 1:])
    return hidden[0], out[0], model.lm_head(out)[0]


def chain(model, mtp, ids):
    """The model's next token, then drafts: every one from all that stands before it, anew."""
    hidden = states(model, ids)
    next_ids = [*ids[1:].tolist(), int(model.lm_head(hidden[0, -1]).argmax())]
    logits = []
    for _ in range(DRAFTS):
        out = mtp(model, hidden, torch.tensor([next_ids]))[:, -1:]
        logits.append(model.lm_head(out)[0, 0])
        next_ids.append(int(logits[-1].argmax()))
        hidden = torch.cat([hidden, out], dim=1)
    return (torch.tensor(next_ids[-DRAFTS - 1:-DRAFTS]), torch.tensor(next_ids[-DRAFTS:]),
            torch.stack(logits))


@torch.no_grad()
def goldens(folder):
    single, double = load_both(folder)
    generator = torch.Generator().manual_seed(1014)
    ids = torch.randint(single.config.vocab_size, (TEXT,), generator=generator)
    mtp = load_mtp(folder, single)
    hidden, out, logits = teacher_forced(single, mtp, ids)
    first, drafts, chosen_by = chain(single, mtp, ids[:PROMPT])
    with in_float64():
        exact = teacher_forced(double, copy.deepcopy(mtp).double(), ids)[2]
    error = (logits - exact).abs().max() / exact.abs().max()
    print(f"MTP: float32 and float64 differ by {error:.1e} of the largest logit")
    return {"ids": ids, "hidden": hidden, "out": out, "logits": logits,
            "chain.next": first, "chain.ids": drafts, "chain.logits": chosen_by}


if __name__ == "__main__":
    torch.set_num_threads(1)
    save_file({name: tensor.contiguous().clone()
               for name, tensor in goldens(DATA / "checkpoints" / "wrapper").items()},
              DATA / "mtp.safetensors")
    (DATA / "mtp.safetensors").chmod(0o644)
