#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of this source tree that a program can judge.

tidy.py ROOT SOURCES: SOURCES lists what the build compiles or registers as a test (the build
writes it). Prints one line per finding and exits with 1 if there is one.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ctext

sys.path.append(str(Path(__file__).resolve().parent.parent))
import judge  # noqa: E402

MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 70
SPDX = "SPDX-License-Identifier: Apache-2.0"
RATCHET = "tests/tidy/ratchet.txt"

SKIPPED_DIRS = {".git", "__pycache__", "corpus"}
TEXT_SUFFIXES = {".c", ".h", ".py", ".sh", ".cmake", ".md", ".in", ".1", ".yml"}
TEXT_NAMES = {"Makefile", "CMakeLists.txt", "run", ".clang-format", ".gitignore"}
UNLICENSED = {".md", ".gitignore"}

# Layers, lowest first; an include may point to its own rank or below. Public headers are below
# all. src/kv stands on the public headers alone.
RANKS = {"public": -1, "base": 0, "wire": 1, "nic": 2, "cm": 3, "chain": 3, "kernel": 3, "rma": 3,
         "cost": 4, "port": 4, "host": 5, "hull": 6, "kv": 6, "verbs": 6, "mlx5": 7, "efa": 7,
         "sim": 6, "rdmacm": 7, "rsocket": 7, "rspreload": 7, "cli": 7}
ISOLATED = {"public": {"public"}, "kv": {"public", "kv"}}
ISOLATED |= {"rsocket": {"rsocket"}, "rspreload": {"rspreload", "rsocket"}}
PURE = {"wire", "nic", "cm", "chain", "cost", "kernel", "rma"}
STATELESS = set(RANKS) - {"cli"}
# fork(), exit(), opening a device and descriptors name no object
PROCESS_WIDE = {"src/host/process.c", "src/verbs/process.c", "src/verbs/real.c",
                "src/rdmacm/process.c", "src/rsocket/process.c", "src/rspreload/process.c",
                "src/host/stray.c"}

BANNED = "strcpy strcat sprintf vsprintf gets strtok rand srand random srandom drand48 alloca"
CLOCKS = "time clock clock_gettime gettimeofday timespec_get nanosleep usleep sleep"
IMPURE = """socket bind listen accept connect send sendto sendmsg sendmmsg recv recvfrom recvmsg
    recvmmsg read write readv writev pread pwrite open openat close ioctl mmap munmap poll ppoll
    select epoll_wait eventfd fopen fread fwrite fflush printf fprintf vprintf vfprintf puts fputs
    putchar perror getenv getrandom syscall system abort exit"""
SLEEPS = "sleep usleep nanosleep clock_nanosleep thrd_sleep"
SLEEPS_TOO = re.compile(r"\b(?:poll|select)\((?:NULL|0), ")  # of no descriptor
SKIPS = "tests/unit/skips.c"
IMPURE_HEADERS = re.compile(
    r"(sys|net|netinet|arpa|linux)/|(unistd|time|fcntl|poll|pthread|threads|signal)\.h")

WORDS = re.compile(r"\b(" + "|".join(("TO" "DO", "FIX" "ME", "X" "XX")) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|root|home|Users)/\w")


