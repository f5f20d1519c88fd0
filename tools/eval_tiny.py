#!/usr/bin/env python3
"""What the tiny model can do, on held-out documents of make_corpus.py, run by transformers.

    eval_tiny.py MODEL --corpus CORPUS [--dtype float32|bfloat16] [--count N] [--save FILE]

Prints, for each kind of document, how many greedy answers are right to the letter and how many end
by themselves; the perplexity of the dialogues; and how often MTP's first draft is the token that
greedy decoding puts. --save writes prompts and answers as ids and the perplexity, for
tests/test_tiny_model.cpp.
"""

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tiny_mtp import Mtp
from tiny_tokenizer import Documents, last_answer, read_documents

LONGEST = 160  # ids of an answer


def load(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    prefix = "mtp."
    mtp = Mtp(model.config)
    mtp.load_state_dict({name.removeprefix(prefix): weight for name, weight in
                         load_file(Path(folder) / "model.safetensors").items()
                         if name.startswith(prefix)})
    return model, mtp.to(dtype).eval()


@torch.no_grad()
def greedy(model, prompts, ends):
    """The ids after each prompt, up to and with an end. Prompts of one length go together, so that
    nothing has to be padded."""
    by_length, answers = defaultdict(list), {}
    for index, prompt in enumerate(prompts):
        by_length[len(prompt)].append(index)
    for indices in by_length.values():
        new, cache = torch.tensor([prompts[index] for index in indices]), None
        rows, done = [[] for _ in indices], [False for _ in indices]
        while not all(done) and len(rows[0]) < LONGEST:
            step = model(input_ids=new, cache=cache, use_cache=True)
            new, cache = step.logits[:, -1:].argmax(-1), step.cache
            for row, token in enumerate(new[:, 0].tolist()):
                rows[row].append(token)
                done[row] |= token in ends
        for index, row in zip(indices, rows):
            stops = [at for at, token in enumerate(row) if token in ends]
            answers[index] = row[:stops[0] + 1] if stops else row
    return [answers[index] for index in range(len(prompts))]


@torch.no_grad()
def first_drafts(model, mtp, prompt, answer):
    """(agreed, drafted): from the answer's second token on, does MTP draft what is there?"""
    ids = torch.tensor([prompt + answer])
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    drafts = model.lm_head(mtp(model, hidden[:, :-2], ids[:, 1:-1])).argmax(-1)[0]
    agreed = drafts[len(prompt) - 1:] == ids[0, len(prompt) + 1:]
    return agreed.sum().item(), len(agreed)


@torch.no_grad()
def perplexity(model, documents):
    """Over all ids but the first of each document."""
    loss, count = 0.0, 0
    for ids in documents:
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].float()
        loss += F.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item()
        count += len(ids) - 1
    return math.exp(loss / count)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--count", type=int, default=200, help="documents of each kind")
    parser.add_argument("--wrong", type=int, default=0, help="wrong answers of each kind to show")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()

    model, mtp = load(options.model, getattr(torch, options.dtype))
    coder = Documents(options.model / "tokenizer.model")
    kinds = defaultdict(list)
    for document in read_documents(options.corpus / "held_out.jsonl"):
        if len(kinds[document["kind"]]) < options.count:
            kinds[document["kind"]].append(coder.ids(document))

    saved, stopped, asked, agreed, drafted = [], 0, 0, 0, 0
    ends = {coder.marker["<|im_end|>"], coder.marker["<|endoftext|>"]}
    for kind, documents in kinds.items():
        prompts, expected = zip(*(last_answer(*document) for document in documents))
        answers = greedy(model, prompts, ends)
        right = sum(answer == wanted for answer, wanted in zip(answers, expected))
        stops = sum(answer[-1] in ends for answer in answers)
        stopped, asked = stopped + stops, asked + len(answers)
        print(f"{kind:18} {right / len(answers):7.1%} right  {stops / len(answers):7.1%} stop",
              flush=True)
        wrong = [(answer, wanted) for answer, wanted in zip(answers, expected) if answer != wanted]
        for answer, wanted in wrong[:options.wrong]:
            print(f"    {coder.pieces.decode(answer)!r}, expected {coder.pieces.decode(wanted)!r}")
        saved += [{"kind": kind, "prompt": prompt, "answer": answer, "expected": wanted}
                  for prompt, answer, wanted in zip(prompts, answers, expected)]
        if kind == "dialogue":
            for prompt, answer in zip(prompts, answers):
                yes, all_of_them = first_drafts(model, mtp, prompt, answer)
                agreed, drafted = agreed + yes, drafted + all_of_them
    print(f"stops by itself    {stopped / asked:7.1%} of {asked} answers")
    print(f"MTP first draft    {agreed / drafted:7.1%} of {drafted} accepted (dialogue)")
    dialogues = [last_answer(*document) for document in kinds["dialogue"]]
    reached = perplexity(model, [prompt + answer for prompt, answer in dialogues])
    print(f"perplexity         {reached:.4f} (dialogue)")
    if options.save:
        options.save.write_text(json.dumps({"perplexity": reached, "documents": saved}) + "\n")


if __name__ == "__main__":
    main()
