#!/usr/bin/env python3
"""Trains the tiny model and its MTP module, jointly, on the text of make_corpus.py.

    train_tiny.py DIR --corpus CORPUS [--steps N] [--cooldown N] [--workers N] [--export MODEL]

DIR holds the tokenizer, the checkpoint and the log. The same command continues where the last
checkpoint stands; another --steps moves the end. With --export, MODEL becomes a checkpoint that
transformers loads (bf16), once training is done.

Every worker is a process with one thread that learns from its share of a step's documents: where cores
are shared with others, threads that wait for each other at every operation are many times slower.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import random
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import GenerationConfig, Qwen3_5ForCausalLM, Qwen3_5TextConfig

from tiny_mtp import Mtp
from tiny_start import start
from tiny_tokenizer import PIECES, Documents, read_documents, train_tokenizer

IDS = 2304               # ids in a step
FEWEST = 4               # documents in a step
LONGEST = 448            # ids of a document; the few longer ones are cut off
RATE = 2.5e-3            # AdamW's learning rate
MTP_WEIGHT = 0.3         # of the second token's loss, next to the first's
SAVE_EVERY, TEST_EVERY = 100, 500
TESTED = 64              # held-out documents of each kind


def config(eos):
    """No two sizes that could be mixed up are equal."""
    return Qwen3_5TextConfig(
        vocab_size=PIECES, hidden_size=160, intermediate_size=384, num_hidden_layers=8,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=36,
        linear_value_head_dim=44, linear_conv_kernel_dim=4, mtp_num_hidden_layers=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                         "mrope_section": [2, 1, 1], "mrope_interleaved": True},
        max_position_embeddings=4096, tie_word_embeddings=True, initializer_range=0.05,
        eos_token_id=eos, dtype="bfloat16")


def new_model(coder, seed):
    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM(config(coder.marker["<|im_end|>"])).float()
    mtp = Mtp(model.config).float()
    start(model, mtp, coder)
    return model, mtp


# ---- data ----

def batches(lengths, seed):
    """Lists of documents (as indices) for one step after the other, without end: a function of the
    seed alone. A row of a batch is a document; all are about equally long, so little is padded."""
    draw = random.Random(seed)
    while True:
        order = draw.sample(range(len(lengths)), len(lengths))
        for first in range(0, len(order), 1024):
            block = sorted(order[first:first + 1024], key=lambda index: lengths[index])
            steps = [[]]
            for index in block:
                if (len(steps[-1]) + 1) * lengths[index] > IDS:
                    steps.append([])
                steps[-1].append(index)
            steps = [step for step in steps if len(step) >= FEWEST]
            yield from draw.sample(steps, len(steps))


def padded(documents):
    """ids and weights [rows, longest]; what is padded has no weight."""
    longest = max(len(ids) for ids, _ in documents)
    ids = torch.zeros(len(documents), longest, dtype=torch.long)
    weights = torch.zeros(len(documents), longest)
    for row, (document, its_weights) in enumerate(documents):
        ids[row, :len(document)] = torch.tensor(document)
        weights[row, :len(document)] = torch.tensor(its_weights)
    return ids, weights


# ---- learning ----

def losses(model, mtp, ids, counts):
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state

    def loss(states, distance):
        chosen = counts[:, distance:]
        return F.cross_entropy(model.lm_head(states[chosen]), ids[:, distance:][chosen])

    return loss(hidden[:, :-1], 1), loss(mtp(model, hidden[:, :-2], ids[:, 1:-1]), 2)


def share_of_rate(step, steps, cooldown):
    """Share of the full learning rate: a short rise, a plateau, a fall to 0 over the last steps."""
    return min(1.0, (step + 1) / 50, max(0.0, (steps - step) / cooldown))


class Checkpoint:
    """All that training needs to go on, in one file that is always whole."""

    def __init__(self, path, modules):
        self.path, self.modules = path, modules

    def load(self):
        """The step it stands at, 0 where there is none."""
        if not self.path.exists():
            return 0
        saved = torch.load(self.path)
        for module, state in zip(self.modules, saved["modules"]):
            module.load_state_dict(state)
        return saved["step"]

    def save(self, step):
        unfinished = self.path.with_suffix(".part")
        torch.save({"step": step, "modules": [m.state_dict() for m in self.modules]}, unfinished)
        os.replace(unfinished, self.path)


def average_gradients(weights, workers):
    gradients = torch.cat([weight.grad.flatten() for weight in weights])
    dist.all_reduce(gradients)
    start = 0
    for weight in weights:
        weight.grad.copy_(gradients[start:start + weight.numel()].view_as(weight)).div_(workers)
        start += weight.numel()


def train(worker, model, mtp, documents, tests, options):
    """One worker's part. The first one also saves, tests and reports."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.dir.resolve()}/rendezvous",
                            rank=worker, world_size=options.workers, timeout=timedelta(days=1))
    weights = [*model.parameters(), *mtp.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    checkpoint = Checkpoint(options.dir / "checkpoint.pt", [model, mtp, optimizer])
    begin = step = checkpoint.load()
    begin_time, seen, sums = time.time(), 0, torch.zeros(2)

    def say(line):
        print(line, flush=True)
        with (options.dir / "log.txt").open("a") as log:
            print(line, file=log)

    steps = batches([len(ids) for ids, _ in documents], options.seed)
    for batch in itertools.islice(steps, begin, options.steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * share_of_rate(step, options.steps, options.cooldown)
        ids, often = padded([documents[index] for index in batch[worker::options.workers]])
        draw = torch.rand(often.shape, generator=torch.Generator().manual_seed(7 * step + worker))
        first, second = losses(model, mtp, ids, draw < often)
        (first + MTP_WEIGHT * second).backward()
        average_gradients(weights, options.workers)
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        sums += torch.stack([first, second]).detach()
        seen += sum(len(documents[index][0]) for index in batch)
        step += 1
        if worker == 0 and (step % SAVE_EVERY == 0 or step == options.steps):
            checkpoint.save(step)
            speed = seen / (time.time() - begin_time)
            mean = sums / ((step - 1) % SAVE_EVERY + 1)
            sums.zero_()
            say(f"step {step}  loss {mean[0]:.3f}  MTP {mean[1]:.3f}  {speed:.0f} ids/s")
        if worker == 0 and (step % TEST_EVERY == 0 or step == options.steps):
            say("  held out: " + "  ".join(
                f"{kind} {value:.1%}" for kind, value in held_out(model, mtp, tests).items()))


@torch.no_grad()
def held_out(model, mtp, tests):
    """For each kind: the share of documents whose every counted token is the model's first choice,
    so that greedy text would be just that; and of how many tokens the MTP's first draft is the
    token that the model itself would put."""
    result, agreed, drafted = {}, 0, 0
    for kind, documents in tests.items():
        ids, weights = padded(documents)
        counts = weights == 1
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        choice = model.lm_head(hidden).argmax(-1)
        right = (choice[:, :-1] == ids[:, 1:]) | ~counts[:, 1:]
        result[kind] = right.all(1).float().mean().item()
        draft = model.lm_head(mtp(model, hidden[:, :-2], ids[:, 1:-1])).argmax(-1)
        agreed += ((draft == choice[:, 1:-1]) & counts[:, 2:]).sum().item()
        drafted += counts[:, 2:].sum().item()
    return result | {"MTP": agreed / drafted}


# ---- files ----

def export(model, mtp, folder, tokenizer, coder):
    """config.json, generation_config.json, model.safetensors and the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.architectures = ["Qwen3_5ForCausalLM"]
    model.config.save_pretrained(folder)
    ends = [coder.marker["<|im_end|>"], coder.marker["<|endoftext|>"]]
    GenerationConfig(eos_token_id=ends, do_sample=False).save_pretrained(folder)
    tensors = model.state_dict()
    del tensors["lm_head.weight"]  # the embedding once more
    tensors |= {f"mtp.{name}": weight for name, weight in mtp.state_dict().items()}
    save_file({name: weight.to(torch.bfloat16).contiguous() for name, weight in tensors.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # save_file lets nobody else read it
    (folder / "tokenizer.model").write_bytes(tokenizer.read_bytes())
    # Without it, transformers' AutoTokenizer takes the class that goes with the model's type, which
    # cuts text in another way.
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--cooldown", type=int, default=1500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--export", type=Path)
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)

    tokenizer = options.dir / "tokenizer.model"
    if not tokenizer.exists():
        train_tokenizer(options.corpus / "vocabulary.txt", options.dir / "tokenizer")
    coder = Documents(tokenizer)
    tests = {}
    for document in read_documents(options.corpus / "held_out.jsonl"):
        kind = tests.setdefault(document["kind"], [])
        if len(kind) < TESTED:
            kind.append(coder.ids(document))
    documents = [tuple(part[:LONGEST] for part in coder.ids(document))
                 for document in read_documents(options.corpus / "train.jsonl")]
    model, mtp = new_model(coder, options.seed)
    weights = sum(weight.numel() for weight in [*model.parameters(), *mtp.parameters()])
    print(f"{weights} parameters, {sum(len(ids) for ids, _ in documents)} ids in "
          f"{len(documents)} documents", flush=True)

    (options.dir / "rendezvous").unlink(missing_ok=True)
    workers = [multiprocessing.get_context("fork").Process(
        target=train, args=(worker, model, mtp, documents, tests, options))
        for worker in range(options.workers)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    if any(process.exitcode for process in workers):
        raise SystemExit("a worker failed")
    if options.export:
        Checkpoint(options.dir / "checkpoint.pt", [model, mtp]).load()
        export(model, mtp, options.export, tokenizer, coder)


if __name__ == "__main__":
    main()
