#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Hash gets by a server whose thread sleeps: a short run of bench/soak_get."""

import json
import os
import subprocess
import unittest

import command


class SoakGet(unittest.TestCase):
    def soak(self, *words):
        program = os.path.join(os.path.dirname(command.VERBENA), "bench/soak_get")
        return subprocess.run([program, *words], env=command.environment(), capture_output=True,
                              text=True, timeout=command.TIMEOUT_S, check=False)

    def test_the_servers_thread_sleeps(self):
        for port in ("shm", "udp"):
            with self.subTest(port):
                result = self.soak("--port", port, "--gets", "20000", "--depth", "32")
                self.assertEqual((result.returncode, result.stderr), (0, ""), result)
                row = json.loads(result.stdout)
                self.assertEqual(row["gets"], 20000)
                self.assertEqual(row["hits"], 17500)
                self.assertEqual((row["wrong"], row["server_thread_ns"]), (0, 0))

    def test_a_thread_that_runs_is_noticed(self):
        result = self.soak("--gets", "20000", "--awake")
        self.assertEqual(result.returncode, 1, result)
        self.assertGreater(json.loads(result.stdout)["server_thread_slices"], 0)

    def test_wrong_words(self):
        for words in (["--depth", "3"], ["--gets", "0"], ["fly"], ["--port"]):
            result = self.soak(*words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result)


if __name__ == "__main__":
    command.main()
