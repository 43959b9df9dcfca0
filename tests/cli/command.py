# SPDX-License-Identifier: Apache-2.0
"""Runs the command under test and keeps what it said."""

import argparse
import os
import subprocess
import tempfile
import unittest

VERBENA = os.path.join(os.path.dirname(__file__), "../../build/verbena")
TIMEOUT_S = 120


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


def main():
    """Runs the tests of the program that calls it, on the command of the tree given by --build."""
    global VERBENA
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build")
    own, rest = parser.parse_known_args()
    if own.build:
        VERBENA = os.path.join(own.build, "verbena")
    unittest.main(module="__main__", argv=["tests", *rest], verbosity=2)
