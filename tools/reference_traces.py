"""What goes through every module of a model in one run: the oracle of the chapters' own tests.

Every layer's input and output; the insides of the first layer of each kind only. Names are the
checkpoint's, of a module or of what is inside it; there is no batch axis:

  cos, sin                                          [T, rotary_dim / 2]
  layers.N.in, .out                                 [T, hidden_size]
  layers.N.input_layernorm.out                      [T, hidden_size]
  layers.N.post_attention_layernorm.{in,out}        [T, hidden_size]
  layers.N.mlp.{gate_proj,up_proj}.out              [T, intermediate_size]
  layers.N.mlp.down_proj.in, layers.N.mlp.out       silu(gate) * up; the result
  layers.N.self_attn.q_proj.out                     [T, heads * head_dim], with the gate: twice that
  layers.N.self_attn.{q,k}, .{q,k}_rotated, .v      [T, heads, head_dim]: normalised; with RoPE
  layers.N.self_attn.attention                      [T, heads * head_dim], before the gate
  layers.N.self_attn.o_proj.in, .out                after the gate; the result
  layers.N.linear_attn.in_proj_{qkv,z,a,b}.out      [T, ...]
  layers.N.linear_attn.{q,k,v}                      [T, heads, D], as the delta rule takes them
  layers.N.linear_attn.{g,beta}                     [T, Hv]
  layers.N.linear_attn.{o,S}                        [T, Hv, Dv]; [Hv, Dk, Dv] after the last token
  layers.N.linear_attn.out_proj.in, .out            after the gated norm; the result
  norm.out                                          [T, hidden_size]
"""

import contextlib
import sys
from unittest import mock

import torch

MODULE_INPUTS = ("post_attention_layernorm", "mlp.down_proj", "o_proj", "out_proj")
MODULE_OUTPUTS = ("input_layernorm", "post_attention_layernorm", "gate_proj", "up_proj", "mlp",
                  "q_proj", "self_attn", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b",
                  "linear_attn")
# Long runs are there for what works on many tokens at once; only that is kept of them.
LONG_RUN = ("input_layernorm.out", "linear_attn.q", "linear_attn.k", "linear_attn.v",
            "linear_attn.g", "linear_attn.beta", "linear_attn.o", "linear_attn.S",
            "linear_attn.out", "q_rotated", "k_rotated", "self_attn.v", "self_attn.attention",
            "self_attn.out")


@torch.no_grad()
def trace(model, ids, names=("",)):
    """{name: tensor} of one run without a cache; only what ends in one of `names`."""
    recorder = Recorder(model)
    with recorder.listening():
        model(ids.long()[None], use_cache=False)
    return {name: tensor for name, tensor in recorder.seen.items() if name.endswith(names)}


class Recorder:
    def __init__(self, model):
        self.model = model.model
        self.code = sys.modules[type(model).__module__]  # modeling_qwen3_5, modeling_llama, …
        self.layer = None  # the name of the one that is running
        self.seen = {}

    def note(self, name, tensor):
        self.seen[name] = tensor[0].clone()

    def note_inside(self, name, tensor):
        if self.layer in self.opened:
            self.note(f"{self.layer}.{name}", tensor)

    @contextlib.contextmanager
    def listening(self):
        with contextlib.ExitStack() as stack:
            def hook(register, function):
                stack.callback(register(function).remove)

            self.opened = {}
            for number, layer in enumerate(self.model.layers):
                name = f"layers.{number}"
                hook(layer.register_forward_pre_hook, self.enter(name))
                hook(layer.register_forward_hook, self.output_of(f"{name}.out"))
                if hasattr(layer, "linear_attn") not in self.opened.values():
                    self.opened[name] = hasattr(layer, "linear_attn")
            hook(self.model.norm.register_forward_hook, self.output_of("norm.out"))
            for name, module in self.model.named_modules():
                if not name.startswith(tuple(f"{layer}." for layer in self.opened)):
                    continue
                if name.endswith(MODULE_INPUTS):
                    hook(module.register_forward_pre_hook, self.input_of(f"{name}.in"))
                if name.endswith(MODULE_OUTPUTS):
                    hook(module.register_forward_hook, self.output_of(f"{name}.out"))
            for function in ("apply_rotary_pos_emb", "eager_attention_forward",
                             "torch_chunk_gated_delta_rule"):
                if hasattr(self.code, function):
                    wrapped = getattr(self, function)(getattr(self.code, function))
                    stack.enter_context(mock.patch.object(self.code, function, wrapped))
            yield

    def enter(self, name):
        def hook(_module, args):
            self.layer = name
            self.note(f"{name}.in", args[0])
        return hook

    def input_of(self, name):
        return lambda _module, args: self.note(name, args[0])

    def output_of(self, name):
        return lambda _module, _args, out: self.note(name, out[0] if isinstance(out, tuple) else out)

    def apply_rotary_pos_emb(self, original):
        def wrapped(q, k, cos, sin, *args, **kwargs):
            rotated = original(q, k, cos, sin, *args, **kwargs)
            half = cos.shape[-1] // 2  # the reference repeats them for the other half of a pair
            self.note("cos", cos[..., :half])
            self.note("sin", sin[..., :half])
            for name, tensor in zip(("q", "k", "q_rotated", "k_rotated"), (q, k, *rotated)):
                self.note_inside(f"self_attn.{name}", tensor.transpose(1, 2))
            return rotated
        return wrapped

    def eager_attention_forward(self, original):
        def wrapped(module, query, key, value, *args, **kwargs):
            out, weights = original(module, query, key, value, *args, **kwargs)
            self.note_inside("self_attn.v", value.transpose(1, 2))
            self.note_inside("self_attn.attention", out.flatten(2))
            return out, weights
        return wrapped

    def torch_chunk_gated_delta_rule(self, original):
        def wrapped(query, key, value, g, beta, **kwargs):
            kwargs["output_final_state"] = True
            o, S = original(query, key, value, g=g, beta=beta, **kwargs)
            l2norm = self.code.l2norm
            prepared = {"q": l2norm(query) * query.shape[-1] ** -0.5, "k": l2norm(key), "v": value,
                        "g": g, "beta": beta, "o": o, "S": S}
            for name, tensor in prepared.items():
                self.note_inside(f"linear_attn.{name}", tensor)
            return o, S
        return wrapped
