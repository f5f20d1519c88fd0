#!/usr/bin/env python3
"""One peer in a process of its own, for compare_peers.py: reads a job as JSON, prints one as JSON.

    peer_worker.py '{"peer": "transformers", "model": DIR, "dtype": "bf16", "threads": 2,
                     "job": "time", "prompt": [ids], "steps": 128, "runs": 3}'

Jobs: "time" the task; "write" greedy tokens after the prompt; "follow" given ones, and say at each
step which token the peer itself would have chosen and by how much.
"""

import ctypes
import json
import sys
import time

import numpy as np


class Transformers:
    """PyTorch through transformers, token by token with its cache, logits of the last row only."""

    def __init__(self, job):
        import torch
        from transformers import AutoModelForCausalLM
        self.torch = torch
        torch.set_num_threads(job["threads"])
        torch.set_grad_enabled(False)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[job["dtype"]]
        self.model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=dtype).eval()
        self.reset()

    def reset(self):
        self.cache = None

    def read(self, ids):
        """The logits after these ids, still in the peer's own form."""
        step = self.model(input_ids=self.torch.tensor([ids]), cache=self.cache, use_cache=True,
                          logits_to_keep=1)
        self.cache = step.cache
        return step.logits[0, -1]

    def best(self, logits):
        return int(logits.argmax())

    def floats(self, logits):
        return logits.float().numpy()


class LlamaCpp:
    """llama.cpp through llama-cpp-python's plain C interface: no sampling, no text."""

    def __init__(self, job):
        import llama_cpp
        self.lib = llama_cpp
        self.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        settings = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(job["model"].encode(), settings)
        if not self.model:
            sys.exit(f"llama.cpp cannot load {job['model']}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = len(job["prompt"]) + job["steps"] + 8
        settings.n_batch = max(512, len(job["prompt"]))
        settings.n_threads = settings.n_threads_batch = job["threads"]
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        if not self.context:
            sys.exit(f"llama.cpp cannot make a context for {job['model']}")
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def reset(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def read(self, ids):
        tokens = (self.lib.llama_token * len(ids))(*ids)
        status = self.lib.llama_decode(self.context,
                                       self.lib.llama_batch_get_one(tokens, len(ids)))
        if status != 0:
            sys.exit(f"llama_decode failed with {status}")
        logits = self.lib.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(logits, (self.size,))

    def best(self, logits):
        return int(logits.argmax())

    def floats(self, logits):
        return logits


PEERS = {"transformers": Transformers, "llama.cpp": LlamaCpp}


def time_task(peer, job):
    """Seconds of prefill and decode of every run, run 0 first."""
    times = {"prefill": [], "decode": []}
    for _ in range(job["runs"] + 1):
        peer.reset()
        start = time.perf_counter()
        token = peer.best(peer.read(job["prompt"]))
        times["prefill"].append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(job["steps"]):
            token = peer.best(peer.read([token]))
        times["decode"].append(time.perf_counter() - start)
    return times


def write(peer, job):
    tokens, new = [], job["prompt"]
    for _ in range(job["steps"]):
        tokens.append(peer.best(peer.read(new)))
        new = tokens[-1:]
    return tokens


def choice(logits, expected):
    """[the best token, by how much it is better than the expected one, of the largest logit]"""
    best = int(logits.argmax())
    return [best, float((logits[best] - logits[expected]) / np.abs(logits).max())]


def follow(peer, job):
    choices, new = [], job["prompt"]
    for expected in job["tokens"]:
        choices.append(choice(peer.floats(peer.read(new)), expected))
        new = [expected]
    return choices


JOBS = {"time": time_task, "write": write, "follow": follow}


def main():
    job = json.loads(sys.argv[1])
    print(json.dumps(JOBS[job["job"]](PEERS[job["peer"]](job), job)))


if __name__ == "__main__":
    main()
