#!/usr/bin/env python3
"""The text that the tiny model is trained on and tested with.

    make_corpus.py DIR [--documents N] [--seed S]

writes DIR/train.jsonl, DIR/held_out.jsonl and DIR/vocabulary.txt. A document is one line,
{"kind": ..., "parts": [...]}; a part is a marker ("<|im_end|>": one id, never found in text) or
[text, weight]: how often the loss counts its tokens. What nobody could guess, such as a question,
counts seldom; an answer always.

Held out are things, not shuffles: one pair of a name and a thing in eight (of a name and a number,
of a thing and a town) is on no list of a training document; nor does one sum in eight occur there,
one phrasing of one fact in three, and one invented name in four. held_out.jsonl asks for just those.
"""

import argparse
import json
import random
import re
import zlib
from pathlib import Path

from tiny_world import (CHINESE_COLOURS, CHINESE_PEOPLE, CHINESE_PETS, CHINESE_THINGS, COLOURS,
                        DISHES, FACTS, GOODS, JOBS, PEOPLE, PETS, STRANGERS, THINGS, TOWNS, an)

START, END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
THINK, THOUGHT = "<think>", "</think>"
SELDOM, HALF, ALWAYS = 0.1, 0.5, 1.0
NAMES = PEOPLE + STRANGERS
CHINESE_WORDS = list((CHINESE_THINGS | CHINESE_PETS).values())
SYLLABLES = "ba do fi gu ka lo mi nu pe ra so ti va wo zu".split()


def is_held_out(*what, one_in=8):
    return zlib.crc32("|".join(map(str, what)).encode()) // 64 % one_in == 0


class Source:
    """Random choices, all of them on one side of the line between training and held-out."""

    def __init__(self, seed, held_out):
        self.random = random.Random(seed)
        self.held_out = held_out
        self.choice, self.chance = self.random.choice, lambda p: self.random.random() < p

    def below(self, n):
        return self.random.randrange(n)

    def pairs(self, keys, values, count):
        """`count` pairs, keys and values all different."""
        while True:
            found = {}
            for _ in range(100 * count):
                key, value = self.choice(keys), self.choice(values)
                if (key not in found and value not in found.values()
                        and is_held_out(key, value) == self.held_out):
                    found[key] = value
                if len(found) == count:
                    return list(found.items())

    def addends(self):
        """Two numbers; 47 + 38 and 38 + 47 are on the same side. Sums of two digits are never held
        out: they are the steps of the others."""
        while True:
            pair = self.below(100), self.below(100)
            if (max(pair) > 9 and is_held_out("sum", *sorted(pair))) == self.held_out:
                return pair

    def fact(self):
        """(question, fact): a held-out phrasing is one of every third fact's."""
        while True:
            fact = self.choice(FACTS)
            index = self.below(len(fact.questions))
            key = zlib.crc32(fact.answer.encode())
            held = key % 3 == 0 and key // 3 % len(fact.questions) == index
            if held == self.held_out:
                return fact.questions[index], fact

    def invented_name(self):
        while True:
            name = "".join(self.choice(SYLLABLES) for _ in range(2 + self.below(2))).capitalize()
            if is_held_out("name", name, one_in=4) == self.held_out:
                return name


# ---- what is asked and answered: lists of (question, answer, thought) ----

def about_facts(s):
    question, fact = s.fact()
    return [(question, fact.answer, f"I know this: {fact.answer}")]


def about_strangers(s):
    name = s.choice(STRANGERS)
    question = s.choice([f"Where does {name} live?", f"What is the job of {name}?",
                         f"What pet does {name} keep?", f"What does {name} like to eat?"])
    return [(question, f"I do not know {name}.", f"{name} is not in my world.")]


def carried(a, b):
    """The addition of two numbers, as done on paper."""
    ones, tens = a % 10 + b % 10, a // 10 + b // 10 + (a % 10 + b % 10) // 10
    carry = " + 1" if ones > 9 else ""
    return f"{a % 10} + {b % 10} = {ones}. {a // 10} + {b // 10}{carry} = {tens}. Together {a + b}."


