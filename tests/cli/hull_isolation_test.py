#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A tenant of a hull beside hostile ones: a small run of bench/hull_isolation.

Its figures need a machine that does nothing else; here only what must hold anywhere is looked at.
"""

import json
import os
import subprocess

import command


class Isolation(command.WithFiles):
    def bench(self, *words):
        program = os.path.join(os.path.dirname(command.VERBENA), "bench/hull_isolation")
        os.chmod(self.dir.name, 0o700)
        return subprocess.run([program, *words],
                              env=command.environment(VERBENA_RUNTIME_DIR=self.dir.name),
                              capture_output=True, text=True, timeout=command.TIMEOUT_S,
                              check=False)

    def measured(self, *words):
        result = self.bench("--rounds", "1", "--ms", "30", "--json", *words)
        self.assertIn(result.returncode, (0, 1), result)  # other programs may be running
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def test_all_companies_are_measured(self):
        for port in ("udp", "auto"):
            with self.subTest(port):
                seen = self.measured("--port", port)
                for company in ("alone", "busy", "hostile"):
                    times = seen[company]
                    self.assertGreater(times["reads"], 0)
                    for span in ("service", "whole"):
                        p50, p99, p999 = (times[f"{span}_{q}_ns"]["median"]
                                          for q in ("p50", "p99", "p999"))
                        self.assertTrue(0 < p50 <= p99 <= p999, times)
                for deed in ("chain_counts", "flood_writes", "fuzz_strokes"):
                    self.assertGreater(seen[deed], 0)

    def test_one_tenant_is_measured_too(self):
        self.assertTrue(self.measured("--together")["together"])

    def test_wrong_words(self):
        for words in (["--rounds", "0"], ["--ms", "x"], ["--weight", "1001"], ["--port", "fly"],
                      ["--what"], ["this"]):
            result = self.bench(*words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result)
            self.assertNotEqual(result.stderr, "")


if __name__ == "__main__":
    command.main()
