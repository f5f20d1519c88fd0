"""Small random checkpoints, one per variant a loader and a forward pass have to know.

Default initialisation would blind every test: with it S is forgotten at once, norms are constant
and mixers add next to nothing. So weights are N(0, 1 / fan_in), every norm weight is random, and
the decay of a token lies between 0.5 and 0.9995, another value for every head.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3_5TextConfig, Qwen3Config

LINEAR, FULL = "linear_attention", "full_attention"


def qwen3_5(layers, **changes):
    """A Qwen3.5 text config. No two sizes are equal and hardly any is a multiple of a vector."""
    return Qwen3_5TextConfig(**{
        "vocab_size": 263, "hidden_size": 52, "intermediate_size": 109,
        "num_hidden_layers": len(layers), "layer_types": layers,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.6,
                            "mrope_section": [2, 2, 2], "mrope_interleaved": True},
        "linear_num_key_heads": 3, "linear_num_value_heads": 3,
        "linear_key_head_dim": 14, "linear_value_head_dim": 18, "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 512, "tie_word_embeddings": True, "eos_token_id": 1,
        "mtp_num_hidden_layers": 0,
    } | changes)


def tiny():
    return qwen3_5([LINEAR, LINEAR, LINEAR, FULL])


def grouped():
    return qwen3_5(
        [LINEAR, FULL, LINEAR], vocab_size=251, hidden_size=66, intermediate_size=91,
        num_attention_heads=9, num_key_value_heads=3, head_dim=10,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.4,
                         "mrope_section": [1, 1, 0], "mrope_interleaved": True},
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=24,
        linear_value_head_dim=17)


def untied():
    return qwen3_5([FULL, LINEAR, LINEAR, FULL, LINEAR], vocab_size=257, hidden_size=35,
                   intermediate_size=58, tie_word_embeddings=False)


def pattern():
    return qwen3_5([LINEAR, LINEAR, FULL, LINEAR, LINEAR], hidden_size=34, intermediate_size=61)


def small():
    return qwen3_5([LINEAR, FULL], hidden_size=39, intermediate_size=74)


def qwen3():
    return Qwen3Config(
        vocab_size=261, hidden_size=58, intermediate_size=99, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, rope_theta=1e6,
        max_position_embeddings=512, tie_word_embeddings=True, eos_token_id=1, bos_token_id=None)


def llama():
    return LlamaConfig(
        vocab_size=259, hidden_size=72, intermediate_size=101, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=3, rms_norm_eps=1e-5, rope_theta=1e5,
        max_position_embeddings=512, tie_word_embeddings=True, eos_token_id=1, bos_token_id=None)


@dataclass(frozen=True)
class Variant:
    name: str
    what: str  # for the manifest
    config: callable
    seed: int
    finish: callable = None  # rewrites the saved directory


def build(variant: Variant, folder: Path):
    """Writes the checkpoint of a variant to `folder`."""
    model = random_model(variant.config(), variant.seed)
    model.save_pretrained(folder)
    if variant.finish:
        variant.finish(folder, variant.seed)
    for file in folder.iterdir():
        file.chmod(0o644)


def random_model(config, seed):
    torch.manual_seed(seed)  # what transformers initialises and we keep: nothing, but be sure
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomise(model, torch.Generator().manual_seed(seed))
    return model.eval()


@torch.no_grad()
def randomise(model, generator):
    for name, parameter in model.named_parameters():  # a tied head is listed once
        if name.endswith(("A_log", "dt_bias")):
            continue
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim == 1:  # a norm: around 1, or around 0 where the scale is 1 + weight
            parameter.add_(0.3 * noise)
        else:
            parameter.copy_(noise / math.sqrt(parameter.shape[-1]))
    for module in model.modules():
        if hasattr(module, "A_log"):
            spread_decay(module, generator)


def spread_decay(deltanet, generator):
    """Where in_proj_a gives 0, head h keeps exp(-rate[h]) of S per token: 0.5 … 0.9995."""
    heads = deltanet.A_log.numel()
    rate = torch.logspace(math.log10(-math.log(0.9995)), math.log10(-math.log(0.5)), heads)
    rate = rate[torch.randperm(heads, generator=generator)]
    dt_bias = 2 * torch.rand(heads, generator=generator) - 1
    deltanet.dt_bias.copy_(dt_bias)
    deltanet.A_log.copy_(torch.log(rate / torch.nn.functional.softplus(dt_bias)))


# ---- what makes a variant of a checkpoint, after it is saved ----

def edit_json(path, edit):
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content, indent=2) + "\n")


def rewrite(folder, edit):
    path = folder / "model.safetensors"
    save_file(edit(load_file(path)), path, metadata={"format": "pt"})


def old_config_keys(folder, _seed):
    """As older configs are written: an interval, and RoPE's numbers at the top level."""
    def edit(config):
        del config["layer_types"]
        config["full_attention_interval"] = 3
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope["rope_theta"]
        config["partial_rotary_factor"] = rope["partial_rotary_factor"]
    edit_json(folder / "config.json", edit)


