"""Operators one by one: the reference's own functions on small inputs, in float64.

Inputs are float32 numbers, so that what is stored is what was computed with. No two sizes are
equal, and few are multiples of a vector's length.
"""

from types import SimpleNamespace

import torch
from transformers import Qwen3_5TextConfig
from transformers.activations import ACT2FN
from transformers.models.qwen3_5 import modeling_qwen3_5 as reference

from reference_float64 import in_float64


SINGLE = torch.float32  # also where float32 means float64


def as_float32(tensor):
    return tensor.to(SINGLE).double()


class Random:
    """Normal numbers from a seed, each a float32 in float64."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape, scale=1.0, mean=0.0):
        return as_float32(mean + scale * torch.randn(shape, generator=self.generator))


@torch.no_grad()
def operators():
    goldens = rotations()  # in float32: see Float32Angles
    inputs = {"delta": delta_inputs(), "stress.same_key": same_key(), "stress.two_keys": two_keys(),
              "stress.fast_decay": with_A(3.2488, 70), "stress.vanish": with_A(80.0, 70),
              "stress.no_decay": with_A(-100.0, 300)}
    with in_float64():
        goldens |= norms() | activations() | rope() | attention() | conv_qkv() | gates()
        for name, tensors in inputs.items():
            goldens |= {f"{name}.{key}": tensor for key, tensor in tensors.items()}
            goldens |= {f"{name}.{key}": tensor for key, tensor in delta_rule(**tensors).items()}
    return goldens


def norms():
    """Rows of ordinary, large, and tiny numbers (where eps counts), and one of zeros."""
    random = Random(21)
    x = as_float32(random(5, 37) * torch.tensor([1, 1, 1e3, 1e-3, 0])[:, None])
    norm = reference.Qwen3_5RMSNorm(37).double()
    norm.weight.copy_(random(37, scale=0.3))
    D = 29
    z = random(5, D, scale=3)
    gated = reference.Qwen3_5RMSNormGated(D).double()
    gated.weight.copy_(random(D, scale=0.3, mean=1))
    return {"rms_norm.x": x, "rms_norm.weight": norm.weight, "rms_norm.y": norm(x),
            "gated_rms_norm.x": x[:, :D], "gated_rms_norm.z": z,
            "gated_rms_norm.weight": gated.weight, "gated_rms_norm.y": gated(x[:, :D], z)}


def activations():
    """Also where exp overflows or vanishes in float32."""
    random = Random(22)
    x, y = random(3, 35, scale=4), random(3, 35, scale=4)
    x[0, :6] = torch.tensor([0.0, 30, -30, 100, -100, -87.5])
    return {"swiglu.gate": x, "swiglu.up": y, "swiglu.y": ACT2FN["silu"](x) * y,
            "sigmoid_gate.x": y, "sigmoid_gate.gate": x, "sigmoid_gate.y": y * torch.sigmoid(x)}


def rotations():
    """cos and sin of 5 tokens: heads of 20 at the start, the 0.8B's shape at later positions."""
    goldens = {}
    for head_dim, factor, position in ((20, 0.6, 0), (256, 0.25, 4093), (256, 0.25, 200_000)):
        config = Qwen3_5TextConfig(head_dim=head_dim, rope_parameters={
            "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": factor})
        tokens = torch.arange(position, position + 5)[None]
        cos, sin = reference.Qwen3_5TextRotaryEmbedding(config)(torch.zeros(1), tokens)
        half = cos.shape[-1] // 2
        goldens[f"rotation.{position}.cos"] = cos[0, :, :half]
        goldens[f"rotation.{position}.sin"] = sin[0, :, :half]
    return goldens


def rope():
    """3 heads of 20 dimensions, of which 12 turn."""
    random = Random(23)
    x, angle = random(5, 3, 20), random(5, 6, scale=3)
    cos, sin = as_float32(torch.cos(angle)), as_float32(torch.sin(angle))
    both = torch.cat([cos, cos], -1)[None], torch.cat([sin, sin], -1)[None]
    turned, _ = reference.apply_rotary_pos_emb(x[None], x[None], *both, unsqueeze_dim=2)
    return {"rope.x": x, "rope.cos": cos, "rope.sin": sin, "rope.y": turned[0]}


def attention():
    """Hq 6, Hkv 2, head_dim 20; 150 keys, and queries at three places among them. Head 0's queries
    are 20 times as large: its softmax is nearly one key alone."""
    random = Random(24)
    keys, values, q = random(150, 2, 20), random(150, 2, 20), random(70, 6, 20)
    q[:, 0] *= 20
    q = as_float32(q)
    goldens = {"attention.keys": keys, "attention.values": values, "attention.q": q}
    for T, position in ((5, 0), (1, 149), (70, 67)):
        S = position + T
        future = torch.arange(S)[None, :] > position + torch.arange(T)[:, None]
        mask = torch.zeros(T, S, dtype=torch.float64).masked_fill(future, float("-inf"))
        out, _ = reference.eager_attention_forward(
            SimpleNamespace(num_key_value_groups=3, training=False),
            *(x.transpose(0, 1)[None] for x in (q[:T], keys[:S], values[:S])), mask,
            scaling=20**-0.5)
        goldens[f"attention.{T}_at_{position}.y"] = out[0].flatten(1)
    return goldens


