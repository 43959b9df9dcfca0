#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A tenant of a hull beside hostile ones: a small run of bench/hull_isolation.

Its times need a machine that does nothing else. What is judged here is the work of other tenants
that the unit does before a READ's request leaves and before its answer is completed, in units, which
other programs do not change. Tenants in one share break that promise, so the test can tell.
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

    def measured(self, status, *words):
        result = self.bench("--rounds", "1", "--ms", "30", "--json", *words)
        self.assertEqual((result.returncode, result.stderr), (status, ""), result)
        return json.loads(result.stdout)

    def test_the_promise_is_kept(self):
        for port in ("udp", "auto"):
            with self.subTest(port):
                seen = self.measured(0, "--port", port)
                self.assertTrue(seen["kept"])
                for company in ("quiet", "hostile"):
                    self.assertGreaterEqual(seen[company]["judged"], 16)
                    for part, most in seen["limit"].items():
                        self.assertLessEqual(seen[company][part], most, (company, part))
                    self.assertGreater(seen[company]["request_units"], 0)
                for company in ("alone", "quiet", "hostile"):
                    times = seen[company]
                    self.assertGreater(times["reads"], 0)
                    for span in ("service", "whole"):
                        p50, p99, p999 = (times[f"{span}_{q}_ns"]["median"]
                                          for q in ("p50", "p99", "p999"))
                        self.assertTrue(0 < p50 <= p99 <= p999, times)
                for deed in ("chain_counts", "flood_writes", "fuzz_strokes", "flood_reads"):
                    self.assertGreater(seen[deed], 0)

    def test_one_share_for_all_breaks_it(self):
        seen = self.measured(1, "--together")
        self.assertTrue(seen["together"])
        self.assertFalse(seen["kept"])
        self.assertTrue(any(seen["hostile"][part] > most for part, most in seen["limit"].items()),
                        seen)

    def test_wrong_words(self):
        for words in (["--rounds", "0"], ["--ms", "x"], ["--weight", "1001"], ["--port", "fly"],
                      ["--what"], ["this"]):
            result = self.bench(*words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result)
            self.assertNotEqual(result.stderr, "")


if __name__ == "__main__":
    command.main()