def old_llama_keys(folder, _seed):
    """As SmolLM2's config is written: no head_dim, rope_theta at the top level."""
    def edit(config):
        del config["head_dim"]
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    edit_json(folder / "config.json", edit)


def store_as(dtype, keep=()):
    """Stores the tensors as `dtype`, but those whose names end in one of `keep` in float32."""
    def finish(folder, _seed):
        rewrite(folder, lambda tensors: {
            name: tensor if name.endswith(keep) else tensor.to(dtype)
            for name, tensor in tensors.items()})
        edit_json(folder / "config.json",
                  lambda config: config.update(dtype=str(dtype).removeprefix("torch.")))
    return finish


def wrap(folder, seed):
    """The multimodal wrapper of the hub's Qwen3.5: text_config, prefixed names, tensors of a
    picture encoder, and an MTP layer."""
    generator = torch.Generator().manual_seed(seed + 1)

    def edit_config(config):
        text = dict(config)
        text["mtp_num_hidden_layers"] = 1
        for key in ("architectures", "transformers_version"):
            text.pop(key)
        config.clear()
        config.update(
            architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5",
            text_config=text, tie_word_embeddings=True,
            vision_config={"model_type": "qwen3_5_vision", "depth": 1, "hidden_size": 16,
                           "intermediate_size": 24, "num_heads": 2,
                           "num_position_embeddings": 16, "out_hidden_size": text["hidden_size"]})
    edit_json(folder / "config.json", edit_config)

    def edit_tensors(tensors):
        def random_like(tensor):
            noise = torch.randn(tensor.shape, generator=generator)
            return 0.3 * noise if noise.ndim == 1 else noise / math.sqrt(noise.shape[-1])

        renamed = {name.replace("model.", "model.language_model.", 1): tensor
                   for name, tensor in tensors.items()}
        full = next(name.split(".self_attn.")[0] for name in tensors if ".self_attn." in name)
        hidden = tensors["model.norm.weight"]
        mtp = {name.replace(full, "mtp.layers.0"): random_like(tensor)
               for name, tensor in tensors.items() if name.startswith(full + ".")}
        mtp["mtp.fc.weight"] = random_like(torch.empty(hidden.numel(), 2 * hidden.numel()))
        for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            mtp[f"mtp.{norm}.weight"] = random_like(hidden)
        shapes = {"patch_embed.proj.weight": (16, 3, 2, 2, 2), "patch_embed.proj.bias": (16,),
                  "blocks.0.attn.qkv.weight": (48, 16)}
        visual = {f"model.visual.{name}": torch.randn(shape, generator=generator)
                  for name, shape in shapes.items()}
        return renamed | mtp | visual
    rewrite(folder, edit_tensors)


def shard(folder, _seed):
    """Three files and the index that tells what is where."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": {}}
    for number in range(3):
        file = f"model-{number + 1:05}-of-00003.safetensors"
        share = names[number::3]  # every layer lies in all three
        save_file({name: tensors[name] for name in share}, folder / file, metadata={"format": "pt"})
        index["weight_map"].update((name, file) for name in share)
    index["weight_map"] = dict(sorted(index["weight_map"].items()))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


VARIANTS = [
    Variant("tiny", "Qwen3.5 text config, tied; the default checkpoint of the early chapters", tiny, 1),
    Variant("grouped", "more value heads than key heads (6 and 2)", grouped, 2),
    Variant("untied", "a head of its own; the layer pattern is full, linear, linear, full, linear",
            untied, 3),
    Variant("pattern", "full_attention_interval instead of layer_types; rope_theta and "
            "partial_rotary_factor at the top level", pattern, 4, old_config_keys),
    Variant("wrapper", "in the multimodal wrapper, with model.visual.* and mtp.* tensors", small, 5,
            wrap),
    Variant("sharded", "three shards and an index", small, 6, shard),
    Variant("bf16", "stored as bf16, A_log and the gated norm as f32, as the hub's files are",
            tiny, 7, store_as(torch.bfloat16, keep=("A_log", "linear_attn.norm.weight"))),
    Variant("f16", "stored as f16, A_log and dt_bias too", small, 8, store_as(torch.float16)),
    Variant("qwen3", "Qwen3 dense: full attention everywhere, q/k norm, no gate", qwen3, 9),
    Variant("llama", "Llama: neither q/k norm nor gate; no head_dim, rope_theta at the top level",
            llama, 10, old_llama_keys),
]