def conv_qkv():
    """Hk 2, Dk 24, Hv 4, Dv 7: 124 channels. 9 tokens after a tail that is not zero; four of them
    so small that the eps of the L2 norm counts."""
    random = Random(25)
    Hk, Dk, Hv, Dv = 2, 24, 4, 7
    C = 2 * Hk * Dk + Hv * Dv
    x, tail, kernel = random(9, C), random(3, C), random(C, 4, scale=0.5)
    x[4:8] = as_float32(1e-3 * x[4:8])
    inputs = torch.cat([tail, x]).T[None]
    out = reference.causal_conv1d_fn(inputs, kernel, activation="silu")[0, :, 3:].T
    q, k, v = out.split([Hk * Dk, Hk * Dk, Hv * Dv], dim=-1)
    q, k = (reference.l2norm(part.reshape(9, Hk, Dk)) for part in (q, k))
    return {"conv_qkv.in": x, "conv_qkv.kernel": kernel.T, "conv_qkv.tail": tail,
            "conv_qkv.q": q * Dk**-0.5, "conv_qkv.k": k, "conv_qkv.v": v.reshape(9, Hv, Dv)}


def gates():
    """Ordinary values, and some far out on both sides of the softplus."""
    random = Random(26)
    a, b = random(6, 5), random(6, 5, scale=3)
    a[0] = torch.tensor([0.0, 25, 60, -25, -90])
    A_log, dt_bias = random(5), random(5)
    A = as_float32(-A_log.exp())  # as loading brings it
    g = A * torch.nn.functional.softplus(a + dt_bias)
    return {"gates.a": a, "gates.b": b, "gates.A": A, "gates.dt_bias": dt_bias, "gates.g": g,
            "gates.beta": b.sigmoid()}


# ---- the delta rule: inputs, and its recurrence ----

def prepared(q, k, v, g, beta):
    """As the C++ operator takes them: q and k normalised, q scaled."""
    unit = torch.nn.functional.normalize
    inputs = {"q": unit(q, dim=-1) * q.shape[-1] ** -0.5, "k": unit(k, dim=-1), "v": v, "g": g,
              "beta": beta}
    return {name: as_float32(tensor) for name, tensor in inputs.items()}


def delta_inputs():
    """Hk 2, Hv 4, Dk 24, Dv 40; 130 tokens, and a state to start from. Decays 0.5 … 0.9995."""
    random = Random(27)
    rate = torch.tensor([0.69, 0.05, 0.005, 0.0005]).double()
    inputs = prepared(random(130, 2, 24), random(130, 2, 24), random(130, 4, 40),
                      -rate * random(130, 4).exp(), random(130, 4).sigmoid())
    return inputs | {"S_before": random(4, 24, 40)}


def stress_inputs(T, g, beta, which):
    """Hk 1, Hv 2, Dk 6, Dv 5; token t has the q, k, v of word which[t]."""
    random = Random(28)
    words = int(which.max()) + 1
    q, k, v = random(words, 1, 6), random(words, 1, 6), random(words, 2, 5)
    return prepared(q[which], k[which], v[which], g.expand(T, 2), beta.expand(T, 2))


def decay(A_log, dt_bias, a=0.0):
    softplus = torch.nn.functional.softplus(torch.tensor(a + dt_bias).double())
    return -torch.tensor(A_log).double().exp() * softplus


def same_key():
    """The same token 200 times, nearly no decay, beta nearly 1."""
    return stress_inputs(200, decay(-20.0, 0.5), torch.tensor(12.0).double().sigmoid(),
                         torch.zeros(200, dtype=torch.long))


def two_keys():
    return stress_inputs(200, decay(-20.0, 0.5), torch.tensor(12.0).double().sigmoid(),
                         torch.arange(200) % 2)


def with_A(A_log, T):
    """T different tokens: 3.2488 leaves 6.5e-12 of S per token, 80 nothing, -100 all of it."""
    return stress_inputs(T, decay(A_log, 0.5413), torch.tensor(0.3).double().sigmoid(), torch.arange(T))


def delta_rule(q, k, v, g, beta, S_before=None):
    """o after every token, S after the last; for inputs with S_before also from S = 0, and S after
    5 and 70 tokens."""
    def run(T, S):
        # The reference scales q itself.
        o, S = reference.torch_recurrent_gated_delta_rule(
            q[None, :T] * q.shape[-1] ** 0.5, k[None, :T], v[None, :T], g[None, :T], beta[None, :T],
            initial_state=S, output_final_state=True)
        return o[0], S[0]

    T = q.shape[0]
    if S_before is None:
        o, S = run(T, None)
        return {"o": o, "S": S}
    o, S = run(T, None)
    warm_o, warm_S = run(70, S_before[None])
    return {"o": o, f"S.{T}": S, "S.5": run(5, None)[1], "S.70": run(70, None)[1],
            "warm.o": warm_o, "warm.S": warm_S}
