#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Listings in the documents are the examples, byte for byte, and the examples run."""

import glob
import os
import re
import subprocess
import unittest

import command
from command import main

ROOT = os.path.join(os.path.dirname(__file__), "../..")
LISTING = re.compile(r"`(examples/[^`]+\.c)`:\n\n```c\n(.*?)```", re.DOTALL)
# On addresses that no other test uses.
RUNS = {
    "chain_hello": (["127.90.1.1"], "hello\n"),
    "chain_loop": (["127.90.1.2"], "the NIC says 5050\n"),
    "chain_price": ([], "connectx5-b: a round takes 27.82 us\nnic-memory: a round takes 26.73 us\n"),
    "chain_service": (["127.90.1.5", "127.90.1.6"], "7 bytes: a value\n"),
    "chain_get": (["127.90.1.3", "127.90.1.4"], "key001: a value\nkey002: not there\n"),
}


class Listings(unittest.TestCase):
    def test_quotes_are_true(self):
        found = set()
        for document in glob.glob(os.path.join(ROOT, "docs/*.md")):
            with open(document, encoding="utf-8") as file:
                for path, text in LISTING.findall(file.read()):
                    found.add(os.path.basename(path)[:-2])
                    with open(os.path.join(ROOT, path), encoding="utf-8") as source:
                        self.assertEqual(source.read(), text, f"{document} quotes another {path}")
        self.assertEqual(found, set(RUNS))

    def test_examples_run(self):
        for name, (words, expected) in RUNS.items():
            with self.subTest(name):
                path = os.path.join(os.path.dirname(command.VERBENA), "examples", name)
                result = subprocess.run([path, *words], env=command.environment(), timeout=60,
                                        capture_output=True, text=True, check=False)
                self.assertEqual((result.returncode, result.stdout), (0, expected), result)


if __name__ == "__main__":
    main()
