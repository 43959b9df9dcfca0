# SPDX-License-Identifier: Apache-2.0
"""C sources as text: their functions, the tokens of those, and the one-token changes to them.

The tree is formatted by clang-format: a function's braces stand alone in column 0, and a binary
operator has a space on both sides, a unary one has none after it.
"""

import hashlib
import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"""
    (?P<space>\s+ | //[^\n]* | /\*.*?\*/ | ^\#(?:[^\n]*\\\n)*[^\n]*) |
    (?P<text>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*') |
    (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*) |
    (?P<word>[A-Za-z_]\w*) |
    (?P<sign>\.\.\. | <<= | >>= | -> | \+\+ | -- | << | >> | <= | >= | == | != | && | \|\| |
        [-+*/%&|^]= | [-+*/%&|^~!<>=?:;,.(){}\[\]\#])
    """, re.X | re.M | re.S)

# Operator of a mutant -> token -> what it may become. Those of SPACED are binary only.
TURNED = {
    "compare": {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
                "==": ("!=",), "!=": ("==",)},
    "logic": {"&&": ("||",), "||": ("&&",)},
    "arithmetic": {"+": ("-",), "-": ("+",), "*": ("+",), "/": ("*",), "%": ("/",),
                   "<<": (">>",), ">>": ("<<",), "&": ("|",), "|": ("&",), "^": ("|",)},
    "assign": {"+=": ("-=", "="), "-=": ("+=", "="), "|=": ("&=", "="), "&=": ("|=", "="),
               "*=": ("/=",), "/=": ("*=",), "%=": ("/=",), "<<=": (">>=",), ">>=": ("<<=",),
               "^=": ("|=",), "++": ("--",), "--": ("++",)},
    "truth": {"true": ("false",), "false": ("true",)},
}
SPACED = {"compare", "logic", "arithmetic"}
# And of one token each: "constant" (off by one), "negate" (a condition, or a `!` is dropped), "delete"
# (a statement), "same" (nothing: planted to see the runner fail, never drawn).
CONDITIONS = {"if", "while"}
NOT_DELETED = {"if", "else", "for", "while", "do", "switch", "case", "default", "goto", "struct",
               "union", "enum", "const", "static", "static_assert", "_Static_assert", "assert",
               "unsigned", "int", "char", "bool", "void", "double", "size_t", "ssize_t", "va_list"}
ASSERTIONS = {"assert", "static_assert", "_Static_assert"}


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Change:
    """One change to one function: a token's number, an operator, and which of its outcomes."""
    operator: str
    token: int
    variant: int


@dataclass
class Function:
    path: str
    name: str
    nth: int  # of that name in the file: `#if` may hold several
    head: str
    body: str  # from `{` to `}`
    start: int
    end: int
    tokens: list = field(default_factory=list, repr=False)

    @property
    def text(self):
        return self.head + self.body

    @property
    def digest(self):
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def key(self):
        return self.name if self.nth == 0 else f"{self.name}#{self.nth}"


def tokens_of(text):
    """The tokens of C text; comments, spaces and preprocessor lines are none."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"no token at {text[at:at + 20]!r}")
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup, match.group(), match.start(), match.end()))
        at = match.end()
    return found


def functions_of(path, text):
    """The functions that the file defines, in order."""
    found, seen = [], {}
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for i, line in enumerate(lines):
        if line != "{\n":
            continue
        first = i
        while first > 0 and not re.match(r"\s*$|//|#|\}|.*(;|\*/|\\)$", lines[first - 1]):
            first -= 1
        head = "".join(lines[first:i])
        name = name_of(head)
        last = next((k for k in range(i, len(lines)) if lines[k] == "}\n"), None)
        if name is None or last is None:
            continue
        nth = seen[name] = seen.get(name, -1) + 1
        body = text[starts[i]:starts[last + 1]]
        found.append(Function(path, name, nth, head, body, starts[first], starts[last + 1],
                              tokens_of(body)))
    return found


def without_attributes(head):
    """A function's head without `__attribute__((…))`."""
    while (at := head.find("__attribute__")) >= 0:
        depth, end = 0, head.index("(", at)
        while True:
            depth += {"(": 1, ")": -1}.get(head[end], 0)
            end += 1
            if depth == 0:
                break
        head = head[:at] + head[end:].lstrip()
    return head


def name_of(head):
    """The name in a function's head, or None if it is none."""
    match = re.match(r"[A-Za-z_][\w\s*]*?\b([A-Za-z_]\w*)\(", without_attributes(head))
    return match.group(1) if match and head.rstrip().endswith(")") else None


def parameters_of(head):
    """The names of a function's parameters; None if a call cannot pass them on."""
    head = without_attributes(head)
    inside = head[head.index("(") + 1:head.rindex(")")]
    parts, depth, part = [], 0, ""
    for sign in inside:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += sign
    parts.append(part)
    if [p.strip() for p in parts] == ["void"]:
        return []
    names = []
    for part in (p.strip() for p in parts):
        if part == "...":
            return None
        pointer = re.search(r"\(\*(?:const )?(\w+)", part)
        match = pointer or re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", part)
        if match is None:
            return None
        names.append(match.group(1))
    return names