def about_sums(s):
    a, b = s.addends()
    if s.chance(0.15):
        return [(f"{a}加{b}等于几？", f"{a}加{b}等于{a + b}。", carried(a, b))]
    question = s.choice([f"What is {a} + {b}?", f"How much is {a} + {b}?", f"Add {a} and {b}.",
                         f"{a} + {b} = ?"])
    return [(question, f"{a} + {b} = {a + b}.", carried(a, b))]


# Kinds of lists: a line about a pair, and the questions for its value and for its key.
LISTS = {
    "has": ("{0} has the {1}.", "What does {0} have?", "Who has the {1}?"),
    "found": ("{0} found the {1}.", "What did {0} find?", "Who found the {1}?"),
    "number": ("{0} has {1} coins.", "How many coins does {0} have?", "Who has {1} coins?"),
    "place": ("The {0} is in {1}.", "Where is the {0}?", "What is in {1}?"),
    "chinese": ("{0}有{1}。", "{0}有什么？", "谁有{1}？"),
}


def recall(s, count=None, kind=None, questions=None, names=NAMES, both_ways=True):
    """A list of pairs in the first question, further questions about the same list."""
    kind = kind or s.random.choices(list(LISTS), [5, 3, 3, 3, 1])[0]
    count = count or s.choice([2, 3, 4] if kind == "chinese" else [2, 3, 4, 5, 6, 7, 8, 8, 8])
    keys, values = {"number": (names, range(10, 100)), "place": (THINGS, TOWNS),
                    "chinese": (CHINESE_PEOPLE, CHINESE_WORDS)}.get(kind, (names, THINGS))
    pairs = s.pairs(keys, list(values), count)
    line, for_value, for_key = LISTS[kind]
    gap = "" if kind == "chinese" else s.choice([" ", "\n"])
    listed = gap.join(line.format(*pair) for pair in pairs)
    asked = s.random.sample(pairs, min(count, questions or 1 + s.below(4)))
    turns = []
    for pair in asked:
        question = (for_key if both_ways and s.chance(0.3) else for_value).format(*pair)
        answer = line.format(*pair)
        turns.append((question, answer, f"The list says: {answer}"))
    question, *rest = turns[0]
    first = s.choice([f"{listed}\n{question}", f"{listed} {question}"])
    return [(first, *rest), *turns[1:]]


def counting(s):
    first, length = s.below(80), 3 + s.below(8)
    numbers = [str(n) for n in range(first, first + length)]
    return [(f"Count from {numbers[0]} to {numbers[-1]}.", ", ".join(numbers) + ".",
             f"I start at {numbers[0]} and stop at {numbers[-1]}.")]


def repeating(s):
    words = s.random.sample(THINGS + COLOURS + PETS + TOWNS, 2 + s.below(6))
    return [(f"Repeat: {' '.join(words)}", " ".join(words), f"There are {len(words)} words.")]


SMALL_TALK = [
    ("Hello!", "Hello! How can I help you?"), ("Hi!", "Hello! How can I help you?"),
    ("Good morning!", "Good morning! How can I help you?"), ("Thank you!", "You are welcome!"),
    ("Thanks!", "You are welcome!"), ("Goodbye!", "Goodbye! Come back soon."),
    ("Who are you?", "I am a tiny language model. I know a small world."),
    ("What are you?", "I am a tiny language model. I know a small world."),
    ("What can you do?", "I can answer questions about my world, add numbers, remember lists and "
                         "tell stories."),
    ("How are you?", "I am well, thank you."), ("你好！", "你好！我能帮你什么？"),
    ("谢谢！", "不客气！"), ("你是谁？", "我是一个很小的语言模型。"), ("再见！", "再见！"),
]


def small_talk(s):
    question, answer = s.choice(SMALL_TALK)
    return [(question, answer, "I answer kindly.")]


