"""Finds a definition in a C++ file by its name, and returns its text with the comment above it.

    find(text, "rms_norm")           a function, struct, enum, alias or constant at namespace level
    find(text, "plain::rms_norm")    where the name alone would be ambiguous
    find(text, "Ops::rms_norm")      a member: always with the name of its struct
    find(text, "mlp: two rows")      a test case, by its sentence

A definition is preferred to a declaration of the same name. No parser: a scanner that knows
comments, strings, preprocessor lines and matching brackets, enough for code that clang-format made.
"""

import re
import textwrap
from dataclasses import dataclass

# What may hold brackets that do not count. A number is listed for its digit separators: 1'000.
OPAQUE = re.compile(
    r"""//[^\n]* | /\*.*?\*/
      | R"(?P<delimiter>[^()\s\\]*)\(.*?\)(?P=delimiter)"
      | "(?:\\.|[^"\\\n])*" | \b\d[\w'.]* | '(?:\\.|[^'\\\n])*'
      | ^[ \t]*\#(?:\\\n|[^\n])*""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b\s*([\w:]*)\s*$")
TYPE = re.compile(
    r"(?:struct|class|union|enum(?:\s+class|\s+struct)?)\s+(?:alignas\s*\([^)]*\)\s*)?(\w+)")
OPERATOR = re.compile(r"operator\s*[=!<>+*/-]*$")
NOT_A_NAME = {"alignas", "decltype", "requires", "__attribute__", "explicit", "noexcept"}


class NotFound(Exception):
    pass


@dataclass
class Definition:
    path: list  # namespaces, structs, name
    member: bool
    complete: bool  # not a mere declaration
    start: int
    end: int


def masked(text):
    """The same length, with comments, strings and preprocessor lines blank."""
    def blank(match):
        piece = match[0]
        if piece[0].isdigit():
            return piece.replace("'", "0")
        return re.sub(r"[^\n]", " ", piece)
    return OPAQUE.sub(blank, text)


def closing(code, at):
    """Position of the bracket that closes the one at `at`."""
    open_bracket, depth = code[at], 0
    for i in range(at, len(code)):
        if code[i] == open_bracket:
            depth += 1
        elif code[i] == CLOSING[open_bracket]:
            depth -= 1
            if depth == 0:
                return i
    raise NotFound("unbalanced brackets")


def closing_angle(code, at):
    depth = 0
    while at < len(code):
        if code[at] == "<":
            depth += 1
        elif code[at] == ">":
            depth -= 1
            if depth == 0:
                return at
        elif code[at] in "([{":
            at = closing(code, at)
        at += 1
    raise NotFound("unbalanced < >")


def without_prefixes(code, start, end):
    """Skips template <…>, [[attributes]] and access labels in front of a declaration."""
    while True:
        prefix = re.compile(r"\s*(?:(template)\s*(?=<)|(?=\[\[)|(?:public|private|protected)\s*:)"
                            ).match(code, start, end)
        if not prefix:
            return start
        start = prefix.end()
        if prefix[1]:
            start = closing_angle(code, start) + 1
        elif code.startswith("[[", start):
            start = closing(code, start) + 1


def head_end(code, start, end):
    """Where the declared name must have come: the first ( = { ; , [ or : outside angle brackets."""
    at = start
    while at < end:
        char = code[at]
        if code.startswith("::", at):
            at += 1
        elif char == "<" and not OPERATOR.search(code, start, at):
            at = closing_angle(code, at)
        elif char == "(" and (word := re.search(r"(\w+)\s*$", code[start:at])) \
                and word[1] in NOT_A_NAME:
            at = closing(code, at)
        elif char in "({;,[:" or (char == "=" and not OPERATOR.search(code, start, at)):
            return at
        at += 1
    return end


def declaration_end(code, start, end, stop):
    """One past a declaration's last character, and the position of its body's { or None."""
    at, body = start, None
    is_function = stop < end and code[stop] == "("
    while at < end:
        char = code[at]
        if char == ";":
            return at + 1, body
        if char in "([":
            at = closing(code, at)
        elif char == "=" and at > stop:
            is_function = False  # an initialiser, = default, = 0
        elif char == "{":
            body = at if body is None else body
            at = closing(code, at)
            following = code[at + 1:end].lstrip()[:1]
            if NAMESPACE.search(code[start:body]) or code[start:body].strip() == "extern":
                return at + 1, body
            if is_function and following not in (",", "{"):  # not within a constructor's list
                return at + 1, body
        at += 1
    return end, body


def declarations(text, code, start, end, scope=(), member=False):
    while True:
        while start < end and (code[start].isspace() or code[start] == ";"):
            start += 1
        if start >= end:
            return
        first = without_prefixes(code, start, end)
        while first < end and code[first].isspace():
            first += 1
        stop = head_end(code, first, end)
        last, body = declaration_end(code, first, end, stop)
        head = code[first:stop]

        if body is not None and (namespace := NAMESPACE.match(code[first:body].strip())):
            names = [name for name in namespace[1].split("::") if name]
            yield from declarations(text, code, body + 1, last - 1, (*scope, *names))
        elif body is not None and head.strip() == "extern":
            yield from declarations(text, code, body + 1, last - 1, scope)
        elif kind := TYPE.match(code, first, stop if body is None else body):
            yield Definition([*scope, kind[1]], member, body is not None, start, last)
            if body is not None and not kind[0].startswith("enum"):
                inside = closing(code, body)
                yield from declarations(text, code, body + 1, inside, (*scope, kind[1]), True)
        else:
            for name in declared_names(text, code, first, stop, last):
                is_function = stop < end and code[stop] == "("
                complete = body is not None or not is_function
                yield Definition([*scope, *name], member, complete, start, last)
        start = last


def declared_names(text, code, first, stop, last):
    head = code[first:stop]
    if head.strip() in ("TEST_CASE", "SUBCASE"):
        title = re.match(r'\(\s*"((?:\\.|[^"\\])*)"', text[stop:last])
        return [[title[1]]] if title else []
    if alias := re.match(r"using\s+(\w+)\s*$", head):
        return [[alias[1]]]
    if head.startswith("typedef"):
        return [[re.findall(r"\w+", re.sub(r"__attribute__.*", "", code[first:last]))[-1]]]
    name = re.search(r"((?:\w+(?:<[^<>]*>)?::)*(?:~?\w+|operator\W+))\s*(?:<[^<>]*>)?\s*$", head)
    if not name or head.strip() in ("static_assert", "using", "friend"):
        return []
    names = [re.sub(r"<[^<>]*>", "", name[1]).strip().split("::")]
    if stop < last and code[stop] != "(":  # a, b, c: more variables of the same type
        rest, depth = code[stop:last], 0
        for i, char in enumerate(rest):
            depth += (char in "([{") - (char in ")]}")
            if char == "," and depth == 0 and (more := re.match(r"[\s*&]*(\w+)", rest[i + 1:])):
                names.append([more[1]])
    return names


def whole_lines(text, code, start, end):
    """The text of a definition: from the comment directly above it to the one that ends its last
    line, without common indentation."""
    begin = text.rfind("\n", 0, start) + 1
    indent = text[begin:start]
    lines_above = text[:begin].split("\n")[:-1]
    while lines_above:
        line = lines_above[-1]
        line_start = begin - len(line) - 1
        is_comment = line.strip() and not code[line_start:begin].strip()
        if not is_comment or re.match(r"\s*#|" + re.escape(indent) + r"\s+//", line):
            break  # a blank line, code, a preprocessor line, or the end of a comment beside code
        begin = line_start
        lines_above.pop()
    line_end = (text + "\n").find("\n", end)
    if not code[end:line_end].strip():
        beside = text[end:line_end].strip()
        end = line_end
        # A comment beside the definition may go on below, further to the right.
        below = re.compile(r"\n" + re.escape(indent) + r"\s+//[^\n]*")
        while beside and (more := below.match(text, end)):
            end = more.end()
    return textwrap.dedent(text[begin:end]).rstrip()


def find(text, name):
    code = masked(text)
    wanted = [name] if re.search(r"\s", name) else name.split("::")
    found = [
        d for d in declarations(text, code, 0, len(code))
        if d.path[-len(wanted):] == wanted and (len(wanted) > 1 or not d.member)
    ]
    found = [d for d in found if d.complete] or found
    found = [d for d in found if d.path[-2:-1] != d.path[-1:]] or found  # but for constructors
    if not found:
        raise NotFound(f"no definition of {name}")
    if len(found) > 1:
        paths = ", ".join("::".join(d.path) for d in found)
        raise NotFound(f"{name} is ambiguous: {paths}")
    return whole_lines(text, code, found[0].start, found[0].end)
