#!/usr/bin/env python3
"""Writes tests/data/sampling.json: what transformers' own logits processors make of logits.

    tools/reference_sampling.py

The list of processors, and so their order, is the one that generate() puts together
(_get_logits_processor). Presence and frequency, which it lacks, are one more processor after vLLM's
formula; generate() puts those of callers behind the repetition penalty and before the temperature.

  vectors   logits by name
  cases     what is left of them under `sampling`, after `prompt` and `answer`: the ids, and their
            probabilities, in float64 from the processed scores
  large     the same for a vocabulary of 248,320, whose logits are formulas (large_logits): count, sum
            and sum of squares of the ids, the smallest and the largest probability, the entropy
  texts     greedy texts of checkpoints/tiny by generate(), with penalties and with end tokens

Where top-p cuts through tokens with equal logits ("through_equals"), which of them stay is chance:
the reference sorts, and not stably.
"""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import torch
from transformers import (AutoModelForCausalLM, GenerationConfig, LogitsProcessor,
                          LogitsProcessorList)
from transformers.utils import logging

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
VOCAB_SIZE = 248_320
NEW_TOKENS = 40

OPTIONS = {
    "temperature": [1.0, 0.7, 1.7, 0.001, 50.0],
    "top_k": [0, 1, 3, 7, 1000],
    "top_p": [1.0, 0.9, 0.5, 1e-8],
    "min_p": [0.0, 0.05, 0.5, 1.0],
    "repetition_penalty": [1.0, 1.3, 0.7],
    "presence_penalty": [0.0, 0.6, -0.5],
    "frequency_penalty": [0.0, 0.3, -0.2],
}
OFF = {name: values[0] for name, values in OPTIONS.items()}
PROMPT, ANSWER = [3, 5, 5, 8, 11], [2, 8, 2, 13, 2]


class PresenceAndFrequency(LogitsProcessor):
    """vLLM's: of tokens after the first `prompt_length` alone."""

    def __init__(self, presence, frequency, prompt_length):
        self.presence, self.frequency, self.prompt_length = presence, frequency, prompt_length

    def __call__(self, input_ids, scores):
        counts = torch.zeros_like(scores, dtype=torch.int64)
        answer = input_ids[:, self.prompt_length:]
        counts.scatter_add_(1, answer, torch.ones_like(answer))
        scores = scores - self.frequency * counts
        return scores - self.presence * (counts > 0)


