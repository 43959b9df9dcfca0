# SPDX-License-Identifier: Apache-2.0
"""Enough understanding of C text for the tidy rules: comments, functions, calls, variables.

It trusts that the compiler accepts the text: braces match and literals end.
"""

import re

LEXEMES = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.M | re.S)
# With parentheses nested up to three deep, as in __attribute__((aligned(64))).
ATTRIBUTE = re.compile(r"\b(?:__attribute__|_Alignas|alignas)\s*"
                       r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
MAX_SPACE = 200  # between a member and its dot


def spaces(match):
    return re.sub(r"[^\n]", " ", match[0])


def blank(text):
    """The text with comments and literals replaced by spaces: offsets and lines stay."""
    return LEXEMES.sub(spaces, text)


def line_at(code, offset):
    return code.count("\n", 0, offset) + 1


def blocks(code):
    """Yields (start of the statement, opening brace, closing brace) of each outermost block."""
    depth = 0
    start = opened = 0
    for match in re.finditer(r"[{};]", code):
        char, at = match[0], match.start()
        if char == "{":
            if depth == 0:
                opened = at
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                yield start, opened, at
                start = at + 1
        elif depth == 0:
            start = at + 1


def plain(code):
    """Code without preprocessor lines and attributes."""
    return ATTRIBUTE.sub(spaces, DIRECTIVE.sub(spaces, code))


def bodies(code):
    """Yields (name, start, opening brace, closing brace) of each function."""
    text = plain(code)
    for start, opened, closed in blocks(text):
        head = text[start:opened]
        # The parameter list is the last thing of the head, and no initialiser precedes it.
        if head.rstrip().endswith(")") and "=" not in head:
            match = re.search(r"(\w+)\s*\(", head)
            yield match[1], start + len(head) - len(head.lstrip()), opened, closed


def functions(code):
    """Yields (name, first line, number of lines) of each function definition."""
    for name, start, _, closed in bodies(code):
        first = line_at(code, start)
        yield name, first, line_at(code, closed) - first + 1


def calls(code):
    """Yields (name, line) of what looks like a call of a plain name, macros included."""
    for match in CALL.finditer(code):
        # A pattern for what is in front would try every beginning of the space that comments are.
        at = match.start()
        if not code[max(0, at - MAX_SPACE):at].rstrip().endswith((".", "->")):
            yield match[1], line_at(code, at)


def is_mutable(declaration):
    """Whether a declaration that lives as long as the program can change."""
    head = declaration.split("=")[0].strip()
    if re.match(r"(typedef|extern|_Static_assert|static_assert)\b", head):
        return False
    if re.fullmatch(r"(struct|union|enum)\b\s*\w*\s*(\{\})?", head) or not head:
        return False
    if "(" in head and not re.search(r"\(\s*\*", head):
        return False
    return re.search(r"\bconst\b", head.rsplit("*", 1)[-1]) is None


def mutable_statics(code):
    """Yields (declaration, line) of each mutable variable that outlives a call."""
    text = plain(code)
    outer = list(text)
    for _, start, opened, closed in bodies(code):
        for match in re.finditer(r"\bstatic\b([^;]*);", text[opened:closed]):
            if is_mutable(match[1]):
                yield squeeze(match[1]), line_at(code, opened + match.start())
        outer[start:closed + 1] = [c if c == "\n" else " " for c in text[start:closed + 1]]
    yield from file_scope("".join(outer), code)


def file_scope(outer, code):
    folded = list(outer)
    for _, opened, closed in blocks(outer):
        folded[opened + 1:closed] = [c if c == "\n" else " " for c in outer[opened + 1:closed]]
    start = 0
    # Not by a pattern: it would try every place in the space behind the last semicolon.
    for part in "".join(folded).split(";")[:-1]:
        text = squeeze(part)
        if is_mutable(text):
            yield text, line_at(code, start + len(part) - len(part.lstrip()))
        start += len(part) + 1


def squeeze(text):
    return re.sub(r"\{\s+\}", "{}", re.sub(r"\s+", " ", text)).split("=")[0].strip()
