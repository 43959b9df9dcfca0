#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The judge of system tests itself: what fails, hangs or skips is seen, and tries are counted."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys

import command

JUDGE = pathlib.Path(__file__).resolve().parent.parent / "judge.py"
HEAD = """
import os, sys, unittest
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import judge
"""
CASES = HEAD + """
class Some(unittest.TestCase):
    def test_good(self):
        pass

    @unittest.skipUnless({here}, "no ship here")
    def test_ship(self):
        pass

    def test_sub(self):
        for number in (1, 2):
            with self.subTest(number):
                {body}

judge.run_cases([])
"""


class Judge(command.WithFiles):
    def judged(self, text, skips="", ci="true"):
        """Exit status and output of a test program, whose name is area.sample."""
        area = os.path.join(self.dir.name, "area")
        os.makedirs(area, exist_ok=True)
        shutil.copy(JUDGE, self.dir.name)
        self.path("skips.txt", skips)
        program = self.path("area/sample_test.py", text)
        done = subprocess.run([sys.executable, program], env=command.environment(CI=ci),
                              capture_output=True, text=True, timeout=command.TIMEOUT_S, check=False)
        return done.returncode, done.stdout + done.stderr

    def whole(self, body, **more):
        return self.judged(f"{HEAD}\ndef test():\n    {body}\njudge.run(test)\n", **more)

    def cases(self, here=True, body="pass", **more):
        return self.judged(CASES.format(here=here, body=body), **more)

    def test_outcomes(self):
        self.assertEqual(self.whole("pass"), (0, ""))
        status, said = self.whole("raise judge.Failure('it sank')")
        self.assertEqual((status, said), (1, "area.sample: FAILED: it sank\n"))
        self.assertEqual(self.whole("raise ValueError")[0], 1)
        self.assertEqual(self.cases()[0], 0)
        self.assertEqual(self.cases(body="self.fail()")[0], 1)

    def test_whole_test_skipped(self):
        body = "judge.require(tools=('no-such-tool',))"
        line = "SKIPPED: area.sample: *: missing: no-such-tool\n"
        self.assertEqual(self.whole(body, ci=""), (77, line))
        status, said = self.whole(body)
        self.assertEqual(status, 1)
        self.assertIn(line, said)
        for skips in ("area.sample  *  no tool\n", "# all\n\narea.sample * no tool\n"):
            self.assertEqual(self.whole(body, skips=skips), (77, line))
        for skips in ("area.other  *  no tool\n", "area.sample  some_case  no tool\n"):
            self.assertEqual(self.whole(body, skips=skips)[0], 1, skips)

    def test_case_skipped(self):
        line = "SKIPPED: area.sample: Some.test_ship: no ship here\n"
        status, said = self.cases(here=False, ci="")
        self.assertEqual(status, 0)
        self.assertIn(line, said)
        status, said = self.cases(here=False)
        self.assertEqual(status, 1)
        self.assertIn(line, said)
        self.assertEqual(self.cases(here=False, skips="area.sample Some.test_ship no ship\n")[0], 0)
        self.assertEqual(self.cases(here=False, skips="area.sample Some.test_good no\n")[0], 1)

    def test_part_of_a_case_skipped(self):
        for body in ("self.skipTest('no')", "raise judge.Skip('no')"):
            status, said = self.cases(body=body)
            self.assertEqual(status, 1, body)
            self.assertIn("SKIPPED: area.sample: Some.test_sub: no\n", said)
            self.assertEqual(self.cases(body=body, skips="area.sample Some.test_sub no\n")[0], 0)

    def test_reason_missing_in_the_list(self):
        status, said = self.cases(here=False, skips="area.sample Some.test_ship\n")
        self.assertEqual(status, 1)
        self.assertIn("skips.txt:1: TEST CASE-or-* reason", said)

    def test_tries_are_printed(self):
        body = "judge.tried('a race'), judge.tried('another'), judge.tried('a race')"
        self.assertEqual(self.whole(body), (0, "TRIES: area.sample: a race: 2\n"
                                               "TRIES: area.sample: another: 1\n"))

    def test_network_of_its_own(self):
        look = "import socket; print(socket.if_nameindex())"
        status, said = self.whole(look)
        self.assertEqual(status, 0)
        if os.geteuid() == 0:
            self.assertEqual(sorted(n for _, n in ast.literal_eval(said)), ["eth0", "lo", "wire0"])


if __name__ == "__main__":
    command.main()
