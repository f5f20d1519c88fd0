#!/usr/bin/env python3
"""Makes the GGUF files that the tests read, from the small checkpoints of tools/reference.py.

  tools/make_gguf.py        writes tests/data/gguf/*.gguf and tests/data/blocks.safetensors

Names, order of rows and metadata are those of llama.cpp's converter (convert_hf_to_gguf.py), to
which the result was compared tensor by tensor; `wild` is written as other programs do it. Packages:
tools/requirements-reference.txt.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors.torch import load_file, save_file

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
ARCHITECTURES = {"llama": "llama", "qwen3": "qwen3", "qwen3_5_text": "qwen35"}
NEXTN = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm",
         "norm": "shared_head_norm"}


# ---- what llama.cpp stores in another form ----

def interleave(rows, heads):
    """Rows of q_proj or k_proj: of a head's two halves, one row each in turn."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


def tile(values, axis, key_heads, value_heads):
    """Value heads along an axis: the first of every key head, then the second of every key head."""
    shape = values.shape
    grouped = values.reshape(*shape[:axis], key_heads, value_heads // key_heads, -1, *shape[axis + 1:])
    return grouped.transpose(axis, axis + 1).reshape(shape)


def tile_value_heads(name, tensor, config):
    heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    part = name.split("linear_attn.")[1]
    if part.startswith(("in_proj_qkv", "conv1d")):
        keys = 2 * heads[0] * config["linear_key_head_dim"]
        return torch.cat([tensor[:keys], tile(tensor[keys:], 0, *heads)])
    if part.startswith("out_proj"):
        return tile(tensor, 1, *heads)
    if part.startswith("norm"):
        return tensor
    return tile(tensor, 0, *heads)


def stored_form(name, tensor, config):
    """A tensor of the checkpoint as llama.cpp stores it."""
    if config["model_type"] == "llama":
        if name.endswith("q_proj.weight"):
            return interleave(tensor, config["num_attention_heads"])
        if name.endswith("k_proj.weight"):
            return interleave(tensor, config["num_key_value_heads"])
    if config["model_type"] == "qwen3_5_text":
        if "norm" in name and not name.endswith("linear_attn.norm.weight"):
            return tensor.float() + 1
        if name.endswith("A_log"):
            tensor = -torch.exp(tensor.float())
        if name.endswith("conv1d.weight"):
            tensor = tensor.squeeze(1)
        if ".linear_attn." in name:
            return tile_value_heads(name, tensor, config)
    return tensor


# ---- names and metadata ----

def stored_name(name, names, config):
    """The GGUF name of a tensor of the checkpoint."""
    layers = config["num_hidden_layers"]
    if name.startswith("mtp.layers.0."):
        name = name.replace("mtp.layers.0.", f"model.layers.{layers}.")
    elif name.startswith("mtp."):
        return f"blk.{layers}.nextn.{NEXTN[name.split('.')[1]]}.weight"
    name = name.replace(".dt_bias", ".dt_proj.bias")
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def add_sizes(writer, config, has_mtp):
    rope = config.get("rope_parameters", config)
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_block_count(config["num_hidden_layers"] + has_mtp)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if config["model_type"] != "qwen3":
        writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if config["model_type"] == "qwen3_5_text":
        add_deltanet_sizes(writer, config, has_mtp)
    if has_mtp:
        writer.add_nextn_predict_layers(1)


def add_deltanet_sizes(writer, config, has_mtp):
    writer.add_rope_dimension_sections(config["rope_parameters"]["mrope_section"] + [0])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    linear = [layer == "linear_attention" for layer in config["layer_types"]] + [False] * has_mtp
    writer.add_array(f"{writer.arch}.attention.recurrent_layers", linear)
    writer.add_full_attention_interval(4)


def add_tokenizer(writer, config):
    """As many tokens as the embedding has rows; enough to see that lists come back."""
    count = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(["<|endoftext|>", "<|im_end|>"] + [f"t{i}" for i in range(2, count)])
    writer.add_token_types([3, 3] + [1] * (count - 2))
    writer.add_token_merges(["t 2", "t 3"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_chat_template("{{ messages }}")


# ---- files ----

def read_checkpoint(folder):
    """Config and tensors of the text model, by the names of a text-only checkpoint."""
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return config, {name.replace("model.language_model.", "model."): tensor
                    for name, tensor in tensors.items() if not name.startswith("model.visual.")}


def add_tensor(writer, name, tensor):
    """A matrix in its own type; vectors and the convolution in float32, as llama.cpp wants them."""
    if tensor.ndim == 1 or "ssm_conv1d" in name:
        tensor = tensor.float()
    if tensor.dtype == torch.bfloat16:
        bits = tensor.contiguous().view(torch.uint16).numpy()
        writer.add_tensor(name, bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(name, tensor.contiguous().numpy())


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(config, tensors, path):
    """Writes what read_checkpoint returns as llama.cpp's converter does."""
    has_mtp = "mtp.fc.weight" in tensors
    writer = gguf.GGUFWriter(path, ARCHITECTURES[config["model_type"]])
    architecture = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == writer.arch)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"] + has_mtp)
    add_sizes(writer, config, has_mtp)
    add_tokenizer(writer, config)
    for name, tensor in tensors.items():
        add_tensor(writer, stored_name(name, names, config), stored_form(name, tensor, config))
    finish(writer)


def rewrite_as_others_do(source, path):
    """The same model as Ollama exports it: heads of keys and values listed by block, three rope
    sections, ssm_dt without .bias; tensors of a picture encoder and of MTP that no block holds."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "qwen35")
    linear = reader.fields["qwen35.attention.recurrent_layers"].contents()
    for key, field in reader.fields.items():
        value = field.contents()
        if key.startswith("GGUF.") or key in ("general.architecture",
                                              "qwen35.attention.recurrent_layers"):
            continue
        if key == "qwen35.attention.head_count_kv":
            writer.add_array(key, [0 if is_linear else value for is_linear in linear])
        elif key == "qwen35.rope.dimension_sections":
            writer.add_array(key, value[:3])
        elif field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, field.types[0])
    writer.add_bool("qwen35.ssm.v_head_reordered", True)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name.replace("ssm_dt.bias", "ssm_dt"), tensor.data)
    for name in ("v.patch_embed.weight", "mm.0.weight", "mtp.fc.weight", "mtp.norm.weight",
                 "mtp.layers.0.attn_q.weight"):
        writer.add_tensor(name, np.zeros((3, 5), np.float32))
    finish(writer)


# ---- block formats ----

# Scales, as halves: ordinary ones, 0 and -0, the smallest and the largest subnormal, the largest
# finite, infinity, NaN.
SCALES = [0x2E66, 0xAE66, 0x3C00, 0x0000, 0x8000, 0x0001, 0x03FF, 0x7BFF, 0xFBFF, 0x7C00, 0x7E00]
SCALES_AT = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
             "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def block_goldens():
    """For every format, random blocks with scales of SCALES, and the floats gguf makes of them."""
    random = np.random.default_rng(3)
    goldens = {}
    for name, places in SCALES_AT.items():
        kind = gguf.GGMLQuantizationType[name]
        size = gguf.GGML_QUANT_SIZES[kind][1]
        blocks = random.integers(0, 256, (2 * len(SCALES), size), dtype=np.uint8)
        for turn, place in enumerate(places):
            scales = np.roll(np.array(SCALES * 2, np.uint16), 5 * turn)
            blocks[:, place:place + 2] = scales[:, None].view(np.uint8)
        with np.errstate(all="ignore"):
            floats = dequantize(blocks, kind)
        goldens[f"{name.lower()}.bytes"] = torch.from_numpy(blocks)
        goldens[f"{name.lower()}.floats"] = torch.from_numpy(floats)
    return goldens


def main():
    argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    out = DATA / "gguf"
    out.mkdir(exist_ok=True)
    for name in ("llama", "qwen3", "grouped", "wrapper", "bf16"):
        write(*read_checkpoint(DATA / "checkpoints" / name), out / f"{name}.gguf")
    rewrite_as_others_do(out / "grouped.gguf", out / "wild.gguf")
    save_file(block_goldens(), DATA / "blocks.safetensors")


if __name__ == "__main__":
    main()