class Reference:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained(DATA / "checkpoints" / "tiny")

    def scores(self, logits, sampling, prompt, answer):
        own = PresenceAndFrequency(sampling["presence_penalty"], sampling["frequency_penalty"],
                                   len(prompt))
        known = {name: sampling[name] for name in
                 ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
        processors = self.model._get_logits_processor(
            GenerationConfig(do_sample=True, **known), len(prompt),
            logits_processor=LogitsProcessorList([own]))
        ids = torch.tensor([prompt + answer], dtype=torch.int64)
        return processors(ids, torch.tensor(logits, dtype=torch.float32)[None])[0]

    def left(self, logits, sampling, prompt=(), answer=()):
        """ids, probabilities, and whether top-p cut through equal scores."""
        prompt, answer = list(prompt), list(answer)
        scores = self.scores(logits, sampling, prompt, answer)
        probabilities = scores.double().softmax(-1)
        ids = probabilities.nonzero()[:, 0]
        before = self.scores(logits, sampling | {"top_p": 1.0, "min_p": 0.0}, prompt, answer)
        gone = torch.ones_like(before, dtype=torch.bool)
        gone[ids] = False
        through_equals = bool((before[gone] == before[ids].min()).any())
        return ids, probabilities[ids], through_equals


def pairwise(seed):
    """Rows that have every pair of values of every two options."""
    chance, names = random.Random(seed), list(OPTIONS)
    missing = {(a, x, b, y) for a, b in itertools.combinations(names, 2)
               for x in OPTIONS[a] for y in OPTIONS[b]}

    def covers(row):
        return {(a, row[a], b, row[b]) for a, b in itertools.combinations(names, 2)} & missing

    rows = []
    while missing:
        tries = [{name: chance.choice(OPTIONS[name]) for name in names} for _ in range(300)]
        rows.append(max(tries, key=lambda row: len(covers(row))))
        missing -= covers(rows[-1])
    return rows


def samplings():
    alone = [OFF | {name: value} for name in OPTIONS for value in OPTIONS[name][1:]]
    return [OFF, *alone, *pairwise(seed=1)]


def vectors():
    chance = np.random.default_rng(2)
    normal = chance.normal(0, 3, 23)
    huge = normal.copy()
    huge[17] = 1e4
    ends = normal.copy()
    ends[[2, 9, 11]] = [-3e38, 1e30, 1e30]
    all_vectors = {"normal": normal, "negative": normal - 20, "steps": np.round(normal / 3),
                   "equal": np.full(23, 0.25), "one huge": huge, "ends of float": ends,
                   "halves": np.log([.5, .3, .15, .05] + [1e-9] * 12)}
    return {name: vector.astype(np.float32) for name, vector in all_vectors.items()}


def large_logits(name):
    """float32 throughout, one operation at a time: any machine gets these bits."""
    ids = np.arange(VOCAB_SIZE, dtype=np.uint32)
    u = ((ids * np.uint32(2654435761)) >> np.uint32(8)).astype(np.float32) / np.float32(2**24)
    if name == "equal":
        return np.zeros(VOCAB_SIZE, dtype=np.float32)
    if name == "steps":  # 64 different logits
        return np.floor(u * np.float32(64)) / np.float32(4)
    if name == "one huge":
        u[200_000] = 1e4
        return u
    squares = u * u  # "wide"
    return squares * squares * np.float32(24)


LARGE = [
    OFF,
    OFF | {"temperature": 0.7},
    OFF | {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
    OFF | {"top_k": 1000},
    OFF | {"top_k": 100_000},
    OFF | {"top_k": 1_000_000},
    OFF | {"top_p": 0.9},
    OFF | {"top_p": 0.3},
    OFF | {"top_p": 1e-8},
    OFF | {"min_p": 0.1},
    OFF | {"temperature": 1.3, "top_k": 5000, "top_p": 0.8, "min_p": 0.02,
           "repetition_penalty": 1.2, "presence_penalty": 0.4, "frequency_penalty": 0.1},
]


def digits(values):
    """Probabilities with the 14 digits that matter here."""
    return [float(f"{value:.14g}") for value in values]


def small_cases(reference):
    for name, logits in vectors().items():
        for sampling in samplings():
            answer = [id for id in ANSWER if id < len(logits)]
            ids, probabilities, equals = reference.left(logits, sampling, PROMPT, answer)
            yield {"logits": name, "sampling": sampling, "prompt": PROMPT, "answer": answer,
                   "ids": ids.tolist(), "probabilities": digits(probabilities.tolist()),
                   "through_equals": equals}


def large_cases(reference):
    for name in ("wide", "steps", "equal", "one huge"):
        logits = large_logits(name)
        for sampling in LARGE:
            ids, p, equals = reference.left(logits, sampling, PROMPT, ANSWER)
            entropy = -(p * p.log()).sum()
            yield {"logits": name, "sampling": sampling, "prompt": PROMPT, "answer": ANSWER,
                   "count": len(ids), "id_sum": int(ids.sum()), "id_squares": int((ids * ids).sum()),
                   "probabilities": digits([p.min(), p.max()]), "entropy": float(entropy),
                   "through_equals": equals}


class Margins(LogitsProcessor):
    """Changes nothing, and notes by how much the best token leads."""

    def __init__(self):
        self.smallest = float("inf")

    def __call__(self, input_ids, scores):
        best = scores[0].topk(2).values
        self.smallest = min(self.smallest, float(best[0] - best[1]))
        return scores


def text(reference, prompt, ends, **penalties):
    """A greedy text; of the tokens in `ends` each ends it. They may not be near-tied: our logits
    differ from the reference's by rounding."""
    sampling = OFF | {"temperature": 0.0} | penalties
    margins = Margins()
    processors = LogitsProcessorList([
        PresenceAndFrequency(sampling["presence_penalty"], sampling["frequency_penalty"],
                             len(prompt)), margins])
    config = GenerationConfig(do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=ends or None,
                              repetition_penalty=sampling["repetition_penalty"], pad_token_id=0)
    reference.model.generation_config.eos_token_id = None
    ids = reference.model.generate(torch.tensor([prompt]), config, logits_processor=processors)
    answer = ids[0, len(prompt):].tolist()
    assert margins.smallest > 1e-3, margins.smallest
    end = answer.pop() if ends and answer[-1] in ends else -1
    return {"prompt": prompt, "ends": ends, "sampling": sampling, "ids": answer, "end_token": end}


def texts(reference):
    prompt = [18, 4, 200, 31, 77]
    plain = text(reference, prompt, [])
    yield plain
    yield text(reference, prompt, [], repetition_penalty=1.3)
    yield text(reference, prompt, [], presence_penalty=0.9)
    yield text(reference, prompt, [], frequency_penalty=0.4)
    yield text(reference, prompt, [], repetition_penalty=1.1, presence_penalty=0.4,
               frequency_penalty=0.2)
    # Two end tokens, the first of which never comes.
    never = next(id for id in range(263) if id not in plain["ids"])
    late = next(id for i, id in enumerate(plain["ids"]) if i > 5 and id not in plain["ids"][:i])
    yield text(reference, prompt, [never, late])
    yield text(reference, prompt, [late])


def lines(items):
    return ",\n".join(json.dumps(item) for item in items)


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    reference = Reference()
    named = ",\n".join(f"{json.dumps(name)}: {json.dumps([float(x) for x in vector])}"
                       for name, vector in vectors().items())
    (DATA / "sampling.json").write_text(
        f'{{"vectors": {{\n{named}\n}},\n"cases": [\n{lines(small_cases(reference))}\n],\n'
        f'"large": [\n{lines(large_cases(reference))}\n],\n'
        f'"texts": [\n{lines(texts(reference))}\n]}}\n')


if __name__ == "__main__":
    main()