class Tree:
    """The files of the project by their path from its root."""

    def __init__(self, root, sources):
        self.root = Path(root)
        self.known = set(sources)
        self.texts = {}
        for folder, dirs, names in os.walk(self.root):
            dirs[:] = sorted(d for d in dirs if d not in SKIPPED_DIRS and
                             not (d.startswith("build") and Path(folder) == self.root))
            for name in sorted(names):
                self._add(Path(folder) / name)
        self.code = {p: ctext.blank(t) for p, t in self.texts.items() if p.endswith((".c", ".h"))}
        self.includes = {p: list(self._includes(p)) for p in self.code}

    def _add(self, path):
        if path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES:
            self.texts[str(path.relative_to(self.root))] = path.read_text(encoding="utf-8")

    def _includes(self, path):
        """Yields (line, name as written, resolved path or None) for each include of a file."""
        for number, line in enumerate(self.texts[path].splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if match:
                folders = ["src", "include", "."]
                if match[1] == '"':
                    folders.insert(0, os.path.dirname(path))
                found = (os.path.normpath(os.path.join(f, match[2])) for f in folders)
                target = next((f for f in found if f in self.texts), None)
                yield number, match[1] + match[2], target


def layer_of(path):
    parts = path.split("/")
    if parts[0] == "include":
        return "public"
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return "sim" if parts[0] == "sim" else None


def check_lines(tree):
    """Line length, trailing space, tabs in C, words of unfinished work, paths of one machine."""
    for path, text in tree.texts.items():
        if not text.endswith("\n") or text.endswith("\n\n"):
            yield path, text.count("\n"), "the file must end with exactly one newline"
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                yield path, number, "trailing white space"
            if WORDS.search(line):
                yield path, number, "a word of unfinished work"
            if MACHINE_PATH.search(line):
                yield path, number, "a path of one machine"
            if path in tree.code and len(line) > MAX_COLUMNS:
                yield path, number, f"{len(line)} columns, at most {MAX_COLUMNS}"
            if path in tree.code and "\t" in line:
                yield path, number, "a tab"


def check_heads(tree):
    """Each file names its licence; a C file does so first, then says what it is."""
    for path, text in tree.texts.items():
        name = os.path.basename(path)
        if name in UNLICENSED or os.path.splitext(name)[1] in UNLICENSED:
            continue
        head = text.splitlines()[:3]
        if path in tree.code:
            if head[:1] != ["// " + SPDX]:
                yield path, 1, f"the first line must be: // {SPDX}"
            elif not head[1:2] or not head[1].startswith(("//", "/*")):
                yield path, 2, "the second line must be a comment that says what the file is"
        elif not any(SPDX in line for line in head):
            yield path, 1, f"none of the first lines says {SPDX}"


def read_ratchet(tree):
    entries = {}
    path = tree.root / RATCHET
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#"):
            file, name, length = line.split()
            entries[file, name] = (int(length), number)
    return entries


def check_functions(tree):
    """No function is too long, but for those in the ratchet, which may only shrink."""
    allowed = read_ratchet(tree)
    for path, code in tree.code.items():
        for name, line, length in ctext.functions(code):
            limit, entry = allowed.pop((path, name), (None, 0))
            if limit is None and length > MAX_FUNCTION_LINES:
                yield path, line, f"{name}: {length} lines, at most {MAX_FUNCTION_LINES}"
            elif limit is not None and length <= MAX_FUNCTION_LINES:
                yield RATCHET, entry, f"{path} {name} is short enough now: remove the entry"
            elif limit is not None and length > limit:
                yield path, line, f"{name}: grew from {limit} to {length} lines"
            elif limit is not None and length < limit:
                yield RATCHET, entry, f"{path} {name} shrank: lower the entry to {length}"
    for (path, name), (_, entry) in allowed.items():
        yield RATCHET, entry, f"{path} {name} is no longer there: remove the entry"


def check_calls(tree):
    """Calls that are banned everywhere, clocks below the ports, and all I/O in pure layers."""
    for path, code in tree.code.items():
        layer = layer_of(path)
        own = {name for name, _, _ in ctext.functions(code)}
        banned = set(BANNED.split())
        if layer in PURE | {"base"}:
            banned |= set(CLOCKS.split()) - own
        if layer in PURE:
            banned |= set(IMPURE.split()) - own
        for name, line in ctext.calls(code):
            if name in banned:
                yield path, line, f"{name}() must not be called here"
        for line, header, target in tree.includes[path]:
            if layer in PURE and target is None and IMPURE_HEADERS.match(header[1:]):
                yield path, line, f"{header[1:]} has no place in a pure layer"


def check_waits(tree):
    """A test waits for a condition (tests/wait.h): a sleep says beside it why it cannot, and who
    skips says what is missing."""
    for path, code in tree.code.items():
        if not path.startswith(("tests/", "fuzz/")):
            continue
        lines = tree.texts[path].splitlines()
        bare = [line for line in range(1, len(lines) + 1)
                if not any("//" in text for text in lines[max(0, line - 2):line])]
        sleeps = {line for name, line in ctext.calls(code) if name in SLEEPS.split()}
        sleeps |= {ctext.line_at(code, match.start()) for match in SLEEPS_TOO.finditer(code)}
        for line in sorted(sleeps.intersection(bare)):
            yield path, line, "a sleep in a test: a comment beside it says why it must be"
        for name, line in ctext.calls(code):
            if name == "skip" and path != SKIPS:
                yield path, line, "skip() is silent: SKIP() says why"


def check_state(tree):
    """No mutable variable outlives a call, but in the command."""
    for path, code in tree.code.items():
        if layer_of(path) in STATELESS and str(path) not in PROCESS_WIDE:
            for text, line in ctext.mutable_statics(code):
                yield path, line, f"global mutable state: {text}"


def check_layers(tree):
    """Includes point downwards, and what is included exists."""
    for path in tree.code:
        layer = layer_of(path)
        if layer is not None and layer not in RANKS:
            yield path, 1, f"src/{layer} is not a layer"
            continue
        for line, name, target in tree.includes[path]:
            if target is None:
                if name[0] == '"' and name != '"verbena_config.h':
                    yield path, line, f"{name[1:]} does not exist"
                continue
            below = layer_of(target)
            if layer is None or below not in RANKS:
                continue
            if RANKS[below] > RANKS[layer]:
                yield path, line, f"{layer} must not include {target}: it points upwards"
            elif layer in ISOLATED and below not in ISOLATED[layer]:
                yield path, line, f"{layer} must not include {target}: public headers only"


def check_dead(tree):
    """Every source is built, every header included, every test registered, every script used."""
    included = {t for path, lines in tree.includes.items() for _, _, t in lines if t != path}
    for path in tree.texts:
        name = os.path.basename(path)
        if path.endswith(".h") and path not in included:
            yield path, 1, "a dead file: nobody includes it"
        elif path.endswith(".c") and path not in tree.known:
            yield path, 1, "a dead file: the build does not know it"
        elif path.endswith((".sh", ".py")) and path not in tree.known:
            if re.match(r"test_|.*_test\.", name):
                yield path, 1, "a test that is not registered"
            elif not any(mentions(text, name) for p, text in tree.texts.items() if p != path):
                yield path, 1, "a dead file: nobody mentions it"


def mentions(text, name):
    stem = os.path.splitext(name)[0]
    return stem in text and re.search(  # to look for the stem first is several times as fast
        rf"\b{re.escape(name)}\b|^\s*(import|from) {re.escape(stem)}\b", text, re.M)


def check_man(tree):
    """The manual pages are well-formed."""
    if shutil.which("mandoc") is None:
        if not judge.skipped("check_man", "missing: mandoc"):
            yield "docs/man", 1, "not checked: mandoc is not installed"
        return
    for path in tree.texts:
        if path.endswith(".1"):
            lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path], cwd=tree.root,
                                  capture_output=True, text=True, check=False)
            if lint.returncode:
                yield path, 1, lint.stdout.strip()


