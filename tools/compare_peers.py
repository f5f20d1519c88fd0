#!/usr/bin/env python3
"""The same checkpoint and the same task through our programs, transformers and llama.cpp.

    tools/compare_peers.py --model DIR                   f32 and bf16, prefill 203, decode 128
    tools/compare_peers.py --model DIR --peers ours,llama.cpp --threads 1,2 --json peers.json

DIR is a checkpoint as transformers saves it (build/tools/checkpoint makes a random one of exact
shape). For llama.cpp it is rewritten as GGUF, once, beside --scratch; both peers' packages are in
tools/requirements-peers.txt.

First all have to agree: each is led along the reference's greedy tokens and asked, at each, for its
own choice. Another choice is reported with its margin, by how much its logit is larger, as a share
of the largest logit; it fails (exit 1) above MARGIN. Then everything is timed in processes of its
own, three for each configuration, in shuffled order, every run 0 apart. The table has medians, of
each peer's best number of threads.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).with_name("peer_worker.py")
PROCESSES = 3
# Two computations in float32 differ by some 1e-5 of the largest logit. In bf16 an activation that is
# rounded to the other side moves by 2^-9, and so in the end do the logits, layer after layer.
MARGIN = {"f32": 1e-3, "bf16": 0.06}


class Failure(Exception):
    """What the user is told, in one line."""


# ---- the task ----

def sample_ids(vocab_size, count):
    """The ids of qwen/task.cpp: spread over the vocabulary, the same ones every time."""
    return [((i + 1) * 2654435761 % 2**32 * vocab_size) >> 32 for i in range(count)]


def runs_of_process(runs, process):
    return runs // PROCESSES + (process < runs % PROCESSES)


# ---- GGUF ----

def gguf_of(model, dtype, folder):
    """The checkpoint as a GGUF file of that dtype for its matrices, written unless it is there."""
    path = folder / f"{model.resolve().name}.{dtype}.gguf"
    newest = max(file.stat().st_mtime for file in model.iterdir())
    if path.exists() and path.stat().st_mtime > newest:
        return path
    import make_gguf
    import torch
    config, tensors = make_gguf.read_checkpoint(model)
    stored = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    tensors = {name: tensor.to(stored) if tensor.ndim == 2 else tensor
               for name, tensor in tensors.items() if not name.startswith("mtp.")}
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    make_gguf.write(config, tensors, part)
    part.rename(path)
    return path


# ---- processes ----

def output_of(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        raise Failure(f"{Path(command[0]).name} {Path(command[1]).name}: {lines[-1]}")
    return result.stdout


class Peers:
    """How each of them is started."""

    def __init__(self, options, prompt):
        self.options, self.prompt = options, prompt

    def worker(self, peer, dtype, threads, **job):
        model = self.options.model
        if peer == "llama.cpp":
            model = gguf_of(model, dtype, self.options.scratch)
        job = {"peer": peer, "model": str(model), "dtype": dtype, "threads": threads,
               "prompt": self.prompt, "steps": self.options.steps} | job
        return json.loads(output_of([sys.executable, str(WORKER), json.dumps(job)]))

    def choices(self, peer, dtype, tokens):
        """Its own choice at each of the reference's tokens: [[token, margin], …]"""
        if peer != "ours":
            return self.worker(peer, dtype, self.options.threads[0], job="follow", tokens=tokens)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "logits.npy"
            ids = ",".join(map(str, self.prompt + tokens[:-1]))
            output_of([str(self.options.build / "tools/logits"), "--model", str(self.options.model),
                       "--dtype", dtype, "--all", "--ids", ids, "--out", str(out)])
            rows = np.load(out, mmap_mode="r")[len(self.prompt) - 1:]
            from peer_worker import choice
            return [choice(row, token) for row, token in zip(rows, tokens, strict=True)]

    def times(self, peer, dtype, threads, runs):
        """{"prefill": [seconds of every run, run 0 first], "decode": […]} in a new process."""
        if peer != "ours":
            return self.worker(peer, dtype, threads, job="time", runs=runs)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "speed.json"
            output_of([str(self.options.build / "ch15_speed"), "--part", "task", "--model",
                       str(self.options.model), "--dtype", dtype, "--threads", str(threads),
                       "--prompt", str(len(self.prompt)), "--steps", str(self.options.steps),
                       "--runs", str(runs), "--json", str(out)])
            return times_of_rows(json.loads(out.read_text())["rows"])