# A story takes one line of each group.
STORY = [
    ["One morning {one} walked to {town}.",
     "Once upon a time {one} lived in a small house near {town}.",
     "It was a cold day in {town}, and {one} was alone.",
     "{one} and {other} were good friends in {town}."],
    ["By the river {one} found {a_thing}.", "On the road {one} found {a_thing}.",
     "Under a tree {one} found {a_thing}."],
    ["A {colour} {animal} came and took the {thing}.", "{one} showed the {thing} to {other}.",
     "But the {thing} was broken, and {one} was sad.",
     "Then it began to rain, and {one} ran home with the {thing}."],
    ['"This is my {thing}!" said {other}.', '"What a fine {thing}!" said {other}.',
     "{other} had lost the {thing} long ago."],
    ["So {one} gave the {thing} to {other}.", "{other} gave {one} {second} for the {thing}."],
    ["They were happy and went home.", "They drank tea until the {colour} sun went down.",
     "From that day on {one} and {other} were friends.", "And the {animal} slept by the fire."],
]


def story(s):
    """(person, thing, text, (question, answer)): two people, a thing, and what happened."""
    (one, thing), (other, second) = s.pairs(NAMES, THINGS, 2)
    words = {"one": one, "other": other, "thing": thing, "a_thing": an(thing), "second": an(second),
             "town": s.choice(TOWNS), "animal": s.choice(PETS), "colour": s.choice(COLOURS)}
    text = " ".join(s.choice(lines).format(**words) for lines in STORY)
    asked = s.choice([(f"What did {one} find?", f"{one} found {an(thing)}."),
                      (f"Who found the {thing}?", f"{one} found the {thing}.")])
    return one, thing, text, asked


def stories(s):
    one, thing, text, (question, answer) = story(s)
    request = s.choice([f"Tell me a story about {one} and {an(thing)}.",
                        f"Please tell a story about {one} and {an(thing)}."])
    told = [(request, text, f"The story is about {one} and {an(thing)}.")]
    return told + [(question, answer, f"In the story: {answer}")] if s.chance(0.5) else told


# ---- documents ----

def dialogue(s, turns, thinking=False, system=None, keeps_blocks=None):
    """A conversation in the chat template. The thought of the last answer is shown only where
    thinking is on; earlier answers carry no think block, or an empty one, as a conversation
    does that is continued from its cache."""
    keeps_blocks = s.chance(0.5) if keeps_blocks is None else keeps_blocks
    parts = [START, [f"system\n{system}", SELDOM], END, ["\n", SELDOM]] if system else []
    for index, (question, answer, thought) in enumerate(turns):
        parts += [START, [f"user\n{question}", SELDOM], END, ["\n", SELDOM], START]
        if index == len(turns) - 1 and thinking:
            parts += [["assistant\n", SELDOM], THINK, [f"\n{thought}\n", ALWAYS], THOUGHT,
                      [f"\n\n{answer}", ALWAYS], END, ["\n", SELDOM]]
        elif index == len(turns) - 1 or keeps_blocks:
            parts += [["assistant\n", SELDOM], THINK, ["\n\n", SELDOM], THOUGHT, ["\n\n", SELDOM],
                      [answer, ALWAYS], END, ["\n", SELDOM]]
        else:
            parts += [["assistant\n", SELDOM], [answer, ALWAYS], END, ["\n", SELDOM]]
    return parts


SYSTEMS = ["You are a helpful model.", "You are a guide to a small world.", "Be kind and brief."]
TOPICS = {about_facts: 6, about_sums: 3, recall: 5, small_talk: 2, counting: 1, repeating: 1,
          about_strangers: 1, stories: 1}


def conversation(s, thinking=None):
    """One to many turns on mixed topics."""
    wanted = s.choice([1, 1, 2, 3, 4, 6, 10])
    turns = []
    while len(turns) < wanted:
        turns += s.random.choices(list(TOPICS), TOPICS.values())[0](s)
    system = s.choice(SYSTEMS) if s.chance(0.15) else None
    return dialogue(s, turns, s.chance(0.3) if thinking is None else thinking, system)


def one_word_answers(s):
    turns = []
    for _ in range(1 + s.below(4)):
        question, fact = s.fact()
        turns.append((question, f"{fact.word}.", fact.answer))
    return dialogue(s, turns, system="Answer in one word.")