def check_patches(tree):
    """The mutants of the simulator and of chain programs still apply."""
    # Not inside a repository around the tree: git would then skip files of the patch.
    env = dict(os.environ, GIT_CEILING_DIRECTORIES=str(tree.root.resolve().parent))
    for patch in sorted(tree.root.glob("sim/mutants/**/*.patch")):
        apply = subprocess.run(["git", "-c", "safe.directory=*", "apply", "--check",
                                str(patch.resolve())], cwd=tree.root, env=env,
                               capture_output=True, text=True, check=False)
        if apply.returncode:
            yield str(patch.relative_to(tree.root)), 1, f"does not apply: {apply.stderr.strip()}"


def check_excuses(tree):
    """What the simulator's model does not judge is named, counted and listed with its reason."""
    header, listing = "sim/excuse.h", "sim/EXCUSES.md"
    named = re.findall(r"X\((\w+), \"", tree.texts.get(header, ""))
    listed = re.findall(r"^\| `(\w+)` \|", tree.texts.get(listing, ""), re.MULTILINE)
    code = "".join(text for path, text in tree.texts.items()
                   if path.startswith("sim/") and path.endswith(".c"))
    for name in named:
        if listed.count(name) != 1:
            yield listing, 1, f"lists the excuse {name} {listed.count(name)} times"
        if f"VB_EXCUSE_{name}" not in code:
            yield header, 1, f"nothing counts the excuse {name}"
    for name in sorted(set(listed) - set(named)):
        yield listing, 1, f"lists {name}, which is no excuse"


CHECKS = (check_lines, check_heads, check_functions, check_calls, check_waits, check_state, check_layers,
          check_dead, check_man, check_patches, check_excuses)


def findings(root, sources):
    tree = Tree(root, sources)
    return [finding for check in CHECKS for finding in check(tree)]


def main():
    if len(sys.argv) != 3:
        print("usage: tidy.py ROOT SOURCES", file=sys.stderr)
        return 2
    sources = Path(sys.argv[2]).read_text(encoding="utf-8").split()
    found = findings(sys.argv[1], sources)
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    print(f"tidy: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
