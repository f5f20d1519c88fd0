#!/usr/bin/env python3
"""Writes tests/data/chat_cases.json: conversations as the official templates write them.

    reference_chat.py QWEN35_DIR QWEN35.jinja SMOLLM2_DIR SMOLLM2.gguf

The folders are made by make_tokenizer.py (qwen3.5, smollm2). QWEN35.jinja is the template of
Qwen3.5-4B, as it stands in llama.cpp's sources (models/templates) and beside the model's weights;
SmolLM2's is in the metadata of its GGUF file. transformers renders them.

The template says where the markers are, so a text that only looks like one must not become one.
To know which is which, the conversation is rendered a second time with every < of a content
replaced by a character that nothing else has, then the two are laid over each other. Between two
markers stands ordinary text: one piece for the `tokenizers` library, its added tokens switched off.

Each conversation is rendered with thinking off and on ("ids": off and on); those whose last
message is an answer that is begun, without an end and the same for both.
"""

import copy
import json
import re
import sys
from pathlib import Path

import jinja2
import tokenizers
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from chat_conversations import conversations

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
MARKERS = re.compile(r"<\|im_start\|>|<\|im_end\|>|</?think>|</?tool_call>|</?tool_response>")
MASK = "\ue123"  # of the private use area: in no conversation


def masked(value):
    """Every < in the strings of a value, keys too, made another character."""
    if isinstance(value, str):
        return value.replace("<", MASK)
    if isinstance(value, dict):
        return {masked(key): masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list) else value


def looks_like_a_result(message):
    content = message.get("content")
    return (message["role"] == "user" and isinstance(content, str)
            and content.strip().startswith("<tool_response>")
            and content.strip().endswith("</tool_response>"))


def masked_message(message):
    """The same for a message, without hiding from the template what it looks for."""
    new = masked(message)
    content = message.get("content")
    if not isinstance(content, str):
        return new
    if message["role"] == "assistant" and not isinstance(message.get("reasoning_content"), str):
        thought, end, rest = content.rpartition("</think>")
        thought = re.sub(r"<(?!/?think>)", MASK, thought) if end else thought
        new["content"] = thought + end + masked(rest)
    if looks_like_a_result(message):
        new["content"] = content
    return new


def rendered(template, case, thinking, mask=lambda message: message):
    case = copy.deepcopy(case)
    is_begun = case["messages"][-1]["role"] == "assistant"
    messages = [mask(message) for message in case["messages"]]
    tools = case.get("tools")
    if mask is masked_message:
        tools = masked(tools)
    texts, _ = render_jinja_template(
        [messages], tools=tools or None, chat_template=template,
        add_generation_prompt=not is_begun, enable_thinking=thinking)
    return texts[0].removesuffix("<|im_end|>\n") if is_begun else texts[0]


def with_masks(template, case, thinking):
    """(text, the text with what is no marker masked)"""
    text = rendered(template, case, thinking)
    mask = rendered(template, case, thinking, masked_message)
    for message in filter(looks_like_a_result, case["messages"]):
        assert mask.count(message["content"]) == 1
        mask = mask.replace(message["content"], masked(message["content"]))
    assert mask.replace(MASK, "<") == text, (text, mask)
    return text, mask


class Tokenizer:
    def __init__(self, folder):
        source = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
        self.markers = {token["content"]: token["id"] for token in source["added_tokens"]}
        self.matched = tokenizers.Tokenizer.from_str(json.dumps(source))
        source["added_tokens"] = []
        self.as_text = tokenizers.Tokenizer.from_str(json.dumps(source))

    def ids(self, mask):
        ids, stretch, at = [], "", 0
        for marker in MARKERS.finditer(mask):
            stretch += mask[at:marker.start()]
            if marker[0] in self.markers:
                ids += [*self.encode(stretch), self.markers[marker[0]]]
                stretch = ""
            else:
                stretch += marker[0]
            at = marker.end()
        return ids + self.encode(stretch + mask[at:])

    def encode(self, stretch):
        return self.as_text.encode(stretch.replace(MASK, "<")).ids


def one_case(template, tokenizer, case, thinking):
    text, mask = with_masks(template, case, thinking)
    ids = tokenizer.ids(mask)
    if mask == text:  # nothing hostile: what everybody's tokenizer makes of the whole
        assert ids == tokenizer.matched.encode(text).ids, text
    return {"text": text, "ids": ids}


def refused(template, case):
    try:
        rendered(template, case, False)
    except jinja2.exceptions.TemplateError as error:
        return str(error)
    raise AssertionError(f"the template takes {case}")


REFUSED = {
    "no messages": {"messages": []},
    "a system message in the middle": {"messages": [
        {"role": "user", "content": "a"}, {"role": "system", "content": "b"}]},
    "no question": {"messages": [{"role": "system", "content": "a"}]},
    "only results": {"messages": [
        {"role": "user", "content": "<tool_response>a</tool_response>"},
        {"role": "tool", "content": "b"}]},
    "an unknown role": {"messages": [{"role": "user", "content": "a"},
                                     {"role": "robot", "content": "b"}]},
}


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    import gguf
    qwen, template = Tokenizer(sys.argv[1]), Path(sys.argv[2]).read_text(encoding="utf-8")
    smollm = Tokenizer(sys.argv[3])
    fields = gguf.GGUFReader(sys.argv[4]).fields
    smollm_template = fields["tokenizer.chat_template"].contents()
    cases = []
    for name, case in conversations().items():
        entry = {"name": name, "chat": case, "off": one_case(template, qwen, case, False)}
        on = one_case(template, qwen, case, True)
        if on != entry["off"]:
            entry["on"] = on
        plain = all(isinstance(message.get("content"), str) and "tool_calls" not in message
                    for message in case["messages"])
        if plain and not case.get("tools") and len(json.dumps(case)) < 300:
            entry["smollm2"] = one_case(smollm_template, smollm, case, False)
        cases.append(entry)
    refusals = [{"name": name, "chat": case, "template": refused(template, case)}
                for name, case in REFUSED.items() if case["messages"]]
    versions = {"transformers": transformers.__version__, "jinja2": jinja2.__version__,
                "tokenizers": tokenizers.__version__}
    path = DATA / "chat_cases.json"
    with path.open("w") as file:
        lines = [",\n".join(json.dumps(entry) for entry in entries)
                 for entries in (cases, refusals)]
        file.write(f'{{"versions": {json.dumps(versions)},\n"cases": [\n{lines[0]}\n],\n'
                   f'"refused": [\n{lines[1]}\n]}}\n')
    print(f"{path}: {len(cases)} conversations, {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
