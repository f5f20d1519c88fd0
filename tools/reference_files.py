#!/usr/bin/env python3
"""Makes what the tests of chapter 1 compare with: how others read the same files and numbers.

  tools/reference_files.py     tests/data: configs.json, safetensors_cases.json, formats.safetensors

configs.json: configs as they come, and what transformers' config classes make of them.
safetensors_cases.json: headers, well formed and not, and whether the safetensors library takes them.
formats.safetensors: floats, and their bits in the 16-bit formats as torch rounds them.
"""

import json
import struct
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoConfig
from transformers.utils import logging

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"

SIZES = {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 8,
         "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 640}
LINEAR = {"linear_num_key_heads": 3, "linear_num_value_heads": 9, "linear_key_head_dim": 10,
          "linear_value_head_dim": 14, "linear_conv_kernel_dim": 4}
QWEN3_5 = {"model_type": "qwen3_5_text", "head_dim": 24, **SIZES, **LINEAR}
QWEN3 = {"model_type": "qwen3", "head_dim": 20, **SIZES}
LLAMA = {"model_type": "llama", **SIZES}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


CONFIGS = {
    "qwen3_5: nothing said about RoPE": QWEN3_5,
    "qwen3_5: RoPE at the top level": {**QWEN3_5, "rope_theta": 1e7, "partial_rotary_factor": 0.5},
    "qwen3_5: RoPE in rope_parameters": {
        **QWEN3_5, "rope_parameters": {"rope_type": "default", "rope_theta": 5e6,
                                       "partial_rotary_factor": 0.6, "mrope_section": [2, 2, 2]}},
    "qwen3_5: RoPE in rope_scaling": {
        **QWEN3_5, "rope_theta": 3e6, "rope_scaling": {"type": "default",
                                                       "partial_rotary_factor": 0.75}},
    "qwen3_5: RoPE in both, equal": {
        **QWEN3_5, "rope_theta": 5e6, "rope_parameters": {"rope_theta": 5e6}},
    "qwen3_5: RoPE in both, at odds": {
        **QWEN3_5, "rope_theta": 1e4, "partial_rotary_factor": 0.5,
        "rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.6}},
    "qwen3_5: one key in each": {
        **QWEN3_5, "partial_rotary_factor": 0.5, "rope_parameters": {"rope_theta": 5e6}},
    "qwen3_5: rope_scaling and rope_parameters": {
        **QWEN3_5, "rope_scaling": {"rope_type": "default", "rope_theta": 7e5},
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6,
                            "partial_rotary_factor": 0.6}},
    "qwen3_5: an empty rope_scaling": {
        **QWEN3_5, "rope_scaling": {}, "rope_parameters": {"rope_theta": 5e6}},
    "qwen3_5: rope_scaling is null": {
        **QWEN3_5, "rope_scaling": None, "rope_parameters": {"rope_theta": 5e6}},
    "qwen3_5: an interval of layers": {**QWEN3_5, "full_attention_interval": 3},
    "qwen3_5: a list of layers": {
        **QWEN3_5, "full_attention_interval": 3,
        "layer_types": ["full_attention", "linear_attention"] * 4},
    "qwen3_5: defaults": without(QWEN3_5, "head_dim", "max_position_embeddings"),
    "qwen3_5: small eps": {**QWEN3_5, "rms_norm_eps": 1e-12, "eos_token_id": [5, 3]},
    "wrapper: the text model inside": {
        "model_type": "qwen3_5", "rope_theta": 123.0, "text_config": {**QWEN3_5, "rope_theta": 1e7}},
    "qwen3: RoPE at the top level": {**QWEN3, "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen3: RoPE in rope_parameters": {
        **QWEN3, "rope_parameters": {"rope_type": "default", "rope_theta": 2e6}},
    "qwen3: defaults": without(QWEN3, "head_dim", "max_position_embeddings"),
    "llama: defaults": without(LLAMA, "num_key_value_heads", "max_position_embeddings"),
    "llama: nulls": {**LLAMA, "head_dim": None, "num_key_value_heads": None, "rope_scaling": None},
    "llama: a head size of its own": {**LLAMA, "head_dim": 22, "rope_theta": 1e5},
}
COMPARED = ["model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
            "rms_norm_eps", "tie_word_embeddings", *LINEAR]


def read_by_reference(config):
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(config))
        text = AutoConfig.from_pretrained(directory).get_text_config()
    full = ["full_attention"] * text.num_hidden_layers
    rope = text.rope_parameters
    # Only Qwen3.5's model looks at the factor; the others turn whole heads.
    factor = rope.get("partial_rotary_factor", 1.0) if text.model_type == "qwen3_5_text" else 1.0
    return {key: getattr(text, key) for key in COMPARED if hasattr(text, key)} | {
        "layer_types": getattr(text, "layer_types", None) or full,
        "rope_theta": rope["rope_theta"], "partial_rotary_factor": factor}


def configs():
    return [{"name": name, "config": config, "expected": read_by_reference(config)}
            for name, config in CONFIGS.items()]


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def one(**changes):
    return json.dumps({"a": {**entry("F32", [1], 0, 4), **changes}})


A, PAIR = entry("F32", [1], 0, 4), entry("F32", [2], 0, 8)
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8,
        "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "U16": 16, "I16": 16, "F16": 16,
        "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64}
HEADERS = [  # name, header, bytes of data
    ("one tensor", {"a": A}, 4),
    ("a scalar", {"a": entry("F32", [], 0, 4)}, 4),
    ("no tensors", {}, 0),
    ("no tensors, but bytes", {}, 1),
    ("the same data named by two tensors", {"a": A, "b": A}, 4),
    ("tensors that overlap", {"a": PAIR, "b": entry("F32", [1], 4, 8)}, 8),
    ("a hole", {"a": A, "b": entry("F32", [1], 8, 12)}, 12),
    ("a first offset that is not 0", {"a": entry("F32", [1], 4, 8)}, 8),
    ("a trailing byte", {"a": A}, 5),
    ("a byte too few", {"a": A}, 3),
    ("entries out of order", {"b": entry("F32", [1], 4, 8), "a": A}, 8),
    ("NUL padding", json.dumps({"a": A}) + "\0\0\0", 4),
    ("spaces after the header", json.dumps({"a": A}) + "   ", 4),
    ("a newline after the header", json.dumps({"a": A}) + "\n", 4),
    ("spaces before the header", "  " + json.dumps({"a": A}), 4),
    ("letters after the header", json.dumps({"a": A}) + " x", 4),
    ("empty metadata", {"__metadata__": {}, "a": A}, 4),
    ("metadata", {"__metadata__": {"format": "pt"}, "a": A}, 4),
    ("metadata null", {"__metadata__": None, "a": A}, 4),
    ("a number in the metadata", {"__metadata__": {"x": 1}, "a": A}, 4),
    ("metadata as a list", {"__metadata__": [], "a": A}, 4),
    ("a size of 0", {"a": entry("F32", [0], 0, 0)}, 0),
    ("a size of 0 before others", {"a": entry("F32", [0], 0, 0), "b": A}, 4),
    ("a size of 0 at the end", {"a": entry("F32", [3, 0], 4, 4), "b": A}, 4),
    ("a size of 0 inside another", {"a": entry("F32", [0], 2, 2), "b": A}, 4),
    ("a list as the header", [], 0),
    ("an empty header", "", 0),
    ("a name twice, the same data", f'{{"a": {json.dumps(A)}, "a": {json.dumps(A)}}}', 4),
    ("an unknown member", one(extra=1), 4),
    ("an entry that is a number", {"a": 1}, 0),
    ("no dtype", {"a": without(A, "dtype")}, 4),
    ("no shape", {"a": without(A, "shape")}, 4),
    ("no offsets", {"a": without(A, "data_offsets")}, 4),
    ("an unknown dtype", one(dtype="Q4"), 4),
    ("a dtype in small letters", one(dtype="f32"), 4),
    ("a fraction as a size", one(shape=[1.0]), 4),
    ("a negative size", one(shape=[-1]), 4),
    ("a size beyond 64 bits", one(shape=[2**64]), 4),
    ("sizes whose product wraps to 0", {"a": entry("F32", [2**62, 4], 0, 0)}, 0),
    ("bytes that wrap to 0", {"a": entry("F32", [2**62], 0, 0)}, 0),
    ("a shape of other bytes than the offsets", one(shape=[2]), 4),
    ("three offsets", one(data_offsets=[0, 4, 4]), 4),
    ("one offset", one(data_offsets=[0]), 4),
    ("offsets the wrong way round", one(data_offsets=[4, 0]), 4),
    ("half a byte", {"a": entry("F4", [1], 0, 1)}, 1),
    ("a byte and a half", {"a": entry("F4", [3], 0, 1)}, 1),
    ("arrays 200 deep", '{"a": ' + "[" * 200 + "]" * 200 + "}", 0),
    *((f"type {dtype}", {"a": entry(dtype, [8], 0, bits)}, bits) for dtype, bits in BITS.items()),
]


def taken_by_library(content):
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(content)
        file.flush()
        try:
            with safe_open(file.name, "np"):
                return True
        except SafetensorError:
            return False


def safetensors_cases():
    cases = []
    for name, header, data in HEADERS:
        text = header if isinstance(header, str) else json.dumps(header)
        content = struct.pack("<Q", len(text)) + text.encode() + bytes(data)
        cases.append({"name": name, "header": text, "data_bytes": data,
                      "loads": taken_by_library(content)})
    return cases


def formats():
    """Every exponent, with mantissas at, just under and just over halfway; then random bits."""
    tails = (0, 1, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0x18000, 0x7FFFFF)
    hard = [sign << 31 | exponent << 23 | tail
            for sign in (0, 1) for exponent in range(255) for tail in tails]
    named = [0x00400000, 0x80010000, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 0x80000000,
             0x7F800000, 0xFF800000]
    generator = torch.Generator().manual_seed(31)
    random = torch.randint(0, 2**32, (2000,), generator=generator).tolist()
    bits = [b - 2**32 if b >= 2**31 else b for b in hard + named + random]
    x = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    x = x[~x.isnan()]
    return {"float": x} | {name: x.to(dtype).view(torch.int16).to(torch.int32)
                           for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16))}


def write_json(name, rows):
    (DATA / name).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    logging.set_verbosity_error()
    write_json("configs.json", configs())
    write_json("safetensors_cases.json", safetensors_cases())
    save_file(formats(), DATA / "formats.safetensors")
