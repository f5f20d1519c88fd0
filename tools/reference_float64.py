"""The reference implementation in float64.

transformers widens to float32 in many places (norms, softmax, the delta rule). To run the same code
in float64 throughout, `float32` has to mean float64 while it runs.
"""

import contextlib
import copy
from unittest import mock

import torch
from transformers import AutoModelForCausalLM


@contextlib.contextmanager
def in_float64():
    with contextlib.ExitStack() as stack:
        for name in ("float", "float32"):
            stack.enter_context(mock.patch.object(torch, name, torch.float64))
        stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


class Float32Angles(torch.nn.Module):
    """The rotary embedding, computed once in float32.

    RoPE's angles stay as float32 rounds them even in the float64 run: models are trained with these
    angles, so their rounding is part of the model and not an error of a computation."""

    def __init__(self, rotary, positions):
        super().__init__()
        self.cos, self.sin = rotary(torch.zeros(1), torch.arange(positions)[None])

    def forward(self, x, position_ids):
        length = position_ids.shape[-1]
        return self.cos[:, :length].to(x.dtype), self.sin[:, :length].to(x.dtype)


def load_both(folder):
    """The checkpoint as float32 and as float64; the latter is to be run under in_float64, in one
    piece from position 0."""
    single = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    double = copy.deepcopy(single).double()
    double.model.rotary_emb = Float32Angles(
        single.model.rotary_emb, single.config.max_position_embeddings)
    return single, double