def times_of_rows(rows):
    """Seconds of prefill and decode, from the rows of ch15_speed --json."""
    return {row["metric"]: [ms / 1e3 for ms in row["times"][0]] for row in rows
            if row["metric"] in ("prefill", "decode")}


# ---- agreement ----

def agreement(choices, tokens):
    """How often the choice is the reference's token, and the largest margin where it is not."""
    margins = [margin for (token, margin), expected in zip(choices, tokens, strict=True)
               if token != expected]
    return {"same": len(tokens) - len(margins), "of": len(tokens), "margin": max(margins, default=0.0)}


def check_agreement(peers, options):
    reference = next((peer for peer in options.peers if peer != "ours"), None)
    if reference is None:
        raise Failure("--peers needs transformers or llama.cpp, whose tokens the others follow")
    note(f"reference: {options.check} greedy tokens of {reference} in f32")
    tokens = peers.worker(reference, "f32", options.threads[0], job="write", steps=options.check)
    found = []
    for dtype in options.dtypes:
        for peer in options.peers:
            note(f"follow: {peer} {dtype}")
            found.append({"peer": peer, "dtype": dtype}
                         | agreement(peers.choices(peer, dtype, tokens), tokens))
    return reference, found


def agreement_text(reference, found):
    lines = [f"the same greedy tokens as {reference} in f32, led along them:"]
    for one in found:
        line = f"  {one['peer']:12} {one['dtype']:4} {one['same']} of {one['of']}"
        if one["margin"] > 0:
            line += (f", others ahead by at most {one['margin']:.1e} of the largest logit, "
                     f"{MARGIN[one['dtype']]:g} is allowed")
        lines.append(line)
    return "\n".join(lines)


def disagreements(found):
    return [one for one in found if one["margin"] > MARGIN[one["dtype"]]]


# ---- timing ----

def jobs(options):
    """Every configuration once in an order of its own, then all of them again."""
    configurations = [(peer, dtype, threads) for peer in options.peers
                      for dtype in options.dtypes for threads in options.threads]
    order = random.Random(1)
    for process in range(PROCESSES):
        order.shuffle(configurations)
        yield from ((configuration, process) for configuration in configurations)


def measure(peers, options):
    """{(peer, dtype, threads): [what each process has timed]}; after Ctrl-C what is finished"""
    found = {}
    all_jobs = list(jobs(options))
    start = time.monotonic()
    for done, ((peer, dtype, threads), process) in enumerate(all_jobs):
        left = (time.monotonic() - start) / done * (len(all_jobs) - done) if done else 0
        note(f"process {done + 1} of {len(all_jobs)}: {peer} {dtype}, threads {threads}"
             + (f", {left:.0f} s left" if done else ""))
        try:
            times = peers.times(peer, dtype, threads, runs_of_process(options.runs, process))
        except KeyboardInterrupt:
            note("interrupted: what is finished follows")
            break
        found.setdefault((peer, dtype, threads), []).append(times)
    return found


def row(configuration, phase, processes, tokens):
    """One figure, from all runs but every process' first: median and minimum in ms, tok/s."""
    peer, dtype, threads = configuration
    times = [process[phase] for process in processes]
    counted = [seconds for runs in times for seconds in runs[1:]] or [runs[0] for runs in times]
    median = statistics.median(counted)
    return {"peer": peer, "dtype": dtype, "threads": threads, "metric": phase, "tokens": tokens,
            "value": tokens / median, "unit": "tok/s", "min": 1e3 * min(counted),
            "median": 1e3 * median, "first": 1e3 * statistics.median(runs[0] for runs in times),
            "runs": len(counted), "times": [[1e3 * s for s in runs] for runs in times]}


def rows(found, options):
    sizes = {"prefill": options.prompt, "decode": options.steps}
    return [row(configuration, phase, processes, sizes[phase])
            for configuration, processes in found.items() for phase in sizes]


