#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants failures in a small tree of tests: scripts/suite.py has to turn red for each of them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import suite  # pylint: disable=wrong-import-position

RUNNER = ROOT / "scripts/suite.py"
FUZZ = ROOT / "scripts/fuzz.sh"


class Suite(unittest.TestCase):
    """One tree of tests, and a list of skips."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.tree = pathlib.Path(self.dir.name)
        self.skips = self.tree / "skips.txt"
        self.skips.write_text("# none\n")
        self.tests = []

    def plant(self, name, script, **properties):
        """Adds a test that runs a line of shell."""
        path = self.tree / f"{name}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        self.tests.append(f'add_test({name} "{path}")')
        for key, value in properties.items():
            self.tests.append(f"set_tests_properties({name} PROPERTIES {key} {value})")

    def run_suite(self, in_ci=True, **env):
        (self.tree / "CTestTestfile.cmake").write_text("\n".join(self.tests) + "\n")
        env = {**os.environ, "CI": "true" if in_ci else "", "VERBENA_SKIPS": str(self.skips), **env}
        return subprocess.run([RUNNER, self.tree], capture_output=True, text=True, check=False,
                              env=env)

    def test_passes(self):
        self.plant("good", "exit 0")
        done = self.run_suite()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("one try each", done.stdout)

    def test_failure_is_not_run_again(self):
        # The second run would pass: a runner that tries again is green.
        self.plant("flaky", f"[ -e {self.tree}/ran ] && exit 0; touch {self.tree}/ran; exit 1")
        done = self.run_suite()
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("***Failed", done.stdout)

    def test_hang_is_a_failure(self):
        self.plant("hang", "exec sleep 60", TIMEOUT=1)
        done = self.run_suite()
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("***Timeout", done.stdout)

    def test_crash_is_a_failure(self):
        self.plant("crash", "kill -SEGV $$")
        self.assertEqual(self.run_suite().returncode, 1)

    def test_no_test_is_a_failure(self):
        done = self.run_suite()
        self.assertEqual(done.returncode, 1, done.stdout)

    def test_missing_report_is_a_failure(self):
        # A ctest that ends with 0 and has run nothing.
        fake = self.tree / "bin/ctest"
        fake.parent.mkdir()
        fake.write_text("#!/bin/sh\nexit 0\n")
        fake.chmod(0o755)
        done = self.run_suite(PATH=f"{fake.parent}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("CTest wrote no report", done.stdout)

    def test_failures_are_read_from_the_report(self):
        self.plant("good", "exit 0")
        self.plant("bad", "exit 1")
        self.plant("hang", "exec sleep 60", TIMEOUT=1)
        self.plant("crash", "kill -ABRT $$")
        self.run_suite()
        self.assertEqual(set(suite.failures(self.tree / "tests.xml")), {"bad", "hang", "crash"})

    SKIPS = {
        "status": ("exit 77", {"SKIP_RETURN_CODE": 77}),
        "ours": ("echo 'SKIPPED: test_it: case: needs root'", {}),
        "cmocka": ("echo '[  SKIPPED ] test_it'", {}),
        "cmocka_way": ("echo '[  SKIPPED ] test_it (udp)'", {}),
        "unittest": ("echo 'OK (skipped=1)' >&2", {}),
        "unittest_verbose": ("echo \"test_it (__main__.Case.test_it) ... skipped 'needs root'\"", {}),
    }

    def test_skip_is_a_failure_in_ci(self):
        for name, (script, properties) in self.SKIPS.items():
            with self.subTest(name):
                self.tests = []
                self.plant(name, script, **properties)
                done = self.run_suite()
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn("skipped, not listed", done.stdout)
                self.assertEqual(self.run_suite(in_ci=False).returncode, 0)

    def test_listed_skip_passes_and_is_printed(self):
        for name, (script, properties) in self.SKIPS.items():
            with self.subTest(name):
                self.tests = []
                self.skips.write_text(f"{name}  *  needs root\n")
                self.plant(name, script, **properties)
                done = self.run_suite()
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertIn(f"skipped: {name}", done.stdout)

    def test_skip_that_is_told_twice_counts_once(self):
        self.skips.write_text("one  Case.test_it  needs root\n")
        self.plant("one", "echo 'test_it (__main__.Case.test_it) ... skipped \"needs root\"'\n"
                   "echo 'SKIPPED: one: Case.test_it: needs root'\necho 'OK (skipped=1)'")
        done = self.run_suite()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("1 skipped", done.stdout)

    def test_listed_skip_of_another_case_is_a_failure(self):
        self.skips.write_text("one  other_case  needs root\n")
        self.plant("one", "echo 'SKIPPED: test_it: case: needs root'")
        self.assertEqual(self.run_suite().returncode, 1)

    def test_row_without_a_reason_is_refused(self):
        self.skips.write_text("one  *\n")
        self.plant("one", "exit 0")
        done = self.run_suite()
        self.assertEqual(done.returncode, 1)
        self.assertIn("TEST CASE-or-* reason, not", done.stderr)

    def test_tries_are_printed(self):
        self.plant("one", "echo 'TRIES: one: the server did not listen yet: 2'")
        self.assertIn("TRIES: one: the server", self.run_suite().stdout)

    def test_seed_reaches_the_tests_and_replays(self):
        self.plant("one", '[ "$VERBENA_SEED" = 1234 ]')
        done = self.run_suite(VERBENA_SEED="1234")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("replay: VERBENA_SEED=1234 make test", done.stdout)
        self.assertEqual(self.run_suite(VERBENA_SEED="1235").returncode, 1)

    def test_fuzzer_that_crashes_is_a_failure(self):
        fuzzer = self.tree / "fuzz/fuzz_planted"
        fuzzer.parent.mkdir()
        for status, wanted in ((0, 0), (77, 1)):  # libFuzzer's status for a crash
            fuzzer.write_text(f"#!/bin/sh\nexit {status}\n")
            fuzzer.chmod(0o755)
            self.tests = []
            self.plant("fuzz", f"{FUZZ} {self.tree} 1 fuzz_planted")
            done = self.run_suite()
            self.assertEqual(done.returncode, wanted, done.stdout)


if __name__ == "__main__":
    unittest.main()
