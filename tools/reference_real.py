"""Models too large to be kept here: a real one's greedy text, and a random one of the 0.8B's shapes."""

import json

import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig

from reference_checkpoints import FULL, LINEAR, qwen3_5, random_model
from reference_float64 import in_float64, load_both

PROMPTS = [
    "The city of Paris is known for its",
    "Once upon a time, in a small village by the sea, there lived",
    "To make a good cup of tea, first",
    "The three laws of motion were written by Isaac Newton in 1687. The first law says",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Dear Ms. Alvarez,\n\nThank you for your letter of May 12. I am writing to",
    "Photosynthesis is the process by which plants",
    "\"I don't believe you,\" she said, and",
    "Here are five tips for sleeping better:\n\n1.",
    "Because water expands when it freezes, ice",
]
NEW_TOKENS = 64


@torch.no_grad()
def greedy_texts(gguf, out):
    """64 greedy tokens after each of PROMPTS, the end-of-text token treated as any other, and how
    near the second best was: margins[i] is the best logit minus the second at step i."""
    reader = GGUFReader(gguf)
    model, tokenizer = smollm2_model(reader), smollm2_tokenizer(reader)
    texts = []
    for prompt in PROMPTS:
        prompt_ids = tokenizer.encode(prompt).ids
        new, cache = torch.tensor([prompt_ids]), None
        ids, seconds, margins = [], [], []
        for _ in range(NEW_TOKENS):
            step = model(new, cache=cache, use_cache=True)
            best, cache = step.logits[0, -1].topk(2), step.cache
            ids.append(int(best.indices[0]))
            seconds.append(int(best.indices[1]))
            margins.append(round(float(best.values[0] - best.values[1]), 5))
            new = best.indices[:1][None]
        text = tokenizer.decode(ids, skip_special_tokens=False)
        texts.append({"prompt": prompt, "prompt_ids": prompt_ids, "ids": ids, "second_ids": seconds,
                      "margins": margins, "text": text})
        print(f"{min(margins):.4f} {prompt + text!r}")
    lines = ",\n".join(json.dumps(text) for text in texts)
    out.write_text(f"[\n{lines}\n]\n")


def smollm2_model(reader):
    """transformers' Llama in float32 with the GGUF's weights, dequantised."""
    def field(name):
        return reader.fields[f"llama.{name}"].contents()

    heads, kv_heads = field("attention.head_count"), field("attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=field("vocab_size"), hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"), num_hidden_layers=field("block_count"),
        num_attention_heads=heads, num_key_value_heads=kv_heads,
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"), rope_theta=field("rope.freq_base"),
        max_position_embeddings=field("context_length"), tie_word_embeddings=True)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    weights = {}
    for tensor in reader.tensors:
        name = hub_name(tensor.name)
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = halves_from_pairs(weight, heads if "q_proj" in name else kv_heads)
        weights[name] = weight
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    return model.eval()


HUB_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hub_name(name):
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    *block, part, kind = name.split(".")
    layer = f"model.layers.{block[1]}." if block else ""
    return f"{layer}{HUB_NAMES[part]}.{kind}"


def halves_from_pairs(weight, heads):
    """Llama GGUFs store the rows of a head as RoPE's pairs, (0, D/2), (1, D/2 + 1), …; transformers
    takes 0 … D/2 - 1, then D/2 … D - 1."""
    pairs = weight.unflatten(0, (heads, -1, 2))  # [heads, D / 2, 2, hidden_size]
    return pairs.transpose(1, 2).flatten(0, 2)


def smollm2_tokenizer(reader):
    """The tokenizer that the GGUF describes: byte-level BPE, digits alone ("smollm"), then the split
    pattern of GPT-2."""
    def field(name):
        return reader.fields[f"tokenizer.ggml.{name}"].contents()

    assert field("pre") == "smollm" and not field("add_bos_token") and not field("add_space_prefix")
    vocabulary = {token: number for number, token in enumerate(field("tokens"))}
    merges = [tuple(merge.split(" ")) for merge in field("merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def large_config():
    """The text part of Qwen3.5-0.8B, with 2,000 rows of embedding instead of 248,320: the head is the
    same computation for every row, and the file is 2 GB instead of 3."""
    return qwen3_5(
        [LINEAR, LINEAR, LINEAR, FULL] * 6, vocab_size=2000, hidden_size=1024, intermediate_size=3584,
        num_attention_heads=8, num_key_value_heads=2, head_dim=256,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                         "mrope_section": [11, 11, 10], "mrope_interleaved": True},
        linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128,
        linear_value_head_dim=128)


@torch.no_grad()
def large(folder):
    """Writes the checkpoint to `folder`; its ids, and the logits after 1, 64, 65 and 203 of them."""
    random_model(large_config(), seed=30).save_pretrained(folder, max_shard_size="10GB")
    single, double = load_both(folder)
    ids = torch.randint(2000, (203,), generator=torch.Generator().manual_seed(1030))
    goldens = {"ids": ids}
    for length in (1, 64, 65, 203):
        logits = single(ids[None, :length], use_cache=False).logits[0, -1]
        with in_float64():
            exact = double(ids[None, :length], use_cache=False).logits[0, -1]
        goldens[f"logits.{length}"], goldens[f"exact.{length}"] = logits, exact
        error = float((logits - exact).abs().max() / exact.abs().max())
        print(f"{length} tokens: float32 - float64 is {error:.1e} of the largest logit")
    return goldens