def notes(s):
    """A list and then the same list in another order: recall at its densest."""
    kind = s.choice(["thing", "number", "number", "place", "invented"])
    names = [s.invented_name() for _ in range(30)] if kind == "invented" else NAMES
    keys, values = {"number": (NAMES, list(range(10, 100))),
                    "place": (THINGS, TOWNS)}.get(kind, (names, THINGS))
    pairs = s.pairs(keys, values, s.choice([3, 4, 6, 8, 8, 8]))
    again = s.random.sample(pairs, len(pairs))
    parts = [["Notes:\n" + "".join(f"{key}: {value}\n" for key, value in pairs), SELDOM],
             ["Again:\n", SELDOM]]
    for key, value in again:
        parts += [[f"{key}:", HALF], [f" {value}\n", ALWAYS]]
    return parts


# A line with a sum: what is given, and what is to be found.
SUMS = {
    "short": lambda a, b: (f"{a} + {b} =", f" {a + b}\n"),
    "chinese": lambda a, b: (f"{a}加{b}等于", f"{a + b}。\n"),
    "carried": lambda a, b: (f"{a} + {b}\n", f"{carried(a, b)}\n"),
}


def sums(s):
    line, parts = SUMS[s.random.choices(list(SUMS), [5, 2, 3])[0]], []
    for _ in range(6 + s.below(10)):
        given, found = line(*s.addends())
        parts += [[given, SELDOM], [found, ALWAYS]]
    return parts


def facts(s):
    """Sentences, or questions with their answers, without a template."""
    parts = []
    for _ in range(3 + s.below(6)):
        question, fact = s.fact()
        parts += [[f"Q: {question}\nA:", SELDOM], [f" {fact.answer}\n", ALWAYS]]
    return parts


def tale(s):
    return [[story(s)[2] + "\n", HALF]]


DOCUMENTS = {"conversation": (conversation, 8), "word": (one_word_answers, 1), "notes": (notes, 4),
             "sums": (sums, 8), "facts": (facts, 5), "tale": (tale, 1)}


def training_document(s):
    kind = s.random.choices(list(DOCUMENTS), [weight for _, weight in DOCUMENTS.values()])[0]
    return {"kind": kind, "parts": DOCUMENTS[kind][0](s) + [TEXT_END]}


def held_out_documents(s, count):
    """`count` of each kind that is measured. Each asks one thing, in the chat template."""
    def invented():
        return recall(s, 8, "has", 1, [s.invented_name() for _ in range(30)], both_ways=False)

    kinds = {
        "recall": lambda: dialogue(s, recall(s, 8, "has", 1, both_ways=False)),
        "recall_numbers": lambda: dialogue(s, recall(s, 8, "number", 1, both_ways=False)),
        "recall_invented": lambda: dialogue(s, invented()),
        "addition": lambda: dialogue(s, about_sums(s)),
        "addition_thinking": lambda: dialogue(s, about_sums(s), thinking=True),
        "facts": lambda: dialogue(s, about_facts(s)),
        "dialogue": lambda: conversation(s),
    }
    return [{"kind": kind, "parts": make()} for kind, make in kinds.items() for _ in range(count)]


def vocabulary(s):
    """Text for the tokenizer: some of the corpus, and every word of the world often enough to be
    kept whole, with a space in front and without. No line holds a marker. Chinese, which puts no
    spaces between words, is cut at them, or pieces would hold whole sentences."""
    words = [*NAMES, *TOWNS, *JOBS, *PETS, *DISHES, *GOODS, *COLOURS, *THINGS, "coins"]
    chinese = CHINESE_WORDS + CHINESE_PEOPLE + list(CHINESE_COLOURS.values())
    at_words = re.compile(f"({'|'.join(chinese)})")
    lines = [line for _ in range(1500) for part in training_document(s)["parts"]
             if not isinstance(part, str) for line in at_words.split(part[0])]
    lines += [f"{word} {word}" for word in words for _ in range(200)]
    lines += [word for word in chinese for _ in range(200)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--documents", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)

    def write(name, documents):
        with (options.dir / name).open("w", encoding="utf-8") as file:
            for document in documents:
                file.write(json.dumps(document, ensure_ascii=False) + "\n")

    training = Source(options.seed, held_out=False)
    (options.dir / "vocabulary.txt").write_text(vocabulary(training), encoding="utf-8")
    write("train.jsonl", (training_document(training) for _ in range(options.documents)))
    write("held_out.jsonl", held_out_documents(Source(options.seed + 1, held_out=True), 200))


if __name__ == "__main__":
    main()
