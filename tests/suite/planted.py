#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs CI in a clone with five planted failures: it has to be red for each, and for nothing else.

A test that fails and would pass the second time, one that hangs, one that skips, a fuzzer that
crashes and a mutant that survives. suite_selftest.py and mutants_selftest.py plant the same in small
trees, in seconds; this is the whole of .ci/run, and takes as long.
"""

import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP_TEST = """// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_planted(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
"""
WANTED = {"planted.flake", "planted.hang", "unit.planted_skip", "asan.unit.planted_skip",
          "tsan.unit.planted_skip", "fuzz.packet", "mutants.replay"}


def replace(path, old, new):
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"planted.py: '{old}' is {text.count(old)} times in {path}, not once")
    path.write_text(text.replace(old, new))
    return text


def plant(tree):
    with (tree / "tests/CMakeLists.txt").open("a") as tests:
        flake = f"test -e {tree}/ran || {{ touch {tree}/ran; exit 1; }}"
        tests.write(f"\nadd_test(NAME planted.flake COMMAND sh -c \"{flake}\")\n"
                    "add_test(NAME planted.hang COMMAND sleep 3600)\n")
    (tree / "tests/unit/test_planted_skip.c").write_text(SKIP_TEST)

    fuzzer = tree / "fuzz/fuzz_packet.c"
    entry = re.search(r"int LLVMFuzzerTestOneInput\(.*\)\n\{\n", fuzzer.read_text())[0]
    replace(fuzzer, entry, entry + "    require(size < 16 || data[7] != 7);\n")

    # A change of nothing, among the four patches that are said to be caught.
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
    kept = [line for line in lines if line not in patches] + patches[:3]
    known.write_text("\n".join(kept + ["patch cm 99-planted test_cm"]) + "\n")


def main():
    with tempfile.TemporaryDirectory(prefix="verbena-planted.") as place:
        tree = pathlib.Path(place) / "clone"
        subprocess.run(["git", "clone", "-q", ROOT, tree], check=True)
        plant(tree)
        done = subprocess.run([tree / ".ci/run"], capture_output=True, text=True, check=False)
    failed = set(re.findall(r"^\s*\d+ - (\S+) \(\w+\)", done.stdout, re.M))
    skipped = re.search(r"^failed: skipped without a reason in tests/skips.txt: (.*)", done.stdout,
                        re.M)
    failed |= set(skipped[1].split()) if skipped else set()
    if failed != WANTED or done.returncode == 0:
        print(done.stdout[-20000:], done.stderr[-5000:])
        sys.exit(f"planted.py: CI ends with {done.returncode}; green though planted: "
                 f"{sorted(WANTED - failed)}; red besides: {sorted(failed - WANTED)}")
    print(f"red for each of {len(WANTED)} tests with a planted failure, and for no other")


if __name__ == "__main__":
    main()
