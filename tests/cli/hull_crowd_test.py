#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Applications that attach to a hull, work and leave: a small run of bench/hull_crowd."""

import json
import os
import subprocess
import unittest

import command

APPLICATIONS = 50


class Crowd(command.WithFiles):
    def crowd(self, *words):
        program = os.path.join(os.path.dirname(command.VERBENA), "bench/hull_crowd")
        os.chmod(self.dir.name, 0o700)
        return subprocess.run([program, *words],
                              env=command.environment(VERBENA_RUNTIME_DIR=self.dir.name),
                              capture_output=True, text=True, timeout=command.TIMEOUT_S,
                              check=False)

    def test_they_come_and_go(self):
        result = self.crowd("--applications", str(APPLICATIONS))
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        row = json.loads(result.stdout)
        self.assertEqual((row["applications"], row["failed"]), (APPLICATIONS, 0))
        self.assertEqual((row["descriptors_left"], row["mappings_left"]), (0, 0))
        self.assertEqual(row["descriptors_each"], 2)  # its socket, and that of its events
        self.assertLessEqual(row["mappings_each"], 8)
        self.assertLess(row["hull_rss_kb_each"], 200)

    def test_who_stays_is_noticed(self):
        result = self.crowd("--applications", "3", "--rounds", "1", "--leak")
        self.assertEqual(result.returncode, 1, result)
        self.assertGreater(json.loads(result.stdout)["descriptors_left"], 0)

    def test_wrong_words(self):
        for words in (["--applications", "0"], ["--writes", "x"], ["fly"], ["--port"]):
            result = self.crowd(*words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result)


if __name__ == "__main__":
    command.main()
