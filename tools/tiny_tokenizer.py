"""The tiny model's SentencePiece tokenizer: made here, and documents turned into ids with it."""

import json

import sentencepiece

# Control symbols: no text ever becomes one of them.
MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
           "</tool_call>", "<tool_response>", "</tool_response>"]
PIECES = 1664


def train_tokenizer(text, prefix):
    """BPE, digits one by one, a newline and whatever else is unknown as bytes, nothing rewritten:
    the text comes back as it went in."""
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(prefix), vocab_size=PIECES, model_type="bpe",
        byte_fallback=True, split_digits=True, character_coverage=1.0, num_threads=1,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
        control_symbols=MARKERS, bos_id=-1, eos_id=-1, pad_id=-1, unk_id=0,
        max_sentence_length=100_000, minloglevel=2)


class Documents:
    """Documents of make_corpus.py as ids, and for each id how often the loss counts it."""

    def __init__(self, model):
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
        self.marker = {text: self.pieces.piece_to_id(text) for text in MARKERS}

    def ids(self, document):
        ids, weights = [], []
        for part in document["parts"]:
            if isinstance(part, str):  # a marker; whatever ends an answer is part of the answer
                ids.append(self.marker[part])
                weights.append(weights[-1] if weights else 0.0)
            else:
                text, weight = part
                new = self.pieces.encode(text)
                ids += new
                weights += [weight] * len(new)
        return ids, weights


def last_answer(ids, weights):
    """(prompt, answer): the answer is the last run of ids that the loss always counts."""
    end = max(i for i, weight in enumerate(weights) if weight == 1) + 1
    start = end
    while weights[start - 1] == 1:
        start -= 1
    return ids[:start], ids[start:end]


def read_documents(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
