#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""classes.py --build TREE: checks tests/unit_classes.cmake against the programs of a tree without
sanitizers: a pure test imports no thread, process or socket, a test of one thread imports no thread,
every name is a test, and each pure test is listed as such."""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
THREADS = {"pthread_create"}
OUTSIDE = {"socket", "socketpair", "bind", "fork", "vfork", "posix_spawn", "posix_spawnp"} | THREADS


def read_lists(text):
    """The lists of a file of CMake's that name tests: {list: names}."""
    text = re.sub(r"#.*", "", text)
    return {name: words.split() for name, words in re.findall(r"set\((\w+)\s+([^)$]*)\)", text)}


def imports(program):
    """The functions that a program takes from shared libraries."""
    done = subprocess.run(["nm", "-u", program], capture_output=True, text=True, check=True)
    names = {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}
    return names


def judge(lists, found):
    """Yields what is wrong. `found` has what each test imports."""
    for name, tests in lists.items():
        for test in tests:
            if test not in found:
                yield f"{name}: {test}: no such test"
    for test, names in found.items():
        outside = sorted(names & OUTSIDE)
        if test in lists["pure"] and outside:
            yield f"pure: {test} imports {outside[0]}()"
        if test in lists["one_thread"] and names & THREADS:
            yield f"one_thread: {test} imports pthread_create()"
        if test not in lists["pure"] and not outside:
            yield f"{test} imports no thread, process or socket: list it as pure"


def selftest():
    lists = {"pure": ["a"], "one_thread": ["b"]}
    assert not list(judge(lists, {"a": {"memcpy"}, "b": {"fork"}}))
    for found in ({"a": {"fork"}, "b": {"fork"}}, {"a": set(), "b": set()}, {"a": set()},
                  {"a": set(), "b": {"pthread_create"}}):
        assert list(judge(lists, found)), found
    assert read_lists("# set(x y)\nset(pure\n    a b\n    c)\n") == {"pure": ["a", "b", "c"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    tree = parser.parse_args().build
    selftest()
    lists = read_lists((ROOT / "tests/unit_classes.cmake").read_text())
    programs = [path for path in (tree / "tests").glob("test_*") if path.is_file()]
    wrong = list(judge(lists, {path.name.removeprefix("test_"): imports(path) for path in programs}))
    print("\n".join(wrong) or f"{len(programs)} programs, each in its class")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
