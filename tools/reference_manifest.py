"""tests/data/README.md: what is in the files, and where it comes from."""

import platform
import re
from pathlib import Path

import safetensors
import torch
import transformers
from safetensors import safe_open

HEAD = """\
# Reference data of the model

Written by `tools/reference.py`; this page too. Do not edit: change the script and run it again.

- torch {torch}, transformers {transformers}, safetensors {safetensors}, Python {python}; one CPU thread,
  attention `eager`. Versions are pinned in `tools/requirements-reference.txt`.
- All tensors are float32, token ids int64. Token ids are drawn with seed 1000 + the checkpoint's.
- `logits.L`: the last row's logits of a run of the first L ids, computed in float32; `exact.L`: the same in
  float64 (RoPE's angles as float32 rounds them), rounded at the end. `all_logits.3`: of all three rows.
- `t13.*`, `t70.*`: what goes through the modules in a run of 13 and of 70 ids, computed in float64. The names
  are explained in `tools/reference_traces.py`, those of `ops.safetensors` in `tools/reference_ops.py`.
- `mtp.safetensors`: the MTP layer of `checkpoints/wrapper`, by `tools/tiny_mtp.py`; the names are explained in
  `tools/reference_mtp.py`, which also makes this file alone.
- `sampling.json`: what transformers' logits processors and `generate()` make of logits, by
  `tools/reference_sampling.py`. `chat_cases.json`: conversations as the official templates write them, by
  `tools/reference_chat.py`. `tiny_held_out.json`: held-out questions and what transformers has models/tiny
  answer, by `tools/eval_tiny.py --save`. Each script explains its file.
- `large.safetensors` (`tools/reference.py --large OUT_DIR`): the same for a random checkpoint of the 0.8B's shapes
  with 2,000 rows of embedding. It is 2 GB and not kept here; the command writes it to OUT_DIR, from seed 30.
- `smollm2_greedy.json` (`tools/reference.py --smollm2 F.gguf`): 64 greedy tokens of SmolLM2-135M-Instruct after each of
  ten prompts, on the dequantised weights of its Q4_1 file in float32; the end-of-text token does not end a
  text. `margins`: the best logit minus the second; `second_ids`: whose that is.

## Checkpoints

Random: weights N(0, 1 / fan_in), norm weights with a spread of 0.3, decay per token 0.5 to 0.9995 by head. Each
opens in transformers as it is. The last column is the reference's own error: the largest difference
between its float32 and its float64 logits, as a share of the largest logit, over lengths
1, 2, 3, 63, 64, 65, 130, 203.

| checkpoint | what it is | seed | float32 - float64 |
|---|---|---|---|
"""


def write(data: Path, variants, errors):
    lines = [HEAD.format(torch=torch.__version__, transformers=transformers.__version__,
                         safetensors=safetensors.__version__, python=platform.python_version())]
    for v in variants:
        lines.append(f"| `checkpoints/{v.name}` | {v.what} | {v.seed} | {errors[v.name]:.1e} |\n")
    lines.append("\n## Tensors\n")
    for name in [v.name for v in variants] + ["ops", "mtp"]:
        file = data / f"{name}.safetensors"
        lines.append(f"\n### {file.name}\n\n")
        lines += [f"- `{name}` {', '.join(shapes)}\n" for name, shapes in listing(file).items()]
    (data / "README.md").write_text("".join(lines))


def listing(file):
    """{name: shapes}, with one entry for what there is of every layer, or of every length."""
    entries = {}
    with safe_open(file, "pt") as tensors:
        for name in sorted(tensors.keys(), key=natural):
            shape = str(tensors.get_slice(name).get_shape()).replace(" ", "")
            name = re.sub(r"^(logits|exact)\.\d+", r"\1.L", re.sub(r"layers\.\d+", "layers.N", name))
            shapes = entries.setdefault(name, [])
            if shape not in shapes:
                shapes.append(shape)
    return entries


def natural(name):
    """logits.3 stands before logits.130."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