# ---- where a function can change

def closing(tokens, at):
    """The number of the token that closes the bracket at `at`."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(tokens[i].text, 0) \
            if tokens[i].kind == "sign" else 0
        if depth == 0:
            return i
    return None


def asserted(tokens):
    """The numbers of tokens inside assertions, which are judges themselves."""
    inside = set()
    for i, token in enumerate(tokens[:-1]):
        if token.text in ASSERTIONS and tokens[i + 1].text == "(":
            inside.update(range(i, closing(tokens, i + 1) + 1))
    return inside


def spaced(body, token):
    return body[token.start - 1:token.start].isspace() and body[token.end:token.end + 1].isspace()


def in_blocks(body, tokens):
    """The numbers of tokens that stand in blocks only: in no parentheses and no initializer."""
    found, inside = set(), []
    for i, token in enumerate(tokens):
        if token.kind == "sign" and token.text in (")", "]", "}"):
            inside.pop()
        if all(inside):
            found.add(i)
        if token.kind == "sign" and token.text in ("(", "[", "{"):
            before = tokens[i - 1].text if i else ""
            literal = before in ("=", ",", "(", "{") or body[token.start - 1:token.start] == ")"
            inside.append(token.text == "{" and (i == 0 or before == "{" and all(inside) or
                                                 not literal))
    return found


def control_begins(tokens, at):
    """Whether the `)` at `at` closes the condition of an `if` or a loop."""
    depth = 0
    for k in range(at, 0, -1):
        depth += {")": 1, "(": -1}.get(tokens[k].text, 0)
        if depth == 0:
            return tokens[k - 1].text in ("if", "for", "while", "switch")
    return False


def follows_label(tokens, at):
    """Whether the `:` at `at` is that of a case or of a label, not of `? :`."""
    for k in range(at - 1, -1, -1):
        if tokens[k].text in ("case", "default"):
            return True
        if tokens[k].text in (";", "{", "}", "?"):
            return tokens[k].text != "?" and k == at - 2
    return False


def statement_end(tokens, at):
    """If a statement that can go begins at `at`, the number of its semicolon, else None."""
    token, before = tokens[at], tokens[at - 1].text if at else ""
    if token.text in NOT_DELETED or token.text in ("{", "}", ";", ")"):
        return None
    if not (before in (";", "{", "}", "else", "do") or
            before == ":" and follows_label(tokens, at - 1) or
            before == ")" and control_begins(tokens, at - 1)):
        return None
    follower = tokens[at + 1]
    if token.kind == "word" and token.text != "return" and (
            follower.kind == "word" or follower.text in ("*", ":")):
        return None  # a declaration, or a label
    end = at
    while tokens[end].text not in (";", "}"):
        end = closing(tokens, end) + 1 if tokens[end].text in ("(", "[", "{") else end + 1
    return end if tokens[end].text == ";" else None


def off_by_one(text):
    """What a number may become, as text; none for a floating one."""
    match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", text)
    if match is None:
        return ()
    digits, suffix = match.groups()
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" and digits != "0" else 10
    value = int(digits, base)
    show = (lambda n: f"0x{n:x}") if base == 16 else str
    return (f"{show(value + 1)}{suffix}",) + ((f"{show(value - 1)}{suffix}",) if value else ())


def changes_at(function, at, blocks):
    """Every change to the token `at` of a function; `blocks`: the tokens that stand in no brackets."""
    tokens, token = function.tokens, function.tokens[at]
    found = []
    for operator, table in TURNED.items():
        if token.text in table and (operator not in SPACED or spaced(function.body, token)):
            found += [Change(operator, at, i) for i in range(len(table[token.text]))]
    if token.kind == "number":
        found += [Change("constant", at, i) for i in range(len(off_by_one(token.text)))]
    if (token.text in CONDITIONS and tokens[at + 1].text == "(") or token.text == "!":
        found.append(Change("negate", at, 0))
    if at in blocks and token.kind != "number" and statement_end(tokens, at) is not None:
        found.append(Change("delete", at, 0))
    return found


def sites_of(function):
    """The numbers of tokens that some operator changes, with these changes."""
    exempt, blocks = asserted(function.tokens), in_blocks(function.body, function.tokens)
    sites = ((i, changes_at(function, i, blocks)) for i in range(len(function.tokens)) if i not in exempt)
    return [(i, changes) for i, changes in sites if changes]


def changed_body(function, change):
    """The function's body after a change."""
    body, tokens, token = function.body, function.tokens, function.tokens[change.token]
    start, end = token.start, token.end
    if change.operator == "same":
        return body
    if change.operator in TURNED:
        new = TURNED[change.operator][token.text][change.variant]
    elif change.operator == "constant":
        new = off_by_one(token.text)[change.variant]
    elif change.operator == "negate" and token.text == "!":
        new = ""
    elif change.operator == "negate":
        start, end = tokens[change.token + 1].start, tokens[closing(tokens, change.token + 1)].end
        new = f"(!{body[start:end]})"
    elif change.operator == "delete":
        end = tokens[statement_end(tokens, change.token)].end
        new = ";"
    else:
        raise ValueError(f"unknown operator {change.operator!r}")
    return body[:start] + new + body[end:]
