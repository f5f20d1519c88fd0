#!/usr/bin/env python3
"""Writes tests/data/tokenizer_cases.json: texts and what other programs make of them.

    tokenizer_reference.py QWEN35_DIR SMOLLM2_DIR

The two folders are made by make_tokenizer.py (qwen3.5, smollm2). The ids are those of the
`tokenizers` library for these two and for small and pair in tests/data/tokenizers, those of the
`sentencepiece` library for pieces there, and those of transformers' AutoTokenizer for models/tiny.

Each case has a text (or, where it is no valid UTF-8, its bytes in hexadecimal) and for each
tokenizer its ids; ids under "… as text" are those with added tokens switched off, where they
differ; a text under "… decoded" is what decoding gives, where that is not the text. "newer" marks
texts with characters that Unicode 14 does not know yet.
"""

import json
import random
import sys
import unicodedata
from pathlib import Path

import sentencepiece
import tokenizers
import transformers

from tokenizer_texts import INVALID, texts

QWEN2_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
                 r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DATA = Path(__file__).resolve().parent.parent / "tests" / "data"


class Reference:
    """A tokenizer.json, with and without its added tokens."""

    def __init__(self, folder):
        source = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
        self.matched = tokenizers.Tokenizer.from_str(json.dumps(source))
        source["added_tokens"] = []
        self.as_text = tokenizers.Tokenizer.from_str(json.dumps(source))

    def encode(self, text):
        return self.matched.encode(text).ids, self.as_text.encode(text).ids

    def decode(self, ids):
        return self.matched.decode(ids, skip_special_tokens=True)


class PairReference(Reference):
    """vocab.json and merges.txt, put together as transformers' Qwen2Tokenizer does it."""

    def __init__(self, folder):
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.matched, self.as_text = self.bare(folder), self.bare(folder)
        self.matched.add_tokens([tokenizers.AddedToken(**token)
                                 for token in config["added_tokens_decoder"].values()])

    @staticmethod
    def bare(folder):
        model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"),
                                                str(folder / "merges.txt"))
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.normalizer = tokenizers.normalizers.NFC()
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(QWEN2_PATTERN), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        return tokenizer


class PiecesReference:
    def __init__(self, folder):
        self.model = sentencepiece.SentencePieceProcessor(
            model_file=str(Path(folder) / "tokenizer.model"))

    def encode(self, text):
        ids = self.model.encode(text)
        return ids, ids

    def decode(self, ids):
        return self.model.decode(ids)


class AutoReference:
    """The folder of a SentencePiece model, as transformers opens it; as text by that library."""

    def __init__(self, folder):
        self.auto = transformers.AutoTokenizer.from_pretrained(str(folder))
        self.pieces = PiecesReference(folder)

    def encode(self, text):
        return self.auto.encode(text), self.pieces.encode(text)[0]

    def decode(self, ids):
        return self.auto.decode(ids, skip_special_tokens=True)


def is_newer(text):
    if not unicodedata.unidata_version.startswith("14."):
        sys.exit("run this with Python 3.11, whose unicodedata is Unicode 14's")
    return any(unicodedata.category(c) == "Cn" for c in text)


def case(source, references):
    is_bytes = isinstance(source, bytes)
    text = source.decode("utf-8", errors="replace") if is_bytes else source
    entry = {"bytes": source.hex()} if is_bytes else {"text": text}
    if is_newer(text):
        entry["newer"] = True
    for name, reference in references.items():
        ids, as_text = reference.encode(text)
        entry[name] = ids
        if as_text != ids:
            entry[name + " as text"] = as_text
        decoded = reference.decode(ids)
        if decoded != text:
            entry[name + " decoded"] = decoded
    return entry


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    references = {
        "qwen3.5": Reference(sys.argv[1]),
        "smollm2": Reference(sys.argv[2]),
        "small": Reference(DATA / "tokenizers" / "small"),
        "pair": PairReference(DATA / "tokenizers" / "pair"),
        "pieces": PiecesReference(DATA / "tokenizers" / "pieces"),
        "tiny": AutoReference(DATA.parent.parent / "models" / "tiny"),
    }
    cases = [case(source, references) for source in [*texts(random.Random(5)), *INVALID]]
    versions = {library.__name__: library.__version__
                for library in (tokenizers, sentencepiece, transformers)}
    lines = ",\n".join(json.dumps(entry, ensure_ascii=True) for entry in cases)
    path = DATA / "tokenizer_cases.json"
    path.write_text(f'{{"versions": {json.dumps(versions)},\n"cases": [\n{lines}\n]}}\n')
    print(f"{path}: {len(cases)} texts, {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
