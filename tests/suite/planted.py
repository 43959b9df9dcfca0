#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs CI in a clone with five planted failures: it has to be red for each, and for nothing else.

A test that fails and would pass the second time, one that hangs, one that skips, a fuzzer that
crashes and a mutant that survives. suite_selftest.py and mutants_selftest.py plant the same in small
trees, in seconds; this is the whole of .ci/run, and takes as long.
"""

import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "sim/mutants")]
sys.dont_write_bytecode = True
import long  # pylint: disable=wrong-import-position
import mutants  # pylint: disable=wrong-import-position
import suite  # pylint: disable=wrong-import-position

WANTED = {"planted.flake", "planted.hang", "planted.skip", "fuzz.packet", "mutants.replay"}
TAIL_CHARS = 20000


def replace(path, old, new):
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"planted.py: '{old}' is {text.count(old)} times in {path}, not once")
    path.write_text(text.replace(old, new))
    return text


def plant(tree):
    with (tree / "tests/CMakeLists.txt").open("a") as tests:
        flake = "test -e planted || { touch planted; exit 1; }"
        tests.write(f"\nadd_test(NAME planted.flake COMMAND sh -c \"{flake}\")\n"
                    "add_test(NAME planted.hang COMMAND sleep 3600)\n"
                    "set_tests_properties(planted.hang PROPERTIES TIMEOUT 20)\n"
                    "add_test(NAME planted.skip COMMAND echo \"[  SKIPPED ] test_planted\")\n")

    fuzzer = tree / "fuzz/fuzz_packet.c"
    entry = re.search(r"int LLVMFuzzerTestOneInput\(.*\)\n\{\n", fuzzer.read_text())[0]
    replace(fuzzer, entry, entry + "    require(size < 16 || data[7] != 7);\n")

    # A change of nothing, among the patches that are said to be caught: a replay draws them all.
    source = tree / "src/cm/cm.c"
    head = re.search(r"int vb_cm_heard\(.*\)\n\{\n", source.read_text())[0]
    old = replace(source, head, head + "    (void)0;\n")
    diff = difflib.unified_diff(old.splitlines(True), source.read_text().splitlines(True),
                                "a/src/cm/cm.c", "b/src/cm/cm.c")
    source.write_text(old)
    (tree / "sim/mutants/cm/99-planted.patch").write_text("Changes nothing.\n\n" + "".join(diff))
    known = tree / "sim/mutants/caught.txt"
    lines = known.read_text().splitlines()
    patches = [line for line in lines if line.startswith("patch ")]
    drawn = [line for line in patches if mutants.is_quick(*mutants.replayable(line.split(), {}))]
    kept = [line for line in lines if line not in patches] + drawn[:mutants.REPLAYED - 1]
    known.write_text("\n".join(kept + ["patch cm 99-planted test_cm"]) + "\n")


def red(log):
    """The tests that make CI red, by CTest's report: failures, and skips without a reason."""
    rows = suite.judge.listed(suite.judge.SKIPS)
    skips, _ = suite.read_results(log)
    return set(suite.failures(log)) | {test for test, case in skips
                                       if not suite.is_listed(test, case, rows)}


def main():
    changed = long.uncommitted()
    if changed:
        sys.exit(f"planted.py: commit first, a clone has only what is committed: {' '.join(changed)}")
    with tempfile.TemporaryDirectory(prefix="verbena-planted.") as place:
        os.chmod(place, 0o755)  # tests without rights run the command in it
        tree = pathlib.Path(place) / "clone"
        subprocess.run(["git", "clone", "-q", ROOT, tree], check=True)
        plant(tree)
        done = subprocess.run([tree / ".ci/run"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False)
        log = tree / "build/tests.xml"
        found = red(log) if log.exists() else set()
    if found != WANTED or done.returncode == 0:
        print(done.stdout[-TAIL_CHARS:])
        sys.exit(f"planted.py: CI ends with {done.returncode}; green though planted: "
                 f"{sorted(WANTED - found)}; red besides: {sorted(found - WANTED)}")
    print(f"red for each of {len(WANTED)} planted failures, and for nothing else")


if __name__ == "__main__":
    main()
