#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Gets of a service whose application is killed: a short run of bench/crash.py."""

import json
import os
import subprocess
import unittest

import command

ROUNDS = 30


class Crash(unittest.TestCase):
    def bench(self, program, *words):
        path = os.path.join(os.path.dirname(command.VERBENA), "bench", program)
        return subprocess.run([path, *words], env=command.environment(), capture_output=True,
                              text=True, timeout=command.TIMEOUT_S, check=False)

    def test_no_answer_fails(self):
        build = os.path.dirname(command.VERBENA)
        script = os.path.join(os.path.dirname(__file__), "../../bench/crash.py")
        done = subprocess.run([script, "--build", build, "--rounds", str(ROUNDS)],
                              env=command.environment(), capture_output=True, text=True,
                              timeout=10 * command.TIMEOUT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(rows[-1]["wrong"], [])
        for row in rows[:2]:
            self.assertEqual((row["rounds"], row["died"]), (ROUNDS, 0))
            self.assertEqual((row["failed"], row["wrong"], row["unanswered"]), (0, 0, 0))
            self.assertGreater(row["gets"], 100)

    def test_wrong_words(self):
        for words in ([], ["--hull", "x", "--depth", "3"], ["--hull", "x", "--rounds", "0"]):
            done = self.bench("crash_get", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertEqual(self.bench("crash_app", "x").returncode, 2)

    def test_without_a_hull(self):
        done = self.bench("crash_app", "/nowhere/at/all", "check")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertIn("no hull", done.stderr)


if __name__ == "__main__":
    command.main()
