# SPDX-License-Identifier: Apache-2.0
"""Runs the command under test and keeps what it said."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path[1:1] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), up)
                 for up in ("..", "../linux")]
import judge  # noqa: E402

VERBENA = os.path.join(os.path.dirname(__file__), "../../build/verbena")
TIMEOUT_S = 120
FULL = False  # --full: everything, as `make test-long` does


def environment(**variables):
    """The environment without any VERBENA_… but those given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VERBENA")}
    return {**kept, **variables}


def run(*words, **variables):
    return subprocess.run([VERBENA, *words], env=environment(**variables), capture_output=True,
                          text=True, timeout=TIMEOUT_S, check=False)


def start(*words, **variables):
    return subprocess.Popen([VERBENA, *words], env=environment(**variables),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def some(short, full):
    """What a test goes through: the short list, or with --full the long one."""
    return full if FULL else short


def wait_for(condition, what):
    """Returns what is true in the end; fails with `what` when time is up."""
    until = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        if time.monotonic() > until:
            raise AssertionError(what)
        time.sleep(0.01)
    return found


class WithFiles(unittest.TestCase):
    """Tests with a directory of their own."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def path(self, name, text=None):
        path = os.path.join(self.dir.name, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path


def main(**required):
    """Runs the tests of the program that calls it, on the command of the tree given by --build.
    What is required is as in judge.require()."""
    global VERBENA, FULL
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build")
    parser.add_argument("--full", action="store_true")
    own, rest = parser.parse_known_args()
    if own.build:
        VERBENA = os.path.join(os.path.abspath(own.build), "verbena")
    FULL = own.full
    judge.run_cases(rest, **required)
