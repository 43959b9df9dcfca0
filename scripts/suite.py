#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""suite.py BUILD [CTEST-OPTION...]: runs every test of a build tree once, in eight places,
of which a test that computes takes four (tests/CMakeLists.txt).

Nothing is run a second time: a test that fails or times out makes the run fail, and so does a run of no
test or without a report. Afterwards it reads what the tests printed. With CI=true each skip is a failure, whichever framework reports it, unless
tests/skips.txt lists it with a reason. Tries that a test made (lines "TRIES: ...") are printed.

Random draws start from a seed that the commit's hash gives. VERBENA_SEED=N replays a run.
"""

import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.dont_write_bytecode = True
import judge  # pylint: disable=wrong-import-position

SEED_DIGITS = 7  # of the hash: the simulator's seeds have 32 bits, and many follow the first
DEFAULT_TIMEOUT_S = 120
OUTPUT_BYTES = 1 << 20  # kept of a test that passes

# What the frameworks print for a case that they skip.
SKIP_PATTERNS = (
    re.compile(r"^SKIPPED: (?P<case>.+)$"),  # ours
    re.compile(r"^\[  SKIPPED \] (?P<case>test_.+)$"),  # cmocka, of a way: "test_x (udp)"
    re.compile(r"^(?P<case>\w+) \([\w.]+\).* skipped (?P<why>['\"].*)$"),  # unittest, verbose
    re.compile(r"^OK \((?P<case>skipped=\d+)"),  # unittest, its last line
)


def commit():
    """The commit's hash, or None outside a repository."""
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def draw_seed():
    """The seed of this run and where it comes from."""
    given = os.environ.get("VERBENA_SEED")
    if given:
        return int(given, 0), "VERBENA_SEED"
    found = commit()
    if found:
        return int(found[:SEED_DIGITS], 16), f"commit {found[:12]}"
    return 1, "no commit"


def read_log(path):
    """Yields (test, lines of its output, whether CTest skipped it) from CTest's report."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        yield case.get("name"), output.splitlines(), case.find("skipped") is not None


def failures(path):
    """The tests that failed, by CTest's report, however they ended."""
    cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    return [case.get("name") for case in cases if case.find("failure") is not None]


def skips_of(lines, skipped):
    """The cases that a test's output reports as skipped."""
    cases = []
    for line in lines:
        for pattern in SKIP_PATTERNS:
            found = pattern.match(line)
            if found and found["case"] not in cases:
                cases.append(found["case"])
    if skipped and not cases:
        cases.append("the whole test")
    # What two lines say counts once: the count at the end, and cases that are told with a reason.
    named = [case for case in cases if not case.startswith("skipped=")] or cases
    return [case for case in named if not any(case != other and case in other for other in named)]


def is_listed(test, case, rows):
    return any(test == tests and (cases == judge.WHOLE or cases in case)
               for tests, cases in rows)


def read_results(log):
    """All skips and tries of a run: [(test, case)], [line]."""
    skips, tries = [], []
    for test, lines, skipped in read_log(log):
        skips += [(test, case) for case in skips_of(lines, skipped)]
        tries += [line for line in lines if line.startswith("TRIES: ")]
    return skips, tries


def report(skips, tries, rows, in_ci):
    """Prints skips and tries; returns the skips that are failures."""
    bad = []
    for test, case in skips:
        listed = is_listed(test, case, rows)
        print(f"skipped{'' if listed else ', not listed'}: {test}: {case}")
        if in_ci and not listed:
            bad.append(test)
    for line in tries:
        print(line)
    return bad


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.splitlines()[0])
    build = pathlib.Path(sys.argv[1]).resolve()
    rows = judge.listed(pathlib.Path(os.environ.get("VERBENA_SKIPS", judge.SKIPS)))
    seed, origin = draw_seed()
    in_ci = os.environ.get("CI", "").lower() == "true"
    replay = f"VERBENA_SEED={seed} make test"
    print(f"seed {seed} ({origin}); replay: {replay}", flush=True)

    log = build / "tests.xml"
    log.unlink(missing_ok=True)
    began = time.monotonic()
    done = subprocess.run(
        ["ctest", "--test-dir", build, "--output-on-failure", "--no-label-summary", "-j8",
         "--no-tests=error", "--timeout", str(DEFAULT_TIMEOUT_S), "--output-junit", log,
         "--test-output-size-passed", str(OUTPUT_BYTES), *sys.argv[2:]],
        env={**os.environ, "VERBENA_SEED": str(seed)}, check=False)
    took = time.monotonic() - began

    reported = log.exists()
    skips, tries = read_results(log) if reported else ([], [])
    print()
    bad = report(skips, tries, rows, in_ci)
    print(f"one try each, {took:.0f} s, {len(skips)} skipped, {len(tries)} tests with tries")
    if bad:
        print(f"failed: skipped without a reason in tests/skips.txt: {' '.join(bad)}")
    if not reported:
        print(f"failed: CTest wrote no report to {log}")
    if done.returncode or bad or not reported:
        print(f"replay: {replay}")
        sys.exit(1)


if __name__ == "__main__":
    main()
