"""The reference implementation in float64.

transformers widens to float32 in many places (norms, softmax, the delta rule, RoPE). To run the
same code in float64 throughout, `float32` has to mean float64 while it runs.
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


def load_both(folder):
    """The checkpoint as float32 and as float64; the latter is to be run under in_float64."""
    single = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    double = copy.deepcopy(single).double()
    with in_float64():  # the angles too
        double.model.rotary_emb = type(single.model.rotary_emb)(double.config)
    return single, double