def best(all_rows, peer, dtype, phase):
    """The row of its best number of threads; None where it was not measured."""
    return max((r for r in all_rows
                if (r["peer"], r["dtype"], r["metric"]) == (peer, dtype, phase)),
               key=lambda r: r["value"], default=None)


def shown(r):
    return f"{r['value']:.1f} ({r['threads']})" if r else "-"


def ratio(ours, other):
    return f"{ours['value'] / other['value']:.2f}" if ours and other else "-"


def table(all_rows, options):
    others = [peer for peer in options.peers if peer != "ours"]
    lines = [f"{'dtype':6}{'phase':8}" + "".join(f"{peer + ' tok/s':>20}" for peer in options.peers)
             + "".join(f"{'ours/' + peer:>19}" for peer in others)]
    for dtype in options.dtypes:
        for phase in ("prefill", "decode"):
            found = {peer: best(all_rows, peer, dtype, phase) for peer in options.peers}
            lines.append(f"{dtype:6}{phase:8}" + "".join(f"{shown(r):>20}" for r in found.values())
                         + "".join(f"{ratio(found.get('ours'), found[peer]):>19}" for peer in others))
    return "\n".join(lines) + "\nmedians; in brackets the number of threads, each peer's best"


# ---- the program ----

def note(text):
    print(text, file=sys.stderr, flush=True)


def versions(peers):
    from importlib.metadata import version
    packages = {"transformers": ["torch", "transformers"], "llama.cpp": ["llama-cpp-python"]}
    return {package: version(package) for peer in peers for package in packages.get(peer, [])}


def vocabulary_size(model):
    config = json.loads((model / "config.json").read_text())
    return config.get("text_config", config)["vocab_size"]


def listed(kind, allowed=None):
    def parse(text):
        values = [kind(value) for value in text.split(",")]
        for value in values:
            if allowed and value not in allowed:
                raise argparse.ArgumentTypeError(f"{value} is none of {', '.join(allowed)}")
        return values
    return parse


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = ["ours", "transformers", "llama.cpp"]
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--peers", type=listed(str, names), default=names)
    parser.add_argument("--dtypes", type=listed(str, list(MARGIN)), default=list(MARGIN))
    parser.add_argument("--threads", type=listed(int), default=[cores])
    parser.add_argument("--prompt", type=int, default=203, help="tokens to read")
    parser.add_argument("--steps", type=int, default=128, help="tokens to write")
    parser.add_argument("--runs", type=int, default=6, help="of all processes, besides run 0")
    parser.add_argument("--check", type=int, default=32, help="tokens to be agreed about")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--scratch", type=Path, default=ROOT / "build/peers", help="for GGUF files")
    parser.add_argument("--json", type=Path, help="write everything to a file")
    options = parser.parse_args(arguments)
    if not (options.model / "config.json").is_file():
        raise Failure(f"{options.model}: no config.json there; --model takes a checkpoint's folder")
    return options


def compare(options):
    prompt = sample_ids(vocabulary_size(options.model), options.prompt)
    peers = Peers(options, prompt)
    reference, found = check_agreement(peers, options)
    print(agreement_text(reference, found), flush=True)
    if bad := disagreements(found):
        raise Failure(f"{bad[0]['peer']} in {bad[0]['dtype']} prefers another token by "
                      f"{bad[0]['margin']:.1e} of the largest logit: nothing is timed")
    load = os.getloadavg()[0]
    all_rows = rows(measure(peers, options), options)
    print(f"\n{table(all_rows, options)}\nload average {load:.2f} before, {os.getloadavg()[0]:.2f} after")
    if options.json:
        meta = {"model": str(options.model), "prompt": options.prompt, "steps": options.steps,
                "runs": options.runs, "processes": PROCESSES, "versions": versions(options.peers),
                "load_before": load, "load_after": os.getloadavg()[0], "reference": reference}
        options.json.write_text(json.dumps({"meta": meta, "agreement": found, "rows": all_rows},
                                           indent=2) + "\n")


def main():
    try:
        compare(options_of(sys.argv[1:]))
    except (Failure, OSError) as error:
        sys.exit(f"compare_peers: {error}")
    except KeyboardInterrupt:
        sys.exit("compare_peers: interrupted")


if __name__ == "__main__":
    main()
